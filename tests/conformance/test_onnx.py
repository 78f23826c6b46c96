"""The ONNX project's own node tests of Attention, RotaryEmbedding and Softmax: all of them.

The onnx package ships generators for its cases. Each is a model of one node, with its inputs and
the outputs that its reference gives. (It also ships each Attention and RotaryEmbedding case with
the node expanded into smaller ones: the same numbers again, so they are not counted.)
"""

from __future__ import annotations

from collections import Counter
from importlib import import_module

import numpy as np
import onnx
import pytest
from onnx.backend.test.case import node as onnx_cases

import attnctl
from attnctl.math.ops import Softmax
from attnctl.math.ops.vectors import rotate

COUNTS = {"Attention": 93, "RotaryEmbedding": 8, "Softmax": 7}

RTOL = {"float32": 1e-5, "float16": 2**-9, "bfloat16": 2**-6}
"""How far a result may be off; ONNX's own runner allows 1e-3, and 2⁻⁶ for bfloat16."""

OURS = {"attn_mask": "mask", "nonpad_kv_seqlen": "key_lengths"}


class Case:
    """A node's attributes, its inputs and its expected outputs, by name."""

    def __init__(self, case):
        node = case.model.graph.node[0]
        ((inputs, outputs),) = case.data_sets
        self.name, self.op = case.name.removeprefix("test_"), node.op_type
        self.opset = case.model.opset_import[0].version
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        self.inputs = dict(zip(filter(None, node.input), inputs, strict=True))
        self.outputs = dict(zip(filter(None, node.output), outputs, strict=True))
        self.get = self.attributes.get

    @property
    def dtype(self):
        return next(iter(self.inputs.values())).dtype.name

    def features(self):
        """What this case exercises, in a word each."""
        attends = attention_features(self) if self.op == "Attention" else {}
        present = {
            f"opset {self.opset}": True,
            self.dtype: self.dtype != "float32",
            **attends,
            "interleaved": self.get("interleaved"),
            "partial rotary": self.get("rotary_embedding_dim"),
            "axis": "axis" in self.attributes,
        }
        return [name for name, there in present.items() if there]


def attention_features(case):
    """What a case of Attention exercises."""
    q, k, v, mask = (case.inputs.get(name) for name in ("Q", "K", "V", "attn_mask"))
    heads, kv_heads = case.get("q_num_heads", q.shape[1]), case.get("kv_num_heads", k.shape[1])
    d_k, d_v = (x.shape[-1] // (kv_heads if x.ndim == 3 else 1) for x in (k, v))
    keys = k.shape[-2] + (case.inputs["past_key"].shape[-2] if "past_key" in case.inputs else 0)
    return {
        "heads side by side": q.ndim == 3,
        "grouped heads": heads != kv_heads,
        "d_v ≠ d_k": d_k != d_v,
        "causal": case.get("is_causal"),
        "window": max(case.get("left_window_size", -1), case.get("right_window_size", -1)) >= 0,
        "boolean mask": mask is not None and mask.dtype == bool,
        "float mask": mask is not None and mask.dtype != bool,
        "mask by head or batch": mask is not None and mask.ndim > 2,
        "short mask": mask is not None and mask.shape[-1] < keys,
        "scale": case.get("scale"),
        "softcap": case.get("softcap"),
        "cache": "past_key" in case.inputs,
        "key lengths": "nonpad_kv_seqlen" in case.inputs,
        "scores recorded": "qk_matmul_output" in case.outputs,
        "rows that see nothing": not case.outputs["Y"].any(axis=-1).all(),
    }


def collect():
    """Every case of the three operators that is the operator itself, as generated on import."""
    for module in ("attention", "rotaryembedding", "softmax"):
        import_module(f"onnx.backend.test.case.node.{module}")
    models = [case for case in onnx_cases._NodeTestCases if case.model is not None]
    return [Case(case) for case in models if case.model.graph.node[0].op_type in COUNTS]


CASES = collect()


def attention(case):
    """The outputs of an Attention node, by `attnctl.attend`."""
    trace = attnctl.attend(
        {OURS.get(name, name): array for name, array in case.inputs.items()},
        heads=case.get("q_num_heads"),
        kv_heads=case.get("kv_num_heads"),
        scale=case.get("scale"),
        softcap=case.get("softcap") or None,
        causal=bool(case.get("is_causal")),
        causal_offset="lengths" if "nonpad_kv_seqlen" in case.inputs else None,
        window=window(case.get("left_window_size", -1), case.get("right_window_size", -1)),
        dtype="float32" if case.dtype == "bfloat16" else case.dtype,
    )
    last = trace.steps["attention_weights"].inputs[0]
    recorded = ("scaled_scores", "softcapped_scores", last, "attention_weights")
    steps = {
        "Y": "concat" if case.inputs["Q"].ndim == 3 else "head_outputs",
        "qk_matmul_output": recorded[case.get("qk_matmul_output_mode", 0)],
    }
    return {name: trace[steps.get(name, name)] for name in case.outputs}


def window(left, right):
    """ONNX writes an open side as −1."""
    sides = tuple(None if side < 0 else side for side in (left, right))
    return None if sides == (None, None) else sides


def rotary_embedding(case):
    """The output of a RotaryEmbedding node, by `positions.rotate`."""
    x, cos, sin = (case.inputs[name] for name in ("input", "cos_cache", "sin_cache"))
    if "position_ids" in case.inputs:
        cos, sin = cos[case.inputs["position_ids"]], sin[case.inputs["position_ids"]]
    if x.ndim == 4:
        x = x.swapaxes(1, 2)
    by_head = x.reshape(*x.shape[:2], case.get("num_heads", x.shape[2]), -1).swapaxes(1, 2)
    turned = rotate(by_head, cos[:, None], sin[:, None], interleaved=bool(case.get("interleaved")))
    if "num_heads" in case.attributes:
        turned = turned.swapaxes(1, 2)
    return {"output": turned.reshape(case.inputs["input"].shape)}


def softmax(case):
    """The output of a Softmax node, by the Softmax step with its axis moved last."""
    axis = case.get("axis", -1)
    return {"y": np.moveaxis(Softmax().apply(np.moveaxis(case.inputs["x"], axis, -1)), -1, axis)}


RUN = {"Attention": attention, "RotaryEmbedding": rotary_embedding, "Softmax": softmax}


def test_every_case_is_here():
    assert onnx.__version__ == "1.23.2"
    assert Counter(case.op for case in CASES) == COUNTS
    assert len({case.name for case in CASES}) == 108


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_onnx(case, record_property):
    record_property("onnx", [case.op, *case.features()])
    outputs = RUN[case.op](case)
    for name, expected in case.outputs.items():
        dtype = expected.dtype.name
        assert outputs[name].dtype == ("float32" if dtype == "bfloat16" else dtype)
        np.testing.assert_allclose(
            outputs[name].astype(np.float64),
            expected.astype(np.float64),
            rtol=RTOL[dtype],
            atol=1e-6,
            err_msg=name,
        )
