"""The arithmetic of every op as data: filled in, it is what the op says of every cell."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from attnctl import ops
from attnctl.arithmetic import Number
from attnctl.ops.base import Op, read
from attnctl.report.forms import Learner, filled, fits_inputs, form_of, same
from attnctl.rules import RULES
from attnctl.store.codec import registry

DRAW = np.random.RandomState(1)


def drawn(*shape):
    return DRAW.standard_normal(shape)


def causal(array):
    """Scores of which the future is hidden."""
    hidden = np.triu(np.ones(array.shape[-2:], bool), 1)
    return np.where(hidden, -np.inf, array)


SCORES = drawn(2, 5, 5)
NOTHING_SEEN = causal(drawn(2, 5, 5))
NOTHING_SEEN[1, 2] = -np.inf

CASES = {
    "Add": (ops.Add(), (drawn(3, 4), drawn(4))),
    "AddScaled": (ops.AddScaled(0.5), (drawn(3, 4), drawn(3, 4))),
    "Append": (ops.Append(), (drawn(2, 1, 3), drawn(2, 4, 3))),
    "Append to nothing": (ops.Append(), (drawn(2, 0, 3), drawn(2, 4, 3))),
    "Beside": (ops.Beside(), (drawn(2, 3, 4), drawn(3, 2))),
    "Buckets": (ops.Buckets(furthest=4), (SCORES, drawn(2, 6))),
    "Buckets of a batch": (ops.Buckets(offset=(0, 2)), (drawn(2, 3, 4, 5), drawn(3, 8))),
    "Copy": (ops.Copy(), (drawn(2, 3),)),
    "Gate": (ops.Gate(), (drawn(3, 4), drawn(3, 4))),
    "Hide": (ops.Hide(rules=(RULES["causal"](),)), (SCORES,)),
    "Hide by a mask": (ops.Hide(), (SCORES, DRAW.random_sample((2, 5, 5)) < 0.5)),
    "Hide in a batch": (ops.Hide(offset=(0, 2), rules=(RULES["causal"](),)), (drawn(2, 3, 4, 6),)),
    "LayerNorm": (ops.LayerNorm(1e-5), (drawn(3, 6), drawn(6), drawn(6))),
    "LayerNorm alone": (ops.LayerNorm(1e-5), (drawn(3, 6),)),
    "MatMul": (ops.MatMul(), (drawn(2, 3, 4), drawn(2, 4, 5))),
    "MatMul and bias": (ops.MatMul(), (drawn(3, 4), drawn(4, 5), drawn(5))),
    "MatMulT": (ops.MatMulT(), (drawn(2, 3, 4), drawn(2, 5, 4))),
    "Merge": (ops.Merge(), (drawn(3, 4, 2),)),
    "Merge of a batch": (ops.Merge(), (drawn(2, 3, 4, 2),)),
    "Project": (ops.Project(), (drawn(3, 4), drawn(2, 4, 5), drawn(2, 5))),
    "Project a batch": (ops.Project(), (drawn(2, 3, 4), drawn(2, 4, 5))),
    "RMSNorm": (ops.RMSNorm(1e-6), (drawn(3, 6), drawn(6))),
    "RMSNorm of heads": (ops.RMSNorm(1e-6, heads=True, plus_one=True), (drawn(2, 3, 4), drawn(2, 4))),
    "Remainder": (ops.Remainder(), (drawn(2, 3, 4),)),
    "Repeat": (ops.Repeat(3), (drawn(2, 3, 4),)),
    "Rotate": (ops.Rotate(), (drawn(2, 5, 4),)),
    "Rotate by neighbours": (ops.Rotate(interleaved=True, dims=4, factor=0.5), (drawn(2, 5, 6),)),
    "Rotate the last columns": (ops.Rotate(first=2, frequencies=(1.0, 0.1)), (drawn(2, 5, 6),)),
    "Rotate a batch": (ops.Rotate(start=(0, 3)), (drawn(2, 2, 3, 4),)),
    "Scale": (ops.Scale(4), (SCORES,)),
    "Scale by a factor": (ops.Scale(factor=0.3), (SCORES,)),
    "SinkSoftmax": (ops.SinkSoftmax(), (causal(SCORES), drawn(2))),
    "Sinusoid": (ops.Sinusoid(5, 6, start=2), ()),
    "Slope": (ops.Slope(), (drawn(8, 5, 5),)),
    "Slope from a cache": (ops.Slope(offset=3), (drawn(3, 2, 5),)),
    "Softmax": (ops.Softmax(), (SCORES,)),
    "Softmax of what is seen": (ops.Softmax(), (causal(SCORES),)),
    "Softmax of nothing": (ops.Softmax(), (NOTHING_SEEN,)),
    "Squeeze": (ops.Squeeze(30.0), (SCORES,)),
}
NO_ARITHMETIC = {"Given", "Unstated"}


def hidden_of(op, inputs):
    return op.hidden_by(inputs[0].shape, *inputs[1:]) + 1 if isinstance(op, ops.Hide) else None


@pytest.mark.parametrize("name", CASES)
def test_a_form_says_of_every_cell_what_the_op_says(name):
    op, inputs = CASES[name]
    shape, hidden = op.apply(*inputs).shape, hidden_of(op, inputs)
    form = form_of(op, shape, inputs, hidden)
    assert form is not None
    for cell in product(*map(range, shape)):
        assert same(filled(form, cell, inputs, hidden), op.terms(cell, *inputs)), cell


def test_every_op_has_a_case():
    assert {type(op).__name__ for op, _ in CASES.values()} == set(registry()) - NO_ARITHMETIC


def test_a_form_is_no_copy_of_each_cell():
    """Softmax over many keys has one form, whatever is hidden."""
    scores = causal(drawn(3, 20, 20))
    form = form_of(ops.Softmax(), scores.shape, (scores,))
    assert form.by == []
    assert form.tables == []


def test_the_numbers_of_another_layer_fit_the_form_and_those_of_another_op_do_not():
    scores = drawn(2, 5, 5)
    form = form_of(ops.Scale(4), scores.shape, (scores,))
    assert fits_inputs(form, ops.Scale(4), scores.shape, (drawn(2, 5, 5),))
    assert not fits_inputs(form, ops.Scale(9), scores.shape, (scores,))
    assert not fits_inputs(form, ops.Copy(), scores.shape, (scores,))


@dataclass(frozen=True)
class Wild(Op):
    """An op whose arithmetic follows no rule of its cell."""

    def terms(self, cell, *inputs):
        place = hash((*cell, "wild")) % inputs[0].size
        return read(inputs[0], 0, (place,)) if place % 3 else Number(float(place))


def test_what_follows_no_rule_has_no_form():
    assert form_of(Wild(), (300, 300), (drawn(90),)) is None


def test_nothing_has_no_form():
    assert form_of(ops.Copy(), (0, 3), (drawn(0, 3),)) is None


def test_a_form_that_says_otherwise_is_found_out():
    """A form of seen scores alone is refused where scores are hidden."""
    seen = drawn(1, 6, 6)
    form = Learner(ops.Softmax(), seen.shape, (seen,), None).form(seen=False)
    assert fits_inputs(form, ops.Softmax(), seen.shape, (seen,))
    assert not fits_inputs(form, ops.Softmax(), seen.shape, (causal(seen),))
