"""What each part of a model writes into the difference of two logits itself, its norms held as they were.

With the root of each norm held, the logits are a sum over what was added to the residual stream: the
embeddings, each head, each network, and the biases (Elhage et al. 2021, "direct logit attribution").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.math.names import B_O, OUTPUT, RESIDUAL, W_O, X
from attnctl.math.ops import LayerNorm, RMSNorm
from attnctl.math.ops.models import AddScaled
from attnctl.models.attention import prepare_attention
from attnctl.models.forward import finish
from attnctl.models.layer import LayerTensors, norm_op
from attnctl.models.next import Pass
from attnctl.record import Trace

ENOUGH = 1e-4
"""Of the difference, or of the largest share: how far the sum of the shares may be off."""


def direct_shares(prompt: Pass, ids: tuple[int, int], place: int) -> dict[str, Any]:
    """The share of each part in logit A − logit B. Raises AttnError where a model is no such sum."""
    refuse_other_streams(prompt)
    model = prompt.runner.model
    hidden = prompt.runner.begin(prompt.tokens)
    parts, fixed = [hidden[place]], np.zeros(hidden.shape[-1])
    for index in range(len(model.description.layers)):
        tensors = model.layer(index)
        trace = prepare_attention(tensors, hidden).run()
        heads, added = head_contributions(trace, tensors, place)
        out = finish(tensors, hidden, trace[X], trace[RESIDUAL])
        parts += [*heads, out[place] - trace[RESIDUAL][place]]
        fixed, hidden = fixed + added, out
    return add_up(prompt, ids, hidden[place], np.array(parts, np.float64), fixed)


def refuse_other_streams(prompt: Pass) -> None:
    model, head = prompt.runner.model, prompt.head
    d = model.description
    why = {
        "its head has a layer of its own, which is no sum": head.own_layer,
        "it norms the stream itself after each sum": {"attention_sum_norm", "mlp_sum_norm"} & {*d.inner},
        "its stream goes on from a norm": d["from_norm"],
        "each layer predicts and corrects several streams": "altup_router" in d.inner,
        "it multiplies the stream after each layer": "layer_scale" in d.inner,
    }
    for reason, holds in why.items():
        if holds:
            raise AttnError(f"--direct: {d.family}: {reason}; leave it out, ablation needs no sum")


def head_contributions(trace: Trace, tensors: LayerTensors, place: int) -> tuple[Array, Array]:
    """What each head adds to the stream at a position, (head, d_model), and what no head does."""
    d, lines = tensors.d, trace.steps
    rows = trace[lines[OUTPUT].inputs[0]][place].reshape(d["heads"], 1, -1).astype(np.float64)
    parts = (rows @ trace[W_O].reshape(d["heads"], -1, d["width"]).astype(np.float64))[:, 0]
    fixed = trace[B_O].astype(np.float64) if B_O in trace else np.zeros(d["width"])
    residual = lines[RESIDUAL]
    if (last := residual.inputs[1]) != OUTPUT:
        op = lines[last].op
        assert isinstance(op, LayerNorm | RMSNorm)
        factors = [trace[name] for name in lines[last].inputs[1:]]
        parts, fixed = through_norm(op, trace[OUTPUT][place], parts, fixed, factors)
    factor = residual.op.factor if isinstance(residual.op, AddScaled) else 1.0
    return parts * factor, fixed * factor


def through_norm(
    norm: LayerNorm | RMSNorm, row: Array, parts: Array, fixed: Array, factors: list[Array]
) -> tuple[Array, Array]:
    """The parts of a row, and what is in it besides, through its norm with the root of the whole row."""
    _, root = norm.normalize(row[None].astype(np.float64))
    both = np.vstack([parts, fixed])
    if norm.centred:
        both = both - both.mean(axis=-1, keepdims=True)
    both = both / root * (norm.factor(factors[0]) if factors else 1)
    if len(factors) > 1:
        both[-1] += factors[1]
    return both[:-1], both[-1]


def add_up(prompt: Pass, ids: tuple[int, int], row: Array, parts: Array, fixed: Array) -> dict[str, Any]:
    """The shares through the final norm and the unembedding; refused where they do not add up."""
    model, head = prompt.runner.model, prompt.head
    d = model.description
    if d["final_norm"]:
        factors = [model.outer("final_norm", suffix, row.shape) for suffix in d.norm_suffixes]
        parts, fixed = through_norm(norm_op(d, d["eps"]), row, parts, fixed, factors)
    columns = head.columns(ids)
    toward = (columns["W_U"][:, 0] - columns["W_U"][:, 1]).astype(np.float64)
    if head.projects:
        toward = model.outer("final_project", ".weight", (head.width, d["width"])).T @ toward
    scale = 1.0 if head.said["scale"] is None else head.said["scale"]
    bias = float(np.subtract(*columns["b_U"].astype(np.float64))) if "b_U" in columns else 0.0
    shares, rest = parts @ toward * scale, (float(fixed @ toward) + bias) * scale
    raw = head.logits_of(head.final(row), ids, capped=False).astype(np.float64)
    difference, total = float(raw[0] - raw[1]), float(shares.sum() + rest)
    if abs(total - difference) > ENOUGH * max(abs(difference), float(np.abs(shares).max())):
        raise AttnError(
            f"--direct: the shares come to {total:.6g}, not to {difference:.6g}; not all were found"
        )
    layers = shares[1:].reshape(len(d.layers), -1)
    found: dict[str, Any] = {"difference": difference, "capped": head.said["cap"] is not None}
    found |= {"sum": total, "embeddings": float(shares[0]), "biases": rest}
    return {**found, "heads": layers[:, :-1].tolist(), "networks": layers[:, -1].tolist()}
