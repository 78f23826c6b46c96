"""Every step of every kind of attention, held to the oracle's loops."""

from __future__ import annotations

import numpy as np
import pytest
from attention_cases import Case, cases
from hypothesis import given, settings

import attnctl

GIVEN = ("X", "embeddings", "memory", "Q", "K", "V", "past_key", "past_value", "mask", "bias")


def agrees(case: Case) -> None:
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
        np.testing.assert_allclose(
            trace[name].astype(np.float64), expected[name], rtol=0, atol=allowed, err_msg=name
        )
    weights = np.array(expected["attention_weights"])
    assert trace.header.get("empty_rows", []) == np.argwhere(weights.sum(axis=-1) == 0).tolist()


@settings(max_examples=250, deadline=None)
@given(case=cases())
def test_float64(case):
    agrees(case)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_low_precision(dtype):
    @settings(max_examples=60, deadline=None)
    @given(case=cases(dtype))
    def run(case):
        agrees(case)

    run()
