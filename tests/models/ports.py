"""Ports of attention layers as people write them, each with a mistake that can be switched on.

They share no code with attnctl: tensors are read here, every intermediate is rounded to the type
of the port (float32, or bfloat16 kept in float32).
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
from checkpoints import ROOT, expected_of


@dataclass
class Port:
    """A layer of a checkpoint, ported: what its author knows of it."""

    name: str
    layer: int
    at: str
    norm: str
    q: str
    k: str
    v: str
    o: str
    heads: int
    kv_heads: int
    eps: float
    bug: str
    expected: str
    """What check calls the mistake."""
    step: str
    """The first wrong step."""
    theta: float | None = None
    pairs: str = "halves"
    turned: int | None = None
    scale: float | None = None
    window: int | None = None
    softcap: float | None = None
    kind: str = "rms"
    plus_one: bool = False
    head_norms: tuple[str, str] | None = None
    sink: str | None = None
    conv1d: str | None = None
    dump: tuple[str, ...] = field(
        default=("hidden", "X", "Q", "K", "V", "scores", "attention_weights", "output")
    )


def tensors(name: str) -> dict[str, np.ndarray]:
    """Every tensor of a float32 checkpoint."""
    found = {}
    for path in (ROOT / name).glob("*.safetensors"):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        for key, entry in json.loads(data[8 : 8 + length]).items():
            if key != "__metadata__":
                start, stop = (8 + length + at for at in entry["data_offsets"])
                found[key] = np.frombuffer(data[start:stop], "<f4").reshape(entry["shape"])
    return found


def bfloat16(x: np.ndarray) -> np.ndarray:
    """Rounded to bfloat16, half to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def run(p: Port, kind: str, *, wrong: bool) -> dict[str, np.ndarray]:
    """What the port dumps, with its mistake or without."""
    rounded = bfloat16 if kind == "bfloat16" else lambda x: x.astype(np.float32)
    stored = {key: rounded(value) for key, value in tensors(p.name).items()}
    bug = p.bug if wrong else ""
    hidden = rounded(expected_of(p.name)[f"hidden_{p.layer}"])

    def weight(name: str) -> np.ndarray:
        return stored[f"{p.at}{name}"]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        if p.kind == "layer" and x.ndim == 2:
            centred = x - x.mean(-1, keepdims=True)
            y = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + p.eps)
            return rounded(y * weight(f"{name}.weight") + weight(f"{name}.bias"))
        y = x / np.sqrt((x**2).mean(-1, keepdims=True) + p.eps)
        plus = 1 if p.plus_one and bug != "one-plus" else 0
        return rounded(y * (plus + weight(f"{name}.weight")))

    def linear(x: np.ndarray, name: str, letter: str) -> np.ndarray:
        if p.conv1d:
            fused, bias = weight(f"{p.conv1d}.weight"), weight(f"{p.conv1d}.bias")
            width = fused.shape[1] // 3
            part = slice("qkv".index(letter) * width, ("qkv".index(letter) + 1) * width)
            matrix = fused[:, part].T if bug == "transposed" and letter == "v" else fused[:, part]
            return rounded(x @ matrix + (0 if bug == "bias" and letter == "k" else bias[part]))
        y = x @ weight(f"{name}.weight").T
        key = f"{p.at}{name}.bias"
        lost = bug == "bias" and letter == "q"
        return rounded(y + stored[key]) if key in stored and not lost else rounded(y)

    def split(x: np.ndarray, heads: int) -> np.ndarray:
        return x.reshape(len(x), heads, -1).swapaxes(0, 1)

    def turn(x: np.ndarray) -> np.ndarray:
        dims = p.turned or x.shape[-1]
        theta = 10000.0 if bug == "theta" else p.theta
        angle = np.arange(x.shape[1])[:, None] * theta ** (-np.arange(0, dims, 2) / dims)
        cos, sin = np.cos(angle), np.sin(angle)
        neighbours = (p.pairs == "neighbours") != (bug == "pairs")
        out = x.copy()
        one, two = (
            (slice(0, dims, 2), slice(1, dims, 2))
            if neighbours
            else (slice(0, dims // 2), slice(dims // 2, dims))
        )
        out[..., one] = x[..., one] * cos - x[..., two] * sin
        out[..., two] = x[..., one] * sin + x[..., two] * cos
        return rounded(out)

    out = {"hidden": hidden, "X": norm(hidden, p.norm)}
    q, k, v = (
        split(linear(out["X"], name, letter), heads)
        for name, letter, heads in ((p.q, "q", p.heads), (p.k, "k", p.kv_heads), (p.v, "v", p.kv_heads))
    )
    out |= {"Q": q, "K": k, "V": v}
    if p.head_norms and bug != "norm-after":
        q, k = norm(q, p.head_norms[0]), norm(k, p.head_norms[1])
    if p.theta:
        q, k = turn(q), turn(k)
    if p.head_norms and bug == "norm-after":
        q, k = norm(q, p.head_norms[0]), norm(k, p.head_norms[1])
    out |= {"Q_rotated": q, "K_rotated": k}
    share = p.heads // p.kv_heads
    k, v = ((np.tile(x, (share, 1, 1)) if bug == "kv-order" else np.repeat(x, share, 0)) for x in (k, v))
    out |= {"K_shared": k, "V_shared": v}
    s = out["scores"] = rounded(q @ k.swapaxes(1, 2))
    own = 1 / sqrt(q.shape[-1])
    s = out["scaled_scores"] = rounded(
        s * np.float32(own if p.scale is None or bug == "scale" else p.scale)
    )
    if p.softcap:
        s = out["softcapped_scores"] = rounded(np.tanh(s / p.softcap) * p.softcap)
    query, key = np.arange(len(hidden))[:, None], np.arange(len(hidden))[None]
    seen = key <= query
    if p.window and bug != "window":
        seen &= key > query - p.window
    s = np.where(seen, s, -np.inf)
    if p.sink and bug != "sink":
        column = np.broadcast_to(weight(p.sink)[:, None, None], (*s.shape[:2], 1))
        s = np.concatenate([s, column], -1)
    e = np.exp(s - s.max(-1, keepdims=True))
    a = out["attention_weights"] = rounded((e / e.sum(-1, keepdims=True))[..., : len(hidden)])
    z = rounded(a @ v)
    flat = rounded(z.swapaxes(0, 1).reshape(len(hidden), -1))
    matrix = weight(f"{p.o}.weight")
    y = flat @ (matrix if p.conv1d else matrix.T)
    key_of_bias = f"{p.at}{p.o}.bias"
    out["output"] = rounded(y + stored[key_of_bias]) if key_of_bias in stored else rounded(y)
    return {name: out[name] for name in p.dump}


LLAMA = {
    "norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "heads": 4,
    "kv_heads": 2,
}
GPT2 = {
    "norm": "ln_1",
    "q": "",
    "k": "",
    "v": "",
    "o": "attn.c_proj",
    "conv1d": "attn.c_attn",
    "heads": 4,
    "kv_heads": 4,
    "eps": 1e-5,
    "kind": "layer",
}
GEMMA2 = {**LLAMA, "eps": 1e-6, "plus_one": True, "softcap": 2.0, "scale": 10**-0.5, "theta": 10000.0}
AFTER_ROTATION = ("hidden", "X", "Q", "K", "V", "Q_rotated", "K_rotated", "scores", "attention_weights")

PORTS = [
    Port("mixtral", 1, "model.layers.1.", **LLAMA, eps=1e-5, theta=1e6, dump=AFTER_ROTATION,
         bug="theta", expected="rotary-theta", step="Q_rotated"),
    Port("qwen3", 1, "model.layers.1.", **LLAMA, eps=1e-6, theta=10000.0, dump=AFTER_ROTATION,
         head_norms=("self_attn.q_norm", "self_attn.k_norm"),
         bug="norm-after", expected="norm-order-wrong", step="Q_rotated"),
    Port("gptj", 1, "h.1.", norm="ln_1", q="attn.q_proj", k="attn.k_proj", v="attn.v_proj",
         o="attn.out_proj",
         heads=2, kv_heads=2, eps=1e-5, kind="layer", theta=10000.0, pairs="neighbours", turned=4,
         bug="pairs", expected="rotary-pairs-wrong", step="scores"),
    Port("llama", 1, "layers.1.", **LLAMA, eps=1e-3, theta=500.0,
         bug="kv-order", expected="kv-heads-tiled", step="scores"),
    Port("granite", 1, "model.layers.1.", **LLAMA, eps=1e-6, theta=10000.0, scale=0.3,
         dump=("Q_rotated", "K_rotated", "scores", "scaled_scores", "attention_weights"),
         bug="scale", expected="scale", step="scaled_scores"),
    Port("gemma2", 0, "model.layers.0.", **GEMMA2, window=3,
         bug="window", expected="mask-ignored", step="attention_weights"),
    Port("llama", 0, "layers.0.", **LLAMA, eps=1e-3, theta=500.0,
         bug="bias", expected="bias-missing", step="Q"),
    Port("gemma2", 1, "model.layers.1.", **GEMMA2,
         bug="one-plus", expected="norm-plus-one-wrong", step="X"),
    Port("gpt-oss", 1, "model.layers.1.", **{**LLAMA, "eps": 1e-5}, theta=None, sink="self_attn.sinks",
         dump=("scores", "attention_weights"),
         bug="sink", expected="sink-missing", step="attention_weights"),
    Port("gpt2", 1, "transformer.h.1.", **GPT2, bug="transposed", expected="weight-transposed", step="V"),
]  # fmt: skip
"""Ten ports, each with a mistake of its own."""
