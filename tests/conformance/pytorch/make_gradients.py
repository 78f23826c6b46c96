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

BOTH = ("weight", "bias")
HIDDEN = torch.tensor(float("-inf"), dtype=torch.float64)


def rotated(x, start, theta=10000.0, *, interleaved=False, dims=None):
    if dims is not None and dims < x.shape[-1]:
        turn = rotated(x[..., :dims], start, theta, interleaved=interleaved)
        return torch.cat((turn, x[..., dims:]), -1)
    size = x.shape[-1]
    turns = theta ** (-torch.arange(0, size, 2).double() / size)
    angles = torch.outer(torch.arange(start, start + x.shape[-2]).double(), turns)
    both = angles.repeat_interleave(2, -1) if interleaved else torch.cat((angles, angles), dim=-1)
    turn = rotate_neighbours if interleaved else rotate_half
    return x * both.cos() + turn(x) * both.sin()


def normed(x, given, name, kind, eps, *, one_row=False, plus_one=False):
    weight, bias = given.get(f"{name}_weight"), given.get(f"{name}_bias")
    if one_row:
        x = x.transpose(-3, -2)
    axes = (-2, -1) if one_row else (-1,)
    if kind == "layer":
        x = layer_norm(x, x.shape[-len(axes) :], eps=eps)
    else:
        x = x / torch.sqrt(x.square().mean(dim=axes, keepdim=True) + eps)
    if weight is not None:
        weight = weight + 1 if plus_one else weight
        weight = weight if one_row or weight.ndim == 1 else weight[:, None]
        x = x * weight
    if bias is not None:
        x = x + (bias if one_row or bias.ndim == 1 else bias[:, None])
    return x.transpose(-3, -2) if one_row else x


