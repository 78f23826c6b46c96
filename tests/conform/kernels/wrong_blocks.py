"""Kernels that read keys a block at a time, and lose something on the way."""

import numpy as np
from parts import hidden, prepared, scores, softmax

BLOCK = 16


def blocks(q, k, v, step=BLOCK, width=BLOCK, end=None):
    """The scores of each block of keys, with its values."""
    a, b, c = prepared(q, k, v)
    for j in range(0, b.shape[-2] if end is None else end, step):
        yield scores(a, b[..., j : j + width, :]), c[..., j : j + width, :]


def accumulated(q, v, parts, *, sum_rescaled=True, out_rescaled=True, acc=None):
    """The online softmax over blocks, with either rescaling left out."""
    t = acc or (np.float64 if q.dtype == np.float64 else np.float32)
    top = np.full((*q.shape[:-1], 1), -np.inf, t)
    total, out = np.zeros_like(top), np.zeros((*q.shape[:-1], v.shape[-1]), t)
    for s, values in parts:
        new = np.maximum(top, s.max(-1, keepdims=True).astype(t))
        p, old = np.exp(s - new), np.exp(top - new)
        total = (total * old if sum_rescaled else total) + p.sum(-1, keepdims=True).astype(t)
        out = (out * old if out_rescaled else out) + (p @ values).astype(t)
        top = new
    return (out / np.where(total == 0, 1, total)).astype(q.dtype)


def sum_not_rescaled(q, k, v):
    return accumulated(q, v, blocks(q, k, v), sum_rescaled=False)


def output_not_rescaled(q, k, v):
    return accumulated(q, v, blocks(q, k, v), out_rescaled=False)


def neither_rescaled(q, k, v):
    return accumulated(q, v, blocks(q, k, v), sum_rescaled=False, out_rescaled=False)


def third_block_not_rescaled(q, k, v):
    """The output is rescaled but for one block."""
    a, _, c = prepared(q, k, v)
    top = np.full((*a.shape[:-1], 1), -np.inf, a.dtype)
    total, out = np.zeros_like(top), np.zeros((*a.shape[:-1], c.shape[-1]), a.dtype)
    for number, (s, values) in enumerate(blocks(q, k, v)):
        new = np.maximum(top, s.max(-1, keepdims=True))
        p, old = np.exp(s - new), np.exp(top - new)
        total = total * old + p.sum(-1, keepdims=True)
        out = (out if number == 2 else out * old) + p @ values
        top = new
    return (out / total).astype(q.dtype)


def last_partial_block_dropped(q, k, v):
    """The number of blocks is rounded down."""
    m = k.shape[2]
    return accumulated(q, v, blocks(q, k, v, end=m // BLOCK * BLOCK if m >= BLOCK else m))


def last_block_dropped(q, k, v):
    """One block too few, where there are several."""
    m = k.shape[2]
    return accumulated(q, v, blocks(q, k, v, end=max(m - BLOCK, 1)))


def last_key_dropped(q, k, v):
    m = k.shape[2]
    return accumulated(q, v, blocks(q, k[:, :, : max(m - 1, 1)], v[:, :, : max(m - 1, 1)]))


def first_key_dropped(q, k, v):
    start = min(1, k.shape[2] - 1)
    return accumulated(q, v, blocks(q, k[:, :, start:], v[:, :, start:]))


def boundary_dropped(q, k, v):
    """Blocks are one key too narrow."""
    return accumulated(q, v, blocks(q, k, v, width=BLOCK - 1))


def boundary_twice(q, k, v):
    """Blocks reach one key into the next."""
    return accumulated(q, v, blocks(q, k, v, width=BLOCK + 1))


def last_block_read_again(q, k, v):
    """The last block begins early, so that it is full, and reads keys again."""
    a, b, c = prepared(q, k, v)
    m = b.shape[-2]
    starts = [min(j, max(m - BLOCK, 0)) for j in range(0, m, BLOCK)]
    parts = ((scores(a, b[..., j : j + BLOCK, :]), c[..., j : j + BLOCK, :]) for j in starts)
    return accumulated(q, v, parts)


def padding_counted(q, k, v):
    """Keys are padded with zeros to whole blocks, and softmax counts them."""
    pad = [(0, 0), (0, 0), (0, -k.shape[2] % BLOCK), (0, 0)]
    return accumulated(q, v, blocks(q, np.pad(k, pad), np.pad(v, pad)))


def normalized_in_each_block(q, k, v):
    """Softmax within a block, and the mean over blocks."""
    parts = [softmax(s) @ values for s, values in blocks(q, k, v)]
    return (sum(parts) / len(parts)).astype(q.dtype)


def values_one_block_late(q, k, v):
    """Values are read from the block before; the first reads its own."""
    m, c = k.shape[2], prepared(q, k, v)[2]
    late = [max(j - BLOCK, 0) for j in range(0, m, BLOCK)]
    widths = [min(BLOCK, m - j) for j in range(0, m, BLOCK)]
    values = [c[..., j : j + w, :] for j, w in zip(late, widths, strict=True)]
    parts = ((s, x) for (s, _), x in zip(blocks(q, k, v), values, strict=True))
    return accumulated(q, v, parts)


def values_shifted(q, k, v):
    """Each weight meets the value after its key."""
    return accumulated(q, v, blocks(q, k, np.roll(v, -1, axis=2)))


def half_accumulators(q, k, v):
    """Sums kept in float16, whatever the type."""
    return accumulated(q, v, blocks(q, k, v), acc=np.float16)


def last_queries_dropped(q, k, v, block=BLOCK):
    """Whole blocks of queries only; what is left over stays 0."""
    a, b, c = prepared(q, k, v)
    out = np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    whole = a.shape[-2] // block * block or a.shape[-2]
    out[..., :whole, :] = softmax(scores(a[..., :whole, :], b)) @ c
    return out


def causal_stops_early(q, k, v, causal=False, block=BLOCK):
    """Tiles on the diagonal are skipped with those above it."""
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    if causal:
        i, j = np.ogrid[: s.shape[-2], : s.shape[-1]]
        s = hidden(s, (j <= i) & ((j // block < i // block) | (i < block)))
    return (softmax(s) @ c).astype(q.dtype)
