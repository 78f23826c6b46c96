"""Planted in splitting heads, sharing them and bringing them together."""

import numpy as np

from trial.mistake import m, side_by_side
from trial.programs import Kernel


def split_by(change, letters="QKV"):
    return {
        "split": lambda p, y, letter: (
            change(y, p.k.heads if letter == "Q" else p.k.kv)
            if letter in letters
            else Kernel.split(p, y, letter)
        )
    }


def reshaped(y, heads):
    *batch, n, columns = y.shape
    return y.reshape(*batch, heads, n, columns // heads)


def in_turn(y, heads):
    *batch, n, columns = y.shape
    return np.moveaxis(y.reshape(*batch, n, columns // heads, heads), -1, -3)


def shared(index, letters="KV"):
    return {
        "share": lambda p, x, letter: (
            np.take(x, index(p), axis=-3) if letter in letters else Kernel.share(p, x, letter)
        )
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
    "merged by reshape": m(
        "plain, grouped", "heads-merged-wrong", merge=lambda p, z: z.reshape(side_by_side(z).shape)
    ),
    "merged in turn": m(
        "plain, causal",
        "heads-merged-wrong",
        merge=lambda p, z: np.moveaxis(z, -3, -1).reshape(side_by_side(z).shape),
    ),
    "merged backwards": m(
        "plain", "heads-in-other-order", merge=lambda p, z: side_by_side(z[..., ::-1, :, :])
    ),
    "merged one off": m(
        "causal", "heads-in-other-order", merge=lambda p, z: side_by_side(np.roll(z, 1, axis=-3))
    ),
    "the last head everywhere": m(
        "plain, grouped",
        "one-head-for-all",
        merge=lambda p, z: side_by_side(z[..., [-1] * p.k.heads, :, :]),
    ),
    "the first head everywhere": m(
        "plain", "one-head-for-all", merge=lambda p, z: side_by_side(z[..., [0] * p.k.heads, :, :])
    ),
    "heads averaged": m(
        "plain",
        "heads-averaged",
        merge=lambda p, z: side_by_side(np.broadcast_to(z.mean(axis=-3, keepdims=True), z.shape)),
    ),
    "kv heads tiled": m("grouped", "kv-heads-tiled", **shared(lambda p: np.arange(p.k.heads) % p.k.kv)),
    "first kv head only": m(
        "grouped", "kv-heads-order", **shared(lambda p: np.zeros(p.k.heads, dtype=int))
    ),
    "kv heads backwards": m(
        "grouped",
        "kv-heads-tiled kv-heads-order",
        **shared(lambda p: p.k.kv - 1 - np.arange(p.k.heads) // (p.k.heads // p.k.kv)),
    ),
    "V's kv heads tiled": m(
        "grouped", "kv-heads-tiled", **shared(lambda p: np.arange(p.k.heads) % p.k.kv, "V")
    ),
    "Q's heads in turn": m("grouped", "heads-split-wrong", **split_by(in_turn, "Q")),
    "NeoX packing": m("plain, causal", "qkv-packing", projected=neox),
    "NeoX packing the other way": m("plain", "qkv-packing", projected=neox_reversed),
    "batch first": m("batch", "batch-first", attend=sequence_first, families=("kernel",)),
}
