"""Attention in plain NumPy, with any one mistake planted: code of the tests' own, nothing of the package's.

Written the way people write it, so that what a mistake makes of the numbers is what a real
program makes of them: masks by np.triu and additive numbers, heads by reshape, dropout by a coin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

F64, F32, F16 = "float64", "float32", "float16"


@dataclass(frozen=True)
class Kind:
    """What was meant."""

    heads: int = 2
    kv_heads: int | None = None
    n: int = 6
    keys: int | None = None
    d_model: int = 8
    d: int = 5
    d_v: int | None = None
    causal: bool = False
    offset: int = 0
    window: int | None = None
    softcap: float | None = None
    alibi: bool = False
    rope: bool = False
    sinusoidal: bool = False
    bias: bool = False
    scores_bias: bool = False
    mask: str | None = None
    lengths: tuple[int, ...] = ()
    scale: float | None = None
    dtype: str = F64
    seed: int = 0
    size: float = 1.0
    """How large scores are, roughly."""

    @property
    def kv(self) -> int:
        return self.kv_heads or self.heads

    def but(self, **changes) -> Kind:
        return replace(self, **changes)


def bfloat16(x):
    """Round to nearest even at 8 bits of significand."""
    bits = np.asarray(x, dtype=np.float32).view(np.uint32)
    bits = bits + 0x7FFF + ((bits >> 16) & 1)
    return (bits & 0xFFFF0000).astype(np.uint32).view(np.float32)


def softmax(s, axis=-1):
    """As textbooks have it; rows that see nothing become zeros."""
    top = s.max(axis=axis, keepdims=True)
    e = np.exp(s - np.where(np.isinf(top), 0, top).astype(s.dtype))
    total = e.sum(axis=axis, keepdims=True)
    return e / np.where(total == 0, 1, total).astype(s.dtype)


def rotate(x, wrong_pairs, start=0):
    """Rotary positions as Llama has them (halves), or as GPT-J does."""
    n, d = x.shape[-2:]
    out = np.array(x, dtype=np.float64)
    for m in range(n):
        for i in range(d // 2):
            angle = (start + m) * 10000.0 ** (-2 * i / d)
            a, b = (2 * i, 2 * i + 1) if wrong_pairs else (i, i + d // 2)
            u, v = x[..., m, a].astype(np.float64), x[..., m, b].astype(np.float64)
            out[..., m, a] = u * np.cos(angle) - v * np.sin(angle)
            out[..., m, b] = u * np.sin(angle) + v * np.cos(angle)
    return out.astype(x.dtype)


def table_of_sinusoids(n, d):
    out = np.zeros((n, d))
    for p in range(n):
        for c in range(d):
            angle = p / 10000 ** ((c - c % 2) / d)
            out[p, c] = np.cos(angle) if c % 2 else np.sin(angle)
    return out


def slopes(heads):
    """For 1, 2, 4 and 8 heads."""
    return np.array([2.0 ** (-8.0 * (h + 1) / heads) for h in range(heads)])


def draw(kind, rng):
    """Everything that is given."""
    k, t = kind, kind.dtype
    d_v, keys = k.d_v or k.d, k.keys or k.n
    batch = (len(k.lengths),) if k.lengths else ()
    given = {}
    name = "embeddings" if k.sinusoidal else "X"
    given[name] = rng.standard_normal((*batch, k.n, k.d_model))
    if k.keys:
        given["memory"] = rng.standard_normal((*batch, keys, k.d_model))
    root = k.size / np.sqrt(k.d_model)
    given["W_Q"] = rng.standard_normal((k.d_model, k.heads * k.d)) * root
    given["W_K"] = rng.standard_normal((k.d_model, k.kv * k.d)) * root
    given["W_V"] = rng.standard_normal((k.d_model, k.kv * d_v)) / np.sqrt(k.d_model)
    given["W_O"] = rng.standard_normal((k.heads * d_v, k.d_model)) / np.sqrt(k.heads * d_v)
    if k.bias:
        given["b_Q"] = rng.standard_normal(k.heads * k.d)
        given["b_K"] = rng.standard_normal(k.kv * k.d)
        given["b_V"] = rng.standard_normal(k.kv * d_v)
        given["b_O"] = rng.standard_normal(k.d_model)
    if k.scores_bias:
        given["bias"] = rng.standard_normal((k.heads, k.n, keys))
    given = {n: x.astype(t) for n, x in given.items()}
    if k.mask == "random":
        mask = rng.random((k.n, keys)) < 0.6
        mask[:, 0] |= ~mask.any(axis=1)
        given["mask"] = mask
    if k.mask == "blind":
        mask = rng.random((k.n, keys)) < 0.6
        mask[1] = False
        given["mask"] = mask
    if k.lengths:
        given["key_lengths"] = np.array(k.lengths)
    return given


def split(fused, heads, mistake):
    """(…, n, h·d) -> (…, h, n, d)."""
    *batch, n, columns = fused.shape
    d = columns // heads
    if mistake == "heads-split-wrong":
        return fused.reshape(*batch, heads, n, d)
    if mistake == "heads-split-wrong/interleaved":
        return np.moveaxis(fused.reshape(*batch, n, d, heads), -1, -3)
    return np.moveaxis(fused.reshape(*batch, n, heads, d), -2, -3)


def merge(z, mistake):
    """(…, h, n, d) -> (…, n, h·d)."""
    *batch, heads, n, d = z.shape
    if mistake == "heads-merged-wrong":
        return np.moveaxis(z, -3, -1).reshape(*batch, n, heads * d)
    if mistake == "heads-merged-wrong/reshape":
        return z.reshape(*batch, n, heads * d)
    return np.moveaxis(z, -3, -2).reshape(*batch, n, heads * d)


def project(given, x, letter, heads, mistake):
    w, b = given[f"W_{letter}"], given.get(f"b_{letter}")
    if mistake in {"weight-transposed", f"weight-transposed/{letter}"}:
        w = w.T
    y = x @ w
    if b is not None and mistake not in {"bias-missing", f"bias-missing/{letter}"}:
        y = y + b
    return split(y, heads, mistake)


def allowed(kind, given, mistake):
    """Who may see whom, (n, keys) or (batch, 1, n, keys); None where nothing is hidden."""
    k = kind
    n, keys = k.n, k.keys or k.n
    seen = None
    offset = k.offset
    if mistake == "causal-aligned-wrong":
        offset = keys - n if k.offset == 0 else 0
    if k.causal:
        seen = np.tril(np.ones((n, keys), dtype=bool), k=offset)
        if mistake == "causal-strict":
            seen = np.tril(np.ones((n, keys), dtype=bool), k=offset - 1)
    if k.window is not None:
        window = k.window + {"window-off-by-one": 1, "window-off-by-one/less": -1}.get(mistake, 0)
        i, j = np.arange(n)[:, None] + offset, np.arange(keys)[None, :]
        near = (j >= i - window) & (j <= i + window)
        seen = near if seen is None else seen & near
    if "mask" in given:
        seen = given["mask"] if seen is None else seen & given["mask"]
    if "key_lengths" in given and mistake != "padding-ignored":
        real = np.arange(keys)[None, :] < given["key_lengths"][:, None]
        real = real[:, None, None, :]
        seen = real if seen is None else seen & real
    if mistake == "mask-ignored" or seen is None:
        return None
    return ~seen if mistake == "mask-inverted" else seen


class Rounded(dict):
    """Steps as they are written down: each rounded, and changed by its edit if it has one."""

    def __init__(self, near, edits):
        self.near = near
        self.edits = edits

    def __setitem__(self, name, x):
        if name in self.edits:
            x = self.edits[name](x, self).astype(x.dtype)
        super().__setitem__(name, self.near(x) if x.dtype.kind == "f" else x)


def attend(kind, mistake=None, near=None, edits=None):
    """Every step of attention of this kind, with the mistake; as one would have dumped it.

    `near` rounds every step before the next one reads it; `edits` change some, each by a function of its
    numbers and of the steps before it.
    """
    rng = np.random.default_rng(kind.seed)
    k, t = kind, np.dtype(kind.dtype).type
    out = Rounded(near or (lambda x: x), edits or {})
    for name, x in draw(kind, rng).items():
        out[name] = x
    given = dict(out)
    x = given.get("embeddings", given.get("X"))
    if k.sinusoidal:
        out["positions"] = table_of_sinusoids(k.n, k.d_model).astype(t)
        out["X"] = x.copy() if mistake == "positions-missing" else x + out["positions"]
        x = out["X"]
    source = given.get("memory", x)
    q = project(given, x, "Q", k.heads, mistake)
    key = project(given, source, "K", k.kv, mistake)
    v = project(given, source, "V", k.kv, mistake)
    if mistake == "query-key-swapped/matrices":
        crossed = dict(given, W_Q=given["W_K"], W_K=given["W_Q"])
        q, key = project(crossed, x, "Q", k.heads, None), project(crossed, source, "K", k.kv, None)
    if mistake == "scaled-twice/Q":
        q = q / t(np.sqrt(k.d))
    if mistake == "rotary-on-values":
        v = rotate(v, wrong_pairs=False)
    out["Q"], out["K"], out["V"] = q, key, v
    q, key, v = out["Q"], out["K"], out["V"]
    if k.rope:
        if mistake != "rotary-missing":
            q = rotate(q, mistake == "rotary-pairs-wrong", k.offset)
            key = rotate(key, mistake == "rotary-pairs-wrong", int(mistake == "rotary-start/K"))
        out["Q_rotated"], out["K_rotated"] = q, key
        q, key = out["Q_rotated"], out["K_rotated"]
    if k.kv != k.heads:
        times = k.heads // k.kv
        if mistake == "kv-heads-tiled":
            key, v = (np.concatenate([y] * times, axis=-3) for y in (key, v))
        else:
            key, v = (np.repeat(y, times, axis=-3) for y in (key, v))
        out["K_shared"], out["V_shared"] = key, v
        key, v = out["K_shared"], out["V_shared"]
    s = q @ key.swapaxes(-1, -2)
    if mistake == "query-key-swapped":
        s = key @ q.swapaxes(-1, -2)
    if mistake == "scaled-twice/scores":
        s = s / t(np.sqrt(k.d))
    if mistake == "low-precision":
        s = (q.astype(np.float16) @ key.astype(np.float16).swapaxes(-1, -2)).astype(t)
    if mistake == "low-precision/bfloat16":
        s = bfloat16(bfloat16(q) @ bfloat16(key).swapaxes(-1, -2)).astype(t)
    out["scores"] = s
    out["scaled_scores"] = scaled(k, out["scores"], mistake)
    s = out["scaled_scores"]
    seen = allowed(k, given, mistake)
    if k.softcap and mistake == "softcap-after-mask" and seen is not None:
        s = masked_too_soon = np.where(seen, s, t(-np.inf))
    if k.softcap:
        s = s if mistake == "softcap-missing" else t(k.softcap) * np.tanh(s / t(k.softcap))
        out["softcapped_scores"] = s
        s = out["softcapped_scores"]
    if k.alibi or k.scores_bias:
        if mistake != "bias-missing/scores":
            s = s + score_bias(k, given).astype(t)
        out["biased_scores"] = s
        s = out["biased_scores"]
    if meant(k):
        out["masked_scores"] = hidden(s, seen, mistake, t)
        s = out["masked_scores"]
        if k.softcap and mistake == "softcap-after-mask":
            out["masked_scores"] = masked_too_soon
    out["attention_weights"] = weights(s, seen, mistake, t, rng)
    out["head_outputs"] = out["attention_weights"] @ v
    out["concat"] = merge(out["head_outputs"], mistake)
    w_o = given["W_O"].T if mistake in {"weight-transposed", "weight-transposed/O"} else given["W_O"]
    y = out["concat"] if mistake == "output-projection-missing" else out["concat"] @ w_o
    if k.bias and mistake not in {"bias-missing", "bias-missing/O", "output-projection-missing"}:
        y = y + given["b_O"]
    out["output"] = y
    return dict(out)


def meant(kind):
    """Whether anything is meant to be hidden."""
    return kind.causal or kind.window is not None or kind.mask or kind.lengths


def scaled(k, s, mistake):
    t = s.dtype.type
    factor = 1 / np.sqrt(k.d) if k.scale is None else k.scale
    match mistake:
        case "no-scale":
            return s
        case "scale-by-d_k":
            return s / t(k.d)
        case "scale-by-sqrt-d_model":
            return s / t(np.sqrt(k.d_model))
        case "scaled-twice":
            return s * t(factor) * t(factor)
    return s * t(factor)


def score_bias(k, given):
    if k.scores_bias:
        return given["bias"]
    keys = k.keys or k.n
    distance = np.abs(np.arange(k.n)[:, None] + k.offset - np.arange(keys)[None, :])
    return -slopes(k.heads)[:, None, None] * distance


def hidden(s, seen, mistake, t):
    if mistake == "mask-after-softmax" or seen is None:
        return s
    match mistake:
        case "softcap-after-mask":
            return s
        case "mask-finite":
            return np.where(seen, s, t(-1e9))
        case "mask-finite/added":
            return s + np.where(seen, t(0), t(-1e4))
        case "mask-finite/small":
            return np.where(seen, s, t(-1e4))
    return np.where(seen, s, t(-np.inf))


def weights(s, seen, mistake, t, rng):
    match mistake:
        case "softmax-over-queries":
            return softmax(s, -2)
        case "softmax-over-heads":
            return softmax(s, -3)
        case "no-softmax":
            return np.where(np.isinf(s), t(0), s)
        case "mask-after-softmax":
            return np.where(seen, softmax(s), t(0))
        case "no-max-subtraction":
            with np.errstate(all="ignore"):
                e = np.exp(s)
                return e / e.sum(axis=-1, keepdims=True)
        case "nan-where-nothing-is-seen":
            with np.errstate(all="ignore"):
                e = np.exp(s - s.max(axis=-1, keepdims=True))
                return e / e.sum(axis=-1, keepdims=True)
        case "dropout-left-on" | "dropout-left-on/half":
            p = 0.5 if mistake.endswith("half") else 0.1
            a = softmax(s)
            kept = rng.random(a.shape) >= p
            return np.where(kept, a / t(1 - p), t(0))
    return softmax(s)


CAUSAL = Kind(causal=True)
GROUPED = Kind(heads=4, kv_heads=2, n=7, d_model=12, d=6, d_v=4, causal=True, dtype=F32)
ROTARY = Kind(heads=2, n=6, d=6, rope=True, causal=True)
WINDOW = Kind(heads=2, n=9, window=2)
BOTH = Kind(heads=1, n=10, window=3, causal=True, d=4)
CROSS = Kind(heads=2, n=4, keys=7, dtype=F32)
PADDED = Kind(heads=2, n=6, lengths=(6, 4, 2))
CAPPED = Kind(heads=2, n=6, softcap=2.0, causal=True, size=2.0)
ALIBI = Kind(heads=4, n=6, alibi=True, causal=True, d_model=10)
BIASED = Kind(heads=2, n=5, bias=True)
SQUARE = Kind(heads=2, n=5, d_model=8, d=4)
SINUSOIDAL = Kind(heads=2, n=6, sinusoidal=True)
PLAIN = Kind(heads=1, n=5, d_model=6, d=6)
MASKED = Kind(heads=2, n=6, mask="random")
BLIND = Kind(heads=2, n=6, mask="blind")
LARGE = Kind(heads=8, n=40, d_model=64, d=8, dtype=F32)

CLEAN = {
    "plain": PLAIN, "causal": CAUSAL, "grouped": GROUPED, "rotary": ROTARY, "window": WINDOW, "both": BOTH,
    "cross": CROSS, "padded": PADDED, "capped": CAPPED, "alibi": ALIBI, "biased": BIASED, "square": SQUARE,
    "sinusoidal": SINUSOIDAL, "masked": MASKED, "blind": BLIND, "large": LARGE,
    "scores bias": BIASED.but(scores_bias=True), "own scale": CAUSAL.but(scale=0.3),
    "bottom right": CROSS.but(causal=True, offset=3),
}  # fmt: skip

PLANTED = {
    "no-scale": (PLAIN, CAUSAL, GROUPED, CROSS, CAPPED),
    "scale-by-d_k": (PLAIN, CAUSAL, GROUPED, ROTARY),
    "scale-by-sqrt-d_model": (CAUSAL, GROUPED, CROSS),
    "scaled-twice": (CAUSAL.but(scale=0.3), PLAIN.but(scale=0.25), CROSS.but(scale=0.5)),
    "scaled-twice/scores": (CAUSAL, GROUPED, PLAIN),
    "scaled-twice/Q": (CAUSAL, GROUPED, PLAIN),
    "softmax-over-queries": (PLAIN, CAUSAL, CROSS, WINDOW),
    "softmax-over-heads": (CAUSAL, GROUPED, CROSS),
    "no-softmax": (PLAIN, CAUSAL, CROSS),
    "mask-inverted": (CAUSAL, GROUPED, MASKED, WINDOW),
    "mask-ignored": (CAUSAL, GROUPED, MASKED, WINDOW, BOTH),
    "mask-after-softmax": (CAUSAL, GROUPED, MASKED, WINDOW),
    "mask-finite": (BLIND, BLIND.but(dtype=F32), BLIND.but(heads=4, kv_heads=2)),
    "mask-finite/added": (BLIND, BLIND.but(heads=1), BLIND.but(n=9)),
    "mask-finite/small": (
        BLIND, CAUSAL.but(size=150.0, n=8), CAUSAL.but(size=150.0, n=9, heads=4, kv_heads=2, seed=3),
        MASKED.but(size=150.0, seed=6),
    ),
    "causal-strict": (CAUSAL, GROUPED, ROTARY, BOTH),
    "causal-aligned-wrong": (
        CROSS.but(causal=True), CROSS.but(causal=True, offset=3), GROUPED.but(keys=12),
    ),
    "padding-ignored": (PADDED, PADDED.but(causal=True), PADDED.but(heads=4, kv_heads=2, dtype=F32)),
    "window-off-by-one": (WINDOW, BOTH, WINDOW.but(n=12, window=4, dtype=F32)),
    "window-off-by-one/less": (WINDOW, BOTH, WINDOW.but(n=12, window=4, dtype=F32)),
    "weight-transposed/Q": (SQUARE, SQUARE.but(causal=True), SQUARE.but(heads=1, d=8, dtype=F32)),
    "weight-transposed/O": (SQUARE, SQUARE.but(causal=True), SQUARE.but(heads=1, d=8, dtype=F32)),
    "query-key-swapped": (PLAIN, CAUSAL, GROUPED),
    "query-key-swapped/matrices": (PLAIN, CAUSAL, ALIBI),
    "heads-split-wrong": (CAUSAL, GROUPED, CROSS),
    "heads-split-wrong/interleaved": (CAUSAL, GROUPED, CROSS),
    "heads-merged-wrong": (CAUSAL, GROUPED, CROSS),
    "heads-merged-wrong/reshape": (CAUSAL, GROUPED, CROSS),
    "kv-heads-tiled": (GROUPED, GROUPED.but(causal=False), GROUPED.but(heads=8, kv_heads=2, dtype=F64)),
    "rotary-pairs-wrong": (ROTARY, ROTARY.but(causal=False), ROTARY.but(heads=4, kv_heads=2, dtype=F32)),
    "rotary-missing": (ROTARY, ROTARY.but(causal=False), ROTARY.but(heads=4, kv_heads=2, dtype=F32)),
    "rotary-start/K": (ROTARY, ROTARY.but(causal=False), ROTARY.but(heads=4, kv_heads=2, dtype=F32)),
    "rotary-on-values": (ROTARY, ROTARY.but(causal=False), ROTARY.but(heads=4, kv_heads=2, dtype=F32)),
    "positions-missing": (SINUSOIDAL, SINUSOIDAL.but(causal=True), SINUSOIDAL.but(heads=1, dtype=F32)),
    "softcap-after-mask": (CAPPED, CAPPED.but(causal=False, window=2), CAPPED.but(heads=4, dtype=F32)),
    "softcap-missing": (CAPPED, CAPPED.but(causal=False), CAPPED.but(heads=4, dtype=F32)),
    "bias-missing": (BIASED, BIASED.but(causal=True), BIASED.but(heads=4, kv_heads=2, dtype=F32)),
    "bias-missing/O": (BIASED, BIASED.but(causal=True), BIASED.but(heads=4, kv_heads=2, dtype=F32)),
    "bias-missing/scores": (ALIBI, BIASED.but(scores_bias=True), ALIBI.but(causal=False, dtype=F32)),
    "output-projection-missing": (SQUARE, SQUARE.but(causal=True), SQUARE.but(heads=1, d=8, dtype=F32)),
    "dropout-left-on": (CAUSAL.but(n=12), GROUPED.but(n=12), PLAIN.but(n=12)),
    "dropout-left-on/half": (CAUSAL, GROUPED, PLAIN),
    "low-precision": (CAUSAL, GROUPED, PLAIN, LARGE),
    "low-precision/bfloat16": (CAUSAL, GROUPED, PLAIN, LARGE),
    "no-max-subtraction": (
        CAUSAL.but(size=100.0, n=12), PLAIN.but(size=20.0, dtype=F32), GROUPED.but(size=20.0),
    ),
    "nan-where-nothing-is-seen": (BLIND, BLIND.but(dtype=F32), BLIND.but(causal=True)),
}  # fmt: skip
"""Each mistake (after a slash the way it is made) on the kinds of attention it is planted in."""

INPUTS = ("embeddings", "X", "memory", "W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")
BESIDE = ("mask", "bias", "key_lengths")
RECORDED = {
    "everything": (),
    "weights and outputs": (*INPUTS, *BESIDE, "Q", "K", "V", "attention_weights", "head_outputs", "output"),
    "inputs and output": (*INPUTS, *BESIDE, "output"),
}
"""What of a run is written down; nothing named is everything."""

ALIKE = {
    ("scaled-twice/scores", "weights and outputs"): "scale-by-d_k",
    ("scaled-twice/scores", "inputs and output"): "scale-by-d_k",
    ("scaled-twice/Q", "inputs and output"): "scale-by-d_k",
}
"""Divided by √d_k twice is divided by d_k: nobody can tell, unless it was written down between."""

UNTOLD = {("dropout-left-on", "inputs and output"), ("dropout-left-on/half", "inputs and output")}
"""What cannot be told: which weights dropout chose, where no weights are written down."""


def recorded(arrays, what):
    names = RECORDED[what]
    return {name: x for name, x in arrays.items() if name in names or not names}
