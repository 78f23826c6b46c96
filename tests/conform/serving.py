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
    call = Call(q, k, v, np.ones((1, 1, 1, 1), dtype=bool), past, q.shape[-1] ** -0.5, asked, first)
    seen = np.ones((1, 1, call.queries, call.keys), dtype=bool)
    if asked.get("causal"):
        seen = seen & (call.columns <= call.rows)
    if asked.get("window") is not None:
        left, right = asked["window"]
        seen = seen & (call.columns >= call.rows - left) & (call.columns <= call.rows + right)
    if asked.get("mask") is not None:
        seen = seen & asked["mask"]
    if asked.get("key_lengths") is not None:
        seen = seen & (call.columns < np.reshape(asked["key_lengths"], (-1, 1, 1, 1)))
    scale = call.scale if asked.get("scale") is None else asked["scale"]
    return replace(call, seen=seen, scale=scale)


def scores_of(call):
    share = call.q.shape[1] // call.k.shape[1]
    keys = np.repeat(call.k, share, axis=1)
    scores = call.q @ keys.swapaxes(-1, -2) * call.scale
    if call.asked.get("softcap"):
        scores = call.asked["softcap"] * np.tanh(scores / call.asked["softcap"])
    if call.asked.get("bias") is not None:
        scores = scores + call.asked["bias"]
    if call.asked.get("alibi_slopes") is not None:
        scores = scores - call.asked["alibi_slopes"][:, None, None] * np.abs(call.rows - call.columns)
    return scores


def attend(call, hidden=-np.inf, scores=None, least=None):
    """Softmax of the scores, with a sink, times V; rows that see nothing are 0."""
    scores = scores_of(call) if scores is None else scores
    scores = np.where(call.seen, scores, hidden)
    top = scores.max(axis=-1, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)
    below = scores - top
    weights = np.exp(below if least is None else np.where(np.isneginf(below), below, below.clip(least)))
    total = weights.sum(axis=-1, keepdims=True)
    if call.asked.get("sinks") is not None:
        total = total + np.exp(np.reshape(call.asked["sinks"], (-1, 1, 1)) - top)
    values = np.repeat(call.v, call.q.shape[1] // call.v.shape[1], axis=1)
    return weights / np.where(total == 0, 1.0, total) @ values


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
            asked |= {"mask": None, "bias": mask if bias is None else bias + mask}
        first = past if past or not corner else k.shape[2] - q.shape[2]
        wide = (np.asarray(array, dtype=np.float64) for array in (q, k, v))
        with np.errstate(all="ignore"):
            return carry_out(begin(*wide, past, first, asked), fault).astype(q.dtype)

    return attention


def bottom_right(fault=None):
    return dense(fault, corner=1)


def carry_out(call, fault):
    made = call if fault is None else fault(call)
    return made if isinstance(made, np.ndarray) else attend(made)


def paged(fault=None):
    """A kernel whose keys are in pages; the last query of a sequence sees its last key."""

    def attention(q, k_cache, v_cache, block_table, context_lens, causal=False):
        read = {"table": np.asarray(block_table), "lengths": np.asarray(context_lens), "causal": causal}
        if fault is not None:
            read = fault({**read, "slots": k_cache.shape[1], "pages": len(k_cache)})
        out = []
        for member, length in enumerate(map(int, read["lengths"])):
            k, v = (gather(cache, read, member)[:, :, :length] for cache in (k_cache, v_cache))
            query = np.asarray(q[member : member + 1].swapaxes(1, 2), dtype=np.float64)
            first = length - query.shape[2] + read.get("ahead", 0)
            call = begin(query, k, v, 0, first, {"causal": read["causal"]})
            with np.errstate(all="ignore"):
                out.append(attend(call))
        return np.concatenate(out).swapaxes(1, 2).astype(q.dtype)

    return attention


def gather(cache, read, member):
    pages = cache[read["table"][member]].astype(np.float64)
    return pages.reshape(1, -1, *cache.shape[2:]).swapaxes(1, 2)
