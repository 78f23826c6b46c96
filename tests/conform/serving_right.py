"""Right kernels with conventions that are odd: none of them may be accused."""

from __future__ import annotations

import numpy as np
import serving
from serving_table import one_query


class LibraryError(Exception):
    """Derived from no other of Python."""


def call_of(q, k, v, first=0, **asked):
    wide = [np.asarray(array, dtype=np.float64) for array in (q, k, v)]
    return serving.begin(*wide, past=0, first=first, asked=asked)


def give(q, k, v, first=0, **asked):
    call = call_of(q, k, v, first, **asked)
    with np.errstate(all="ignore"):
        output = serving.attend(call)
    return output.astype(q.dtype)


def last_of(q, k):
    return k.shape[2] - q.shape[2]


def in_blocks(q, k, v, causal=False, block=128):
    """Keys a block at a time, what is behind the last one padded."""
    keys = k.shape[2]
    first = last_of(q, k)
    behind = [(0, 0), (0, 0), (0, -keys % block), (0, 0)]
    k = np.pad(k, behind)
    v = np.pad(v, behind)
    lengths = np.full(len(q), keys)
    return give(q, k, v, first, causal=causal, key_lengths=lengths)


def lengths_end_causal(q, k, v, causal=False, cache_seqlens=None):
    """The last query sees the last key of each member."""
    lengths = np.full(len(q), k.shape[2])
    if cache_seqlens is not None:
        lengths = np.asarray(cache_seqlens)

    members = []
    for member, length in enumerate(map(int, lengths)):
        own = slice(member, member + 1)
        keys = k[own, :, :length]
        values = v[own, :, :length]
        first = length - q.shape[2]
        members.append(give(q[own], keys, values, first, causal=causal))
    return np.concatenate(members)


def ignores_causal_of_one(q, k, v, causal=False):
    """One query at the end sees every key: there is nothing to hide."""
    return give(q, k, v, last_of(q, k), causal=causal and q.shape[2] > 1)


def split_keys(q, k, v, causal=False, splits=4):
    """Keys are split, and parts merged by their sums."""
    size = -(-k.shape[2] // splits)
    call = call_of(q, k, v, last_of(q, k), causal=causal)
    scores = np.where(call.seen, serving.scores_of(call), -1e300)
    top = scores.max(axis=-1, keepdims=True)
    total = 0.0
    out = 0.0
    values = np.repeat(call.v, q.shape[1] // k.shape[1], axis=1)
    for start in range(0, k.shape[2], size):
        weights = np.exp(scores[..., start : start + size] - top)
        total = total + weights.sum(axis=-1, keepdims=True)
        out = out + weights @ values[:, :, start : start + size]
    seen = call.seen.any(axis=-1, keepdims=True)
    return np.where(seen, out / total, 0.0).astype(q.dtype)


def at_most_2048(q, k, v, causal=False):
    if k.shape[2] > 2048:
        raise LibraryError("at most 2,048 keys")
    return give(q, k, v, causal=causal)


def whole_window(q, k, v, window=None):
    """Windows up to 512 keys."""
    if window is not None and max(window) > 512:
        raise LibraryError("window")
    return give(q, k, v, window=window)


def dropout_that_is_off(q, k, v, causal=False, dropout_p=0.0):
    assert dropout_p == 0.0
    return give(q, k, v, causal=causal)


def needs_dropout(q, k, v, dropout_p, causal=False):
    assert dropout_p == 0.0
    return give(q, k, v, causal=causal)


def nan_where_nothing_is_seen(q, k, v, causal=False):
    call = call_of(q, k, v, last_of(q, k), causal=causal)
    out = serving.attend(call)
    return np.where(call.seen.any(axis=-1)[..., None], out, np.nan).astype(q.dtype)


def cache_needs_equal_heads(q, k, v, causal=False, past_key=None, past_value=None):
    if q.shape[1] != k.shape[1]:
        raise LibraryError("heads")
    if past_key is None:
        return give(q, k, v, causal=causal)
    k = np.concatenate([past_key, k], axis=2)
    v = np.concatenate([past_value, v], axis=2)
    first = last_of(q, k)
    return give(q, k, v, first, causal=causal)


def cache_of_one_query(q, k, v, past_key=None, past_value=None):
    """A kernel for one query alone, where there is a cache."""
    if past_key is None:
        return give(q, k, v)
    if q.shape[2] != 1:
        raise LibraryError("one query")
    return cache_needs_equal_heads(q, k, v, False, past_key, past_value)


def sinks_in_float32(q, k, v, sinks=None):
    given = None if sinks is None else np.asarray(sinks, np.float32).astype(np.float64)
    return give(q, k, v, sinks=given)


def bias_in_float32(q, k, v, bias=None, causal=False):
    return give(q, k, v, bias=None if bias is None else np.asarray(bias, np.float64), causal=causal)


def self_attention(q, k, v, causal=False):
    if q.shape != k.shape:
        raise LibraryError("one length, and as many heads")
    return give(q, k, v, causal=causal)


def tokens_first(q, k, v, causal=False):
    own = (array.swapaxes(1, 2) for array in (q, k, v))
    return give(*own, causal=causal).swapaxes(1, 2)


def clipped_exponents(q, k, v, causal=False):
    """What is below e⁻⁸⁰ is 0 in any sum."""
    call = call_of(q, k, v, causal=causal)
    return serving.attend(call, least=-80.0).astype(q.dtype)


RIGHT = {
    "dense": serving.dense(),
    "dense, the diagonal at the last key": serving.bottom_right(),
    "paged": serving.paged(),
    "one query in its own way": serving.dense(one_query(lambda call: call)),
    **{
        function.__name__: function
        for function in (
            in_blocks, lengths_end_causal, ignores_causal_of_one, split_keys, at_most_2048, whole_window,
            dropout_that_is_off, needs_dropout, nan_where_nothing_is_seen, cache_needs_equal_heads,
            cache_of_one_query, sinks_in_float32, bias_in_float32, self_attention, tokens_first,
            clipped_exponents,
        )
    },
}  # fmt: skip
