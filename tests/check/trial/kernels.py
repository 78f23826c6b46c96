"""Planted in tiles, a running softmax, and few digits."""

import numpy as np

from trial.mistake import WITH_WEIGHTS, Mistake, m
from trial.programs import Kernel, bfloat16, softmax

KERNEL = {
    "output not rescaled": m(
        "plain, causal, grouped", "online-not-rescaled", shrink_output=lambda p, old, new: 1
    ),
    "sum not rescaled": m("plain, causal", "online-not-rescaled", shrink_sum=lambda p, old, new: 1),
    "nothing rescaled": m(
        "plain, wide",
        "online-not-rescaled",
        shrink_output=lambda p, old, new: 1,
        shrink_sum=lambda p, old, new: 1,
    ),
    "rescaled the other way": m(
        "plain",
        "online-not-rescaled",
        shrink_output=lambda p, old, new: p.exp(new - old),
        shrink_sum=lambda p, old, new: p.exp(new - old),
    ),
    "output overwritten": m(
        "plain, tail",
        "keys-dropped online-not-rescaled",
        shrink_output=lambda p, old, new: 0,
        shrink_sum=lambda p, old, new: 0,
    ),
    "sum overwritten": m("plain", "online-not-rescaled", shrink_sum=lambda p, old, new: 0),
    "not divided": m("plain, causal", "softmax-unnormalized", close=lambda p, z, total, top: z),
    "last block of keys dropped": m(
        "tail, wide", "keys-dropped", key_blocks=lambda p: Kernel.key_blocks(p)[:-1]
    ),
    "rest of the keys dropped": m(
        "tail, causal tail",
        "keys-dropped",
        key_blocks=lambda p: [b for b in Kernel.key_blocks(p) if b[1] - b[0] == p.block],
    ),
    "first block of keys dropped": m(
        "plain", "keys-dropped", key_blocks=lambda p: Kernel.key_blocks(p)[1:]
    ),
    "rest of the queries dropped": m(
        "tail, causal tail",
        "queries-dropped",
        query_blocks=lambda p: [(i, i + 4) for i in range(0, p.k.n - 3, 4)],
    ),
    "padding of the last block seen": m(
        "tail",
        "keys-padded",
        shrink_sum=lambda p, old, new: np.exp(old - new),
        close=lambda p, z, total, top: z / (total + 2 * np.exp(-top)),
    ),
    "padding of a block of 16 seen": m(
        "plain", "keys-padded", close=lambda p, z, total, top: z / (total + 4 * np.exp(-top))
    ),
    "a block read twice": m(
        "plain", "keys-twice", key_blocks=lambda p: [*Kernel.key_blocks(p), Kernel.key_blocks(p)[-1]]
    ),
    "blocks averaged": m(
        "plain, wide",
        "online-not-rescaled",
        row_block=lambda p, q, k, v, rows: (
            sum(
                softmax(p.tile(q, k[..., a:b, :], rows, (a, b))) @ v[..., a:b, :] for a, b in p.key_blocks()
            )
            / len(p.key_blocks())
        ),
    ),
    "V one block behind": m(
        "plain",
        "values-shifted",
        pieces=lambda p, k, v, c: (k[..., slice(*c), :], np.roll(v, p.block, axis=-2)[..., slice(*c), :]),
    ),
    "V one token behind": m(
        "plain, causal",
        "values-shifted",
        pieces=lambda p, k, v, c: (k[..., slice(*c), :], np.roll(v, 1, axis=-2)[..., slice(*c), :]),
    ),
    "skips the diagonal's block": m(
        "causal", "mask-by-blocks", visits=lambda p, rows: [b for b in p.key_blocks() if b[0] < rows[0]]
    ),
    "base 2 in the tiles": m("causal", "exp-base-2", exp=lambda p, x: np.exp2(x)),
    "base 2 in rescaling only": m(
        "plain",
        "online-not-rescaled",
        shrink_sum=lambda p, old, new: np.exp2(old - new),
        shrink_output=lambda p, old, new: np.exp2(old - new),
    ),
    "divided twice": m(
        "plain", "softmax-normalized-twice", close=lambda p, z, total, top: z / total / total
    ),
    "sums before the scale": m("plain", "scale-other no-scale", scaled=lambda p, s: s),
}
KERNEL = {
    words: Mistake(each.kinds, each.names, each.pieces, ("kernel",), each.dtypes)
    for words, each in KERNEL.items()
}


NUMBERS = {
    "scores in bfloat16": m(
        "plain, causal, wide",
        "low-precision",
        dtypes="float64 float32",
        scores=lambda p, q, k: bfloat16(bfloat16(q) @ bfloat16(k).swapaxes(-1, -2)).astype(q.dtype),
    ),
    "weights in float16": m(
        "plain, wide",
        "low-precision",
        dtypes="float64 float32",
        families=WITH_WEIGHTS,
        softmax=lambda p, s: softmax(s).astype(np.float16).astype(s.dtype),
    ),
}