def attend(g, o):
    """Attention as the textbook has it; g are the arrays, o the options of attnctl.

    Also the logarithm of what softmax divides by, where the loss is a function of that.
    """
    x = None
    if "hidden" in g:
        x, q, k, v = in_a_layer(g, o)
    elif "X" in g:
        memory = g.get("memory", g["X"])
        read = {"Q": g["X"], "K": memory, "V": memory}
        made = {n: x[..., None, :, :] @ g[f"W_{n}"] for n, x in read.items()}
        q, k, v = (made[n] + g[f"b_{n}"][:, None] if f"b_{n}" in g else made[n] for n in "QKV")
    elif "page_table" in g:
        q, table = g["Q"], g["page_table"]
        k, v = (g[f"{n}_pages"][table].flatten(1, 2).transpose(1, 2) for n in ("key", "value"))
    else:
        q, k, v = g["Q"], g["K"], g["V"]
    k, v = (x * g[n][:, None, None] if n in g else x for x, n in ((k, "k_scale"), (v, "v_scale")))
    past = g["past_key"].shape[-2] if "past_key" in g else 0
    how = o.get("qk_norm")
    if how and not how.get("after_rotation"):
        q, k = both_normed(q, k, g, how)
    first = past
    if past and o.get("cache_unrotated"):
        k, first = torch.cat((g["past_key"], k), -2), 0
    if "rope" in (o.get("positions") or ""):
        said = {} if o["positions"] == "rope" else o["positions"]["rope"]
        q, k = rotated(q, past, **said), rotated(k, first, **said)
    if how and how.get("after_rotation"):
        q, k = both_normed(q, k, g, how)
    if "temperature" in o:
        beta, every = o["temperature"]
        q = q * (1 + beta * torch.log1p((torch.arange(q.shape[-2]) + past).double() // every))[:, None]
    if past:
        k = k if o.get("cache_unrotated") else torch.cat((g["past_key"], k), -2)
        v = torch.cat((g["past_value"], v), -2)
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
    if "bias_table" in g:
        ahead = key - query
        s = s + g["bias_table"][:, torch.where(ahead > 0, 2, 0) + (ahead != 0)]  # 4 buckets, 2 a side
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
    if "key_lengths" in g:
        seen = seen & (key < g["key_lengths"][:, None, None, None])
    s = torch.where(seen, s, HIDDEN)
    if "sink" in g:
        sink = g["sink"][:, None, None].expand(*s.shape[:-1], 1)
        a = softmax(torch.cat((s, sink), -1), -1)[..., :-1]
    else:
        a = softmax(s, -1).nan_to_num(0.0)
    z = a @ v
    concat = z.transpose(-3, -2).flatten(-2)
    if o.get("gate"):
        gate = g["gate"] if "gate" in g else x @ g["W_gate"] + g["b_gate"]
        concat = concat * torch.sigmoid(gate)
    if "concat_norm" in o.get("layer", {}):
        concat = normed(concat, g, "concat_norm", **o["layer"]["concat_norm"])
    if "W_O" not in g:
        return concat if o.get("gate") else z, torch.logsumexp(s, -1)
    y = concat @ g["W_O"]
    return (y + g["b_O"] if "b_O" in g else y), torch.logsumexp(s, -1)


def both_normed(q, k, g, how):
    one_row, plus_one = how.get("over") == "heads", how.get("plus_one", False)
    return tuple(
        normed(x, g, f"{n}_norm", how["kind"], how["eps"], one_row=one_row, plus_one=plus_one)
        for x, n in ((q, "Q"), (k, "K"))
    )


def in_a_layer(g, o):
    """X, Q, K and V of a layer of a model: a norm before it, and latent rows (DeepSeek-V2)."""
    x = normed(g["hidden"], g, "norm", **o["layer"]["norm"])
    if "W_latent_KV" not in g:
        return x, *(x @ g[f"W_{n}"] for n in "QKV")
    norm = o["layer"]["latent_norm"]
    c_q = normed(x @ g["W_latent_Q"] + g["b_latent_Q"], g, "latent_Q_norm", **norm)
    c_kv = normed(x @ g["W_latent_KV"] + g["b_latent_KV"], g, "latent_KV_norm", **norm)
    q = c_q @ g["W_Q"]
    own = g["W_K"].shape[-1]
    q = torch.cat((q[..., :own], rotated(q[..., own:], 0)), -1)
    shared = rotated(x @ g["W_K_rope"] + g["b_K_rope"], 0)
    k = c_kv @ g["W_K"]
    k = torch.cat((k, shared.expand(len(k), *shared.shape)), -1)
    return x, q, k, c_kv @ g["W_V"]


def case(name, given, *, of_logsumexp=False, **options):
    leaves = {n: x.clone().requires_grad_(requires_grad=x.is_floating_point()) for n, x in given.items()}
    y, lse = attend(leaves, options)
    d = {"d_output": normal(*y.shape)}
    loss = (y * d["d_output"]).sum()
    if of_logsumexp:
        d["d_logsumexp"] = normal(*lse.shape)
        loss = loss + (lse * d["d_logsumexp"]).sum()
    loss.backward()
    return {
        "name": name,
        "arrays": {**given, **d},
        "options": options,
        "gradients": {n: x.grad for n, x in leaves.items() if x.is_floating_point()},
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
    yield case("rope of neighbours", of_heads(m=4), positions={"rope": {"interleaved": True}})
    part = {"rope": {"dims": 2, "theta": 100.0}}
    yield case("rope of two columns, grouped", of_heads(heads=4, m=4), positions=part, causal=True)
    grouped = {**of_heads(heads=4, n=2, m=2), **cache}
    yield case("cache, grouped, window", grouped, causal=True, window=[2, 0])
    yield case("cache, unrotated", grouped, causal=True, positions="rope", cache_unrotated=True)
    late = {**rms, "after_rotation": True, "plus_one": True}
    yield case("norms after rotation", {**of_heads(m=4), **weights}, qk_norm=late, positions="rope")
    yield case("norms of a projection", {**of_rows(heads=4), **weights}, qk_norm=rms, positions="rope")
    lengths = {"key_lengths": torch.tensor([5, 2, 0])}
    yield case("padding", {**of_heads(lead=(3,)), **lengths})
    yield case("sink, a row that sees nothing", {**of_heads(), "mask": seen, "sink": normal(2)})
    yield case("log-sum-exp", of_heads(heads=4, m=4, lead=(2,)), of_logsumexp=True, causal=True)
    yield case("cross, grouped", of_rows(heads=4, memory=5, biases=False), softcap=2.0)
    yield from layers()


def layers():
    """What only the layers of models have: a norm before, latent rows, a gate, learned distances."""
    norm = {"norm": {"kind": "layer", "eps": 1e-5}}
    factors = {"norm_weight": normal(6), "norm_bias": normal(6)}
    plain = {"hidden": normal(4, 6), **factors, **of_rows(heads=2, biases=False)}
    del plain["X"]
    gate = {"W_gate": normal(6, 8), "b_gate": normal(8)}
    yield case("layer, gate", {**plain, **gate}, layer=norm, causal=True, gate=True)
    yield case("layer, learned distances", {**plain, "bias_table": normal(2, 4)}, layer=norm)
    latent = {
        "hidden": normal(4, 6),
        "norm_weight": normal(6),
        **{f"{kind}_latent_Q": normal(*size) for kind, size in (("W", (6, 3)), ("b", (3,)))},
        **{f"{kind}_latent_KV": normal(*size) for kind, size in (("W", (6, 5)), ("b", (5,)))},
        **{f"{kind}_K_rope": normal(*size) for kind, size in (("W", (6, 2)), ("b", (2,)))},
        **{f"latent_{n}_norm_{kind}": normal(size) for n, size in (("Q", 3), ("KV", 5)) for kind in BOTH},
        "W_Q": normal(2, 3, 6),
        "W_K": normal(2, 5, 4),
        "W_V": normal(2, 5, 3),
        "W_O": normal(6, 6),
    }
    both = {"norm": {"kind": "rms", "eps": 1e-6}, "latent_norm": norm["norm"]}
    yield case("latents", latent, layer=both, causal=True)
    gated = {**of_heads(n=2, m=2), "past_key": normal(2, 3, 4), "past_value": normal(2, 3, 3)}
    gated["gate"] = normal(2, 6)
    yield case("gate given, temperature", gated, causal=True, temperature=[0.5, 2], gate=True)
    pages = {"key_pages": normal(5, 2, 2, 4), "value_pages": normal(5, 2, 2, 3)}
    table = {"page_table": torch.tensor([[4, 1], [2, 4]]), "key_lengths": torch.tensor([3, 4])}
    yield case("pages, one of them shared", {"Q": normal(2, 2, 3, 4), **pages, **table}, layout="bhnd")
    scales = {"k_scale": normal(2), "v_scale": normal(2)}
    yield case("scales of stored keys and values", {**of_heads(heads=4, lead=(2,)), **scales}, causal=True)
    width = plain["W_O"].shape[0]
    for kind in ("rms", "layer"):
        before_output = {f"concat_norm_{part}": normal(width) for part in BOTH}
        if kind == "rms":
            del before_output["concat_norm_bias"]
        parts = {**norm, "concat_norm": {"kind": kind, "eps": 1e-5}}
        yield case(f"layer, {kind} norm before W_O", {**plain, **before_output}, layer=parts, causal=True)


if __name__ == "__main__":
    write("gradients", cases())
