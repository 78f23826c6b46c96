"""How far off rounding puts a number: never farther than is said, and not much less far."""

import numpy as np
import planted as own
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl import ops
from attnctl.rules import Causal
from attnctl.verbs.check import precision, rounding, wrong
from attnctl.verbs.check.precision import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, of_run, on_grid
from attnctl.verbs.check.rounding import ANYTHING, Known, bound, carried, free

SCORES, ROWS = (2, 5, 5), (2, 5, 4)
HIDE = ops.Hide(rules=(Causal(),))

RULES = {
    ops.Add(): (SCORES, SCORES),
    ops.Append(): (ROWS, ROWS),
    ops.Copy(): (SCORES,),
    HIDE: (SCORES,),
    ops.MatMul(): (SCORES, ROWS),
    ops.MatMulT(): (ROWS, ROWS),
    ops.Merge(): (ROWS,),
    ops.Project(): ((5, 4), (2, 4, 3), (2, 3)),
    ops.Repeat(2): (ROWS,),
    ops.Rotate(): (ROWS,),
    ops.Rotate(500.0, 2, interleaved=True, start=3): (ROWS,),
    ops.Scale(7): (SCORES,),
    ops.Scale(factor=0.3): (SCORES,),
    ops.Sinusoid(5, 4): (),
    ops.Slope(): (SCORES,),
    ops.Softmax(): (SCORES,),
    ops.Squeeze(2.0): (SCORES,),
    wrong.SoftmaxOver(-2): (SCORES,),
    wrong.SoftmaxThenHide(HIDE): (SCORES,),
    wrong.Filled(rules=(Causal(),), fill=-1e4, added=True): (SCORES,),
    wrong.Then(ops.MatMulT(), ops.Scale(7)): (ROWS, ROWS),
    wrong.Arranged(ops.Copy(), after=wrong.merge_interleaved): (ROWS,),
}
"""Every op that rounds or moves numbers, with the shapes of its inputs."""

DTYPES = {"float32": FLOAT32, "float16": FLOAT16}


def test_every_op_has_a_rule():
    known = {type(op) for op in RULES} | {ops.Given, ops.Unstated}
    ours = {each for each in vars(ops).values() if isinstance(each, type) and issubclass(each, ops.Op)}
    bases = {base for each in ours for base in each.__mro__[1:]}
    assert ours - bases <= known
    assert all(bound.dispatch(type(op)) is not bound.dispatch(object) for op in RULES)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", RULES, ids=lambda value: repr(value).split(" at 0x")[0])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([0.01, 1.0, 30.0]))
def test_rounding_stays_within_the_error_that_is_said(op, dtype, seed, size):
    rng = np.random.default_rng(seed)
    inputs = [(rng.standard_normal(shape) * size).astype(dtype) for shape in RULES[op]]
    exact = [Known(x.astype(np.float64), np.zeros(x.shape)) for x in inputs]
    unit = DTYPES[dtype].unit
    right = carried(op, exact, unit)
    with np.errstate(all="ignore"):
        rounded = op.apply(*inputs).astype(dtype).astype(np.float64)
        off = np.abs(rounded - right.value)
    allowed = right.error + unit * np.abs(right.value) + DTYPES[dtype].smallest
    fine = (off <= allowed) | (rounded == right.value)
    assert fine.all()
    scale = np.abs(right.value[np.isfinite(right.value)]).max(initial=0) + size**2 + 1
    assert right.error.max() < 200 * unit * scale  # an error that allows anything says nothing


@pytest.mark.parametrize("op", RULES, ids=lambda value: repr(value).split(" at 0x")[0])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_errors_of_inputs_are_carried_through(op, seed):
    rng = np.random.default_rng(seed)
    values = [rng.standard_normal(shape) for shape in RULES[op]]
    errors = [1e-6 * rng.random(x.shape) for x in values]
    moved = [x + e * rng.choice([-1, 1], x.shape) for x, e in zip(values, errors, strict=True)]
    known = carried(op, [Known(x, e) for x, e in zip(values, errors, strict=True)], FLOAT64.unit)
    with np.errstate(all="ignore"):
        gap = np.abs(op.apply(*moved) - known.value)
    assert np.all((gap <= 1.01 * known.error + 1e-15) | np.isneginf(known.value))


def test_an_op_without_a_rule_is_tried_out():
    class Cubed(ops.Op):
        def apply(self, *inputs):
            return inputs[0] ** 3

    x = Known(np.array([1.0, -2.0, 0.5]), np.array([1e-6, 1e-6, 0.0]))
    error = carried(Cubed(), [x], FLOAT64.unit).error
    assert (error[:2] >= 3 * x.value[:2] ** 2 * 1e-6).all()
    assert (error < 1e-4).all()
    assert error[2] < 1e-14


def test_what_could_be_anything_stays_so_through_sums():
    weights = Known(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[ANYTHING, ANYTHING], [0.0, 0.0]]))
    v = Known(np.array([[1.0, 1e-3], [2.0, 3.0]]), np.zeros((2, 2)))
    error = carried(ops.MatMul(), [weights, v], FLOAT64.unit).error
    assert free(error).tolist() == [[True, True], [False, False]]


BFLOATS = own.bfloat16(np.random.default_rng(0).standard_normal((4, 5)))


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.random.default_rng(0).standard_normal(20), FLOAT64),
        (np.random.default_rng(0).standard_normal(20).astype(np.float32), FLOAT32),
        (np.random.default_rng(0).standard_normal(20).astype(np.float32).astype(float), FLOAT32),
        (np.random.default_rng(0).standard_normal(20).astype(np.float16).astype(float), FLOAT16),
        (BFLOATS, BFLOAT16),
        (BFLOATS.astype(float), BFLOAT16),
        (np.array([0.0, 1.0, 2.0, 0.5]), FLOAT64),  # toy numbers tell nothing
        (np.arange(300.0), FLOAT64),
        (np.array([0.1, 0.25]), FLOAT64),
    ],
)
def test_numbers_show_what_they_were_computed_in(array, expected):
    assert of_run([array], [array]) is expected


def test_toy_inputs_are_judged_by_what_followed():
    toy = np.array([[1.0, 0.0], [1.0, 1.0]])
    halves = (toy @ toy.T / np.sqrt(3)).astype(np.float16).astype(float)
    assert of_run([toy], [halves]) is FLOAT16
    assert of_run([toy], [halves, toy / 3]) is FLOAT64


@given(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=20))
def test_rounding_to_a_type_is_what_the_type_does(numbers):
    x = np.array(numbers)
    with np.errstate(over="ignore"):
        assert np.array_equal(precision.rounded(x, FLOAT16), x.astype(np.float16).astype(float))
        assert np.array_equal(precision.rounded(x, FLOAT32), x)
    large = np.abs(x) > BFLOAT16.smallest
    near = precision.rounded(x, BFLOAT16)
    assert np.array_equal(near[large], own.bfloat16(x).astype(float)[large])
    assert on_grid(near, 8)


def test_the_vanishing_point_is_where_exp_is_nothing():
    for dtype, kind in (*DTYPES.items(), ("float64", FLOAT64)):
        with np.errstate(under="ignore"):
            assert np.exp(np.dtype(dtype).type(kind.vanishing - 0.5)) == 0
            assert np.exp(np.dtype(dtype).type(kind.vanishing + 1.5)) > 0
    assert rounding.growth(4) == 5
