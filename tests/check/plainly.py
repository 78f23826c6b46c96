"""Attention in a few lines of NumPy that share no code with what is tested."""

import numpy as np


def softmax(scores):
    grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return grown / grown.sum(axis=-1, keepdims=True)


def draw(*shapes, seed=0, dtype=np.float32):
    stream = np.random.default_rng(seed)
    return [stream.standard_normal(shape).astype(dtype) for shape in shapes]


def attend(q, k, v, *, seen=None, bias=0.0, scale=None):
    """Weights and outputs; keys that are not seen have a score of −∞."""
    scale = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    scores = q @ k.swapaxes(-1, -2) * scale + bias
    if seen is not None:
        scores = np.where(seen, scores, -np.inf)
    weights = softmax(scores)
    kind = q.dtype
    return weights.astype(kind), (weights @ v).astype(kind)


def causal(queries, keys=None):
    keys = queries if keys is None else keys
    return np.arange(keys) <= np.arange(queries)[:, None] + keys - queries


def turned(x, positions, theta=10_000.0, frequencies=None, factor=1.0, interleaved=False):
    """Rotary positions, a pair of columns at a time."""
    d = x.shape[-1]
    out = x.astype(np.float64).copy()
    if frequencies is None:
        frequencies = [theta ** (-2 * pair / d) for pair in range(d // 2)]
    for pair, frequency in enumerate(frequencies):
        first, second = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + d // 2)
        angle = np.asarray(positions, np.float64) * frequency
        a, b = x[..., first], x[..., second]
        out[..., first] = factor * (a * np.cos(angle) - b * np.sin(angle))
        out[..., second] = factor * (a * np.sin(angle) + b * np.cos(angle))
    return out.astype(x.dtype)
