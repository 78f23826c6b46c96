"""How far off rounding puts a number: hardly ever farther than is said, and not much less far."""

import numpy as np
import planted as own
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_strategies import examples

import attnctl
from attnctl.evidence import precision
from attnctl.evidence.allowed import FACTOR, typical
from attnctl.evidence.blocks import cut_known
from attnctl.evidence.precision import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, of_run, on_grid
from attnctl.evidence.rounding import (
    LARGE_RUNS,
    LEAST_RUNS,
    Known,
    anything,
    boundless,
    carry_rounding,
    exactly,
    round_at_random,
)
from attnctl.evidence.shared import SHARED, shared
from attnctl.math import ops
from attnctl.math.rules import Causal
from attnctl.mistakes import wrong
from attnctl.verbs.check.parts import SomeRows

pytestmark = pytest.mark.sample(4)

SCORES, ROWS = (2, 5, 5), (2, 5, 4)
HIDE = ops.Hide(rules=(Causal(),))

WRONG = {
    wrong.By(lambda s: wrong.softmax(s, axis=-2)): (SCORES,),
    wrong.shown(HIDE, lambda s, seen: np.where(seen, wrong.softmax(s), 0.0)): (SCORES,),
    wrong.shown(HIDE, lambda s, seen: np.where(seen, s, s - 1e4)): (SCORES,),
    wrong.Then(ops.MatMulT(), ops.Scale(7)): (ROWS, ROWS),
    wrong.Arranged(ops.Copy(), after=lambda z: wrong.side_by_side(z.swapaxes(-3, -1))): (ROWS,),
}
"""Wrong ops that round or move numbers, with the shapes of their inputs."""

TRIED = [*(kind for kind in ops.OPS.values() if kind.apply is not ops.Op.apply), *WRONG]

DTYPES = {"float32": FLOAT32, "float16": FLOAT16}


def tried(data, op):
    """A wrong op, or one of a kind that is registered, and inputs of normal numbers."""
    if op in WRONG:
        random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
        return op, [random.standard_normal(shape) for shape in WRONG[op]]
    op, inputs, _ = data.draw(examples(op))
    return op, inputs


@pytest.mark.sample(12)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", TRIED, ids=lambda value: getattr(value, "__name__", type(value).__name__))
@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data(), size=st.sampled_from([0.01, 1.0, 5.0]))
def test_rounding_stays_within_the_error_that_is_said(op, dtype, data, size):
    op, inputs = tried(data, op)
    inputs = [x if x.dtype == bool else (x * size).astype(dtype) for x in inputs]
    unit = DTYPES[dtype].unit
    right = carry_rounding(op, [written(x, unit, at) for at, x in enumerate(inputs)], unit)
    with np.errstate(all="ignore"):
        found = op.apply(*inputs).astype(dtype).astype(np.float64)
        off = np.abs(found - right.value)
    allowed = right.error + unit * np.abs(right.value) + DTYPES[dtype].smallest
    with np.errstate(all="ignore"):
        # infinite where this type ends, or may end as far off as a number may be
        largest = [(right.value + by).astype(dtype) for by in (0, allowed, -allowed)]
    assert ((off <= allowed) | np.any([found == end for end in largest], axis=0)).all()
    scale = np.abs(right.value[np.isfinite(right.value)]).max(initial=0) + size**2 + 1
    # An error that allows anything says nothing; what is recurrent and grows takes its own along.
    assert right.error.max() < (10_000 if getattr(op, "recurrent", False) else 200) * unit * scale


def written(array, unit, name):
    """Numbers as they were written down in this type."""
    if array.dtype == bool:
        return exactly(array)
    value = array.astype(np.float64)
    return Known(value, lambda run: round_at_random(value, unit, str(name), run))


@pytest.mark.sample(8)
@pytest.mark.parametrize("op", TRIED, ids=lambda value: getattr(value, "__name__", type(value).__name__))
@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_errors_of_inputs_are_carried_through(op, data, seed):
    op, values = tried(data, op)
    rng = np.random.default_rng(seed)
    moved = [x if x.dtype == bool else x * (1 + 1e-6 * rng.uniform(-1, 1, x.shape)) for x in values]
    known = carry_rounding(op, [written(x, 1e-6, at) for at, x in enumerate(values)], FLOAT64.unit)
    with np.errstate(all="ignore"):
        gap = np.abs(op.apply(*moved) - known.value)
    assert np.all((gap <= known.error + 1e-15) | np.isinf(known.value))


def test_an_op_of_ones_own_needs_no_rule():
    class Cubed(ops.Op):
        def apply(self, *inputs):
            return inputs[0] ** 3

    x = np.random.default_rng(0).standard_normal((8, 16))
    error = carry_rounding(Cubed(), [written(x, 1e-6, "x")], FLOAT64.unit).error
    assert (error > 3 * np.abs(x) ** 3 * 1e-6).mean() > 0.9
    assert error.max() < 1e-3
    assert carry_rounding(Cubed(), [exactly(x)], FLOAT64.unit).error.max() < 1e-12


def test_what_is_exact_stays_exact():
    x = np.array([[0.0, -np.inf, 1.0], [2.0, 0.5, -np.inf]])
    error = carry_rounding(ops.Copy(), [exactly(x)], FLOAT64.unit).error
    assert (error[np.isinf(x) | (x == 0)] == 0).all()
    assert (error[np.isfinite(x) & (x != 0)] > 0).all()


