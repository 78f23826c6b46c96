"""Planted in the scale, in softmax and in the soft cap."""

import numpy as np

from trial.mistake import WITH_WEIGHTS, m
from trial.programs import Kernel, softmax


def factor(f):
    return {"factor": f}


SCALE = {
    "no factor": m("plain, causal, grouped, wide", "no-scale", **factor(lambda p: 1.0)),
    "over d_k": m("causal, cross", "scale-by-d_k scaled-twice", **factor(lambda p: 1 / p.k.d)),
    "over √d_model": m("causal, wide", "scale-by-sqrt-d_model", **factor(lambda p: p.k.d_model**-0.5)),
    "over √(d_k + 1)": m("plain, wide", "scale-other", **factor(lambda p: (p.k.d + 1) ** -0.5)),
    "times √d_k": m("causal", "scale-other", **factor(lambda p: p.k.d**0.5)),
    "over √n": m("causal", "scale-other", **factor(lambda p: p.k.n**-0.5)),
    "over √heads": m("wide", "scale-other", **factor(lambda p: p.k.heads**-0.5)),
    "over int(√d_k)": m("causal", "scale-other", **factor(lambda p: 1 / int(p.k.d**0.5))),
    "one of two fourth roots": m("plain", "scale-other", **factor(lambda p: p.k.d**-0.25)),
    "times 0.1": m("grouped", "scale-other", **factor(lambda p: 0.1)),
    "d of half a head": m("plain", "scale-other", **factor(lambda p: (p.k.d / 2) ** -0.5)),
    "sign": m("plain", "scale-other", **factor(lambda p: -(p.k.d**-0.5))),
    "log n": m("wide", "scale-other", **factor(lambda p: np.log(p.k.n) * p.k.d**-0.5)),
    "in Q too": m(
        "causal, grouped",
        "scaled-twice scale-by-d_k",
        scores=lambda p, q, k: (q * q.dtype.type(p.k.d**-0.5)) @ k.swapaxes(-1, -2),
    ),
    "of the row's length": m(
        "causal",
        "",
        families=("textbook", "llama"),
        scaled=lambda p, s: s / np.sqrt(np.arange(1, p.k.n + 1, dtype=s.dtype)[:, None]),
    ),
}


def shifted(s):
    return s - np.where(np.isinf(m_ := s.max(axis=-1, keepdims=True)), 0, m_)


def divided(e, by):
    return (e / np.where(by == 0, 1, by)).astype(e.dtype)


def total(e):
    return e.sum(axis=-1, keepdims=True)


def dropped(p, s, share):
    return softmax(s) * (np.random.default_rng(3).random(s.shape) >= share) / s.dtype.type(1 - share)


def soft(change):
    return {"families": WITH_WEIGHTS, "softmax": change}


