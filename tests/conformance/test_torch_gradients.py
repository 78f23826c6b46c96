"""Gradients that PyTorch's autograd took, frozen by pytorch/make_gradients.py, beside ours."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_torch import FOLDER, array, same

import attnctl
from attnctl.math.kind import HeadNorm

CASES = json.loads((FOLDER / "gradients.json").read_text(encoding="utf-8"))["cases"]


def gradients(case, dtype="float64"):
    options = dict(case["options"])
    if "qk_norm" in options:
        options["qk_norm"] = HeadNorm(**options["qk_norm"])
    arrays = {name: array(value) for name, value in case["arrays"].items()}
    return attnctl.attend(arrays, backward=True, dtype=dtype, **options)


def test_the_file_is_whole():
    assert len(CASES) == 28


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_every_gradient_is_autograds(case):
    trace = gradients(case)
    for name, values in case["gradients"].items():
        found, expected = trace[f"d_{name}"], array(values)
        assert np.squeeze(found).shape == np.squeeze(expected).shape, name
        same(np.squeeze(found), np.squeeze(expected))


def test_half_precision_is_near():
    case = next(case for case in CASES if case["name"] == "everything")
    exact, half = gradients(case), gradients(case, "float16")
    for name in case["gradients"]:
        size = np.abs(exact[f"d_{name}"]).max()
        np.testing.assert_allclose(half[f"d_{name}"], exact[f"d_{name}"], rtol=0, atol=0.02 * size)
