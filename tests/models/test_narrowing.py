"""The type of a port is read off what it recorded; the model's weights are rounded to it."""

import numpy as np
import pytest

from attnctl.models.tensors import bfloat16
from attnctl.sources.model import narrowing

WEIGHT = np.array([1.0, 1 + 2.0**-9, 1 + 2.0**-20])
HALF = WEIGHT.astype(np.float16)
BRAIN = bfloat16(WEIGHT)
IDS = np.array([1, 2, 3])
EMPTY = np.zeros((0, 2), np.float32)

RECORDED = {
    "float16": ([HALF], HALF),
    "float16, and ids": ([IDS, HALF], HALF),
    "float16, and an empty array": ([EMPTY, HALF], HALF),
    "float16, and float64": ([HALF, WEIGHT], WEIGHT),
    "bfloat16 in float32": ([BRAIN.astype(np.float32)], BRAIN),
    "bfloat16, and more digits": ([BRAIN.astype(np.float32), WEIGHT], WEIGHT),
    "float64": ([WEIGHT], WEIGHT),
    "ids alone": ([IDS], WEIGHT),
    "nothing": ([], WEIGHT),
}


@pytest.mark.parametrize(("recorded", "rounded"), RECORDED.values(), ids=RECORDED)
def test_weights_are_rounded_as_what_was_recorded_is(recorded, rounded):
    np.testing.assert_array_equal(narrowing(recorded)(WEIGHT), rounded)
