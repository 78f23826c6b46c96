"""What the kernels here have in common where it is right: softmax, who sees whom, grouped heads."""

import numpy as np


def wide(x):
    """The type that sums are kept in."""
    return np.float64 if x.dtype == np.float64 else np.float32


def softmax(s):
    """Over the last axis; rows that see nothing become zeros."""
    top = s.max(axis=-1, keepdims=True)
    e = np.exp(s - np.where(np.isneginf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def lower(n, m, offset=0):
    """Query i sees key j up to i + offset."""
    return np.tril(np.ones((n, m), bool), offset)


def grouped(x, heads):
    """Each kv head repeated for its group of query heads: h0 h0 h1 h1."""
    return np.repeat(x, heads // x.shape[1], axis=1)


def prepared(q, k, v):
    """All three in the type of sums, kv heads repeated."""
    t = wide(q)
    return q.astype(t), grouped(k.astype(t), q.shape[1]), grouped(v.astype(t), q.shape[1])


def scores(q, k, scale=None):
    """Q Kᵀ, scaled."""
    return q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5 if scale is None else scale)


def hidden(s, seen):
    """−∞ where a key is not seen."""
    return np.where(seen, s, -np.inf).astype(s.dtype)


def masked(s, mask):
    """A boolean mask hides, a float one is added; None is none."""
    if mask is None:
        return s
    return hidden(s, mask) if mask.dtype == bool else s + mask.astype(s.dtype)
