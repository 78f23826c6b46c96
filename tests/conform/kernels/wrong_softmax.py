"""Kernels whose softmax is wrong."""

import numpy as np
from parts import hidden, lower, prepared, scores, softmax


def over_queries(q, k, v):
    a, b, c = prepared(q, k, v)
    e = np.exp(scores(a, b))
    return (e / e.sum(axis=-2, keepdims=True) @ c).astype(q.dtype)


def over_heads(q, k, v):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    e = np.exp(s - s.max(axis=1, keepdims=True))
    return (e / e.sum(axis=1, keepdims=True) @ c).astype(q.dtype)


def no_maximum(q, k, v):
    a, b, c = prepared(q, k, v)
    with np.errstate(over="ignore", invalid="ignore"):
        e = np.exp(scores(a, b))
        return (e / e.sum(axis=-1, keepdims=True) @ c).astype(q.dtype)


def base_two(q, k, v):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    e = np.exp2(s - s.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True) @ c).astype(q.dtype)


def plus_one(q, k, v):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    top = np.maximum(s.max(axis=-1, keepdims=True), 0)
    e = np.exp(s - top)
    return (e / (np.exp(-top) + e.sum(axis=-1, keepdims=True)) @ c).astype(q.dtype)


def not_divided(q, k, v):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    return (np.exp(s - s.max(axis=-1, keepdims=True)) @ c).astype(q.dtype)


def taken_twice(q, k, v):
    a, b, c = prepared(q, k, v)
    return (softmax(softmax(scores(a, b))) @ c).astype(q.dtype)


def epsilon(q, k, v):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return (e / (e.sum(axis=-1, keepdims=True) + e.dtype.type(1e-2)) @ c).astype(q.dtype)


def dropout_on(q, k, v):
    a, b, c = prepared(q, k, v)
    p = softmax(scores(a, b))
    kept = np.random.default_rng(0).random(p.shape) >= 0.1
    return ((p * kept / p.dtype.type(0.9)) @ c).astype(q.dtype)


def mask_after(q, k, v, causal=False):
    a, b, c = prepared(q, k, v)
    p = softmax(scores(a, b))
    return ((p * lower(*p.shape[-2:]) if causal else p) @ c).astype(q.dtype)


def sink_missing(q, k, v, sinks=None):
    a, b, c = prepared(q, k, v)
    return (softmax(scores(a, b)) @ c).astype(q.dtype)


def sink_weighs(q, k, v, sinks=None):
    """The sink's share goes to the last key."""
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    if sinks is None:
        return (softmax(s) @ c).astype(q.dtype)
    sink = np.broadcast_to(sinks.astype(s.dtype)[:, None, None], (*s.shape[:-1], 1))
    p = softmax(np.concatenate((s, sink), -1))
    p[..., -2] += p[..., -1]
    return (p[..., :-1] @ c).astype(q.dtype)


def sink_of_first_head(q, k, v, sinks=None):
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    if sinks is None:
        return (softmax(s) @ c).astype(q.dtype)
    sink = np.full((*s.shape[:-1], 1), sinks[0], s.dtype)
    return (softmax(np.concatenate((s, sink), -1))[..., :-1] @ c).astype(q.dtype)


def sink_scaled(q, k, v, sinks=None):
    """The sink is divided by √d like a score."""
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    if sinks is None:
        return (softmax(s) @ c).astype(q.dtype)
    sink = np.broadcast_to(
        (sinks / np.sqrt(q.shape[-1])).astype(s.dtype)[:, None, None], (*s.shape[:-1], 1)
    )
    return (softmax(np.concatenate((s, sink), -1))[..., :-1] @ c).astype(q.dtype)


def finite_mask(q, k, v, causal=False):
    """−1e4 for −∞, which large scores reach."""
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    if causal:
        s = np.where(lower(*s.shape[-2:]), s, s.dtype.type(-1e4))
    return (softmax(s) @ c).astype(q.dtype)


def maximum_of_everything(q, k, v, causal=False):
    """One maximum for all rows: rows far below it become 0 / 0."""
    a, b, c = prepared(q, k, v)
    s = scores(a, b)
    if causal:
        s = hidden(s, lower(*s.shape[-2:]))
    e = np.exp(s - s.max())
    with np.errstate(invalid="ignore"):
        return (e / e.sum(axis=-1, keepdims=True) @ c).astype(q.dtype)
