"""softmax(S) V a tile at a time against decimals of 60 digits, for scores of every size."""

from decimal import Decimal, localcontext
from itertools import product

import numpy as np
import pytest

from attnctl.api import choose_settings
from attnctl.inputs.plan.intended import plan_arrays
from attnctl.math.engine import carry_out, online

KEYS, TILE = 12, 5
NAN, INF = float("nan"), float("inf")
OTHERS = np.linspace(-1, 1, KEYS)

# The row beside OTHERS, and whether its type of number leaves it to the plain sums.
ROWS = {
    "all alike": ([0.0] * KEYS, {"float32", "float64"}),
    "small": (np.linspace(-4, 4, KEYS), {"float32", "float64"}),
    "hidden in the last tile": ([0.5] * 4 + [-INF] * 8, {"float32", "float64"}),
    "hidden but for one": ([-INF, 3.0] + [-INF] * 10, {"float32", "float64"}),
    "vanishing but for one": ([-200.0] * 10 + [0.1, -200.0], {"float32", "float64"}),
    "vanishing in the last tile": ([0.0] * 9 + [-200.0] * 3, set()),
    "large for a float32": ([90.0] * KEYS, {"float64"}),
    "too large": ([800.0] * KEYS, set()),
    "too large in the first tile": ([800.0] + [0.0] * 11, set()),
    "too large together": ([354.0] * KEYS, set()),
    "just large enough": ([-10.0] * KEYS, {"float32", "float64"}),
    "too small": ([-12.0] * KEYS, set()),
    "vanishing": ([-2000.0] * KEYS, set()),
    "vanishing beside the hidden": ([-2000.0] * 3 + [-INF] * 9, set()),
    "vanishing where first seen": ([0.0] * 2 + [-200.0] * 6 + [-INF] * 4, set()),
    "seeing nothing": ([-INF] * KEYS, {"float32", "float64"}),
}
NOT_NUMBERS = {"NaN": [NAN] + [0.0] * 11, "infinity": [0.0] * 11 + [INF]}


def tiles_of(s, v):
    """The last keys first, as the engine hands them over."""
    for start in reversed(range(0, KEYS, TILE)):
        part = s[:, start : start + TILE].copy()
        yield part, v[start : start + TILE], part


def exactly(row, v):
    """softmax(row) v, worked out in decimals."""
    with localcontext() as context:
        context.prec = 60
        e = [Decimal(float(s)).exp() if s > -INF else Decimal(0) for s in row]
        mixed = [sum(a * Decimal(float(x)) for a, x in zip(e, column, strict=True)) for column in v.T]
        return [float(each / (sum(e) or 1)) for each in mixed]


def case_of(row, dtype):
    rng = np.random.RandomState(0)
    s = np.array([OTHERS, row, OTHERS[::-1]], dtype)
    v = rng.randn(KEYS, 4).astype(dtype)
    return s, v, np.full((3, 4), 7, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ROWS)
def test_both_ways_give_the_softmax(name, dtype):
    row, plain = ROWS[name]
    s, v, out = case_of(row, dtype)
    expected = [exactly(each, v) for each in s]
    close = {"atol": 4 * np.finfo(dtype).eps, "rtol": 0}
    with np.errstate(all="ignore"):
        blind = online.plain_softmax(tiles_of(s, v), out)
        assert (blind is not None) == (dtype in plain)
        if blind is not None:
            assert blind.tolist() == ([1] if name == "seeing nothing" else [])
            np.testing.assert_allclose(out, expected, **close)
        blind = online.online_softmax(tiles_of(s, v), out)
    np.testing.assert_allclose(out, expected, **close)
    assert blind.tolist() == ([1] if name == "seeing nothing" else [])


def test_what_was_seen_once_may_vanish_while_others_see_nothing():
    s, v, out = case_of([-200.0] * 10 + [0.5, 0.0], "float32")
    s[0] = -INF
    blind = online.plain_softmax(tiles_of(s, v), out)
    assert blind is not None
    assert blind.tolist() == [0]
    np.testing.assert_allclose(out, [exactly(row, v) for row in s], atol=5e-7)


@pytest.mark.parametrize("name", NOT_NUMBERS)
def test_what_is_no_number_is_not_for_the_plain_sums(name):
    s, v, out = case_of(NOT_NUMBERS[name], "float64")
    with np.errstate(all="ignore"):
        assert online.plain_softmax(tiles_of(s, v), out) is None
        assert online.online_softmax(tiles_of(s, v), out).size == 0
    assert np.isnan(out[1]).all()
    np.testing.assert_allclose(out[[0, 2]], [exactly(s[0], v), exactly(s[2], v)], atol=1e-15)


@pytest.mark.parametrize(
    ("dtype", "value", "fit"),
    [
        ("float32", 1e19, True),
        ("float32", -1e20, False),
        ("float64", 1e20, True),
        ("float64", 1e155, False),
        ("float16", 1.0, False),
        ("float64", NAN, False),
        ("float32", -INF, False),
    ],
)
def test_values_that_leave_the_choice(dtype, value, fit):
    v = np.ones((2, KEYS, 3), dtype)
    v[1, 4, 2] = value
    assert online.values_fit(v) == fit


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_values_of_a_type_do_not_overflow_in_sums(dtype):
    s, _, out = case_of([0.0] * KEYS, dtype)
    v = np.full((KEYS, 4), np.finfo(dtype).max * 0.9, dtype)
    assert online.divisor_of(v) == KEYS
    assert online.divisor_of(v / KEYS) == 1
    online.online_softmax(tiles_of(s, v), out, online.divisor_of(v))
    np.testing.assert_allclose(out, v[:3], rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("float16", 1),
        ("float16", 1e4),
        *product(["float32", "float64"], [1e-30, 1, 1e30]),
        ("float64", 1e300),
    ],
)
@pytest.mark.parametrize("shift", [-700, -30, 0, 30, 700])
def test_outputs_do_not_depend_on_what_all_scores_have_in_common(shift, size, dtype):
    """A column that all keys share adds one number to every score of a row; softmax is the same."""
    rng = np.random.RandomState(0)
    q, k, v = (rng.randint(-2, 3, (1, 9, 4)).astype(float) for _ in "qkv")
    ones = np.ones((1, 9, 1))

    def outputs(added):
        arrays = {
            "Q": np.concatenate([q, added * ones], 2),
            "K": np.concatenate([k, ones], 2),
            "V": v * size,
        }
        ready = plan_arrays(arrays, choose_settings(None, {"scale": 0.25, "dtype": dtype}), {})
        run = carry_out(ready.derivation, ready.given, dtype, keep=["head_outputs"], tile=(4, 3))
        return run.values["head_outputs"].astype(float) / size

    atol = float(np.finfo(dtype).eps) * (8 + abs(shift))
    np.testing.assert_allclose(outputs(shift), outputs(0), atol=atol)
