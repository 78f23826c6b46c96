"""Errors beside those of a simulation that rounds."""

import numpy as np
import pytest

from attnctl.evidence.precision import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, round_to
from attnctl.evidence.recompute import related_errors, same_errors

RIGHT = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
OFF = np.array([0.1, -0.2, 0.1, 0.2, -0.1])


@pytest.mark.parametrize(
    ("size", "found", "same"),
    [
        (1.0, OFF, True),
        (1.0, 1.2 * OFF, True),
        (1.0, 1.3 * OFF, False),
        (1.0, -OFF, False),
        (1e-40, OFF, False),  # below what float32 holds: lost in any program
    ],
)
def test_errors_are_those_of_a_simulation(size, found, same):
    right = size * RIGHT
    assert same_errors(right + size * found, right, right + size * OFF, least=2.0**-126) is same


MANY = np.random.default_rng(0).standard_normal(64)
ROUNDED = 2.0**-11 * np.random.default_rng(1).uniform(-1, 1, 64)


@pytest.mark.parametrize(
    ("found", "related"),
    [
        (ROUNDED, True),
        (ROUNDED * (np.arange(64) != 7), True),
        (1.4 * ROUNDED, True),
        (1.6 * ROUNDED, False),
        (-ROUNDED, False),
        (np.abs(ROUNDED), False),
        (1e-3 * MANY, False),  # all together: a factor, a constant
        (np.full(64, 1e-3), False),
        (ROUNDED + 1e-3 * MANY - 1e-3, True),
    ],
)
def test_errors_are_related_to_those_of_a_simulation(found, related):
    assert related_errors(MANY + found, MANY, MANY + ROUNDED + 1e-3 * MANY) is related


@pytest.mark.parametrize("precision", [BFLOAT16, FLOAT16, FLOAT32, FLOAT64], ids=lambda each: each.name)
@pytest.mark.parametrize("size", [1.0, 1e-6, 1e4, 1e-40], ids=str)
def test_numbers_are_rounded_to_the_nearest_of_a_type(precision, size):
    """Beside NumPy's own casts; bfloat16 is the upper half of float32, ties to even."""
    x = np.append(size * np.random.RandomState(0).standard_normal(999), [0.0, 1 + 2.0**-9, 1 + 3 * 2.0**-9])
    if precision is BFLOAT16:
        bits = x.astype(np.float32).view(np.uint32)
        right = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
        x = x.astype(np.float32).astype(np.float64)
    else:
        right = x.astype(precision.name)
    np.testing.assert_array_equal(round_to(x, precision), right.astype(np.float64))
