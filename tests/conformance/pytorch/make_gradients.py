"""Freeze gradients that PyTorch's autograd takes, for tests that run without PyTorch.

    python -m venv torchenv && torchenv/bin/pip install torch==2.13.0 numpy
    torchenv/bin/python tests/conformance/pytorch/make_gradients.py

Each case is attention as a few lines of PyTorch in float64: the arrays and options in attnctl's words, the
gradient that its backward pass begins with, and the gradient of every array that was handed in.
"""

from __future__ import annotations

import torch
from make import normal, rotate_half, rotate_neighbours, write
from torch.nn.functional import layer_norm, softmax

HIDDEN = torch.tensor(float("-inf"), dtype=torch.float64)


def rotated(x, start, theta, *, interleaved):
    size = x.shape[-1]
    turns = theta ** (-torch.arange(0, size, 2).double() / size)
    angles = torch.outer(torch.arange(start, start + x.shape[-2]).double(), turns)
    both = angles.repeat_interleave(2, -1) if interleaved else torch.cat((angles, angles), dim=-1)
    turn = rotate_neighbours if interleaved else rotate_half
    return x * both.cos() + turn(x) * both.sin()


def normed(x, given, name, kind, eps, *, one_row):
    weight, bias = given.get(f"{name}_norm_weight"), given.get(f"{name}_norm_bias")
    if one_row:
        x = x.transpose(-3, -2)
    axes = (-2, -1) if one_row else (-1,)
    if kind == "layer":
        x = layer_norm(x, x.shape[-len(axes) :], eps=eps)
    else:
        x = x / torch.sqrt(x.square().mean(dim=axes, keepdim=True) + eps)
    if weight is not None:
        weight = weight if one_row or weight.ndim == 1 else weight[:, None]
        x = x * weight
    if bias is not None:
        x = x + (bias if one_row or bias.ndim == 1 else bias[:, None])
    return x.transpose(-3, -2) if one_row else x


def attend(g, o):
    """Attention as the textbook has it; g are the arrays, o the options of attnctl."""
    if "X" in g:
        memory = g.get("memory", g["X"])
        read = {"Q": g["X"], "K": memory, "V": memory}
        made = {n: x[..., None, :, :] @ g[f"W_{n}"] for n, x in read.items()}
        q, k, v = (made[n] + g[f"b_{n}"][:, None] if f"b_{n}" in g else made[n] for n in "QKV")
    else:
        q, k, v = g["Q"], g["K"], g["V"]
    past = g["past_key"].shape[-2] if "past_key" in g else 0
    if o.get("qk_norm"):
        how = o["qk_norm"]
        one_row = how.get("over") == "heads"
        q, k = (normed(x, g, n, how["kind"], how["eps"], one_row=one_row) for x, n in ((q, "Q"), (k, "K")))
    if o.get("positions") == "rope":
        q, k = (rotated(x, past, 10000.0, interleaved=False) for x in (q, k))
    if past:
        k, v = torch.cat((g["past_key"], k), -2), torch.cat((g["past_value"], v), -2)
    share = q.shape[-3] // k.shape[-3]
    k, v = k.repeat_interleave(share, -3), v.repeat_interleave(share, -3)
    s = q @ k.transpose(-1, -2) * o.get("scale", q.shape[-1] ** -0.5)
    if "softcap" in o:
        s = o["softcap"] * torch.tanh(s / o["softcap"])
    query = torch.arange(q.shape[-2])[:, None] + past
    key = torch.arange(k.shape[-2])
    if o.get("positions") == "alibi":
        slopes = 2.0 ** (-8 * torch.arange(1, q.shape[-3] + 1).double() / q.shape[-3])
        s = s - slopes[:, None, None] * (query - key).abs()
    if "bias" in g:
        s = s + g["bias"]
    seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
    if o.get("causal"):
        seen = seen & (key <= query)
    if "window" in o:
        before, after = o["window"]
        seen = seen & (key >= query - before) & (key <= query + after)
    if "mask" in g:
        seen = seen & g["mask"]
    s = torch.where(seen, s, HIDDEN)
    if "sink" in g:
        sink = g["sink"][:, None, None].expand(*s.shape[:-1], 1)
        a = softmax(torch.cat((s, sink), -1), -1)[..., :-1]
    else:
        a = softmax(s, -1).nan_to_num(0.0)
    z = a @ v
    if "W_O" not in g:
        return z
    y = z.transpose(-3, -2).flatten(-2) @ g["W_O"]
    return y + g["b_O"] if "b_O" in g else y


