"""Mistakes that people reported, made in plain NumPy: each is named, with the right number beside it."""

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
}


@pytest.mark.parametrize("name", NAMED)
def test_it_is_named_with_what_to_write_instead(name):
    make, words, fix = NAMED[name]
    arrays, asked = make()
    found = attnctl.check(arrays, **asked).findings
    assert [finding.mistake for finding in found] == [name], [finding.words for finding in found]
    assert words in found[0].words
    assert fix in found[0].fix
