"""Kernels as serving has them, with a cache, pages and every option, and what goes wrong in them.

A fault is a function of a call: it gives the call as the wrong kernel carries it out.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Call:
    """A call as it is carried out: keys joined with those of the cache, and who sees whom."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    seen: np.ndarray
    """(batch or 1, head or 1, query, key)."""
    past: int
    scale: float
    asked: dict[str, Any]
    first: int = 0
    """The position of query 0."""

    @property
    def queries(self):
        return self.q.shape[2]

    @property
    def keys(self):
        return self.k.shape[2]

    @property
    def share(self):
        return self.q.shape[1] // self.k.shape[1]

    @property
    def rows(self):
        return np.arange(self.queries)[:, None] + self.first

    @property
    def columns(self):
        return np.arange(self.keys)

    def without(self, *names):
        """The same call, made without these options."""
        return begin(self.q, self.k, self.v, self.past, self.first, drop(self.asked, names))

    def having(self, **asked):
        return begin(self.q, self.k, self.v, self.past, self.first, {**self.asked, **asked})

    def hiding(self, hidden):
        return replace(self, seen=self.seen & ~hidden)


def drop(asked, names):
    return {name: None if name in names else value for name, value in asked.items()}


def begin(q, k, v, past, first, asked):
    """The call that is meant."""
    usual = q.shape[-1] ** -0.5
    everything = np.ones((1, 1, q.shape[2], k.shape[2]), dtype=bool)
    call = Call(q=q, k=k, v=v, seen=everything, past=past, scale=usual, asked=asked, first=first)
    rows = call.rows
    columns = call.columns

    if asked.get("causal"):
        call = call.hiding(columns > rows)
    if asked.get("window") is not None:
        left, right = asked["window"]
        call = call.hiding(columns < rows - left)
        call = call.hiding(columns > rows + right)
    if asked.get("mask") is not None:
        call = call.hiding(~asked["mask"])
    if asked.get("key_lengths") is not None:
        lengths = np.reshape(asked["key_lengths"], (-1, 1, 1, 1))
        call = call.hiding(columns >= lengths)
    if asked.get("scale") is not None:
        call = replace(call, scale=asked["scale"])
    return call


def scores_of(call):
    keys = np.repeat(call.k, call.share, axis=1)
    scores = call.q @ keys.swapaxes(-1, -2)
    scores *= call.scale

    cap = call.asked.get("softcap")
    bias = call.asked.get("bias")
    slopes = call.asked.get("alibi_slopes")
    if cap:
        scores = cap * np.tanh(scores / cap)
    if bias is not None:
        scores = scores + bias
    if slopes is not None:
        distance = np.abs(call.rows - call.columns)
        scores = scores - np.reshape(slopes, (-1, 1, 1)) * distance
    return scores


def attend(call, hidden=-np.inf, scores=None, least=None):
    """Softmax of the scores, with a sink, times V; rows that see nothing are 0."""
    if scores is None:
        scores = scores_of(call)
    scores = np.where(call.seen, scores, hidden)
    top = scores.max(axis=-1, keepdims=True)
    top[np.isneginf(top)] = 0.0
    below = scores - top
    if least is not None:
        clipped = below.clip(least)
        below = np.where(np.isneginf(below), below, clipped)

    weights = np.exp(below)
    total = weights.sum(axis=-1, keepdims=True)
    sinks = call.asked.get("sinks")
    if sinks is not None:
        total = total + np.exp(np.reshape(sinks, (-1, 1, 1)) - top)
    total[total == 0] = 1.0
    values = np.repeat(call.v, call.share, axis=1)
    return weights / total @ values


def dense(fault=None, corner=0):
    """A kernel with a cache, the diagonal at the top left without one, or with `corner` at the last key."""

    def attention(  # noqa: PLR0917  (what a kernel may take)
        q, k, v, causal=False, window=None, mask=None, bias=None, scale=None, softcap=None,
        alibi_slopes=None, sinks=None, key_lengths=None, past_key=None, past_value=None, dropout_p=0.0,
    ):  # fmt: skip
        asked = {
            "causal": causal, "window": window, "mask": mask, "bias": bias, "scale": scale,
            "softcap": softcap, "alibi_slopes": alibi_slopes, "sinks": sinks, "key_lengths": key_lengths,
        }  # fmt: skip
        past = 0 if past_key is None else past_key.shape[2]
        if past:
            k = np.concatenate([past_key, k], axis=2)
            v = np.concatenate([past_value, v], axis=2)
        if mask is not None and mask.dtype != bool:
            asked["mask"] = None
            asked["bias"] = mask if bias is None else bias + mask

        first = past
        if corner and not past:
            first = k.shape[2] - q.shape[2]
        wide = [np.asarray(array, dtype=np.float64) for array in (q, k, v)]
        call = begin(*wide, past, first, asked)
        with np.errstate(all="ignore"):
            return carry_out(call, fault).astype(q.dtype)

    return attention


def bottom_right(fault=None):
    return dense(fault, corner=1)


def carry_out(call, fault):
    made = call if fault is None else fault(call)
    return made if isinstance(made, np.ndarray) else attend(made)


def paged(fault=None):
    """A kernel whose keys are in pages; the last query of a sequence sees its last key."""

    def attention(q, k_cache, v_cache, block_table, context_lens, causal=False):
        read = {
            "table": np.asarray(block_table),
            "lengths": np.asarray(context_lens),
            "causal": causal,
            "slots": k_cache.shape[1],
            "ahead": 0,
        }
        if fault is not None:
            read = fault(read)

        out = []
        for member, length in enumerate(map(int, read["lengths"])):
            k = gather(k_cache, read, member)[:, :, :length]
            v = gather(v_cache, read, member)[:, :, :length]
            query = q[member : member + 1].swapaxes(1, 2).astype(np.float64)
            first = length - query.shape[2] + read["ahead"]
            asked = {"causal": causal}
            call = begin(query, k, v, past=0, first=first, asked=asked)
            with np.errstate(all="ignore"):
                out.append(attend(call))
        joined = np.concatenate(out)
        return joined.swapaxes(1, 2).astype(q.dtype)

    return attention


def gather(cache, read, member):
    own = read["table"][member]
    pages = cache[own].astype(np.float64)
    rows = pages.reshape(1, -1, *cache.shape[2:])
    return rows.swapaxes(1, 2)
