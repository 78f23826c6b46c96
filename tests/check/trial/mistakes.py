"""Two hundred mistakes: which pieces of a program are written wrong, where, and what they may be called.

Written from `attnctl check --help` and from how attention code goes wrong; the names were put beside
them afterwards. Of two names either is right: the numbers cannot tell them apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from trial.programs import Kernel, angles, bfloat16, sinusoids, slopes, softmax, turned, turned_neighbours

EVERYONE = ("textbook", "module", "llama", "kernel")
WITH_WEIGHTS = ("textbook", "module", "llama")


@dataclass(frozen=True)
class Mistake:
    """One mistake: the kinds of attention it is planted in, the people who make it, the pieces they write."""

    kinds: tuple[str, ...]
    names: frozenset[str]
    pieces: dict = field(compare=False)
    families: tuple[str, ...] = EVERYONE
    dtypes: tuple[str, ...] = ("float64", "float32", "float16", "bfloat16")


def m(kinds, names, families=EVERYONE, dtypes=None, **pieces):
    more = {} if dtypes is None else {"dtypes": tuple(dtypes.split())}
    kinds = tuple(each.strip() for each in kinds.split(","))
    return Mistake(kinds, frozenset(names.split()), pieces, families, **more)


def factor(f):
    return {"factor": f}


def heads_of(x, heads):
    """(…, n, h·d) -> (…, h, n, d)."""
    *batch, n, columns = x.shape
    return x.reshape(*batch, n, heads, columns // heads).swapaxes(-3, -2)


def side_by_side(z):
    *batch, heads, n, d = z.shape
    return z.swapaxes(-3, -2).reshape(*batch, n, heads * d)


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
        "causal, grouped", "scaled-twice scale-by-d_k",
        scores=lambda p, q, k: (q * q.dtype.type(p.k.d**-0.5)) @ k.swapaxes(-1, -2),
    ),
    "of the row's length": m(
        "causal", "", families=("textbook", "llama"),
        scaled=lambda p, s: s / np.sqrt(np.arange(1, p.k.n + 1, dtype=s.dtype)[:, None]),
    ),
}  # fmt: skip


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
    "base 2": m("plain, causal", "exp-base-2", exp=lambda p, x: np.exp2(x),
                softmax=lambda p, s: divided(e := np.exp2(shifted(s)), total(e))),
    "base 2 with log2 e twice": m("plain", "exp-base-2 scale-other", exp=lambda p, x: np.exp(x / np.log(2)),
                softmax=lambda p, s: softmax(s / s.dtype.type(np.log(2)))),
    "1 + Σ": m("plain, causal", "softmax-plus-one",
               **soft(lambda p, s: divided(e := np.exp(shifted(s)), 1 + total(e)))),
    "1 + Σ of bare exp": m("causal, cross", "softmax-plus-one",
               **soft(lambda p, s: divided(e := np.exp(s), 1 + total(e)))),
    "epsilon 1e-2": m("plain, grouped", "softmax-epsilon", dtypes="float64 float32",
               **soft(lambda p, s: divided(e := np.exp(shifted(s)), s.dtype.type(1e-2) + total(e)))),
    "epsilon 1e-6": m("causal", "softmax-epsilon", dtypes="float64",
               **soft(lambda p, s: divided(e := np.exp(shifted(s)), 1e-6 + total(e)))),
    "epsilon in a kernel": m("plain", "softmax-epsilon", families=("kernel",), dtypes="float64 float32",
               close=lambda p, z, total, top: z / (total + 1e-3)),
    "sigmoid": m("plain, causal", "softmax-sigmoid", **soft(lambda p, s: 1 / (1 + np.exp(-s)))),
    "logarithm": m("plain", "softmax-log", **soft(lambda p, s: np.log(softmax(s)))),
    "twice": m("plain, causal", "softmax-twice",
               **soft(lambda p, s: softmax(softmax(s)))),
    "exp not divided": m("plain, causal", "softmax-unnormalized", **soft(lambda p, s: np.exp(shifted(s)))),
    "bare exp not divided": m("cross", "softmax-unnormalized", **soft(lambda p, s: np.exp(s))),
    "of −s": m("plain", "scale-other", **soft(lambda p, s: softmax(-s))),
    "half the temperature": m("causal", "scale-other scale-by-sqrt-d_model", **soft(lambda p, s: softmax(s / 2))),
    "ReLU": m("plain", "softmax-relu",
              **soft(lambda p, s: divided(e := np.maximum(s, 0), total(e)))),
    "over keys and queries": m("plain", "softmax-over-everything",
              **soft(lambda p, s: softmax(s.reshape(*s.shape[:-2], -1)).reshape(s.shape))),
    "sums of the wrong axis": m("plain", "softmax-over-queries",
              **soft(lambda p, s: (e := np.exp(s)) / e.sum(axis=-2, keepdims=True))),
    "hard": m("plain", "softmax-hard",
              **soft(lambda p, s: (s == s.max(axis=-1, keepdims=True)).astype(s.dtype))),
    "no maximum": m("huge", "no-max-subtraction", dtypes="float32",
              **soft(lambda p, s: (e := np.exp(np.where(s < -1e30, -np.inf, s))) / total(e))),
    "dropout 0.1": m("plain, causal", "dropout-left-on", **soft(lambda p, s: dropped(p, s, 0.1))),
    "dropout 0.5": m("wide", "dropout-left-on", **soft(lambda p, s: dropped(p, s, 0.5))),
    "a sink of logit 0.4": m("plain, causal", "sink", families=WITH_WEIGHTS,
              softmax=lambda p, s: divided(e := np.exp(shifted(s)),
                  total(e) + np.exp(0.4 - np.where(np.isinf(t := s.max(axis=-1, keepdims=True)), 0, t)))),
    "L2": m("plain", "", **soft(lambda p, s: (e := np.exp(shifted(s))) / np.sqrt(total(e * e)))),
}  # fmt: skip


def put_back(fill):
    return {"hidden": lambda p, s: np.where(p.seen(), s, s.dtype.type(fill))}


def after(p, s):
    return np.where(p.seen(), softmax(s), 0).astype(s.dtype)


def lower(k):
    return lambda p: np.tril(np.ones((p.k.n, p.k.keys), dtype=bool), k=k + p.k.past)


def near(left, right):
    def window(p):
        i, j = p.places()
        return (j >= i - left) & (j <= i + right)

    return window


def tile_seen(change):
    """Who sees whom, in programs that make tiles."""
    return {"families": ("kernel",), "tile_seen": change}


def unasked(seen):
    return {
        "weights": lambda p, s: p.softmax(np.where(seen(p), s, -np.inf)),
        "tile": lambda p, q, k, rows, columns: np.where(
            seen(p)[slice(*rows), slice(*columns)], Kernel.tile(p, q, k, rows, columns), -np.inf
        ),
    }


MASK = {
    "left out": m("causal, grouped, masked, window", "mask-ignored", hidden=lambda p, s: s,
                  tile_seen=lambda p, rows, columns: np.ones((), dtype=bool)),
    "inverted": m("causal, masked, band", "mask-inverted", seen=lambda p: ~Kernel.seen(p)),
    "strict": m("causal, grouped", "causal-strict causal-offset", causal=lower(-1)),
    "one token ahead": m("causal, grouped", "causal-offset", causal=lower(1)),
    "three tokens ahead": m("wide", "causal-offset", causal=lower(3)),
    "upside down": m("causal", "mask-inverted mask-transposed", causal=lambda p: lower(0)(p).T),
    "after softmax": m("causal, masked, window", "mask-after-softmax", families=WITH_WEIGHTS,
                  hidden=lambda p, s: s, weights=after),
    "filled with 0": m("causal, masked", "mask-finite", families=("textbook", "llama"), **put_back(0)),
    "filled with −10": m("causal", "mask-finite", families=("textbook", "llama"), **put_back(-10)),
    "filled with −3": m("masked", "mask-finite", families=("textbook", "llama"), **put_back(-3)),
    "filled with the least positive number": m("causal", "mask-finite", families=("llama",),
                  **put_back(1.2e-38)),
    "−5 added": m("causal", "mask-finite", families=("module",),
                  hidden=lambda p, s: s + np.where(p.seen(), 0, -5).astype(s.dtype)),
    "times the triangle": m("causal", "mask-finite", families=("textbook",),
                  hidden=lambda p, s: s * p.seen()),
    "boolean mask added": m("causal, masked", "mask-added", families=("textbook", "module"),
                  hidden=lambda p, s: s + p.seen().astype(s.dtype)),
    "transposed": m("masked", "mask-transposed", mask=lambda p: p.g["mask"].T),
    "first head only": m("causal, masked", "mask-some-heads", families=WITH_WEIGHTS,
                  hidden=lambda p, s: np.where(p.seen() | (np.arange(p.k.heads) > 0)[:, None, None], s, -np.inf)),
    "first member only": m("batch causal", "mask-some-members", families=WITH_WEIGHTS,
                  hidden=lambda p, s: (
                      np.where(lower(0)(p) | (np.arange(p.k.batch) > 0)[:, None, None, None], s, -np.inf))),
    "padding seen": m("padded", "padding-ignored", padding=lambda p: np.ones(p.k.keys, dtype=bool)),
    "a padded key too many": m("padded", "padding-lengths",
                  padding=lambda p: np.arange(p.k.keys) <= p.g["key_lengths"][:, None, None, None]),
    "a key too few": m("padded", "padding-lengths",
                  padding=lambda p: np.arange(p.k.keys) < p.g["key_lengths"][:, None, None, None] - 1),
    "padding on the left": m("padded", "padding-left", padding=lambda p: np.arange(p.k.keys)
                  >= p.k.keys - p.g["key_lengths"][:, None, None, None]),
    "padded queries hidden": m("padded", "padding-of-queries", families=("textbook", "module"),
                  padding=lambda p: np.arange(p.k.n)[:, None] < p.g["key_lengths"][:, None, None, None]),
    "lengths of the other member": m("padded", "padding-members",
                  padding=lambda p: np.arange(p.k.keys) < p.g["key_lengths"][::-1, None, None, None]),
    "window of one more": m("window", "window-other window-off-by-one", window=near(5, 0)),
    "window of one less": m("window, band", "window-other window-off-by-one", window=near(3, 1)),
    "window twice as long": m("window", "window-other window-off-by-one", window=near(8, 0)),
    "window of one side": m("band", "window-other window-off-by-one mask-unasked", window=near(3, 0)),
    "window of equal sides": m("band", "window-other window-off-by-one", window=near(3, 3)),
    "window forgotten": m("window", "mask-ignored", window=lambda p: np.ones((p.k.n, p.k.keys), dtype=bool)),
    "causal forgotten": m("window", "mask-ignored window-other",
                  causal=lambda p: np.ones((p.k.n, p.k.keys), dtype=bool), window=near(4, 99)),
    "causal unasked": m("plain, cross, masked", "mask-unasked", **unasked(lower(0))),
    "window unasked": m("plain, causal", "mask-unasked", **unasked(near(5, 5))),
    "itself hidden": m("plain", "mask-diagonal",
                  **unasked(lambda p: ~np.eye(p.k.n, p.k.keys, dtype=bool))),
    "first key hidden": m("plain, cross", "keys-dropped",
                  **unasked(lambda p: np.broadcast_to(np.arange(p.k.keys) > 0, (p.k.n, p.k.keys)))),
    "cache not counted": m("cache", "causal-aligned-wrong causal-offset",
                  causal=lambda p: np.tril(np.ones((p.k.n, p.k.keys), dtype=bool))),
    "bottom right for top left": m("cross causal", "causal-aligned-wrong causal-offset",
                  causal=lambda p: np.tril(np.ones((p.k.n, p.k.keys), dtype=bool), k=p.k.keys - p.k.n)),
    "whole blocks": m("causal, wide", "mask-by-blocks", families=("kernel", "textbook"),
                  causal=lambda p: p.places()[1] // 4 <= p.places()[0] // 4),
    "diagonal blocks skipped": m("causal tail", "mask-by-blocks", families=("kernel",),
                  causal=lambda p: p.places()[1] // 4 < p.places()[0] // 4),
    "positions inside the tile": m("causal", "mask-by-blocks", **tile_seen(
                  lambda p, rows, columns: np.tril(np.ones((rows[1] - rows[0], columns[1] - columns[0]), dtype=bool)))),
    "tril with k=1 inverted": m("causal", "mask-inverted", causal=lambda p: ~lower(0)(p)),
}  # fmt: skip


def swap_letters(**letters):
    return {"weight": lambda p, letter: p.g[f"W_{letters.get(letter, letter)}"]}


def transposed(letters):
    return {"weight": lambda p, letter: p.g[f"W_{letter}"].T if letter in letters else p.g[f"W_{letter}"]}


def no_bias(letters):
    return {"offset": lambda p, letter: None if letter in letters else p.g.get(f"b_{letter}")}


def normal(x):
    return (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True)


def rms(x):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True))


def finished(change):
    return {"finish": lambda p, c: change(p, Kernel.finish(p, c))}


def cast(value, like):
    return np.asarray(value).astype(like.dtype)


PROJECTION = {
    "W_Qᵀ": m("causal, plain", "weight-transposed", **transposed("Q")),
    "W_Kᵀ": m("plain", "weight-transposed", **transposed("K")),
    "W_Vᵀ": m("causal", "weight-transposed", **transposed("V")),
    "W_Oᵀ": m("plain, grouped", "weight-transposed", **transposed("O")),
    "all transposed": m("plain, causal", "weight-transposed", **transposed("QKVO")),
    "W_Q and W_K exchanged": m("causal, plain", "query-key-swapped", **swap_letters(Q="K", K="Q")),
    "K Qᵀ": m("plain, causal", "query-key-swapped", families=WITH_WEIGHTS,
              scores=lambda p, q, k: k @ q.swapaxes(-1, -2)),
    "V by W_K": m("plain, grouped", "projection-mixed-up", **swap_letters(V="K")),
    "K by W_V": m("plain", "projection-mixed-up", **swap_letters(K="V")),
    "Q by W_K": m("causal", "projection-mixed-up", **swap_letters(Q="K")),
    "packed as K, Q, V": m("plain", "query-key-swapped projection-mixed-up", **swap_letters(Q="K", K="Q")),
    "packed as V, K, Q": m("plain", "projection-mixed-up", **swap_letters(Q="V", V="Q")),
    "packed as Q, V, K": m("causal, grouped", "projection-mixed-up", **swap_letters(K="V", V="K")),
    "packed as K, V, Q": m("plain", "projection-mixed-up", **swap_letters(Q="K", K="V", V="Q")),
    "V not projected": m("plain", "projection-missing", families=("textbook", "llama", "kernel"),
              project=lambda p, x, letter: x if letter == "V" else Kernel.project(p, x, letter)),
    "b_Q forgotten": m("biases", "bias-missing", **no_bias("Q")),
    "b_K and b_V forgotten": m("biases", "bias-missing", **no_bias("KV")),
    "b_O forgotten": m("biases", "bias-missing", **no_bias("O")),
    "all biases forgotten": m("biases", "bias-missing", **no_bias("QKVO")),
    "biases twice": m("biases", "bias-wrong",
              offset=lambda p, letter: 2 * p.g[f"b_{letter}"] if letter == "O" else p.g[f"b_{letter}"]),
    "biases subtracted": m("biases", "bias-wrong",
              offset=lambda p, letter: -p.g[f"b_{letter}"] if letter == "Q" else p.g[f"b_{letter}"]),
    "b_Q for b_V": m("biases", "bias-wrong",
              offset=lambda p, letter: p.g["b_Q" if letter == "V" else f"b_{letter}"]),
    "b_O for every head": m("biases", "bias-wrong",
              offset=lambda p, letter: p.k.heads * p.g["b_O"] if letter == "O" else p.g[f"b_{letter}"]),
    "no W_O": m("plain, causal, grouped", "output-projection-missing", finish=lambda p, c: c),
    "residual added": m("plain, causal", "residual-added", **finished(lambda p, y: y + p.x)),
    "residual added to concat": m("plain", "residual-added", merge=lambda p, z: side_by_side(z) + p.x),
    "W_O twice": m("plain", "output-projection-twice", **finished(lambda p, y: y @ p.g["W_O"])),
    "K and V from X": m("cross same", "memory-exchanged", sources=lambda p, x, memory: (x, x, x)),
    "X and memory exchanged": m("cross same", "memory-exchanged", sources=lambda p, x, memory: (memory, x, x)),
    "V from X": m("cross same", "memory-exchanged", sources=lambda p, x, memory: (x, memory, x)),
    "all from memory": m("cross same", "memory-exchanged",
              sources=lambda p, x, memory: (memory, memory, memory)),
    "X normalized": m("plain", "normalized", projected=lambda p, x, y: Kernel.projected(p, z := cast(normal(x), x), z),
              families=("textbook", "llama", "kernel")),
    "Q and K normalized": m("plain, causal", "normalized",
              split=lambda p, y, letter: cast(rms(Kernel.split(p, y, letter)), y)
              if letter in "QK" else Kernel.split(p, y, letter)),
    "Q and K of length 1": m("plain", "normalized",
              split=lambda p, y, letter: cast(rms(s := Kernel.split(p, y, letter)) / np.sqrt(s.shape[-1]), y)
              if letter in "QK" else Kernel.split(p, y, letter)),
    "output normalized": m("plain", "normalized", **finished(lambda p, y: cast(normal(y), y))),
    "output times 2": m("plain, causal", "constant-factor", **finished(lambda p, y: 2 * y)),
    "V times 1.01": m("plain, grouped", "constant-factor", ("textbook", "llama", "kernel"), "float64 float32",
              project=lambda p, x, letter: Kernel.project(p, x, letter) * x.dtype.type(1.01 if letter == "V" else 1)),
    "weights on K": m("plain, causal", "weights-applied-to-wrong projection-mixed-up", mix=lambda p, a, v: a @ p.keys,
              families=WITH_WEIGHTS),
    "weights on Q": m("plain", "weights-applied-to-wrong projection-mixed-up", mix=lambda p, a, v: a @ p.q, families=WITH_WEIGHTS),
    "weights transposed": m("plain, causal", "weights-transposed", mix=lambda p, a, v: a.swapaxes(-1, -2) @ v,
              families=WITH_WEIGHTS),
}  # fmt: skip


def split_by(change, letters="QKV"):
    return {
        "split": lambda p, y, letter: change(y, p.k.heads if letter == "Q" else p.k.kv)
        if letter in letters
        else Kernel.split(p, y, letter)
    }


def reshaped(y, heads):
    *batch, n, columns = y.shape
    return y.reshape(*batch, heads, n, columns // heads)


def in_turn(y, heads):
    *batch, n, columns = y.shape
    return np.moveaxis(y.reshape(*batch, n, columns // heads, heads), -1, -3)


def shared(index, letters="KV"):
    return {
        "share": lambda p, x, letter: np.take(x, index(p), axis=-3)
        if letter in letters
        else Kernel.share(p, x, letter)
    }


def neox(p, x, memory):
    """One matrix with columns (head, three, d), read as (three, head, d)."""
    k = p.k
    fused = np.concatenate([p.g[f"W_{letter}"] for letter in "QKV"], axis=1)
    y = x @ fused
    y = y.reshape(*y.shape[:-1], k.heads, 3, k.d)
    return tuple(y[..., at, :].swapaxes(-3, -2) for at in range(3))


def neox_reversed(p, x, memory):
    """Columns (three, head, d) where (head, three, d) was meant: the other way about."""
    k = p.k
    fused = np.stack([p.g[f"W_{letter}"].reshape(k.d_model, k.heads, k.d) for letter in "QKV"], axis=2)
    y = x @ fused.reshape(k.d_model, -1)
    y = y.reshape(*y.shape[:-1], 3, k.heads, k.d)
    return tuple(y[..., at, :, :].swapaxes(-3, -2) for at in range(3))


def sequence_first(p, q, k, v):
    """Attention over the batch: its axis taken for that of the tokens."""
    z = Kernel.attend(Wide(p), *(x.swapaxes(0, 2) for x in (q, k, v)))
    return z.swapaxes(0, 2)


class Wide:
    """A program whose sentence is as long as the batch of another."""

    def __new__(cls, p):
        other = Kernel(p.k.but(n=p.k.batch, batch=p.k.n))
        other.g = p.g
        return other


HEADS = {
    "split by reshape": m("plain, causal, grouped", "heads-split-wrong", **split_by(reshaped)),
    "only K split by reshape": m("plain", "heads-split-wrong", **split_by(reshaped, "K")),
    "columns in turn": m("plain, grouped", "heads-split-wrong", **split_by(in_turn)),
    "merged by reshape": m("plain, grouped", "heads-merged-wrong",
                  merge=lambda p, z: z.reshape(side_by_side(z).shape)),
    "merged in turn": m("plain, causal", "heads-merged-wrong",
                  merge=lambda p, z: np.moveaxis(z, -3, -1).reshape(side_by_side(z).shape)),
    "merged backwards": m("plain", "heads-in-other-order", merge=lambda p, z: side_by_side(z[..., ::-1, :, :])),
    "merged one off": m("causal", "heads-in-other-order",
                  merge=lambda p, z: side_by_side(np.roll(z, 1, axis=-3))),
    "the last head everywhere": m("plain, grouped", "one-head-for-all",
                  merge=lambda p, z: side_by_side(z[..., [-1] * p.k.heads, :, :])),
    "the first head everywhere": m("plain", "one-head-for-all",
                  merge=lambda p, z: side_by_side(z[..., [0] * p.k.heads, :, :])),
    "heads averaged": m("plain", "heads-averaged",
                  merge=lambda p, z: side_by_side(np.broadcast_to(z.mean(axis=-3, keepdims=True), z.shape))),
    "kv heads tiled": m("grouped", "kv-heads-tiled", **shared(lambda p: np.arange(p.k.heads) % p.k.kv)),
    "first kv head only": m("grouped", "kv-heads-order", **shared(lambda p: np.zeros(p.k.heads, dtype=int))),
    "kv heads backwards": m("grouped", "kv-heads-tiled kv-heads-order",
                  **shared(lambda p: p.k.kv - 1 - np.arange(p.k.heads) // (p.k.heads // p.k.kv))),
    "V's kv heads tiled": m("grouped", "kv-heads-tiled", **shared(lambda p: np.arange(p.k.heads) % p.k.kv, "V")),
    "Q's heads in turn": m("grouped", "heads-split-wrong", **split_by(in_turn, "Q")),
    "NeoX packing": m("plain, causal", "qkv-packing", projected=neox),
    "NeoX packing the other way": m("plain", "qkv-packing", projected=neox_reversed),
    "batch first": m("batch", "batch-first", attend=sequence_first, families=("kernel",)),
}  # fmt: skip


def turn(change):
    return {"turn": lambda p, x, start: change(x, start, p.k)}


def rotated(change):
    return {"rotated": change}


def at(x, k, start, **options):
    return angles(x.shape[-2], k.rotary_dims or k.d, start, **options)


def before_split(p, y, letter):
    if letter == "V":
        return Kernel.split(p, y, letter)
    return Kernel.split(p, turned(y, angles(y.shape[-2], y.shape[-1])), letter)


def alibi(f):
    return {"slopes": f}


def later(change):
    """The bias, made another way."""
    return {"score_bias": change}


POSITION = {
    "rotation forgotten": m("rope, cache", "rotary-missing", **turn(lambda x, start, k: x)),
    "only Q rotated": m("rope", "rotary-missing", **rotated(lambda p, q, k, v: (p.turn(q, 0), k, v))),
    "only K rotated": m("rope whole", "rotary-missing", **rotated(lambda p, q, k, v: (q, p.turn(k, 0), v))),
    "neighbours rotated": m("rope, rope part", "rotary-pairs-wrong",
        **turn(lambda x, start, k: turned_neighbours(x, at(x, k, start)))),
    "θ 500000": m("rope, rope whole", "rotary-theta", **turn(lambda x, start, k: turned(x, at(x, k, start, theta=5e5)))),
    "θ 1000": m("cache", "rotary-theta", **turn(lambda x, start, k: turned(x, at(x, k, start, theta=1e3)))),
    "half the columns": m("rope", "rotary-dims", **turn(lambda x, start, k: turned(x, angles(x.shape[-2], k.d // 2, start)))),
    "all the columns": m("rope part", "rotary-dims", **turn(lambda x, start, k: turned(x, angles(x.shape[-2], k.d, start)))),
    "exponent i/d": m("rope", "rotary-theta",
        **turn(lambda x, start, k: turned(x, at(x, k, start, theta=100.0)))),
    "exponent of d_model": m("rope", "rotary-theta",
        **turn(lambda x, start, k: turned(x, at(x, k, start, theta=10000.0 ** (k.d / k.d_model))))),
    "twice": m("rope, rope whole", "rotary-twice", **turn(lambda x, start, k: turned(turned(x, at(x, k, start)), at(x, k, start)))),
    "backwards": m("rope", "rotary-backwards", **turn(lambda x, start, k: turned(x, -at(x, k, start)))),
    "on V too": m("rope, rope whole", "rotary-on-values",
        **rotated(lambda p, q, k, v: (p.turn(q, 0), p.turn(k, 0), p.turn(v, 0)))),
    "before the split": m("rope", "rotary-before-split", split=before_split, **rotated(lambda p, q, k, v: (q, k, v))),
    "Q one late": m("rope, rope whole", "rotary-start",
        **rotated(lambda p, q, k, v: (p.turn(q, 1), p.turn(k, 0), v))),
    "cache not counted in Q": m("cache", "rotary-start",
        **rotated(lambda p, q, k, v: (p.turn(q, 0), p.turn(k, p.k.past), v))),
    "cache not counted": m("cache", "rotary-start", **turn(lambda x, start, k: turned(x, at(x, k, 0)))),
    "cache counted one too many": m("cache", "rotary-start", **turn(lambda x, start, k: turned(x, at(x, k, start + 1)))),
    "positions halved": m("rope", "rotary-stretched", **turn(lambda x, start, k: turned(x, at(x, k, start, step=0.5)))),
    "sine and cosine exchanged": m("rope", "rotary-sine-cosine rotary-backwards",
        **turn(lambda x, start, k: turned(x, np.pi / 2 - at(x, k, start)))),
    "by the head's number": m("rope whole", "rotary-missing", **turn(
        lambda x, start, k: turned(x, np.broadcast_to(
            (np.arange(x.shape[-3])[:, None, None] * angles(2, k.d)[1]), (x.shape[-3], x.shape[-2], k.d // 2))))),
    "rotation unasked": m("plain, causal", "rotary-unasked",
        attend=lambda p, q, k, v: type(p).__mro__[1].attend(p, turned(q, at(q, p.k, 0)), turned(k, at(k, p.k, 0)), v)),
    "ALiBi's sign": m("alibi, alibi whole", "alibi-slopes", **alibi(lambda p: -slopes(p.k.heads))),
    "ALiBi forgotten": m("alibi", "bias-missing", **later(lambda p: np.zeros((p.k.heads, p.k.n, p.k.keys)))),
    "slopes from 2⁰": m("alibi", "alibi-slopes", **alibi(
        lambda p: 2.0 ** (-8.0 * np.arange(p.k.heads) / p.k.heads)[:, None, None])),
    "slopes of eight heads": m("alibi whole", "alibi-slopes", **alibi(
        lambda p: 2.0 ** -(1.0 + np.arange(p.k.heads))[:, None, None])),
    "slopes backwards": m("alibi", "alibi-slopes", **alibi(lambda p: slopes(p.k.heads)[::-1])),
    "slopes of any number of heads": m("alibi 6", "alibi-slopes", **alibi(
        lambda p: 2.0 ** (-8.0 * (np.arange(p.k.heads) + 1) / p.k.heads)[:, None, None])),
    "one slope for all": m("alibi", "alibi-slopes", **alibi(lambda p: np.full((p.k.heads, 1, 1), 0.5))),
    "distance with its sign": m("alibi whole", "alibi-distance",
        **later(lambda p: -slopes(p.k.heads) * (p.places()[0] - p.places()[1]))),
    "distance squared": m("alibi", "alibi-distance", **later(lambda p: -slopes(p.k.heads) * p.distance() ** 2)),
    "bias scaled": m("alibi, score bias", "bias-scaled score-bias-wrong alibi-slopes", **later(
        lambda p: type(p).__mro__[1].score_bias(p) / np.sqrt(p.k.d))),
    "bias subtracted": m("score bias", "score-bias-wrong", **later(lambda p: -p.g["bias"])),
    "bias transposed": m("score bias, score bias causal", "score-bias-wrong",
        **later(lambda p: p.g["bias"].swapaxes(-1, -2))),
    "bias forgotten": m("score bias causal", "bias-missing", **later(lambda p: 0 * p.g["bias"])),
    "bias of the first head": m("score bias", "score-bias-wrong", **later(lambda p: p.g["bias"][:1])),
    "bias twice": m("score bias", "score-bias-wrong", **later(lambda p: 2 * p.g["bias"])),
    "bias multiplied": m("score bias", "score-bias-wrong", biased=lambda p, s: s * p.g["bias"], families=WITH_WEIGHTS),
    "positions forgotten": m("sinusoidal", "positions-missing", add_positions=lambda p, x, table: x),
    "positions twice": m("sinusoidal", "positions-wrong",
        add_positions=lambda p, x, table: x + (2 * table).astype(x.dtype)),
    "positions from 1": m("sinusoidal", "sinusoids-wrong", table=lambda p: sinusoids(p.k.n, p.k.d_model, 1)),
    "cosine first": m("sinusoidal", "sinusoids-wrong", table=lambda p: sinusoids(p.k.n, p.k.d_model)[
        :, np.arange(p.k.d_model) ^ 1]),
    "all sines, then all cosines": m("sinusoidal", "sinusoids-wrong", table=lambda p: np.concatenate(
        [sinusoids(p.k.n, p.k.d_model)[:, 0::2], sinusoids(p.k.n, p.k.d_model)[:, 1::2]], axis=1)),
    "base 1000": m("sinusoidal", "sinusoids-wrong", table=lambda p: sinusoids(p.k.n, p.k.d_model, base=1000.0)),
    "embeddings times √d_model": m("sinusoidal", "positions-wrong",
        add_positions=lambda p, x, table: x * cast(np.sqrt(p.k.d_model), x) + table.astype(x.dtype)),
}  # fmt: skip


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
    "before the scale": m("softcap", "softcap-before-scale", families=("textbook", "llama", "kernel"),
        scaled=lambda p, s: s, capped=lambda p, s: squeezed(p.k.softcap)(s) / s.dtype.type(np.sqrt(p.k.d))),
    "not multiplied back": m("softcap", "softcap-half", capped=lambda p, s: np.tanh(s / p.k.softcap)),
    "not divided": m("softcap", "softcap-half", capped=lambda p, s: p.k.softcap * np.tanh(s)),
    "bare tanh": m("softcap", "softcap-other softcap-half", capped=lambda p, s: np.tanh(s)),
    "clipped": m("softcap", "softcap-clipped", capped=lambda p, s: np.clip(s, -p.k.softcap, p.k.softcap)),
}


KERNEL = {
    "output not rescaled": m("plain, causal, grouped", "online-not-rescaled", shrink_output=lambda p, old, new: 1),
    "sum not rescaled": m("plain, causal", "online-not-rescaled", shrink_sum=lambda p, old, new: 1),
    "nothing rescaled": m("plain, wide", "online-not-rescaled", shrink_output=lambda p, old, new: 1,
                          shrink_sum=lambda p, old, new: 1),
    "rescaled the other way": m("plain", "online-not-rescaled", shrink_output=lambda p, old, new: p.exp(new - old),
                          shrink_sum=lambda p, old, new: p.exp(new - old)),
    "output overwritten": m("plain, tail", "keys-dropped online-not-rescaled", shrink_output=lambda p, old, new: 0,
                          shrink_sum=lambda p, old, new: 0),
    "sum overwritten": m("plain", "online-not-rescaled", shrink_sum=lambda p, old, new: 0),
    "not divided": m("plain, causal", "softmax-unnormalized", close=lambda p, z, total, top: z),
    "last block of keys dropped": m("tail, wide", "keys-dropped", key_blocks=lambda p: Kernel.key_blocks(p)[:-1]),
    "rest of the keys dropped": m("tail, causal tail", "keys-dropped",
                          key_blocks=lambda p: [b for b in Kernel.key_blocks(p) if b[1] - b[0] == p.block]),
    "first block of keys dropped": m("plain", "keys-dropped", key_blocks=lambda p: Kernel.key_blocks(p)[1:]),
    "rest of the queries dropped": m("tail, causal tail", "queries-dropped",
                          query_blocks=lambda p: [(i, i + 4) for i in range(0, p.k.n - 3, 4)]),
    "padding of the last block seen": m("tail", "keys-padded", shrink_sum=lambda p, old, new: np.exp(old - new),
                          close=lambda p, z, total, top: z / (total + 2 * np.exp(-top))),
    "padding of a block of 16 seen": m("plain", "keys-padded",
                          close=lambda p, z, total, top: z / (total + 4 * np.exp(-top))),
    "a block read twice": m("plain", "keys-twice",
                          key_blocks=lambda p: [*Kernel.key_blocks(p), Kernel.key_blocks(p)[-1]]),
    "blocks averaged": m("plain, wide", "online-not-rescaled", row_block=lambda p, q, k, v, rows: sum(
        softmax(p.tile(q, k[..., a:b, :], rows, (a, b))) @ v[..., a:b, :] for a, b in p.key_blocks())
        / len(p.key_blocks())),
    "V one block behind": m("plain", "values-shifted", pieces=lambda p, k, v, c: (
        k[..., slice(*c), :], np.roll(v, p.block, axis=-2)[..., slice(*c), :])),
    "V one token behind": m("plain, causal", "values-shifted", pieces=lambda p, k, v, c: (
        k[..., slice(*c), :], np.roll(v, 1, axis=-2)[..., slice(*c), :])),
    "skips the diagonal's block": m("causal", "mask-by-blocks",
                          visits=lambda p, rows: [b for b in p.key_blocks() if b[0] < rows[0]] ),
    "base 2 in the tiles": m("causal", "exp-base-2", exp=lambda p, x: np.exp2(x)),
    "base 2 in rescaling only": m("plain", "online-not-rescaled",
                          shrink_sum=lambda p, old, new: np.exp2(old - new),
                          shrink_output=lambda p, old, new: np.exp2(old - new)),
    "divided twice": m("plain", "softmax-normalized-twice", close=lambda p, z, total, top: z / total / total),
    "sums before the scale": m("plain", "scale-other no-scale", scaled=lambda p, s: s),
}  # fmt: skip
KERNEL = {
    words: Mistake(each.kinds, each.names, each.pieces, ("kernel",), each.dtypes) for words, each in KERNEL.items()
}


NUMBERS = {
    "scores in bfloat16": m("plain, causal, wide", "low-precision", dtypes="float64 float32",
        scores=lambda p, q, k: bfloat16(bfloat16(q) @ bfloat16(k).swapaxes(-1, -2)).astype(q.dtype)),
    "weights in float16": m("plain, wide", "low-precision", dtypes="float64 float32", families=WITH_WEIGHTS,
        softmax=lambda p, s: softmax(s).astype(np.float16).astype(s.dtype)),
}  # fmt: skip

CLASSES = {
    "scale": SCALE,
    "softmax": SOFTMAX,
    "mask": MASK,
    "projection": PROJECTION,
    "heads": HEADS,
    "position": POSITION,
    "softcap": SOFTCAP,
    "kernel": KERNEL,
    "numbers": NUMBERS,
}
