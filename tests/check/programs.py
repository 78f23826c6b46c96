"""Causal attention as right programs compute it, each in its own way, and as wrong ones do.

Code of the tests' own. Every program starts from the same arrays of one type of number, and gives
the steps that it has by their names, rounded to that type.
"""

from __future__ import annotations

import numpy as np
from planted import bfloat16

QUERIES = 64
HEADS = 8
INPUTS = ("X", "W_Q", "W_K", "W_V", "W_O")

DTYPES = ("float64", "float32", "float16", "bfloat16")
D_MODELS = (64, 256, 1024)
RECORDED = {
    "everything": (),
    "ends": ("X", "W_Q", "W_K", "W_V", "W_O", "attention_weights", "output"),
    "Q K V": ("Q", "K", "V", "W_O", "output"),
    "only the output": ("X", "W_Q", "W_K", "W_V", "W_O", "output"),
}
"""What of a run is written down; nothing named is everything."""


def kept(dtype):
    """Rounds to a type; NumPy has no bfloat16, so that is kept in float32."""
    return bfloat16 if dtype == "bfloat16" else (lambda x: x.astype(dtype))


def working(dtype):
    """What sums are kept in."""
    return "float64" if dtype == "float64" else "float32"


def inputs(dtype, d_model, n=QUERIES, seed=0):
    """X and weights, of a size that keeps numbers near 1."""
    rng = np.random.default_rng(seed)
    near = kept(dtype)
    given = {"X": near(rng.standard_normal((n, d_model)))}
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        given[name] = near(rng.standard_normal((d_model, d_model)) / np.sqrt(d_model))
    return given


# --- products of matrices, in one order of summing or another ---


def blas(a, b):
    return a @ b


def einsum(a, b):
    return np.einsum("...ij,...jk->...ik", a, b)


def reversed_sum(a, b):
    return a[..., ::-1].copy() @ b[..., ::-1, :].copy()


def one_by_one(a, b):
    out = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), a.dtype)
    for k in range(a.shape[-1]):
        out += a[..., :, k : k + 1] * b[..., k : k + 1, :]
    return out


def pairwise(a, b):
    half = a.shape[-1] // 2
    if half < 2:
        return one_by_one(a, b)
    return pairwise(a[..., :half], b[..., :half, :]) + pairwise(a[..., half:], b[..., half:, :])


def blocked(a, b, block=16):
    return sum(a[..., i : i + block] @ b[..., i : i + block, :] for i in range(0, a.shape[-1], block))


def tf32(a, b):
    """Ten bits of each factor after the leading one, summed in float32."""
    return tf32_rounded(a) @ tf32_rounded(b)


def tf32_rounded(x):
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)


def tf32_cut(a, b):
    """The same, with the digits cut off."""
    return cut(a) @ cut(b)