def case(name, given, **options):
    leaves = {n: x.clone().requires_grad_(requires_grad=x.dtype != torch.bool) for n, x in given.items()}
    y = attend(leaves, options)
    d = normal(*y.shape)
    y.backward(d)
    return {
        "name": name,
        "arrays": {**given, "d_output": d},
        "options": options,
        "gradients": {n: x.grad for n, x in leaves.items() if x.dtype != torch.bool},
    }


def of_heads(heads=2, kv_heads=2, n=4, m=5, lead=(), d_k=4, d_v=3):
    return {
        "Q": normal(*lead, heads, n, d_k),
        "K": normal(*lead, kv_heads, m, d_k),
        "V": normal(*lead, kv_heads, m, d_v),
    }


def of_rows(heads=2, kv_heads=2, d=4, size=6, memory=None, lead=(), *, biases=True):
    out = {"X": normal(*lead, 4, size)} | (
        {} if memory is None else {"memory": normal(*lead, memory, size)}
    )
    for n, count in (("Q", heads), ("K", kv_heads), ("V", kv_heads)):
        out[f"W_{n}"] = normal(count, size, d)
        out |= {f"b_{n}": normal(count, d)} if biases else {}
    out["W_O"] = normal(heads * d, size)
    return out | ({"b_O": normal(size)} if biases else {})


def cases():
    torch.manual_seed(3)
    yield case("plain", of_heads())
    yield case("batch", of_heads(lead=(3,)))
    yield case("scale", of_heads(), scale=0.3)
    yield case("causal", of_heads(m=4), causal=True)
    yield case("window", of_heads(m=4), causal=True, window=[1, 0])
    yield case("softcap", of_heads(), softcap=1.5)
    yield case("grouped heads", of_heads(heads=6))
    yield case("grouped heads, batch, causal", of_heads(heads=4, m=4, lead=(2,)), causal=True)
    yield case("one kv head", of_heads(heads=3, kv_heads=1))
    yield case("alibi", of_heads(heads=4, kv_heads=4, m=4), positions="alibi", causal=True)
    yield case("rope", of_heads(m=4), positions="rope", causal=True)
    seen = torch.rand(4, 5) < 0.6
    seen[0], seen[2] = True, False
    yield case("mask, a row that sees nothing", {**of_heads(), "mask": seen})
    yield case("bias", {**of_heads(), "bias": normal(2, 4, 5)})
    yield case("one bias for all", {**of_heads(lead=(2,)), "bias": normal(4, 5)})
    yield case("sink", {**of_heads(), "sink": normal(2)})
    yield case("sink, causal, batch", {**of_heads(m=4, lead=(2,)), "sink": normal(2)}, causal=True)
    cache = {"past_key": normal(2, 3, 4), "past_value": normal(2, 3, 3)}
    yield case("cache", {**of_heads(n=2, m=2), **cache}, causal=True)
    yield case("cache, rope", {**of_heads(n=2, m=2), **cache}, causal=True, positions="rope")
    rms = {"kind": "rms", "eps": 1e-6}
    weights = {"Q_norm_weight": normal(4), "K_norm_weight": normal(4)}
    yield case("rms norms", {**of_heads(), **weights}, qk_norm=rms)
    biased = {**weights, "Q_norm_bias": normal(4), "K_norm_bias": normal(4)}
    layer = {"kind": "layer", "eps": 1e-5}
    yield case("layer norms, rope", {**of_heads(m=4), **biased}, qk_norm=layer, positions="rope")
    by_head = {"Q_norm_weight": normal(2, 4), "K_norm_weight": normal(2, 4)}
    yield case("norms by head, batch", {**of_heads(lead=(2,)), **by_head}, qk_norm=rms)
    yield case("norms of all heads", {**of_heads(), **by_head}, qk_norm={**rms, "over": "heads"})
    yield case("projected", of_rows())
    yield case("projected, batch", of_rows(lead=(3,)), causal=True)
    yield case("projected, grouped", of_rows(heads=4, biases=False), causal=True, positions="rope")
    yield case("cross", of_rows(memory=5))
    yield case("cross, batch", of_rows(memory=3, lead=(2,)))
    every = {**of_rows(heads=4, lead=(2,)), **weights, "sink": normal(4), "bias": normal(4, 4)}
    yield case("everything", every, softcap=2.0, causal=True, positions="rope", qk_norm=rms)


if __name__ == "__main__":
    write("gradients", cases())
