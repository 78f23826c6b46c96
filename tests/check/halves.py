"""A layer of Llama in half precision as three kinds of programs compute it, and as wrong ones do.

Code of the tests' own. What is written down has the digits of the type; NumPy has no bfloat16, so that
is kept in float32. Eager rounds after every kernel, as Hugging Face's does; sdpa keeps scores and
softmax in float32 and rounds the weights before they meet V; fused makes Q, K and V in one product,
turns them in float32 and goes block by block with a running maximum.
"""

from __future__ import annotations

import numpy as np
from programs import kept, softmax

HEADS, KV_HEADS, D = 8, 2, 16
D_MODEL = HEADS * D
DTYPES = ("float16", "bfloat16")
INPUTS = ("X", "W_Q", "W_K", "W_V", "W_O")
RECORDED = {
    "weights and output": (*INPUTS, "attention_weights", "output"),
    "Q K V and output": ("Q", "K", "V", "W_O", "output"),
    "only the output": (*INPUTS, "output"),
}
"""What of a run is written down."""

SHARP, FLAT = 1.6, 0.6
"""How large Q and K are: rows of weights with one key that outdoes the others, or with none."""


def inputs(dtype, n, size=SHARP, seed=0):
    rng = np.random.default_rng(seed)
    near = kept(dtype)
    given = {"X": near(rng.standard_normal((n, D_MODEL)))}
    for name, heads, by in (("W_Q", HEADS, size), ("W_K", KV_HEADS, size), ("W_V", KV_HEADS, 1)):
        given[name] = near(by * rng.standard_normal((D_MODEL, heads * D)) / np.sqrt(D_MODEL))
    return given | {"W_O": near(rng.standard_normal((HEADS * D, D_MODEL)) / np.sqrt(D_MODEL))}


def split(x, heads):
    return np.moveaxis(x.reshape(len(x), heads, D), 1, 0)


def merge(z):
    return np.moveaxis(z, 0, 1).reshape(z.shape[1], -1)


def angles(n, theta=10000.0):
    angle = np.arange(n)[:, None] * theta ** (-2 * np.arange(D // 2) / D)
    return np.concatenate((angle, angle), axis=-1).astype(np.float32)


def halves(x):
    return np.concatenate((-x[..., D // 2 :], x[..., : D // 2]), axis=-1)


def neighbours(x):
    return np.stack((-x[..., 1::2], x[..., ::2]), axis=-1).reshape(x.shape)


def wide(x):
    return x.astype(np.float32)


def attend(given, dtype, style, mistake=None):
    """Every step that is written down."""
    near = kept(dtype)

    def keep(x):
        return wide(near(x))

    x, w_q, w_k, w_v, w_o = (wide(given[name]) for name in INPUTS)
    if style == "fused":
        q, k, v = np.split(
            x @ np.concatenate((w_q, w_k, w_v), axis=1), (HEADS * D, (HEADS + KV_HEADS) * D), 1
        )
    else:
        q, k, v = x @ w_q, x @ w_k, x @ w_v
    q, k, v = keep(split(q, HEADS)), keep(split(k, KV_HEADS)), keep(split(v, KV_HEADS))
    steps = {**given, "Q": near(q), "K": near(k), "V": near(v)}
    if mistake != "not rotated":
        q, k = (turned(each, style, keep, mistake) for each in (q, k))
    if mistake == "heads tiled":
        k, v = (np.concatenate([each] * (HEADS // KV_HEADS)) for each in (k, v))
    else:
        k, v = (np.repeat(each, HEADS // KV_HEADS, axis=0) for each in (k, v))
    weights, z = {"eager": eager, "sdpa": sdpa, "fused": fused}[style](q, k, v, keep, mistake)
    y = keep(keep(merge(z)) @ w_o)
    if mistake == "noise of 3 %":
        rng = np.random.default_rng(7)
        weights = weights * (1 + 0.03 * wide(rng.standard_normal(weights.shape)))
        y = y + 0.03 * y.std() * wide(rng.standard_normal(y.shape))
    if mistake == "one number":
        weights, y = weights.copy(), y.copy()
        weights[3, -1, np.argsort(weights[3, -1])[-2]] += 0.2
        y[-1, 5] += y.std()
    return {**steps, "attention_weights": near(weights), "output": near(y)}


def turned(x, style, keep, mistake):
    angle = angles(x.shape[-2], 20000.0 if mistake == "another base" else 10000.0)
    cos, sin = np.cos(angle), np.sin(angle)
    other = neighbours if mistake == "neighbours turned" else halves
    if style == "fused":
        return keep(x * cos + other(x) * sin)
    cos, sin = keep(cos), keep(sin)
    return keep(keep(x * cos) + keep(other(x) * sin))


def scale_of(mistake):
    return np.float32(D**-0.5 * {"unscaled": D**0.5, "scale 10 % off": 1.1}.get(mistake, 1.0))


def hidden(n, mistake):
    return np.tri(n, k={"mask dropped": n, "a key too many": 1}.get(mistake, 0), dtype=bool)


def eager(q, k, v, keep, mistake):
    s = keep(keep(q @ k.swapaxes(-1, -2)) * scale_of(mistake))
    a = keep(softmax(np.where(hidden(s.shape[-1], mistake), s, -np.inf)))
    return a, keep(a @ v)


def sdpa(q, k, v, keep, mistake):
    s = (q * np.sqrt(scale_of(mistake))) @ (k * np.sqrt(scale_of(mistake))).swapaxes(-1, -2)
    a = softmax(np.where(hidden(s.shape[-1], mistake), s, -np.inf))
    return keep(a), keep(keep(a) @ v)


def fused(q, k, v, keep, mistake, block=16):
    n = q.shape[-2]
    seen = hidden(n, mistake)
    top = np.full((*q.shape[:-1], 1), -np.inf, np.float32)
    total, z = np.zeros_like(top), np.zeros_like(q)
    s = (q @ k.swapaxes(-1, -2)) * scale_of(mistake)
    s = np.where(seen, s, -np.inf)
    for start in range(0, n, block):
        part = s[..., start : start + block]
        new = np.maximum(top, part.max(axis=-1, keepdims=True))
        e, old = np.exp(part - new), np.exp(top - new)
        total, z, top = (
            total * old + e.sum(axis=-1, keepdims=True),
            z * old + keep(e) @ v[:, start : start + block],
            new,
        )
    return keep(np.exp(s - top) / total), keep(z / total)


STYLES = ("eager", "sdpa", "fused")
WRONG = (
    "not rotated", "neighbours turned", "another base", "heads tiled", "unscaled", "scale 10 % off",
    "mask dropped", "a key too many", "noise of 3 %", "one number",
)  # fmt: skip


def recorded(steps, what):
    return {name: steps[name] for name in RECORDED[what]}