def test_a_weight_that_outdoes_its_row_may_be_off_as_much_as_it_is():
    """One weight of a row moves, and all the others are next to nothing: the row says little of it."""
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((40, 200))
    scores[np.arange(40), np.arange(40)] = 9.0
    unit = FLOAT16.unit
    weights = carry_rounding(ops.Softmax(), [written(scores, unit, "s")], unit)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        off = ops.Softmax().apply(scores * (1 + unit * rng.uniform(-1, 1, scores.shape))) - weights.value
        assert (np.abs(off) <= weights.error).all()


def test_what_could_be_anything_stays_so_through_sums():
    weights = anything(
        exactly(np.array([[0.5, 0.5], [1.0, 0.0]])), np.array([[True, True], [False, False]])
    )
    v = exactly(np.array([[1.0, 1e-3], [2.0, 3.0]]))
    error = carry_rounding(ops.MatMul(), [weights, v], FLOAT64.unit).error
    assert boundless(error).tolist() == [[True, True], [False, False]]


def test_few_rows_are_given_more_than_many():
    assert typical(1) > typical(8) > typical(64) > typical(4096) > 0.8
    assert typical(64) < 1.25
    assert typical(1) < FACTOR


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
    assert of_run([], [halves]) is FLOAT16
    assert of_run([], [halves, toy / 3]) is FLOAT64
    assert of_run([], []) is FLOAT64


@given(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=20))
def test_rounding_to_a_type_is_what_the_type_does(numbers):
    x = np.array(numbers)
    with np.errstate(over="ignore"):
        assert np.array_equal(precision.round_to(x, FLOAT16), x.astype(np.float16).astype(float))
        assert np.array_equal(precision.round_to(x, FLOAT32), x)
    large = np.abs(x) > BFLOAT16.smallest
    near = precision.round_to(x, BFLOAT16)
    assert np.array_equal(near[large], own.bfloat16(x).astype(float)[large])
    assert on_grid(near, 8)


def test_the_vanishing_point_is_where_exp_is_nothing():
    for dtype, kind in (*DTYPES.items(), ("float64", FLOAT64)):
        with np.errstate(under="ignore"):
            assert np.exp(np.dtype(dtype).type(kind.vanishing - 0.5)) == 0
            assert np.exp(np.dtype(dtype).type(kind.vanishing + 1.5)) > 0


def large_known(name, drawn):
    value = np.random.RandomState(0).randn(300, 300)
    return Known(value, lambda run: drawn.append((name, run)) or round_at_random(value, 1e-7, name, run))


def test_runs_of_a_large_value_are_kept_as_how_far_they_are_off():
    drawn = []
    known = large_known("a", drawn)
    kept = known.with_runs_kept()
    assert kept.with_runs_kept() is kept
    plain = [known.run(run) for run in range(LEAST_RUNS)]
    drawn.clear()
    for _ in range(3):
        for run, right in enumerate(plain):
            assert np.abs(kept.run(run) - right).max() < 1e-13
            rows = cut_known(kept, ("query", "d_k"), {"query": slice(7, 9)}).run(run)
            assert np.abs(rows - right[7:9]).max() < 1e-13
    assert len(drawn) == LEAST_RUNS


def test_of_all_large_values_few_runs_are_kept():
    drawn = []
    several = [large_known(name, drawn).with_runs_kept() for name in "abcdefgh"]
    for known in several:
        for run in range(LEAST_RUNS):
            known.run(run)
    kept = [len(known.run.kept) for known in several]
    assert sum(kept) <= LARGE_RUNS
    assert kept[-1] == LEAST_RUNS  # those that were used last
    assert kept[0] == 0

    drawn.clear()
    assert np.array_equal(several[0].run(0), large_known("a", []).run(0))
    assert drawn == [("a", 0)]


def test_a_run_that_overflows_is_not_kept():
    value = np.full((300, 300), 1e30)
    known = Known(value, lambda run: value * np.inf).with_runs_kept()
    for _ in range(2):
        assert np.isinf(known.run(0)).all()


def test_what_is_made_of_an_array_is_shared_as_long_as_somebody_has_it():
    array = np.ones((600, 600), np.float32)

    def widen(one):
        return shared("float64", [one], lambda: one.astype(np.float64))

    wide = widen(array)
    assert wide.dtype == np.float64
    assert widen(array) is wide
    assert widen(array[:]) is wide  # the same memory
    assert widen(array[:, ::-1]) is not wide
    assert widen(array.copy()) is not wide
    assert shared("another", [array], lambda: array + 1) is not wide
    before = len(SHARED)
    del wide
    assert len(SHARED) < before


def test_what_stands_in_the_memory_of_an_array_that_is_gone_is_another():
    kept = shared("float64", [np.ones((600, 600), np.float32)], lambda: np.ones((600, 600)))
    again = [np.full((600, 600), 2.0, np.float32) for _ in range(3)]
    for other in again:
        assert shared("float64", [other], lambda other=other: other.astype(np.float64)) is not kept


def test_numbers_that_were_changed_since_are_checked_anew():
    """A report that somebody keeps has no part in the next check of the same arrays."""
    arrays = own.attend(own.Kind(heads=2, n=600, d_model=256, d=128, dtype=own.F32), None)
    arrays = {name: array for name, array in arrays.items() if name in {*own.INPUTS, "output"}}
    report = attnctl.check(arrays, heads=2)
    assert report.agrees
    arrays["X"][:] *= 2
    assert attnctl.check(arrays, heads=2).agrees is False
    assert report.agrees


def test_a_run_of_some_rows_does_not_keep_all():
    known = Known(np.ones((500, 100)), lambda run: np.full((500, 100), 1.0 + run))
    some = carry_rounding(SomeRows(2, 4), [known], unit=0.0)
    assert (some.run(1) == 2.0).all()
    assert some.run(1) is some.run(1)
    assert some.run(1).base is None
