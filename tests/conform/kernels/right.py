"""Right kernels of different make, as people write them: arrays are (batch, head, n, d) unless told."""

from math import exp, log2, sqrt
from operator import mul

import numpy as np
from parts import grouped, hidden, lower, masked, prepared, scores, softmax, wide

BUFFERS = {}


def naive(q, k, v, causal=False, scale=None):
    """The textbook's three lines; the causal mask begins at the top left."""
    a, b, c = prepared(q, k, v)
    s = scores(a, b, scale)
    if causal:
        s = hidden(s, lower(*s.shape[-2:]))
    return (softmax(s) @ c).astype(q.dtype)


def online(q, k, v, causal=False, scale=None, block=16):
    """A block of keys at a time, with a running maximum and sum."""
    a, b, c = prepared(q, k, v)
    n, m = a.shape[-2], b.shape[-2]
    top = np.full((*a.shape[:-1], 1), -np.inf, a.dtype)
    total, out = np.zeros_like(top), np.zeros((*a.shape[:-1], c.shape[-1]), a.dtype)
    for j in range(0, m, block):
        s = scores(a, b[..., j : j + block, :], scale)
        if causal:
            s = hidden(s, np.arange(n)[:, None] >= np.arange(j, min(j + block, m)))
        new = np.maximum(top, s.max(-1, keepdims=True))
        shift = np.where(np.isneginf(new), 0, new)
        p, old = np.exp(s - shift), np.exp(top - shift)
        total = total * old + p.sum(-1, keepdims=True)
        out = out * old + p @ c[..., j : j + block, :]
        top = new
    return (out / np.where(total == 0, 1, total)).astype(q.dtype)


def tiled(q, k, v, is_causal=False, block=32):
    """Blocks of queries, each with every key that its last row may see."""
    a, b, c = prepared(q, k, v)
    out = np.zeros((*a.shape[:-1], c.shape[-1]), q.dtype)
    for i in range(0, a.shape[-2], block):
        rows = a[..., i : i + block, :]
        end = min(i + rows.shape[-2], b.shape[-2]) if is_causal else b.shape[-2]
        s = scores(rows, b[..., :end, :])
        if is_causal:
            s = hidden(s, lower(*s.shape[-2:], i))
        out[..., i : i + block, :] = softmax(s) @ c[..., :end, :]
    return out


def low_precision_weights(q, k, v, causal=False):
    """The weights in the type of V, as matrix units want them; sums in the wider one."""
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    if causal:
        s = hidden(s, lower(*s.shape[-2:]))
    e = np.exp(s - s.max(-1, keepdims=True))
    out = e.astype(v.dtype).astype(c.dtype) @ c
    return (out / e.sum(-1, keepdims=True)).astype(q.dtype)


def bottom_right(q, k, v, causal=False):
    """The last query sees every key, as in FlashAttention."""
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    if causal:
        s = hidden(s, lower(*s.shape[-2:], s.shape[-1] - s.shape[-2]))
    return (softmax(s) @ c).astype(q.dtype)


def nan_rows(q, k, v, mask=None):
    """Rows that see nothing are 0 / 0."""
    a, b, c = prepared(q, k, v)
    s = masked(scores(a, b), mask)
    with np.errstate(invalid="ignore"):
        e = np.exp(s - s.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True) @ c).astype(q.dtype)


def mean_rows(q, k, v, mask=None):
    """The least number for −∞: rows that see nothing take the mean of V."""
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    if mask is not None:
        s = (
            np.where(mask, s, np.finfo(s.dtype).min)
            if mask.dtype == bool
            else np.maximum(s + mask.astype(s.dtype), np.finfo(s.dtype).min)
        )
    return (softmax(s) @ c).astype(q.dtype)


def with_einsum(query, key, value, attn_mask=None, scale=None):
    """Indices spelled out, kv heads in an axis of their own."""
    t, (batch, heads, n, d) = wide(query), query.shape
    a = query.astype(t).reshape(batch, key.shape[1], -1, n, d)
    s = np.einsum("bgrqd,bgkd->bgrqk", a, key.astype(t)) * t(d**-0.5 if scale is None else scale)
    s = masked(s.reshape(batch, heads, n, -1), attn_mask)
    p = softmax(s).reshape(batch, key.shape[1], -1, n, key.shape[2])
    out = np.einsum("bgrqk,bgkv->bgrqv", p, value.astype(t))
    return out.reshape(batch, heads, n, -1).astype(query.dtype)


def with_weights(q, k, v, mask=None):
    """(output, weights)."""
    a, b, c = prepared(q, k, v)
    p = softmax(masked(scores(a, b), mask))
    return (p @ c).astype(q.dtype), p.astype(q.dtype)


def in_one_buffer(q, k, v):
    """Every call writes to the same memory."""
    out = BUFFERS.setdefault((q.shape, v.shape, q.dtype), np.empty((*q.shape[:-1], v.shape[-1]), q.dtype))
    out[...] = naive(q, k, v)
    return out


def with_log_sum_exp(q, k, v, causal=False, softmax_scale=None):
    """(output, log Σ exp of each row), as FlashAttention returns for its backward pass."""
    a, b, c = prepared(q, k, v)
    s = scores(a, b, softmax_scale)
    if causal:
        s = hidden(s, lower(*s.shape[-2:]))
    top = s.max(-1, keepdims=True)
    e = np.exp(s - top)
    total = e.sum(-1, keepdims=True)
    return (e @ c / total).astype(q.dtype), (top + np.log(total))[..., 0]


def fortran_order(q, k, v, causal=False):
    """Columns first in memory."""
    return np.asfortranarray(naive(q, k, v, causal))


def tokens_first(q, k, v, causal=False, scale=None):
    """(batch, n, head, d) in and out."""
    return naive(*(x.swapaxes(1, 2) for x in (q, k, v)), causal, scale).swapaxes(1, 2)


