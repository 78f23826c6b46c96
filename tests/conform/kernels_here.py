"""Kernels that the tests of `conform` call, as people write them."""

import os
import signal
import sys
import time

import numpy as np


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def scores(q, k):
    return q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])


def good(q, k, v, causal=False, scale=None):
    """Ten lines, the diagonal at the top left."""
    s = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], dtype=bool)), s, -np.inf)
    return (softmax(s) @ v).astype(q.dtype)


def bad(q, k, v, causal=False):
    """No scale."""
    return good(q, k, v, causal, 1.0)


def everything(  # noqa: PLR0917  (what a kernel may take)
    q, k, v, causal=False, mask=None, scale=None, softcap=None, window=None, bias=None, alibi_slopes=None,
    key_lengths=None, past_key=None, past_value=None, sinks=None, corner=0,
):  # fmt: skip
    """Every option there is; `corner` 1 aligns at the bottom right. Returns weights, too."""
    start = 0 if past_key is None else past_key.shape[-2]
    if past_key is not None:
        k, v = np.concatenate([past_key, k], -2), np.concatenate([past_value, v], -2)
    share = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, share, 1), np.repeat(v, share, 1)
    n, m = q.shape[-2], k.shape[-2]
    start = m - n if corner else start
    i, j = np.arange(n)[:, None] + start, np.arange(m)
    s = (
        np.float64(q)
        @ np.float64(np.swapaxes(k, -1, -2))
        * (q.shape[-1] ** -0.5 if scale is None else scale)
    )
    s = softcap * np.tanh(s / softcap) if softcap else s
    s = s if bias is None else s + bias
    s = s if alibi_slopes is None else s - alibi_slopes[:, None, None] * np.abs(i - j)
    seen = np.ones((1, 1, n, m), dtype=bool)
    if causal:
        seen = seen & (j <= i)
    if window:
        seen = seen & (j >= i - window[0]) & (j <= i + window[1])
    if mask is not None and mask.dtype == bool:
        seen = seen & mask
    elif mask is not None:
        s = s + mask
    if key_lengths is not None:
        seen = seen & (j < key_lengths[:, None, None, None])
    s = np.where(seen, s, -np.inf)
    top = s.max(-1, keepdims=True)
    top = np.where(np.isneginf(top), 0, top)
    e = np.exp(s - top)
    total = e.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(np.float64(sinks)[:, None, None] - top)
    p = e / np.where(total == 0, 1, total)
    return (p @ v).astype(q.dtype), p


def bottom_right(q, k, v, causal=False, window=None):
    return everything(q, k, v, causal=causal, window=window, corner=1)[0]


def ignores(q, k, v, causal=False):
    return good(q, k, v)


def zeros(q, k, v):
    return np.zeros((*q.shape[:-1], v.shape[-1]))


def mean(q, k, v):
    return np.broadcast_to(v.mean(-2, keepdims=True), (*q.shape[:-1], v.shape[-1]))


def single(q, k, v):
    return good(*(x.astype(np.float32) for x in (q, k, v))).astype(q.dtype)


def answers_single(q, k, v):
    return good(*(x.astype(np.float32) for x in (q, k, v)))


def turned(q, k, v):
    return np.swapaxes(good(q, k, v), -1, -2)


def in_place(q, k, v):
    q /= np.sqrt(q.shape[-1])
    return softmax(q @ np.swapaxes(k, -1, -2)) @ v


CALLS = iter(range(10**9))


def forgetful(q, k, v):
    return good(q, k, v) * (1 + 1e-15 * next(CALLS))


def fails_in_call_12(q, k, v):
    if next(CALLS) == 11:
        raise RuntimeError("out of resources")
    return good(q, k, v)


def into(q, k, v, out):
    """Needs a buffer, in which the output is."""
    np.matmul(softmax(scores(q, k)), v, out=out)


def into_if_given(q, k, v, causal=False, out=None):
    found = good(q, k, v, causal)
    if out is None:
        return found
    out[...] = found
    return out


def into_some(q, k, v, out):
    out[..., :-1, :] = good(q, k, v)[..., :-1, :]


def into_nothing(q, k, v, out=None):
    return good(q, k, v)


def into_what_is_there(q, k, v, out=None):
    out = np.zeros(v.shape, v.dtype) if out is None else out
    out += good(q, k, v)
    return out


def answers_wide(q, k, v):
    return good(*(x.astype(np.float64) for x in (q, k, v)))