def cut(x):
    return (x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


# --- programs ---


def split(x):
    n, columns = x.shape
    return np.moveaxis(x.reshape(n, HEADS, columns // HEADS), 1, 0)


def merge(z):
    return np.moveaxis(z, 0, 1).reshape(z.shape[1], -1)


def softmax(s):
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def program(given, dtype, product=blas, each=True, fused=False, folded=False, mistake=None):
    """Every step; rounded each before the next reads it, or only when it is written down."""
    keep, wide = kept(dtype), working(dtype)
    steps = dict(given)

    def step(name, x):
        steps[name] = keep(x)
        return steps[name].astype(wide) if each else x

    x, w_q, w_k, w_v, w_o = (array.astype(wide) for array in given.values())
    if fused:
        q, k, v = np.split(product(x, np.concatenate((w_q, w_k, w_v), axis=1)), 3, axis=1)
    else:
        q, k, v = product(x, w_q), product(x, w_k), product(x, w_v)
    q, k, v = step("Q", split(q)), step("K", split(k)), step("V", split(v))
    root = np.sqrt(q.shape[-1]).astype(wide)
    if folded:
        q = keep(q / root).astype(wide) if each else q / root
        s = step("scaled_scores", product(q, k.swapaxes(-1, -2)))
    else:
        a, b = (k, q) if mistake == "Q and K exchanged" else (q, k)
        s = step("scaled_scores", step("scores", product(a, b.swapaxes(-1, -2))) / root)
    if mistake != "mask dropped":
        s = np.where(np.tri(s.shape[-1], dtype=bool), s, -np.inf).astype(wide)
    s = step("masked_scores", s)
    z = step("head_outputs", product(step("attention_weights", softmax(s)), v))
    if mistake == "heads shuffled":
        z = np.roll(z, 1, axis=0)
    step("output", product(step("concat", merge(z)), w_o))
    return steps


def online(given, dtype, block=16):
    """Softmax and A V a block of keys at a time, with a running maximum: weights are never whole."""
    keep, wide = kept(dtype), working(dtype)
    x, w_q, w_k, w_v, w_o = (array.astype(wide) for array in given.values())
    q, k, v = (keep(split(x @ w)).astype(wide) for w in (w_q, w_k, w_v))
    n = q.shape[1]
    top = np.full((HEADS, n, 1), -np.inf, wide)
    total, sums = np.zeros_like(top), np.zeros_like(v)
    for start in range(0, n, block):
        keys = slice(start, start + block)
        s = (q @ k[:, keys].swapaxes(-1, -2)) / np.sqrt(q.shape[-1]).astype(wide)
        s = np.where(np.tri(n, dtype=bool)[:, keys], s, -np.inf).astype(wide)
        new = np.maximum(top, s.max(axis=-1, keepdims=True))
        grown, shrunk = np.exp(s - new), np.exp(top - new)
        total = total * shrunk + grown.sum(axis=-1, keepdims=True)
        sums = sums * shrunk + keep(grown).astype(wide) @ v[:, keys]
        top = new
    z = keep(sums / total)
    s = (q @ k.swapaxes(-1, -2)) / np.sqrt(q.shape[-1]).astype(wide)
    weights = np.where(np.tri(n, dtype=bool), np.exp(s - top) / total, 0)
    steps = {**given, "Q": keep(q), "K": keep(k), "V": keep(v), "attention_weights": keep(weights)}
    return {**steps, "head_outputs": z, "output": keep(merge(z.astype(wide)) @ w_o)}


RIGHT = {
    "each step rounded": program,
    "rounded at the end": lambda given, dtype: program(given, dtype, each=False),
    "einsum": lambda given, dtype: program(given, dtype, einsum),
    "reversed sum": lambda given, dtype: program(given, dtype, reversed_sum),
    "one by one": lambda given, dtype: program(given, dtype, one_by_one),
    "pairwise": lambda given, dtype: program(given, dtype, pairwise),
    "blocked": lambda given, dtype: program(given, dtype, blocked),
    "fused QKV": lambda given, dtype: program(given, dtype, fused=True),
    "scale folded into Q": lambda given, dtype: program(given, dtype, folded=True),
    "online softmax": online,
    "TF32": lambda given, dtype: program(given, dtype, tf32 if dtype == "float32" else blocked, each=False),
    "TF32, cut": lambda given, dtype: program(
        given, dtype, tf32_cut if dtype == "float32" else one_by_one, each=False
    ),
}
"""Right programs. Only float32 has TF32: the others sum in another order there."""


def noisy(part):
    """Noise on the output, of this part of its spread."""

    def steps(given, dtype):
        out = program(given, dtype)
        y = out["output"].astype(np.float64)
        noise = np.random.default_rng(1).standard_normal(y.shape) * (part * y.std())
        return {**out, "output": kept(dtype)(y + noise)}

    return steps


def zeros(given, dtype):
    out = program(given, dtype)
    return {**out, "output": np.zeros_like(out["output"])}


def made(mistake):
    return lambda given, dtype: program(given, dtype, mistake=mistake)


WRONG = {
    "zeros": zeros,
    "noise of 1 %": noisy(0.01),
    "noise of 10 %": noisy(0.1),
    "noise of 100 %": noisy(1.0),
    "Q and K exchanged": made("Q and K exchanged"),
    "heads shuffled": made("heads shuffled"),
    "mask dropped": made("mask dropped"),
}


def recorded(steps, what):
    names = RECORDED[what]
    return {name: array for name, array in steps.items() if name in names or not names}
