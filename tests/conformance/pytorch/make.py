"""Freeze cases of PyTorch's attention beside this script, for tests that run without PyTorch.

    python -m venv torchenv && torchenv/bin/pip install torch==2.13.0 numpy
    torchenv/bin/python tests/conformance/pytorch/make.py

Every file holds PyTorch's own inputs, arguments and results in float64; what they are called and
how they are laid out in attnctl is for the tests to say.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as sdpa

HERE = Path(__file__).parent
INF = float("inf")


def plain(value):
    """Tensors as nested lists, and all of it as strict JSON can hold it."""
    match value:
        case torch.Tensor():
            return plain(value.tolist())
        case list():
            return [plain(each) for each in value]
        case dict():
            return {name: plain(each) for name, each in value.items()}
    return {INF: "Infinity", -INF: "-Infinity"}.get(value, value) if isinstance(value, float) else value


def write(name, cases):
    text = ",\n".join(json.dumps(plain(case)) for case in cases)
    head = json.dumps(torch.__version__.partition("+")[0])
    (HERE / f"{name}.json").write_text(f'{{"torch": {head}, "cases": [\n{text}\n]}}\n', encoding="utf-8")


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64).round(decimals=2)


def sdpa_case(name, q, k, v, mask=None, **arguments):
    """One call; a second with the identity for values gives the weights."""
    eye = torch.eye(k.shape[-2], dtype=torch.float64).expand(*k.shape[:-1], k.shape[-2])
    inputs = {"query": q, "key": k, "value": v} | ({} if mask is None else {"attn_mask": mask})
    return {
        "name": name,
        "inputs": inputs,
        "arguments": arguments,
        "outputs": {
            "output": sdpa(q, k, v, mask, **arguments),
            "weights": sdpa(q, k, eye, mask, **arguments),
        },
    }


def sdpa_cases():
    torch.manual_seed(0)
    q, k, v = normal(2, 3, 4, 3), normal(2, 3, 4, 3), normal(2, 3, 4, 2)
    long_k, long_v = normal(2, 3, 6, 3), normal(2, 3, 6, 2)
    yield sdpa_case("plain", q, k, v)
    yield sdpa_case("no batch", q[0], k[0], v[0], is_causal=True)
    yield sdpa_case("causal", q, k, v, is_causal=True)
    yield sdpa_case("causal, more keys", q, long_k, long_v, is_causal=True)
    yield sdpa_case("causal, more queries", q, k[:, :, :2], v[:, :, :2], is_causal=True)
    yield sdpa_case("scale", q, k, v, scale=0.3)
    visible = torch.rand(4, 6) < 0.6
    visible[0] = True
    yield sdpa_case("boolean mask", q, long_k, long_v, visible)
    visible = visible.clone()
    visible[2] = False
    yield sdpa_case("boolean mask, a row that sees nothing", q, long_k, long_v, visible)
    yield sdpa_case("boolean mask by head", q, long_k, long_v, torch.rand(3, 4, 6) < 0.8)
    yield sdpa_case("boolean mask by batch", q, long_k, long_v, torch.rand(2, 1, 1, 6) < 0.8)
    added = normal(4, 6)
    added[1, 3] = added[2, 0] = -INF
    yield sdpa_case("float mask", q, long_k, long_v, added)
    yield sdpa_case("float mask by batch and head", q, long_k, long_v, normal(2, 3, 4, 6), scale=0.5)
    few_k, few_v = normal(2, 2, 4, 3), normal(2, 2, 4, 2)
    many_q = normal(2, 6, 4, 3)
    yield sdpa_case("grouped heads", many_q, few_k, few_v, enable_gqa=True)
    yield sdpa_case("grouped heads, causal", many_q, few_k, few_v, enable_gqa=True, is_causal=True)
    yield sdpa_case("one kv head", many_q, few_k[:, :1], few_v[:, :1], enable_gqa=True)
    yield sdpa_case("huge scores", q * 1e3, k * 1e3, v)


def mha_case(name, module, query, key, value, **masks):
    """One call of nn.MultiheadAttention with its parameters."""
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(normal(*parameter.shape))
        output, weights = module(query, key, value, average_attn_weights=False, **masks)
    return {
        "name": name,
        "inputs": {"query": query, "key": key, "value": value, **masks},
        "arguments": {"heads": module.num_heads},
        "parameters": {name: each.detach() for name, each in module.named_parameters()},
        "outputs": {"output": output, "weights": weights},
    }


def mha_cases():
    torch.manual_seed(1)
    x, memory = normal(2, 4, 6), normal(2, 5, 6)
    hidden = torch.tensor([[False, False, False, True, True], [False] * 5])
    upper = torch.ones(4, 4, dtype=torch.bool).triu(1)

    def module(heads=2, **options):
        return nn.MultiheadAttention(6, heads, batch_first=True, **options)

    yield mha_case("self", module(), x, x, x)
    yield mha_case("three heads", module(3), x, x, x)
    yield mha_case("no batch", module(), x[0], x[0], x[0])
    yield mha_case("no biases", module(bias=False), x, x, x)
    yield mha_case("cross", module(), x, memory, memory)
    yield mha_case("padded keys", module(), x, memory, memory, key_padding_mask=hidden)
    yield mha_case("causal by mask", module(), x, x, x, attn_mask=upper)
    by_head = torch.rand(4, 4, 5) < 0.3
    by_head[..., 0] = False
    yield mha_case("mask by batch and head", module(), x, memory, memory, attn_mask=by_head)
    both = {"attn_mask": torch.rand(4, 5) < 0.3, "key_padding_mask": hidden}
    both["attn_mask"][:, 0] = False
    yield mha_case("both masks", module(), x, memory, memory, **both)
    yield mha_case("float mask", module(), x, memory, memory, attn_mask=normal(4, 5))
    key, value = normal(2, 5, 3), normal(2, 5, 4)
    yield mha_case("kdim and vdim", module(kdim=3, vdim=4), x, key, value)


def rotate_half(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


def rotate_neighbours(x):
    return torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)


def rotary_case(name, theta, dims, *, interleaved):
    """Llama's halves, or GPT-J's neighbours; beyond `dims` columns pass through."""
    q, k, v = normal(2, 5, 8), normal(2, 5, 8), normal(2, 5, 3)
    angles = torch.outer(torch.arange(5.0).double(), theta ** (-torch.arange(0, dims, 2).double() / dims))
    both = angles.repeat_interleave(2, -1) if interleaved else torch.cat((angles, angles), dim=-1)
    turn = rotate_neighbours if interleaved else rotate_half

    def rotated(x):
        head, rest = x[..., :dims], x[..., dims:]
        return torch.cat((head * both.cos() + turn(head) * both.sin(), rest), dim=-1)

    return {
        "name": name,
        "inputs": {"query": q, "key": k, "value": v},
        "arguments": {"theta": theta, "dims": dims, "interleaved": interleaved},
        "outputs": {
            "query": rotated(q),
            "key": rotated(k),
            "output": sdpa(rotated(q), rotated(k), v, is_causal=True),
        },
    }


def rotary_cases():
    torch.manual_seed(2)
    yield rotary_case("halves", 10000.0, 8, interleaved=False)
    yield rotary_case("halves, another theta", 500000.0, 8, interleaved=False)
    yield rotary_case("halves, partial", 10000.0, 4, interleaved=False)
    yield rotary_case("neighbours", 10000.0, 8, interleaved=True)
    yield rotary_case("neighbours, partial", 10000.0, 6, interleaved=True)


if __name__ == "__main__":
    write("sdpa", sdpa_cases())
    write("mha", mha_cases())
    write("rotary", rotary_cases())
