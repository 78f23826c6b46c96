"""Mistakes that people reported, made in plain NumPy: each is named, with the right number beside it."""

from functools import partial

import numpy as np
import pytest
from plainly import attend, causal, draw, turned

import attnctl
from attnctl.math.derivation import Rotary


def bfloat16(x):
    """The nearest number of eight bits, by the bits of float32."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    even = (bits >> 16) & 1
    return ((bits + 0x7FFF + even) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def rotated(q, k, **how):
    n = q.shape[-2]
    return {
        "Q": q,
        "K": k,
        "Q_rotated": turned(q, np.arange(n), **how),
        "K_rotated": turned(k, np.arange(n), **how),
    }


def rounded_frequencies():
    q, k = draw((1, 200, 8), (1, 200, 8))
    frequencies = bfloat16(10_000.0 ** (-np.arange(4) / 4))
    return rotated(q, k, frequencies=frequencies), {"positions": "rope"}


def columns_moved():
    q, k = draw((2, 7, 8), (2, 7, 8))
    arrays = rotated(q, k, interleaved=True)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    for name in ("Q_rotated", "K_rotated"):
        arrays[name] = arrays[name][..., order]
    return arrays, {"positions": Rotary(interleaved=True)}


def rms(x, eps):
    return x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=-1, keepdims=True) + eps)


def other_epsilon():
    q, k = (0.002 * x for x in draw((2, 6, 8), (2, 6, 8)))
    normed = {f"{name}_normed": rms(x, 1e-5).astype(np.float32) for name, x in (("Q", q), ("K", k))}
    return {"Q": q, "K": k, **normed}, {"qk_norm": "rms"}


def values_normed():
    q, k, v = draw((2, 6, 8), (2, 6, 8), (2, 6, 8))
    normed = [rms(x, 1e-6).astype(np.float32) for x in (q, k, v)]
    weights, out = attend(*normed)
    arrays = {"Q": q, "K": k, "V": v, "attention_weights": weights, "head_outputs": out}
    return arrays, {"qk_norm": "rms"}


def scales_exchanged():
    q, k, v = draw((2, 6, 8), (2, 6, 8), (2, 6, 8))
    _, out = attend(q, 3 * k, v / 3, seen=causal(6))
    return {"Q": q, "K": k, "V": v, "head_outputs": out}, {"causal": True}


def backward_of_another_scale():
    q, k, v, d_out = draw(*[(2, 6, 9)] * 4, dtype=np.float64)
    _, out = attend(q, k, v)
    weights, _ = attend(q, k, v, scale=0.25)
    d_weights = d_out @ v.swapaxes(-1, -2)
    d_scores = weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True)) * 0.25
    gradients = {"d_Q": d_scores @ k, "d_K": d_scores.swapaxes(-1, -2) @ q}
    gradients["d_V"] = weights.swapaxes(-1, -2) @ d_out
    return {"Q": q, "K": k, "V": v, "head_outputs": out, "d_head_outputs": d_out, **gradients}, {}


def projected_twice():
    q, k, v, w = draw((2, 6, 4), (2, 6, 4), (2, 6, 4), (8, 8))
    _, out = attend(q, k, v)
    concat = out.swapaxes(0, 1).reshape(6, 8)
    return {"Q": q, "K": k, "V": v, "W_O": w, "output": concat @ w @ w}, {}


def over_batch(*, right=False):
    q, k = draw((3, 1, 4, 8), (3, 1, 5, 8))
    scores = q @ k.swapaxes(-1, -2)
    flat = np.exp(scores.reshape(12, 5))
    weights = flat / flat.sum(axis=-1 if right else 0, keepdims=True)
    arrays = {"Q": q, "K": k, "V": k, "attention_weights": weights.reshape(3, 1, 4, 5)}
    return arrays, {"scale": 1, "layout": "bhnd"}


def masks_tiled(*, right=False):
    q, k, v = draw(*[(3, 2, 5, 8)] * 3)
    mask = np.stack([causal(5) & (np.arange(5) < length) for length in (3, 4, 5)])
    of_rows = np.repeat(mask, 2, axis=0) if right else np.tile(mask, (2, 1, 1))
    weights, _ = attend(*(x.reshape(6, 5, 8) for x in (q, k, v)), seen=of_rows)
    arrays = {
        "Q": q,
        "K": k,
        "V": v,
        "mask": mask[:, None],
        "attention_weights": weights.reshape(3, 2, 5, 5),
    }
    return arrays, {"layout": "bhnd"}


def with_sink(factor, times, *, right=False):
    q, k, v, sink = draw(*[(1, 4, 6, 8)] * 3, (4,))
    scores = np.where(causal(6), q @ k.swapaxes(-1, -2) / np.sqrt(8), -np.inf)
    beside = np.exp(sink if right else factor * sink)[:, None, None]
    grown = np.exp(scores)
    weights = grown / (grown.sum(axis=-1, keepdims=True) + (1 if right else times) * beside)
    arrays = {"Q": q, "K": k, "V": v, "sinks": sink, "output": (weights @ v).astype(np.float32)}
    return arrays, {"causal": True, "layout": "bhnd"}


def unpadded(*, right=False):
    q, k, v = draw((1, 2, 9, 8), (1, 2, 5, 8), (1, 2, 5, 8))
    mask = np.array([True, True, False, True, False])
    _, out = attend(q, k, v, seen=mask)
    kept = np.zeros((9, 1))
    kept[:5, 0] = mask
    out = out if right else (out * kept).astype(np.float32)
    return {"Q": q, "K": k, "V": v, "mask": mask[None, None, None], "output": out}, {"layout": "bhnd"}


def biased_by_distance(*, right=False):
    q, k, v = draw((2, 5, 8), (2, 7, 8), (2, 7, 8))
    (numbers,) = draw((2, 11), seed=1)
    at = np.arange(7) - np.arange(5)[:, None] + 4
    weights, _ = attend(q, k, v, bias=0 if right else numbers[:, at])
    return {"Q": q, "K": k, "V": v, "attention_weights": weights}, {"layout": "hnd"}


def rows_hidden(*, right=False):
    q, k, v = draw(*[(2, 2, 6, 8)] * 3)
    real = np.arange(6) < np.array([[4], [5]])
    seen = real[:, None, None, :] if right else real[:, None, :, None]
    scores = np.where(seen, q @ k.swapaxes(-1, -2) / np.sqrt(8), -10_000)
    grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = (grown / grown.sum(axis=-1, keepdims=True)).astype(np.float32)
    arrays = {"Q": q, "K": k, "V": v, "attention_mask": real, "attention_weights": weights}
    return arrays, {"layout": "bhnd"}


def other_rows(*, right=False):
    e, table = draw((6, 8), (12, 8))
    first = 2 if right else 0
    asked = {"positions": {"learned": table.tolist()}, "position_ids": [2, 3, 4, 5, 6, 7]}
    return {"embeddings": e, "X": e + table[first : first + 6]}, asked


def cache_rolled(*, right=False):
    past_k, past_v, k, v, q = draw(*[(2, 4, 8)] * 2, *[(2, 1, 8)] * 3)
    gap = np.zeros((2, 1, 8), np.float32)
    present = {}
    for name, past, new in (("key", past_k, k), ("value", past_v, v)):
        parts = [past, new] if right else [past[:, 1:], gap, new]
        present[f"present_{name}"] = np.concatenate(parts, axis=1)
    arrays = {"Q": q, "K": k, "V": v, "past_key": past_k, "past_value": past_v, **present}
    return arrays, {"causal": True, "layout": "hnd"}


FROM_THREADS = {
    "softmax-over-batch": (over_batch, "runs over the batch and queries", "axis=-1"),
    "mask-members": (masks_tiled, "repeated b0 b1 b0 b1", "for its own heads"),
    "sink-factor": (partial(with_sink, 8**-0.5, 1), "multiplied by 0.3536", "as it is"),
    "sink-twice": (partial(with_sink, 1, 2), "counted twice", "once"),
    "queries-unpadded": (unpadded, "outputs of queries are 0", "one of their own"),
    "bias-unasked": (
        biased_by_distance,
        "a number for each head and distance",
        "leave the relative bias out",
    ),
    "padding-of-queries": (rows_hidden, "hides rows", "mask[:, None, None, :]"),
    "cache-written-wrong": (cache_rolled, "before it is full", "behind the past ones"),
    "positions-start": (other_rows, "rows of the table are read 2 too early", "own position"),
}


@pytest.mark.parametrize("name", FROM_THREADS)
def test_its_right_twin_agrees(name):
    make, _, _ = FROM_THREADS[name]
    arrays, asked = make(right=True)
    report = attnctl.check(arrays, **asked)
    assert report.agrees is True, str(report)


NAMED = {
    "rotary-half-precision": (rounded_frequencies, "frequencies are rounded to bfloat16", "float32"),
    "rotary-columns-moved": (
        columns_moved,
        "all firsts of the pairs, then all seconds",
        "each column back",
    ),
    "norm-epsilon": (other_epsilon, "the epsilon of the norm is 1e-05", "add 1e-06 below the root"),
    "norm-on-values": (values_normed, "V is normed, too", "norm Q and K only"),
    "kv-scales-exchanged": (scales_exchanged, "keys are 3 times too large", "values by v_scale"),
    "backward-scale-other": (backward_of_another_scale, "multiplies by 0.25", "here √9"),
    "output-projection-twice": (projected_twice, "projected by W_O twice", "once"),
    **FROM_THREADS,
}


@pytest.mark.parametrize("name", NAMED)
def test_it_is_named_with_what_to_write_instead(name):
    make, words, fix = NAMED[name]
    arrays, asked = make()
    found = attnctl.check(arrays, **asked).findings
    assert [finding.mistake for finding in found] == [name], [finding.words for finding in found]
    assert words in found[0].words
    assert fix in found[0].fix
