"""Attention that is right but for one part in a million of what a row has nothing to do with."""

import numpy as np

PART = np.float32(1e-6)


def attend(q, k, v, seen=None, hidden=-np.inf, more=0.0):
    s = q @ np.swapaxes(k, -1, -2) / np.float32(np.sqrt(q.shape[-1]))
    s = s if seen is None else np.where(seen, s, np.asarray(hidden, s.dtype))
    e = np.exp(s - s.max(-1, keepdims=True))
    return ((e / (e.sum(-1, keepdims=True) + more)) @ v).astype(q.dtype)


def earlier(q, k):
    return np.tril(np.ones((q.shape[-2], k.shape[-2]), dtype=bool))


def in_window(q, k, window):
    i, j = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])
    return (j >= i - window[0]) & (j <= i + window[1])


def before(k, key_lengths):
    return (np.arange(k.shape[-2]) < np.asarray(key_lengths)[:, None])[:, None, None]


# --- what comes later ---


def mean_of_all_values(q, k, v, causal=True):
    return attend(q, k, v, earlier(q, k)) + PART * v.mean(-2, keepdims=True)


def next_value(q, k, v, causal=True):
    return attend(q, k, v, earlier(q, k)) + PART * np.roll(v, -1, -2)


def finite_mask(q, k, v, causal=True):
    return attend(q, k, v, earlier(q, k), hidden=-14.0)


def scaled_keys(q, k, v, causal=True):
    return attend(q, k * (1 + PART * np.abs(k).max(-2, keepdims=True)), v, earlier(q, k))


def sum_of_all(q, k, v, causal=True):
    hidden = np.exp((q @ np.swapaxes(k, -1, -2)) * ~earlier(q, k)).sum(-1, keepdims=True)
    return attend(q, k, v, earlier(q, k), more=PART * hidden)


def rest_of_the_block(q, k, v, causal=True):
    i, j = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])
    return attend(q, k, v, earlier(q, k)) + PART * ((i // 16 == j // 16) & (j > i)).astype(q.dtype) @ v


def last_value(q, k, v, causal=True):
    return attend(q, k, v, earlier(q, k)) + PART * v[..., -1:, :]


# --- what is masked, padded or out of the window ---


def masked_values(q, k, v, mask=None):
    whole = attend(q, k, v, mask)
    return whole if mask is None else whole + PART * (~mask).astype(q.dtype) @ v


def finite_boolean_mask(q, k, v, mask=None):
    return attend(q, k, v, mask, hidden=-14.0)


def padded_values(q, k, v, key_lengths=None):
    seen = before(k, [k.shape[-2]] * len(k) if key_lengths is None else key_lengths)
    return attend(q, k, v, seen) + PART * np.where(seen[:, 0, 0, :, None][:, None], 0, v).sum(
        -2, keepdims=True
    )


def padding_as_fourteen(q, k, v, key_lengths=None):
    return attend(
        q, k, v, before(k, [k.shape[-2]] * len(k) if key_lengths is None else key_lengths), hidden=-14
    )


def window_one_wider(q, k, v, window=None):
    if window is None:
        return attend(q, k, v)
    wider = in_window(q, k, (window[0] + 1, window[1] + 1)) & ~in_window(q, k, window)
    return attend(q, k, v, in_window(q, k, window)) + PART * wider.astype(q.dtype) @ v


# --- what belongs to other members, heads and queries ---


def mean_of_the_batch(q, k, v):
    return attend(q, k, v) + PART * v.mean(0, keepdims=True)


def keys_of_the_next_member(q, k, v):
    return attend(q, k + 100 * PART * np.roll(k, 1, 0), v)


def scale_of_the_batch(q, k, v):
    return attend(q, k, v) * (1 + PART * np.abs(v).max())


def mean_of_the_heads(q, k, v):
    return attend(q, k, v) + PART * v.mean(1, keepdims=True)


def queries_of_the_next_head(q, k, v):
    return attend(q + 100 * PART * np.roll(q, 1, 1), k, v)


def output_of_the_next_head(q, k, v):
    whole = attend(q, k, v)
    return whole + PART * np.roll(whole, 1, 1)


def output_of_the_row_above(q, k, v):
    whole = attend(q, k, v)
    return whole + PART * np.roll(whole, 1, -2)


def centred_queries(q, k, v):
    return attend(q - 100 * PART * q.mean(-2, keepdims=True), k, v)


def largest_query(q, k, v):
    return attend(q, k, v) * (1 + PART * np.abs(q).max(-2, keepdims=True).max(-1, keepdims=True))
