"""Gradients that PyTorch's autograd took, frozen by pytorch/make_gradients.py, beside ours."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_torch import FOLDER, array, same

import attnctl
from attnctl.math.derivation import LayerParts, Rotary, Variant
from attnctl.math.engine import carry_out
from attnctl.math.kind import HeadNorm
from attnctl.math.names import TABLE
from attnctl.math.ops import Buckets, LayerNorm, RMSNorm
from attnctl.math.rules import Causal

CASES = json.loads((FOLDER / "gradients.json").read_text(encoding="utf-8"))["cases"]
KINDS = {"rms": RMSNorm, "layer": LayerNorm}


def gradients(case, dtype="float64"):
    options = dict(case["options"])
    if "qk_norm" in options:
        options["qk_norm"] = HeadNorm(**options["qk_norm"])
    arrays = {name: array(value) for name, value in case["arrays"].items()}
    if "layer" in options:
        return of_a_layer(arrays, dtype, **options)
    return attnctl.attend(arrays, backward=True, dtype=dtype, **options)


def of_a_layer(arrays, dtype, *, layer, causal=False, gate=False):
    """The steps that only models have, which no file of arrays may ask for."""
    norms = {name: KINDS[how["kind"]](how["eps"]) for name, how in layer.items()}
    latent = "W_latent_KV" in arrays
    variant = Variant(
        given=dict.fromkeys(arrays, "given"),
        d_k=arrays["W_Q"].shape[-1],
        rules=(Causal(),) if causal else (),
        rotary=Rotary(first=arrays["W_K"].shape[-1]) if latent else None,
        layer=LayerParts(**norms, buckets=Buckets() if "bias_table" in arrays else None),
        gate=gate,
        backward=True,
    )
    return carry_out(variant.derivation, arrays, dtype).values


def test_the_file_is_whole():
    assert len(CASES) == 46


def test_every_array_that_has_a_gradient_has_a_case():
    """All that may be handed in but what X is the sum of."""
    handed = {name for name, row in TABLE.items() if row.leaf and f"d_{name}" in TABLE}
    held = {name for case in CASES for name in case["gradients"]}
    assert handed - held == {"embeddings", "positions"}


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
