"""PyTorch's attention, frozen by pytorch/make.py: its results, and what its words are in attnctl."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import attnctl
from attnctl.math.derivation import Rotary

FOLDER = Path(__file__).parent / "pytorch"
COUNTS = {"sdpa": 16, "mha": 11, "rotary": 5}


def array(value):
    """Nested lists as an array: of booleans where they are, else of float64."""
    found = np.array(value)
    return found if found.dtype == bool else np.array(value, dtype=np.float64)


def frozen(name):
    cases = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["cases"]
    assert len(cases) == COUNTS[name]
    return pytest.mark.parametrize("case", cases, ids=lambda case: case["name"])


def arrays(case, part):
    return {name: array(value) for name, value in case[part].items()}


def same(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-10)


@frozen("sdpa")
def test_scaled_dot_product_attention(case):
    ours = {"query": "Q", "key": "K", "value": "V", "attn_mask": "mask"}
    arguments, outputs = case["arguments"], arrays(case, "outputs")
    trace = attnctl.attend(
        {ours[name]: value for name, value in arrays(case, "inputs").items()},
        causal=arguments.get("is_causal", False),
        scale=arguments.get("scale"),
    )
    same(trace["attention_weights"], outputs["weights"])
    same(trace["head_outputs"], outputs["output"])


@frozen("mha")
def test_multihead_attention(case):
    inputs, outputs = arrays(case, "inputs"), arrays(case, "outputs")
    heads = case["arguments"]["heads"]
    given = {**attended(inputs), **weights(arrays(case, "parameters")), **masks(inputs, heads)}
    trace = attnctl.attend(given, heads=heads)
    same(trace["attention_weights"], outputs["weights"])
    same(trace["output"], outputs["output"])


def attended(inputs):
    """Keys and values stand side by side in one memory; each weight reads its own columns."""
    return {"X": inputs["query"], "memory": np.concatenate([inputs["key"], inputs["value"]], axis=-1)}


def weights(parameters):
    """A Linear computes x @ W.T; in_proj_weight has Q's, K's and V's rows one below the other."""
    get = parameters.get
    if "in_proj_weight" in parameters:
        q, k, v = np.split(get("in_proj_weight"), 3)
    else:
        q, k, v = (get(f"{name}_proj_weight") for name in "qkv")
    out = {
        "W_Q": q.T,
        "W_K": np.concatenate([k.T, np.zeros(v.T.shape)]),
        "W_V": np.concatenate([np.zeros(k.T.shape), v.T]),
        "W_O": get("out_proj.weight").T,
    }
    if "in_proj_bias" in parameters:
        out |= dict(zip(("b_Q", "b_K", "b_V"), np.split(get("in_proj_bias"), 3), strict=True))
        out["b_O"] = get("out_proj.bias")
    return out


def masks(inputs, heads):
    """True is masked there, and may attend here; (batch·heads, query, key) is one by batch and head."""
    mask, padding = inputs.get("attn_mask"), inputs.get("key_padding_mask")
    if mask is not None and mask.dtype != bool:
        return {"mask": mask}
    visible = np.array(True) if mask is None else ~mask
    if visible.ndim == 3:
        visible = visible.reshape(-1, heads, *visible.shape[1:])
    if padding is not None:
        visible = visible & ~padding[:, None, None, :]
    return {"mask": visible} if visible.ndim else {}


@frozen("rotary")
def test_rotary(case):
    ours = {"query": "Q", "key": "K", "value": "V"}
    outputs, arguments = arrays(case, "outputs"), case["arguments"]
    trace = attnctl.attend(
        {ours[name]: value for name, value in arrays(case, "inputs").items()},
        causal=True,
        positions=Rotary(**arguments),
    )
    same(trace["Q_rotated"], outputs["query"])
    same(trace["K_rotated"], outputs["key"])
    same(trace["head_outputs"], outputs["output"])
