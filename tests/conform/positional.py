"""Kernels that are handed positions, and what goes wrong in them."""

import numpy as np


def weights_of(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rotate(x, positions):
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-np.arange(half) / half)
    angles = positions[:, None, :, None] * frequencies
    first, second = x[..., :half].astype(float), x[..., half:].astype(float)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1).astype(x.dtype)


def scores_of(q, k):
    return q.astype(float) @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5


def turned_by(read):
    """Attention that turns Q and K by their positions, as `read` makes them of those it is handed."""

    def attention(q, k, v, position_ids=None, causal=False, mask=None):
        if position_ids is None:
            position_ids = np.arange(q.shape[2])[None]
            of_keys = np.arange(k.shape[2])[None]
        else:
            position_ids = of_keys = read(position_ids)
        s = scores_of(rotate(q, position_ids), rotate(k, of_keys))
        if causal:
            s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf)
        if mask is not None and mask.dtype == bool:
            s = np.where(mask, s, -np.inf)
        elif mask is not None:
            s = s + mask
        return (weights_of(s) @ v).astype(v.dtype)

    return attention


def in_half(positions):
    return positions.astype(np.float16).astype(float)


def of_first_member(positions):
    return np.broadcast_to(positions[:1], positions.shape)


def counted_again(positions):
    return np.broadcast_to(np.arange(positions.shape[1]), positions.shape)


def cut_at_the_longest(positions):
    """A table of cos and sin has so many rows."""
    return np.minimum(positions, 4095)


RIGHT_POSITIONS = turned_by(lambda positions: positions)

WRONG_POSITIONS = {
    read.__name__: turned_by(read) for read in (in_half, of_first_member, counted_again, cut_at_the_longest)
}


def by_positions(q, k, v, positions=None, causal=False, window=None, *, window_by_places=False):
    """Rules go by positions."""
    own = np.arange(q.shape[2])[None] if positions is None else positions
    of_keys = np.arange(k.shape[2])[None] if positions is None else positions
    apart = of_keys[:, None, None, :] - own[:, None, :, None]
    s = scores_of(q, k)
    if causal:
        s = np.where(apart <= 0, s, -np.inf)
    if window is not None:
        if window_by_places:
            apart = np.arange(k.shape[2]) - np.arange(q.shape[2])[:, None]
        s = np.where((apart >= -window[0]) & (apart <= window[1]), s, -np.inf)
    with np.errstate(all="ignore"):
        return (weights_of(s) @ v).astype(v.dtype)


def windowed_by_places(q, k, v, positions=None, causal=False, window=None):
    """Causal goes by positions, and a window does not."""
    return by_positions(q, k, v, positions, causal, window, window_by_places=True)


def apart(q, k, v, q_positions, kv_positions, causal=False):
    """Positions of queries and of keys, both of which it must be given."""
    seen = kv_positions[:, None, None, :] <= q_positions[:, None, :, None]
    s = scores_of(q, k)
    s = np.where(seen, s, -np.inf) if causal else s
    return (weights_of(s) @ v).astype(v.dtype)


def in_slots(q, k, v, input_pos=None, causal=False):
    """Each query sees the slots up to its position, of a cache that is as long from the first call on."""
    own = np.arange(q.shape[2]) if input_pos is None else input_pos
    s = scores_of(q, k)
    if causal:
        s = np.where(np.arange(k.shape[2]) <= own[:, None], s, -np.inf)
    return (weights_of(s) @ v).astype(v.dtype)
