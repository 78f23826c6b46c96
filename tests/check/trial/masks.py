"""Planted in who may see whom."""

import numpy as np

from trial.mistake import WITH_WEIGHTS, m
from trial.programs import Kernel, softmax


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
    "left out": m(
        "causal, grouped, masked, window",
        "mask-ignored",
        hidden=lambda p, s: s,
        tile_seen=lambda p, rows, columns: np.ones((), dtype=bool),
    ),
    "inverted": m("causal, masked, band", "mask-inverted", seen=lambda p: ~Kernel.seen(p)),
    "strict": m("causal, grouped", "causal-strict causal-offset", causal=lower(-1)),
    "one token ahead": m("causal, grouped", "causal-offset", causal=lower(1)),
    "three tokens ahead": m("wide", "causal-offset", causal=lower(3)),
    "upside down": m("causal", "mask-inverted mask-transposed", causal=lambda p: lower(0)(p).T),
    "after softmax": m(
        "causal, masked, window",
        "mask-after-softmax",
        families=WITH_WEIGHTS,
        hidden=lambda p, s: s,
        weights=after,
    ),
    "filled with 0": m("causal, masked", "mask-finite", families=("textbook", "llama"), **put_back(0)),
    "filled with −10": m("causal", "mask-finite", families=("textbook", "llama"), **put_back(-10)),
    "filled with −3": m("masked", "mask-finite", families=("textbook", "llama"), **put_back(-3)),
    "filled with the least positive number": m(
        "causal", "mask-finite", families=("llama",), **put_back(1.2e-38)
    ),
    "−5 added": m(
        "causal",
        "mask-finite",
        families=("module",),
        hidden=lambda p, s: s + np.where(p.seen(), 0, -5).astype(s.dtype),
    ),
    "times the triangle": m(
        "causal", "mask-finite", families=("textbook",), hidden=lambda p, s: s * p.seen()
    ),
    "boolean mask added": m(
        "causal, masked",
        "mask-added",
        families=("textbook", "module"),
        hidden=lambda p, s: s + p.seen().astype(s.dtype),
    ),
    "transposed": m("masked", "mask-transposed", mask=lambda p: p.g["mask"].T),
    "first head only": m(
        "causal, masked",
        "mask-some-heads",
        families=WITH_WEIGHTS,
        hidden=lambda p, s: np.where(p.seen() | (np.arange(p.k.heads) > 0)[:, None, None], s, -np.inf),
    ),
    "first member only": m(
        "batch causal",
        "mask-some-members",
        families=WITH_WEIGHTS,
        hidden=lambda p, s: np.where(
            lower(0)(p) | (np.arange(p.k.batch) > 0)[:, None, None, None], s, -np.inf
        ),
    ),
    "padding seen": m("padded", "padding-ignored", padding=lambda p: np.ones(p.k.keys, dtype=bool)),
    "a padded key too many": m(
        "padded",
        "padding-lengths",
        padding=lambda p: np.arange(p.k.keys) <= p.g["key_lengths"][:, None, None, None],
    ),
    "a key too few": m(
        "padded",
        "padding-lengths",
        padding=lambda p: np.arange(p.k.keys) < p.g["key_lengths"][:, None, None, None] - 1,
    ),
    "padding on the left": m(
        "padded",
        "padding-left",
        padding=lambda p: np.arange(p.k.keys) >= p.k.keys - p.g["key_lengths"][:, None, None, None],
    ),
    "padded queries hidden": m(
        "padded",
        "padding-of-queries",
        families=("textbook", "module"),
        padding=lambda p: np.arange(p.k.n)[:, None] < p.g["key_lengths"][:, None, None, None],
    ),
    "lengths of the other member": m(
        "padded",
        "padding-members",
        padding=lambda p: np.arange(p.k.keys) < p.g["key_lengths"][::-1, None, None, None],
    ),
    "window of one more": m("window", "window-other window-off-by-one", window=near(5, 0)),
    "window of one less": m("window, band", "window-other window-off-by-one", window=near(3, 1)),
    "window twice as long": m("window", "window-other window-off-by-one", window=near(8, 0)),
    "window of one side": m("band", "window-other window-off-by-one mask-unasked", window=near(3, 0)),
    "window of equal sides": m("band", "window-other window-off-by-one", window=near(3, 3)),
    "window forgotten": m(
        "window", "mask-ignored", window=lambda p: np.ones((p.k.n, p.k.keys), dtype=bool)
    ),
    "causal forgotten": m(
        "window",
        "mask-ignored window-other",
        causal=lambda p: np.ones((p.k.n, p.k.keys), dtype=bool),
        window=near(4, 99),
    ),
    "causal unasked": m("plain, cross, masked", "mask-unasked", **unasked(lower(0))),
    "window unasked": m("plain, causal", "mask-unasked", **unasked(near(5, 5))),
    "itself hidden": m("plain", "mask-diagonal", **unasked(lambda p: ~np.eye(p.k.n, p.k.keys, dtype=bool))),
    "first key hidden": m(
        "plain, cross",
        "keys-dropped",
        **unasked(lambda p: np.broadcast_to(np.arange(p.k.keys) > 0, (p.k.n, p.k.keys))),
    ),
    "cache not counted": m(
        "cache",
        "causal-aligned-wrong causal-offset",
        causal=lambda p: np.tril(np.ones((p.k.n, p.k.keys), dtype=bool)),
    ),
    "bottom right for top left": m(
        "cross causal",
        "causal-aligned-wrong causal-offset",
        causal=lambda p: np.tril(np.ones((p.k.n, p.k.keys), dtype=bool), k=p.k.keys - p.k.n),
    ),
    "whole blocks": m(
        "causal, wide",
        "mask-by-blocks",
        families=("kernel", "textbook"),
        causal=lambda p: p.places()[1] // 4 <= p.places()[0] // 4,
    ),
    "diagonal blocks skipped": m(
        "causal tail",
        "mask-by-blocks",
        families=("kernel",),
        causal=lambda p: p.places()[1] // 4 < p.places()[0] // 4,
    ),
    "positions inside the tile": m(
        "causal",
        "mask-by-blocks",
        **tile_seen(
            lambda p, rows, columns: np.tril(
                np.ones((rows[1] - rows[0], columns[1] - columns[0]), dtype=bool)
            )
        ),
    ),
    "tril with k=1 inverted": m("causal", "mask-inverted", causal=lambda p: ~lower(0)(p)),
}
