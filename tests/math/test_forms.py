"""What every op says of itself is so: its form at each cell is `apply`, its signature the shapes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from attention_cases import cases
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from registry_strategies import examples

import attnctl
from attnctl.math import ops
from attnctl.math.arithmetic import code, evaluate, numbers
from attnctl.math.filling import filler, form_of
from attnctl.math.ops import OPS, Given, Op

NAMES = {name: getattr(math, name) for name in ("exp", "log", "sqrt", "tanh", "cos", "sin")}
NAMES |= {"Infinity": math.inf, "NaN": math.nan, "__builtins__": {}}

COMPUTED = [kind for kind in OPS.values() if kind.apply is not Op.apply]


def says_what_it_makes(op, inputs, result):
    """Hold the form of an op to its result at every cell, and every number to where it says it was read."""
    assert op.shape(*(x.shape for x in inputs)) == result.shape
    expr_of = filler(form_of(op, result.ndim, inputs), inputs)
    for cell in np.ndindex(result.shape):
        expr, expected = expr_of(cell), float(result[cell])
        found, slack = evaluate(expr, 2.0**-52)
        written = float(eval(code(expr), NAMES))
        assert found == written or (math.isnan(found) and math.isnan(written))
        same = found == expected or (math.isnan(found) and math.isnan(expected))
        assert same or abs(found - expected) <= slack < math.inf, (cell, code(expr), expected)
        for number in numbers(expr):
            if number.source:
                source = inputs[number.source.position]
                assert len(number.source.cell) == source.ndim
                assert float(source[number.source.cell]) == number.value


@pytest.mark.parametrize("kind", COMPUTED, ids=lambda kind: kind.__name__)
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_an_op_says_what_it_makes(kind, data):
    says_what_it_makes(*data.draw(examples(kind)))


@settings(max_examples=80, deadline=None)
@given(case=cases())
def test_every_cell_of_every_step(case):
    trace = attnctl.attend(case.arrays, **case.options)
    for name, step in trace.steps.items():
        if not isinstance(step.op, Given):
            says_what_it_makes(step.op, [trace[each] for each in step.inputs], trace[name])


# --- the law can fail ---


class OffByOnePercent(ops.MatMulT):
    """Every product is one percent more than it is."""

    def form(self, cell, q, k):
        return super().form(cell, q, k) * 1.01


class ReadsAnotherRow(ops.MatMulT):
    """The first key is multiplied by every query."""

    def form(self, cell, q, k):
        return super().form((*cell[:-1], 0), q, k)


class OfAnotherShape(ops.MatMulT):
    """Queries and keys are mixed up."""

    signature = "... query d, ... key d -> ... key query"


class SaysNothing(Op):
    """No one knows what it takes."""

    def apply(self, x):
        return x


LIES = {
    OffByOnePercent: AssertionError,
    ReadsAnotherRow: AssertionError,
    OfAnotherShape: AssertionError,
    SaysNothing: NotImplementedError,
}


@pytest.mark.parametrize("kind", LIES, ids=lambda kind: kind.__name__)
def test_a_lie_about_an_op_is_found(kind):
    @settings(phases=[Phase.generate])
    @given(example=examples(kind))
    def law(example):
        says_what_it_makes(*example)

    with pytest.raises(LIES[kind]):
        law()