def widens_with_causal(q, k, v, causal=False):
    """The mask is float64, and what it is added to becomes so."""
    s = scores(q, k).astype(q.dtype)
    return softmax(s + np.where(np.tri(*s.shape[-2:]), 0, -np.inf) if causal else s) @ v


def widens_some(q, k, v):
    """Where lengths differ, or heads, it answers in float64."""
    return (good if q.shape == k.shape else answers_wide)(q, k, v)


def below():
    raise ValueError("from below")


def fails_below(q, k, v):
    below()


def unwritten(q, k, v):
    """The first column is what memory held."""
    out = np.empty((*q.shape[:-1], v.shape[-1]), q.dtype)
    out[..., 1:] = good(q, k, v)[..., 1:]
    return out


def not_float64(q, k, v):
    if q.dtype == np.float64:
        raise TypeError("expected float16 or float32")
    return good(q, k, v)


def same_lengths(q, k, v):
    if q.shape != k.shape:
        raise ValueError("q and k must have one shape")
    return good(q, k, v)


def no_softcap(q, k, v, softcap=None):
    if softcap:
        raise NotImplementedError("softcap: not yet")
    return good(q, k, v)


def interrupts(q, k, v):
    raise KeyboardInterrupt


def raises(q, k, v, causal=False):
    if causal:
        raise KeyError("mask")
    return good(q, k, v)


def sliding(q, k, v, sliding_window=None, more=0):
    s = scores(q, k)
    n, m = s.shape[-2:]
    if sliding_window:
        i, j = np.arange(n)[:, None], np.arange(m)
        s = np.where((j <= i) & (j > i - sliding_window - more), s, -np.inf)
    return softmax(s) @ v


def wider_sliding(q, k, v, sliding_window=None):
    return sliding(q, k, v, sliding_window, 1)


def boolean_mask(q, k, v, mask=None):
    s = scores(q, k)
    return softmax(s if mask is None else np.where(mask, s, -np.inf)) @ v


def with_wrong_sum(q, k, v, causal=False):
    """The log-sum-exp behind the output is wrong where the mask hides something."""
    s = scores(q, k)
    if causal:
        hidden = np.where(np.tril(np.ones(s.shape[-2:], dtype=bool)), s, -np.inf)
        return softmax(hidden) @ v, np.log(np.exp(s).sum(-1))
    return softmax(s) @ v, np.log(np.exp(s).sum(-1))


def tokens_first(q, k, v, causal=False):
    return np.swapaxes(good(*(np.swapaxes(x, 1, 2) for x in (q, k, v)), causal), 1, 2)


def plain_matrices(q, k, v, causal=False):
    assert q.ndim == 2
    return good(q, k, v, causal)


def crashes(q, k, v):
    if q.shape[-1] == 64:
        os.abort()
    return good(q, k, v)


def hangs(q, k, v):
    if q.shape[-1] == 64:
        time.sleep(600)
    return good(q, k, v)


def leaves(q, k, v):
    if q.shape[-1] == 64:
        sys.exit("that is enough")
    return good(q, k, v)


def talks(q, k, v):
    print("hello")
    os.write(1, b"from below\n")
    return good(q, k, v)


def says_how_threads_wait(q, k, v):
    raise RuntimeError(os.environ["OMP_WAIT_POLICY"])


def killed(q, k, v, causal=False, scale=None):
    """As by a system without memory, in every call."""
    os.kill(os.getpid(), signal.SIGKILL)


def attend(q, k, v, causal, allowed=True):
    """Plain attention in float64, the diagonal at the top left; queries see what is allowed."""
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    k, v = (np.repeat(array, q.shape[1] // k.shape[1], axis=1) for array in (k, v))
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    scores = np.where(np.tri(*scores.shape[-2:], dtype=bool) | (not causal), scores, -1e30)
    return softmax(np.where(allowed, scores, -np.inf)) @ v


def smooths_keys(q, k, v, causal=False):
    """Softmax stays where the mean of the keys is taken off, which in half precision overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = k.sum(axis=2, keepdims=True, dtype=k.dtype) / k.dtype.type(k.shape[2])
        return attend(q, k - mean, v, causal).astype(q.dtype)


def leaves_small_values_out(q, k, v, causal=False):
    """A key with hardly any value is passed over, with its share of the weights."""
    there = np.abs(np.repeat(v, q.shape[1] // v.shape[1], axis=1)).max(-1)[..., None, :] > 1e-3
    return attend(q, k, v, causal, allowed=there).astype(q.dtype)
