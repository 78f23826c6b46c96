"""Errors beside those of a simulation that rounds."""

import numpy as np
import pytest

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


@pytest.mark.parametrize(
    ("found", "related"),
    [
        (OFF, True),
        (OFF + np.array([0.1, 0.0, 0.0, 0.0, 0.0]), True),
        (1.4 * OFF, True),
        (1.6 * OFF, False),
        (-OFF, False),
        (np.abs(OFF), False),
    ],
)
def test_errors_are_related_to_those_of_a_simulation(found, related):
    assert related_errors(RIGHT + found, RIGHT, RIGHT + OFF) is related