SOFTMAX = {
    "over queries": m("plain, causal, cross", "softmax-over-queries", **soft(lambda p, s: softmax(s, -2))),
    "over heads": m("plain, grouped", "softmax-over-heads", **soft(lambda p, s: softmax(s, -3))),
    "left out": m("plain, causal", "no-softmax", **soft(lambda p, s: np.where(s < -1e4, 0, s))),
    "base 2": m(
        "plain, causal",
        "exp-base-2",
        exp=lambda p, x: np.exp2(x),
        softmax=lambda p, s: divided(e := np.exp2(shifted(s)), total(e)),
    ),
    "base 2 with log2 e twice": m(
        "plain",
        "exp-base-2 scale-other",
        exp=lambda p, x: np.exp(x / np.log(2)),
        softmax=lambda p, s: softmax(s / s.dtype.type(np.log(2))),
    ),
    "1 + Σ": m(
        "plain, causal",
        "softmax-plus-one",
        **soft(lambda p, s: divided(e := np.exp(shifted(s)), 1 + total(e))),
    ),
    "1 + Σ of bare exp": m(
        "causal, cross", "softmax-plus-one", **soft(lambda p, s: divided(e := np.exp(s), 1 + total(e)))
    ),
    "epsilon 1e-2": m(
        "plain, grouped",
        "softmax-epsilon",
        dtypes="float64 float32",
        **soft(lambda p, s: divided(e := np.exp(shifted(s)), s.dtype.type(1e-2) + total(e))),
    ),
    "epsilon 1e-6": m(
        "causal",
        "softmax-epsilon",
        dtypes="float64",
        **soft(lambda p, s: divided(e := np.exp(shifted(s)), 1e-6 + total(e))),
    ),
    "epsilon in a kernel": m(
        "plain",
        "softmax-epsilon",
        families=("kernel",),
        dtypes="float64 float32",
        close=lambda p, z, total, top: z / (total + 1e-3),
    ),
    "sigmoid": m("plain, causal", "softmax-sigmoid", **soft(lambda p, s: 1 / (1 + np.exp(-s)))),
    "logarithm": m("plain", "softmax-log", **soft(lambda p, s: np.log(softmax(s)))),
    "twice": m("plain, causal", "softmax-twice", **soft(lambda p, s: softmax(softmax(s)))),
    "exp not divided": m("plain, causal", "softmax-unnormalized", **soft(lambda p, s: np.exp(shifted(s)))),
    "bare exp not divided": m("cross", "softmax-unnormalized", **soft(lambda p, s: np.exp(s))),
    "of −s": m("plain", "scale-other", **soft(lambda p, s: softmax(-s))),
    "half the temperature": m(
        "causal", "scale-other scale-by-sqrt-d_model", **soft(lambda p, s: softmax(s / 2))
    ),
    "ReLU": m("plain", "softmax-relu", **soft(lambda p, s: divided(e := np.maximum(s, 0), total(e)))),
    "over keys and queries": m(
        "plain",
        "softmax-over-everything",
        **soft(lambda p, s: softmax(s.reshape(*s.shape[:-2], -1)).reshape(s.shape)),
    ),
    "sums of the wrong axis": m(
        "plain",
        "softmax-over-queries",
        **soft(lambda p, s: (e := np.exp(s)) / e.sum(axis=-2, keepdims=True)),
    ),
    "sums of the wrong axis, of what is less than its row's maximum": m(
        "plain",
        "softmax-over-queries",
        **soft(lambda p, s: (e := np.exp(shifted(s))) / e.sum(axis=-2, keepdims=True)),
    ),
    "sums of the heads, of what is less than its row's maximum": m(
        "plain", "softmax-over-heads", **soft(lambda p, s: (e := np.exp(shifted(s))) / e.sum(axis=-3))
    ),
    "sums that lost their axis": m(
        "plain",
        "softmax-sums-transposed",
        **soft(lambda p, s: (e := np.exp(shifted(s))) / e.sum(axis=-1)[..., None, :]),
    ),
    "hard": m(
        "plain", "softmax-hard", **soft(lambda p, s: (s == s.max(axis=-1, keepdims=True)).astype(s.dtype))
    ),
    "no maximum": m(
        "huge",
        "no-max-subtraction",
        dtypes="float32",
        **soft(lambda p, s: (e := np.exp(np.where(s < -1e30, -np.inf, s))) / total(e)),
    ),
    "dropout 0.1": m("plain, causal", "dropout-left-on", **soft(lambda p, s: dropped(p, s, 0.1))),
    "dropout 0.5": m("wide", "dropout-left-on", **soft(lambda p, s: dropped(p, s, 0.5))),
    "a sink of logit 0.4": m(
        "plain, causal",
        "sink",
        families=WITH_WEIGHTS,
        softmax=lambda p, s: divided(
            e := np.exp(shifted(s)),
            total(e) + np.exp(0.4 - np.where(np.isinf(t := s.max(axis=-1, keepdims=True)), 0, t)),
        ),
    ),
    "L2": m("plain", "", **soft(lambda p, s: (e := np.exp(shifted(s))) / np.sqrt(total(e * e)))),
}


def squeezed(cap):
    return lambda s: s.dtype.type(cap) * np.tanh(s / s.dtype.type(cap))


def cap_later(cap):
    return {
        "weights": lambda p, s: p.softmax(np.where(s < -1e4, s, squeezed(cap)(s))),
        "tile": lambda p, q, k, rows, columns: squeezed(cap)(Kernel.tile(p, q, k, rows, columns)),
    }


SOFTCAP = {
    "left out": m("softcap", "softcap-missing", capped=lambda p, s: s),
    "unasked": m("plain", "softcap-unasked", **cap_later(2.0)),
    "of another size": m("softcap", "softcap-other", cap=lambda p: 5.0),
    "half the size": m("softcap", "softcap-other", cap=lambda p: 1.5),
    "before the scale": m(
        "softcap",
        "softcap-before-scale",
        families=("textbook", "llama", "kernel"),
        scaled=lambda p, s: s,
        capped=lambda p, s: squeezed(p.k.softcap)(s) / s.dtype.type(np.sqrt(p.k.d)),
    ),
    "not multiplied back": m("softcap", "softcap-half", capped=lambda p, s: np.tanh(s / p.k.softcap)),
    "not divided": m("softcap", "softcap-half", capped=lambda p, s: p.k.softcap * np.tanh(s)),
    "bare tanh": m("softcap", "softcap-other softcap-half", capped=lambda p, s: np.tanh(s)),
    "clipped": m("softcap", "softcap-clipped", capped=lambda p, s: np.clip(s, -p.k.softcap, p.k.softcap)),
}
