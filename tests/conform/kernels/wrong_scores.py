"""Kernels that are wrong before the softmax: in scale, soft cap, bias or ALiBi."""

import numpy as np
from parts import hidden, lower, masked, prepared, scores, softmax


def finish(s, c, q):
    return (softmax(s) @ c).astype(q.dtype)


def no_scale(q, k, v):
    a, b, c = prepared(q, k, v)
    return finish(a @ b.swapaxes(-1, -2), c, q)


def scale_by_d(q, k, v):
    a, b, c = prepared(q, k, v)
    return finish(a @ b.swapaxes(-1, -2) / a.shape[-1], c, q)


def scale_by_d_plus_one(q, k, v):
    a, b, c = prepared(q, k, v)
    return finish(scores(a, b, (a.shape[-1] + 1) ** -0.5), c, q)


def scaled_twice(q, k, v):
    a, b, c = prepared(q, k, v)
    a = a / np.sqrt(a.shape[-1]).astype(a.dtype)
    return finish(scores(a, b), c, q)


def scale_ignored(q, k, v, scale=None):
    a, b, c = prepared(q, k, v)
    return finish(scores(a, b), c, q)


def scale_inverted(q, k, v, scale=None):
    a, b, c = prepared(q, k, v)
    return finish(scores(a, b, None if scale is None else 1 / scale), c, q)


def softcap_after_mask(q, k, v, softcap=None, causal=False):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    if causal:
        s = hidden(s, lower(*s.shape[-2:]))
    if softcap:
        s = softcap * np.tanh(s / s.dtype.type(softcap))
    return finish(s, c, q)


def softcap_not_multiplied(q, k, v, softcap=None):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    return finish(np.tanh(s / s.dtype.type(softcap)) if softcap else s, c, q)


def softcap_before_scale(q, k, v, softcap=None):
    a, b, c = prepared(q, k, v)
    if not softcap:
        return finish(scores(a, b), c, q)
    s = softcap * np.tanh(scores(a, b, 1.0) / a.dtype.type(softcap))
    return finish(s / np.sqrt(a.shape[-1]).astype(a.dtype), c, q)


def softcap_clips(q, k, v, softcap=None):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    return finish(np.clip(s, -softcap, softcap) if softcap else s, c, q)


def softcap_ignored(q, k, v, softcap=None):
    a, b, c = prepared(q, k, v)
    return finish(scores(a, b), c, q)


def bias_ignored(q, k, v, bias=None):
    a, b, c = prepared(q, k, v)
    return finish(scores(a, b), c, q)


def bias_before_scale(q, k, v, bias=None):
    a, b, c = prepared(q, k, v)
    s = scores(a, b, 1.0)
    if bias is not None:
        s = s + bias.astype(s.dtype)
    return finish(s / np.sqrt(a.shape[-1]).astype(s.dtype), c, q)


def bias_after_softmax(q, k, v, bias=None):
    a, b, c = prepared(q, k, v)
    p = softmax(scores(a, b))
    return ((p if bias is None else p + bias.astype(p.dtype)) @ c).astype(q.dtype)


def bias_of_first_head(q, k, v, bias=None):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    if bias is not None:
        s = s + bias.astype(s.dtype)[..., :1, :, :]
    return finish(s, c, q)


def bias_subtracted(q, k, v, attn_bias=None):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    return finish(s if attn_bias is None else s - attn_bias.astype(s.dtype), c, q)


def distances(s):
    i, j = np.ogrid[: s.shape[-2], : s.shape[-1]]
    return (i - j).astype(s.dtype)


def alibi_sign(q, k, v, alibi_slopes=None):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    if alibi_slopes is not None:
        s = s + np.asarray(alibi_slopes, s.dtype)[:, None, None] * abs(distances(s))
    return finish(s, c, q)


def alibi_heads_reversed(q, k, v, alibi_slopes=None):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    if alibi_slopes is not None:
        s = s - np.asarray(alibi_slopes, s.dtype)[::-1, None, None] * abs(distances(s))
    return finish(s, c, q)


def alibi_without_abs(q, k, v, alibi_slopes=None):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    if alibi_slopes is not None:
        s = s - np.asarray(alibi_slopes, s.dtype)[:, None, None] * distances(s)
    return finish(s, c, q)


def alibi_own_slopes(q, k, v, alibi_slopes=None):
    """Its own slopes, counted from head 0: 1, 2^(−8/n), …"""
    a, b, c = prepared(q, k, v)
    s, heads = scores(a, b), q.shape[1]
    if alibi_slopes is not None:
        slopes = 2.0 ** (-8 * np.arange(heads, dtype=s.dtype) / heads)
        s = s - slopes[:, None, None] * abs(distances(s))
    return finish(s.astype(c.dtype), c, q)


def float_mask_as_bool(q, k, v, attn_mask=None):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    return finish(s if attn_mask is None else hidden(s, attn_mask.astype(bool)), c, q)


def float_mask_before_scale(q, k, v, attn_mask=None):
    a, b, c = prepared(q, k, v)
    s = masked(scores(a, b, 1.0), attn_mask)
    return finish(s / np.sqrt(a.shape[-1]).astype(s.dtype), c, q)
