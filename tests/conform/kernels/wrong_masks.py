"""Kernels in which the wrong keys are seen."""

import numpy as np
from parts import hidden, lower, masked, prepared, scores, softmax


def seen_by(q, k, v, seen):
    """Attention over the keys that `seen` of (query, key) positions and the scores tells."""
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    i, j = np.ogrid[: s.shape[-2], : s.shape[-1]]
    return (softmax(hidden(s, seen(i, j))) @ c).astype(q.dtype)


def everyone(i, j):
    return (i >= 0) & (j >= 0)


def causal_off_by_one(q, k, v, causal=False):
    return seen_by(q, k, v, (lambda i, j: j <= i + 1) if causal else everyone)


def causal_strict(q, k, v, causal=False):
    """A query does not see itself; the first one sees nothing."""
    return seen_by(q, k, v, (lambda i, j: j < i) if causal else everyone)


def causal_ignored(q, k, v, causal=False):
    return seen_by(q, k, v, everyone)


def causal_backwards(q, k, v, causal=False):
    return seen_by(q, k, v, (lambda i, j: j >= i) if causal else everyone)


def causal_by_blocks(q, k, v, causal=False, block=8):
    """Tiles above the diagonal are skipped; those on it are not masked."""
    return seen_by(q, k, v, (lambda i, j: j // block <= i // block) if causal else everyone)


def causal_within_blocks(q, k, v, causal=False, block=16):
    """Positions are counted from the start of each block of queries."""
    return seen_by(q, k, v, (lambda i, j: j <= i % block) if causal else everyone)


def mask_inverted(q, k, v, mask=None):
    a, b, c = prepared(q, k, v)
    return (
        softmax(masked(scores(a, b), ~mask if mask is not None and mask.dtype == bool else mask)) @ c
    ).astype(q.dtype)


def mask_ignored(q, k, v, mask=None):
    return seen_by(q, k, v, everyone)


def mask_of_first_head(q, k, v, mask=None):
    a, b, c = prepared(q, k, v)
    return (softmax(masked(scores(a, b), None if mask is None else mask[..., :1, :, :])) @ c).astype(
        q.dtype
    )


def mask_of_first_member(q, k, v, mask=None):
    a, b, c = prepared(q, k, v)
    return (softmax(masked(scores(a, b), None if mask is None else mask[:1])) @ c).astype(q.dtype)


def mask_reaches_first_head(q, k, v, mask=None):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    s[:, 0] = masked(s, mask)[:, 0]
    return (softmax(s) @ c).astype(q.dtype)


def mask_of_first_query(q, k, v, mask=None):
    """The row of query 0 is read for all."""
    a, b, c = prepared(q, k, v)
    return (softmax(masked(scores(a, b), None if mask is None else mask[..., :1, :])) @ c).astype(q.dtype)


def causal_drops_mask(q, k, v, causal=False, mask=None):
    """Either the one or the other."""
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    s = hidden(s, lower(*s.shape[-2:])) if causal else masked(s, mask)
    return (softmax(s) @ c).astype(q.dtype)


def between(left, right):
    """Where a window of (left, right) is open to either side."""

    def seen(i, j):
        return (left < 0 or j >= i - left) & (right < 0 or j <= i + right) & everyone(i, j)

    return seen


def sides(window):
    return (-1 if side is None else side for side in (window or (None, None)))


def window_left_off(q, k, v, window=None):
    left, right = sides(window)
    return seen_by(q, k, v, between(left - 1 if left > 0 else left, right))


def window_right_off(q, k, v, window=None):
    left, right = sides(window)
    return seen_by(q, k, v, between(left, right + 1 if right >= 0 else right))


def window_two_sided(q, k, v, window=None):
    left, right = sides(window)
    return seen_by(q, k, v, between(max(left, right), max(left, right)))


def window_sides_swapped(q, k, v, window_size=(-1, -1)):
    left, right = window_size
    return seen_by(q, k, v, between(right, left))


def window_ignored(q, k, v, causal=False, window=None):
    return seen_by(q, k, v, (lambda i, j: j <= i) if causal else everyone)


def up_to(q, k, v, ends):
    """Each member's keys up to its own end."""
    a, b, c = prepared(q, k, v)
    j = np.arange(b.shape[-2])
    return (softmax(hidden(scores(a, b), j < np.asarray(ends)[:, None, None, None])) @ c).astype(q.dtype)


def lengths_ignored(q, k, v, key_lengths=None):
    return up_to(q, k, v, [k.shape[2]] * len(q))


def lengths_off_by_one(q, k, v, key_lengths=None):
    return up_to(q, k, v, [k.shape[2]] * len(q) if key_lengths is None else np.asarray(key_lengths) + 1)


def lengths_too_short(q, k, v, seqlens=None):
    return up_to(
        q, k, v, [k.shape[2]] * len(q) if seqlens is None else np.maximum(np.asarray(seqlens) - 1, 1)
    )


def lengths_of_first_member(q, k, v, key_lengths=None):
    return up_to(q, k, v, [k.shape[2] if key_lengths is None else int(key_lengths[0])] * len(q))


def lengths_from_the_right(q, k, v, key_lengths=None):
    """As if padding stood on the left."""
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    if key_lengths is not None:
        first = s.shape[-1] - np.asarray(key_lengths)[:, None, None, None]
        s = hidden(s, np.arange(s.shape[-1]) >= first)
    return (softmax(s) @ c).astype(q.dtype)


def cached(q, k, v, past_key, past_value, seen):
    if past_key is not None:
        k, v = np.concatenate((past_key, k), 2), np.concatenate((past_value, v), 2)
    return seen_by(q, k, v, seen)


def cache_offset_ignored(q, k, v, past_key=None, past_value=None, causal=False):
    """Query 0 sees key 0 alone, though keys of the cache come before it."""
    return cached(q, k, v, past_key, past_value, (lambda i, j: j <= i) if causal else everyone)


def cache_offset_off_by_one(q, k, v, past_key=None, past_value=None, causal=False):
    past = 0 if past_key is None else past_key.shape[2] + 1
    return cached(q, k, v, past_key, past_value, (lambda i, j: j <= i + past) if causal else everyone)


def cache_appended_in_front(q, k, v, past_key=None, past_value=None, causal=False):
    past = 0
    if past_key is not None:
        past = past_key.shape[2]
        k, v = np.concatenate((k, past_key), 2), np.concatenate((v, past_value), 2)
    return seen_by(q, k, v, (lambda i, j: j <= i + past) if causal else everyone)


def cache_ignored(q, k, v, past_key=None, past_value=None):
    return seen_by(q, k, v, everyone)


def cache_of_values_in_front(q, k, v, past_key=None, past_value=None):
    """Keys are appended, values put in front."""
    if past_key is not None:
        k, v = np.concatenate((past_key, k), 2), np.concatenate((v, past_value), 2)
    return seen_by(q, k, v, everyone)
