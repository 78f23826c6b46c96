"""Merges of two parts of attention as people write them: a right one, and wrong ones by their mistake."""

import numpy as np


def fades(one, other, exp=np.exp):
    """exp(L - max) of both parts, their sum, and the maximum, 0 where nothing is seen."""
    top = np.maximum(one, other)
    top = np.where(np.isneginf(top), 0, top)
    a, b = exp(one - top), exp(other - top)
    return a, b, a + b, top


def mix(a, b, total, o1, o2):
    total = np.where(total == 0, 1, total)
    return ((a / total)[..., None] * o1 + (b / total)[..., None] * o2).astype(o1.dtype)


def right(o1, L1, o2, L2):
    a, b, total, top = fades(L1, L2)
    return mix(a, b, total, o1, o2), top + np.log(total)


def by_logaddexp(o1, L1, o2, L2):
    """As textbooks have it: exp(L_c - L)."""
    total = np.logaddexp(L1, L2)
    safe = np.where(np.isneginf(total), 0, total)
    a, b = np.exp(L1 - safe), np.exp(L2 - safe)
    return (a[..., None] * o1 + b[..., None] * o2).astype(o1.dtype), total


def names_by_kind(out_a, out_b, lse_a, lse_b):
    return right(out_a, lse_a, out_b, lse_b)


def query_before_head(v_a, s_a, v_b, s_b):
    """(batch, query, head, d) beside (batch, head, query)."""
    if v_a.shape[1] != s_a.shape[2]:
        raise ValueError("another layout")
    o, total = right(v_a.swapaxes(1, 2), s_a, v_b.swapaxes(1, 2), s_b)
    return o.swapaxes(1, 2), total


def output_alone(o1, L1, o2, L2):
    return right(o1, L1, o2, L2)[0]


def base_2(o1, L1, o2, L2):
    a, b, total, top = fades(L1, L2, np.exp2)
    return mix(a, b, total, o1, o2), top + np.log2(total)


def averaged(o1, L1, o2, L2):
    return ((o1 + o2) / 2).astype(o1.dtype), right(o1, L1, o2, L2)[1]


def not_rescaled(o1, L1, o2, L2):
    _, b, total, top = fades(L1, L2)
    return mix(np.ones_like(b), b, total, o1, o2), top + np.log(total)


def no_maximum(o1, L1, o2, L2):
    a, b = np.exp(L1), np.exp(L2)
    return mix(a, b, a + b, o1, o2), np.log(a + b)


def nan(o1, L1, o2, L2):
    top = np.maximum(L1, L2)
    a, b = np.exp(L1 - top), np.exp(L2 - top)
    return mix(a, b, a + b, o1, o2), top + np.log(a + b)


def sum_in_base_2(o1, L1, o2, L2):
    o, total = right(o1, L1, o2, L2)
    return o, total / np.log(2).astype(total.dtype)


def spoils(o1, L1, o2, L2):
    found = right(o1, L1, o2, L2)
    o1 *= 2
    return found


def three(a, b, c):
    return a, b, c


def into_buffers(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None):
    """Serving code: the output comes first, and is written to."""
    output[...], total = right(prefix_output, prefix_lse, suffix_output, suffix_lse)
    if output_lse is not None:
        output_lse[...] = total


def of_ring(out, lse, block_out, block_lse):
    """(batch, query, head, d) beside (…, 1), and the new block's by head; float32 inside."""
    total = np.logaddexp(lse, block_lse.swapaxes(1, 2)[..., None]).astype(np.float32)
    safe = np.where(np.isneginf(total), 0, total)
    a, b = np.exp(lse - safe), np.exp(block_lse.swapaxes(1, 2)[..., None] - safe)
    return out * a + block_out.astype(np.float32) * b, total


def of_splits(out_partial, lse_partial):
    """Split keys: all parts in one array."""
    return right(out_partial[0], lse_partial[0], out_partial[1], lse_partial[1])


def of_splits_averaged(out_partial, lse_partial):
    return averaged(out_partial[0], lse_partial[0], out_partial[1], lse_partial[1])


def difference(o1, L1, o2, L2):
    """Where nearly all weight is on one part, o₁ − o₂ in a coarse type has lost what is left of it."""
    _, total = right(o1, L1, o2, L2)
    share = np.exp(L2 - np.where(np.isneginf(total), 0, total))[..., None]
    return o1 - share.astype(np.float16) * (o1 - o2).astype(np.float16), total


def mixed_bases(o1, L1, o2, L2):
    _, _, sums, top = fades(L1, L2)
    return right(o1, L1, o2, L2)[0], top + np.log2(sums)


def pairs(a, b):
    return right(*a, *b)
