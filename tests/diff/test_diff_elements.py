"""Number by number: the differences, their places and their count, held to NumPy and to plain loops."""

from math import inf, isinf, isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attnctl.verbs import diff as elements
from attnctl.verbs.diff import Tolerance, measure_difference

NUMBERS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.0 + 1e-9, 1e-30, 5e-324, 1e308, -1e308, inf, -inf, nan])
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)


@st.composite
def pairs(draw):
    shape = draw(SHAPES)
    kind = draw(st.sampled_from([np.float64, np.float32, np.float16]))
    numbers = NUMBERS | st.floats(-10, 10)
    with np.errstate(over="ignore"):
        return tuple(draw(hnp.arrays(np.float64, shape, elements=numbers)).astype(kind) for _ in "ab")


def distance(x, y, equal_nan):
    if x == y or (equal_nan and isnan(x) and isnan(y)):
        return 0.0
    return nan if isnan(x) or isnan(y) else abs(x - y)


def largest(values):
    """The first of the largest, NaN above all; None where all are 0."""
    best = None
    for index, value in values:
        if isnan(value):
            return value, index
        if value > (best[0] if best else 0.0):
            best = value, index
    return best or (0.0, None)


@settings(max_examples=400, deadline=None)
@given(pairs(), st.sampled_from([0.0, 1e-9, 0.5]), st.sampled_from([0.0, 1e-9, 2.0]), st.booleans())
def test_it_is_what_a_loop_finds(pair, rtol, atol, equal_nan):
    a, b = pair
    found = measure_difference(a, b, Tolerance(rtol, atol, equal_nan))
    every = [(i, float(a[i]), float(b[i])) for i in np.ndindex(a.shape)]
    gaps = [(i, distance(x, y, equal_nan)) for i, x, y in every]
    parts = [
        (i, 0.0 if gap == 0 else gap if isnan(gap) or isinf(gap) else gap / abs(y) if y else inf)
        for (i, gap), (_, _, y) in zip(gaps, every, strict=True)
    ]
    most, at = largest(gaps)
    relative, relative_at = largest(parts)
    assert np.array_equal([found.max_abs, found.max_rel], [most, relative], equal_nan=True)
    assert (found.at, found.max_rel_at, found.of) == (at, relative_at, a.size)
    with np.errstate(all="ignore"):
        close = np.isclose(a.astype(float), b.astype(float), rtol, atol, equal_nan)
    assert found.differing == a.size - np.count_nonzero(close)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1000])
def test_chunks_change_nothing(monkeypatch, chunk):
    rng = np.random.RandomState(0)
    a = rng.standard_normal((3, 5, 4))
    b = np.where(rng.random_sample(a.shape) < 0.5, a, rng.standard_normal(a.shape))
    b[2, 0, 1] = nan
    whole = measure_difference(a, b, Tolerance())
    monkeypatch.setattr(elements, "CHUNK", chunk)
    assert repr(measure_difference(a, b, Tolerance())) == repr(whole)
    assert whole.at == (2, 0, 1)


HIDDEN = [[-inf, -inf, 1.0], [2.0, nan, nan]]


@pytest.mark.parametrize(
    ("other", "equal_nan", "counts", "most"),
    [
        (HIDDEN, True, (0, 0, 0, 0), 0.0),
        (HIDDEN, False, (2, 0, 0, 2), nan),
        ([[-inf, 5.0, 1.0], [2.0, nan, nan]], True, (1, 1, 0, 0), inf),
        ([[-inf, -inf, -inf], [-inf, nan, nan]], True, (2, 0, 2, 0), inf),
        ([[inf, -inf, 1.0], [2.0, nan, 3.0]], True, (2, 1, 0, 1), nan),
    ],
)
def test_what_is_hidden_or_no_number_is_said_as_such(other, equal_nan, counts, most):
    found = measure_difference(np.array(HIDDEN), np.array(other), Tolerance(equal_nan=equal_nan))
    assert (found.differing, found.hidden_in_a, found.hidden_in_b, found.nan) == counts
    assert np.array_equal(found.max_abs, most, equal_nan=True)


@pytest.mark.parametrize(
    ("first", "second", "gap", "differing"),
    [
        ("float64", "float64", 0.9e-7, 0),
        ("float64", "float64", 3e-7, 1),
        ("float32", "float64", 0.9e-5, 0),
        ("float64", "float32", 3e-5, 1),
        ("float16", "float32", 0.9e-3, 0),
        ("float32", "float16", 3e-3, 1),
        ("int64", "int64", 1, 1),
        ("bool", "bool", 1, 1),
        ("int64", "float32", 1e-5, 0),
    ],
)
def test_the_tolerance_follows_from_the_coarser_type(first, second, gap, differing):
    a = np.array([0.0, 1.0]).astype(first)
    b = np.array([0.0, 1.0 - gap]).astype(second)
    assert measure_difference(a, b, Tolerance()).differing == differing


def test_the_second_is_the_reference_of_a_relative_difference():
    found = measure_difference(np.array([3.0, 0.0]), np.array([2.0, 0.0]), Tolerance(rtol=0.4, atol=0.0))
    assert (found.max_abs, found.max_rel, found.differing) == (1.0, 0.5, 1)
    assert (
        measure_difference(np.array([2.0]), np.array([3.0]), Tolerance(rtol=0.4, atol=0.0)).differing == 0
    )


@pytest.mark.parametrize(
    ("a", "b", "gap"), [(2**53, 2**53 + 1, 1.0), (-(2**62), 2**62, 2.0**63), (3, 3, 0.0)]
)
def test_whole_numbers_are_compared_as_such(a, b, gap):
    found = measure_difference(np.array([a, 1]), np.array([b, 1]), Tolerance())
    assert (found.max_abs, found.differing) == (gap, int(gap > 0))
