"""Kernels that give no answer, not always the same one, or one that has nothing to do with attention."""

import itertools
import os
import sys
import time

import numpy as np
from parts import prepared, scores, softmax, wide
from right import naive

CALLS = itertools.count()
BUFFERS = {}
FIRST = {}


def zeros(q, k, v):
    return np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)


def mean_of_values(q, k, v):
    mean = np.repeat(v.mean(axis=2, keepdims=True), q.shape[1] // v.shape[1], axis=1)
    return np.broadcast_to(mean, (*q.shape[:-1], v.shape[-1])).astype(q.dtype)


def nans(q, k, v):
    return np.full((*q.shape[:-1], v.shape[-1]), np.nan, q.dtype)


def noise_of_three_percent(q, k, v):
    out = naive(q, k, v).astype(np.float64)
    noise = np.random.default_rng(1).standard_normal(out.shape)
    return (out * (1 + 0.03 * noise)).astype(q.dtype)


def three_percent_too_much(q, k, v):
    return (naive(q, k, v).astype(np.float64) * 1.03).astype(q.dtype)


def racing(q, k, v):
    """The last row is written in every second call."""
    out = naive(q, k, v)
    if next(CALLS) % 2:
        out[..., -1, :] = 0
    return out


def racing_now_and_then(q, k, v):
    """One number is wrong in every fiftieth call."""
    out = naive(q, k, v)
    if next(CALLS) % 50 == 49:
        out.flat[3] += 1
    return out


def skips_a_row_of_its_buffer(q, k, v):
    """One buffer for all calls; in every fiftieth the last row is what the call before has left."""
    out = BUFFERS.setdefault((q.shape, v.shape, q.dtype), np.empty((*q.shape[:-1], v.shape[-1]), q.dtype))
    rows = -1 if next(CALLS) % 50 == 49 else None
    out[..., :rows, :] = naive(q, k, v)[..., :rows, :]
    return out


def last_row_not_written(q, k, v):
    out = np.empty((*q.shape[:-1], v.shape[-1]), q.dtype)
    out[..., :-1, :] = naive(q, k, v)[..., :-1, :]
    return out


def adds_to_what_is_there(q, k, v):
    """Sums over blocks of keys in memory that nobody set to 0."""
    out = np.empty((*q.shape[:-1], v.shape[-1]), wide(q))
    q, k, v = prepared(q, k, v)
    weights = softmax(scores(q, k))
    for at in range(0, k.shape[2], 4):
        out += weights[..., at : at + 4] @ v[..., at : at + 4, :]
    return out.astype(q.dtype)


def answer_of_the_first_call(q, k, v):
    """Kept by shape, and never computed again."""
    return FIRST.setdefault((q.shape, k.shape, v.shape), naive(q, k, v))


def changes_queries(q, k, v):
    q *= q.dtype.type(q.shape[-1] ** -0.5)
    return naive(q, k, v, scale=1.0)


def changes_values(q, k, v):
    out = naive(q, k, v)
    v[:] = 0
    return out


def reads_memory_in_order(q, k, v):
    """Strides are not looked at: what stands next in memory is taken for what comes next."""
    return naive(*(x.ravel(order="K").reshape(x.shape) for x in (q, k, v)))


def hangs(q, k, v):
    while True:
        time.sleep(1)


def hangs_on_long_ones(q, k, v):
    while k.shape[2] > 16:
        time.sleep(1)
    return naive(q, k, v)


def aborts(q, k, v):
    os.abort()


def exits(q, k, v):
    sys.exit(0)


def raises(q, k, v):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def raises_on_odd_lengths(q, k, v):
    if k.shape[2] % 2:
        raise ValueError(f"sequence length {k.shape[2]} is not a multiple of 2")
    return naive(q, k, v)


def talks(q, k, v):
    """Writes on both streams, and gives the wrong shape."""
    print('{"agrees": true}', flush=True)
    print("100 % passed", file=sys.stderr, flush=True)
    return naive(q, k, v).swapaxes(1, 2)


def returns_nothing(q, k, v):
    naive(q, k, v)


def returns_text(q, k, v):
    return "passed"


def overflows_in_half(q, k, v):
    """Scores in float16 whatever the type: large ones become infinite."""
    with np.errstate(all="ignore"):
        s = q.astype(np.float16) @ k.astype(np.float16).swapaxes(-1, -2)
        s = (s * np.float16(q.shape[-1] ** -0.5)).astype(np.float32)
        e = np.exp(s - s.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True) @ v.astype(np.float32)).astype(q.dtype)
