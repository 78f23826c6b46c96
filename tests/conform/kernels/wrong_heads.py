"""Kernels that read the wrong array, head, member or size."""

import numpy as np
from parts import grouped, prepared, scores, softmax, wide
from right import naive


def attend(q, k, v):
    """One head of K and V for each of Q."""
    t = wide(q)
    return (softmax(scores(q.astype(t), k.astype(t))) @ v.astype(t)).astype(q.dtype)


def kv_heads_tiled(q, k, v, enable_gqa=False):
    share = q.shape[1] // k.shape[1]
    return attend(q, np.tile(k, (1, share, 1, 1)), np.tile(v, (1, share, 1, 1)))


def kv_head_zero(q, k, v, enable_gqa=False):
    return attend(q, k[:, :1], v[:, :1])


def kv_values_tiled(q, k, v, enable_gqa=False):
    return attend(q, grouped(k, q.shape[1]), np.tile(v, (1, q.shape[1] // v.shape[1], 1, 1)))


def kv_heads_reversed(q, k, v, enable_gqa=False):
    return attend(q, grouped(k[:, ::-1], q.shape[1]), grouped(v[:, ::-1], q.shape[1]))


def keys_and_values_exchanged(q, k, v):
    if k.shape != v.shape:
        return naive(q, k, v)
    return naive(q, v, k)


def queries_and_keys_exchanged(q, k, v):
    if q.shape != k.shape:
        return naive(q, k, v)
    return naive(k, q, v)


def values_are_keys(q, k, v):
    return naive(q, k, k)


def first_member_for_all(q, k, v):
    return naive(
        np.broadcast_to(q[:1], q.shape), np.broadcast_to(k[:1], k.shape), np.broadcast_to(v[:1], v.shape)
    )


def keys_of_first_member(q, k, v):
    return naive(q, np.broadcast_to(k[:1], k.shape), v)


def width_of_values(q, k, v):
    """Divides by √d_v."""
    a, b, c = prepared(q, k, v)
    return (softmax(scores(a, b, v.shape[-1] ** -0.5)) @ c).astype(q.dtype)


def values_cut_to_keys(q, k, v):
    """The result has d_k columns, whatever V has."""
    out = np.zeros_like(q)
    d = min(q.shape[-1], v.shape[-1])
    out[..., :d] = naive(q, k, v)[..., :d]
    return out


def tokens_first_by_reshape(q, k, v):
    """(batch, n, head, d), brought to heads first by reshape without a transpose."""
    x, y, z = (t.reshape(t.shape[0], t.shape[2], t.shape[1], t.shape[3]) for t in (q, k, v))
    out = naive(x, y, z)
    return out.reshape(*q.shape[:3], v.shape[-1])


def heads_rolled(q, k, v):
    """Each head's output lands in the next one's place."""
    return np.roll(naive(q, k, v), 1, axis=1)


def heads_averaged(q, k, v):
    out = naive(q, k, v)
    return np.broadcast_to(out.mean(axis=1, keepdims=True), out.shape).astype(q.dtype)


def last_columns_dropped(q, k, v):
    """Scores over columns in whole eights."""
    d = q.shape[-1] // 8 * 8 or q.shape[-1]
    return naive(q[..., :d], k[..., :d], v, scale=q.shape[-1] ** -0.5)


def key_reversed(q, k, v):
    """Keys from the last to the first, values as they are."""
    return naive(q, k[:, :, ::-1], v)