def no_batch(q, k, v, causal=False):
    """(head, n, d) in and out."""
    return naive(q[None], k[None], v[None], causal)[0]


def grouped_by_reshape(q, k, v, enable_gqa=False):
    """Query heads of one group stand below one another, so that K is read once."""
    t, (batch, heads, n, d) = wide(q), q.shape
    a, b, c = (x.astype(t) for x in (q, k, v))
    share = heads // k.shape[1]
    rows = a.reshape(batch, k.shape[1], share * n, d)
    return (softmax(scores(rows, b)) @ c).reshape(batch, heads, n, -1).astype(q.dtype)


def one_by_one(q, k, v, causal=False):
    """Loops over lists, one number at a time."""
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    share = q.shape[1] // k.shape[1]
    for b, h in np.ndindex(q.shape[:2]):
        keys, values = k[b, h // share].tolist(), v[b, h // share].astype(float)
        for i, row in enumerate(q[b, h].tolist()):
            seen = keys[: i + 1] if causal else keys
            s = [sum(map(mul, row, key)) for key in seen]
            largest, root = max(s, default=0), sqrt(len(row))
            e = [exp((x - largest) / root) for x in s]
            total = sum(e)
            for weight, value in zip(e, values, strict=False):  # keys that are not seen have no weight
                out[b, h, i] += weight / total * value
    return out.astype(q.dtype)


def to_base_two(q, k, v, sm_scale=None):
    """exp2 of scores times log2 e, which is what the hardware has."""
    a, b, c = prepared(q, k, v)
    s = scores(a, b, (a.shape[-1] ** -0.5 if sm_scale is None else sm_scale) * log2(np.e))
    p = np.exp2(s - s.max(-1, keepdims=True))
    return (p @ c / p.sum(-1, keepdims=True)).astype(q.dtype)


def padded(q, k, v, key_lengths=None):
    """Keys from a member's length on are cut off before anything reads them."""
    out = np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    for member in range(len(q)):
        end = k.shape[2] if key_lengths is None else int(key_lengths[member])
        here = slice(member, member + 1)
        if end:
            out[here] = naive(q[here], k[here, :, :end], v[here, :, :end])
    return out


def sliding(q, k, v, causal=False, sliding_window=None):
    """A number of keys, the query's own among them."""
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    i, j = np.ogrid[: s.shape[-2], : s.shape[-1]]
    if sliding_window is not None:
        s = hidden(s, j > i - sliding_window)
    if causal or sliding_window is not None:
        s = hidden(s, j <= i)
    return (softmax(s) @ c).astype(q.dtype)


def everything(
    q,
    k,
    v,
    *,
    causal=False,
    window=None,
    softcap=None,
    scale=None,
    mask=None,
    bias=None,
    alibi_slopes=None,
    key_lengths=None,
    past_key=None,
    past_value=None,
    sinks=None,
):
    """Every rule, in the order scale, softcap, bias, mask; a cache's keys come first."""
    past = 0
    if past_key is not None:
        past = past_key.shape[2]
        k, v = np.concatenate((past_key, k), 2), np.concatenate((past_value, v), 2)
    a, b, c = prepared(q, k, v)
    s = scores(a, b, scale)
    i, j = np.ogrid[past : past + s.shape[-2], : s.shape[-1]]
    if softcap:
        s = softcap * np.tanh(s / s.dtype.type(softcap))
    if alibi_slopes is not None:
        s = s - alibi_slopes.astype(s.dtype)[:, None, None] * abs(i - j)
    if bias is not None:
        s = s + bias.astype(s.dtype)
    s = masked(s, mask)
    if causal:
        s = hidden(s, j <= i)
    if window is not None:
        left, right = window
        s = s if left is None or left < 0 else hidden(s, j >= i - left)
        s = s if right is None or right < 0 else hidden(s, j <= i + right)
    if key_lengths is not None:
        s = hidden(s, j < np.asarray(key_lengths)[:, None, None, None])
    if sinks is not None:
        sink = np.broadcast_to(sinks.astype(s.dtype)[:, None, None], (*s.shape[:-1], 1))
        return (softmax(np.concatenate((s, sink), -1))[..., :-1] @ c).astype(q.dtype)
    return (softmax(s) @ c).astype(q.dtype)


def like_flash(  # noqa: PLR0917  (theirs)
    q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None
):
    """As flash_attn_func: (batch, n, head, d), diagonals from the bottom right, −1 is no window."""
    a, b, c = prepared(*(x.swapaxes(1, 2) for x in (q, k, v)))
    s = scores(a, b, softmax_scale)
    n, m = s.shape[-2:]
    i, j = np.ogrid[m - n : m, :m]
    if softcap:
        s = softcap * np.tanh(s / s.dtype.type(softcap))
    if alibi_slopes is not None:
        s = s - np.asarray(alibi_slopes, s.dtype)[..., :, None, None] * abs(i - j)
    left, right = window_size
    s = hidden(s, j <= i) if causal else s
    s = hidden(s, j >= i - left) if left >= 0 else s
    s = hidden(s, j <= i + right) if right >= 0 else s
    return (softmax(s) @ c).swapaxes(1, 2).astype(q.dtype)


def like_sdpa(  # noqa: PLR0917  (theirs)
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """As torch's function, in NumPy."""
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ValueError("heads differ: say enable_gqa=True")
    a = query.astype(wide(query))
    b, c = (grouped(x.astype(a.dtype), query.shape[1]) for x in (key, value))
    s = scores(a, b, scale)
    if is_causal:
        s = hidden(s, lower(*s.shape[-2:]))
    return (softmax(masked(s, attn_mask)) @ c).astype(query.dtype)
