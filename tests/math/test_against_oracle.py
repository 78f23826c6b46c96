"""Every step of every kind of attention, held to the oracle's loops."""

from __future__ import annotations

import numpy as np
import pytest
from attention_cases import Case, cases
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Kind, attend

import attnctl


def agrees(case: Case) -> None:
    for array in case.arrays.values():
        array.setflags(write=False)
    trace = attnctl.attend(case.arrays, **case.options)
    expected = case.expected()
    derived = {name for name, step in trace.steps.items() if step.inputs or name == "positions"}
    assert derived == set(expected)
    dtype = case.options["dtype"]
    finite = [np.abs(array[np.isfinite(array)]) for array in map(np.array, expected.values())]
    peak = max(1.0, *(part.max() for part in finite if part.size))
    allowed = 16 * float(np.finfo(dtype).eps) * peak
    for name in derived:
        assert trace[name].dtype == dtype
        assert trace[name].shape == np.shape(expected[name]), name
        step = trace.steps[name]
        assert step.op.shape(*(trace[each].shape for each in step.inputs)) == trace[name].shape
        assert len(step.axes) == trace[name].ndim
        np.testing.assert_allclose(
            trace[name].astype(np.float64), expected[name], rtol=0, atol=allowed, err_msg=name
        )
    weights = np.array(expected["attention_weights"])
    assert trace.header.get("empty_rows", []) == np.argwhere(weights.sum(axis=-1) == 0).tolist()


def test_the_oracle_itself():
    """Two worked examples, by the figures their authors print."""
    eye = np.eye(4).tolist()
    x = [[1, 0, 1, 0], [0, 1, 1, 0], [1, 1, 0, 1], [0, 1, 0, 1]]
    steps = attend({"Q": [x], "K": [x], "V": [x]}, Kind())
    np.testing.assert_allclose(
        steps["attention_weights"][0][0], [0.38745562, 0.23500371, 0.23500371, 0.14253696], atol=1e-8
    )
    np.testing.assert_allclose(
        steps["head_outputs"][0][0], [0.62245933, 0.61254438, 0.62245933, 0.37754067], atol=1e-8
    )
    halves = [[row[:2] for row in eye], [row[2:] for row in eye]]
    weights = {"W_Q": halves, "W_K": halves, "W_V": halves, "W_O": eye}
    output = attend({"X": x, **weights}, Kind())["output"]
    np.testing.assert_allclose(output[0], [0.66976155, 0.66511923, 0.66976155, 0.33023845], atol=1e-8)


@settings(max_examples=250, deadline=None)
@given(case=cases())
def test_float64(case):
    agrees(case)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_low_precision(dtype, data):
    agrees(data.draw(cases(dtype)))
