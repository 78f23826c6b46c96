"""Ops on chunks of keys, and what merges them: partial softmax.

So rows are cut in online softmax (Milakov and Gimelshein 2018), in decoding with split keys and in rings
of devices: each chunk gives its outputs and its log-sum-exp, and these say what share of the row it has.
Chunks come to the whole, so gradients go through the lines of the whole: no op here has an adjoint.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.math import Array, Shape
from attnctl.math.kind import Chunks, spans, where_broken
from attnctl.math.notation import Input, Place, Term, call, entry, index, is_seen, largest, total, where
from attnctl.math.ops.base import Block, Op, Places, RowWise, sum_type
from attnctl.math.ops.scores import LogSumExp, Softmax, log_total


@dataclass(frozen=True)
class ByChunk(RowWise):
    """An op on the scores of each chunk of keys; ranges are those of all keys, one behind the other."""

    chunks: Chunks = 1
    at: Block | None = None

    def __post_init__(self) -> None:
        broken = where_broken(self.chunks)
        if broken or self.chunk < 1:
            raise AttnError(f"chunks: {broken or 'none'}; use a number from 1, or ranges of keys in order")

    @property
    def chunk(self) -> int:
        return self.chunks if isinstance(self.chunks, int) else len(self.chunks)

    def block(self, at: Block) -> ByChunk:
        return replace(self, at=at)

    def parts(self, keys: int) -> list[slice]:
        """The keys of each chunk, among those that are there. Raises ValueError for other ranges."""
        at = self.at or Block()
        every = at.keys or keys
        cut = spans(self.chunks, every)
        _, last = cut[-1]
        if last != every:
            raise ValueError(f"chunks of {last} keys, but there are {every}")

        def within_block(key: int) -> int:
            return min(max(key - at.key, 0), keys)

        return [slice(within_block(start), within_block(stop)) for start, stop in cut]

    def score(self, s: Input, chunk: Place, *places: Place) -> Term:
        """A score as a chunk has it, −∞ for the keys of others."""
        keys = s.shape[-1]
        chunk_of_key = np.empty(keys, int)
        for number, part in enumerate(self.parts(keys)):
            chunk_of_key[part] = number

        own_chunk = entry(chunk_of_key, places[-1])
        is_own = abs(own_chunk - chunk) < 1  # places have no equality
        return where(is_own, s.at(*places), -inf)


def stack_parts(parts: list[Array], before: int, out: Array | None) -> Array:
    """The parts along an axis with so many behind it, or the first where one head has fewer."""
    return np.stack(parts, axis=max(0, parts[0].ndim - before), out=out)


class ChunkLogSumExp(ByChunk):
    """max + ln Σ exp(s − max) over the keys of each chunk; −∞ for a row that sees nothing of it."""

    signature = "batch? head query key -> batch? chunk head query"
    words = "The keys are cut into chunks, and of each the logarithm is taken of what softmax divides by."
    flops_read = LogSumExp.flops_read
    log_of_sum = True

    def apply(self, s: Array, *, out: Array | None = None) -> Array:
        keys = s.shape[-1]
        by_chunk = [LogSumExp().apply(s[..., part]) for part in self.parts(keys)]
        return stack_parts(by_chunk, before=2, out=out)

    def form(self, cell: Places, s: Input) -> Term:
        *lead, chunk, head, row = cell
        j = index(s.shape[-1], "j")
        score_place = (*lead, head, row, j)
        return log_total(j, self.score(s, chunk, *score_place))


class ChunkOutputs(ByChunk):
    """Softmax over the keys of each chunk alone, times V; 0 for a row that sees nothing of it."""

    signature = "batch? head query key, batch? head key d -> batch? chunk head query d"
    linear = ((1,),)
    words = "Softmax over the keys of each chunk alone gives shares, and {1} are mixed by these."

    def apply(self, s: Array, v: Array, *, out: Array | None = None) -> Array:
        keys = s.shape[-1]
        by_chunk = [Softmax().apply(s[..., part]) @ v[..., part, :] for part in self.parts(keys)]
        return stack_parts(by_chunk, before=3, out=out)

    def form(self, cell: Places, s: Input, v: Input) -> Term:
        """Σ exp(s − max) v / Σ exp(s − max) over the keys of the chunk that are seen."""
        *lead, chunk, head, row, column = cell
        j = index(s.shape[-1], "j")
        score_place = (*lead, head, row, j)
        score = self.score(s, chunk, *score_place)
        top = largest(j, score)
        grown = call("exp", score - top)
        value = v.at(*lead, head, j, column)
        mixed = total(j, grown * value, is_seen(score))
        whole = total(j, grown, is_seen(score))
        return where(is_seen(top), mixed / whole, 0)

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        scores, v = inputs
        return Softmax().cost(scores) + 2 * prod(scores) * v[-1]


class MergeLogSumExp(Op):
    """max + ln Σ exp(L_c − max) over chunks: the log-sum-exp of the whole row."""

    signature = "batch? chunk head query -> batch? head query"
    words = "The logarithm of the sum over all keys, from those of the chunks."
    flops_read = LogSumExp.flops_read
    log_of_sum = True

    def apply(self, parts: Array) -> Array:
        return LogSumExp().apply(np.moveaxis(parts, -3, -1))

    def form(self, cell: Places, parts: Input) -> Term:
        *lead, head, row = cell
        j = index(parts.shape[-3], "c")
        return log_total(j, parts.at(*lead, j, head, row))


class Shares(Op):
    """exp(L_c − L), or exp(L_c) / (exp(L) + exp(sink)); a chunk that a row does not see has none."""

    signature = "batch? chunk head query, batch? head query[, head] -> batch? chunk head query"
    words = "The share that a chunk has of its row is the exponential of {0} less {1}[, {2} among them]."
    flops = 2  # a difference and a function

    def apply(self, parts: Array, whole: Array, *sink: Array) -> Array:
        for logit in sink:
            whole = np.logaddexp(whole, logit[:, None])
        divisor = np.where(np.isneginf(whole), whole.dtype.type(0), whole)
        return np.exp(parts - np.expand_dims(divisor, -3))

    def form(self, cell: Places, parts: Input, whole: Input, *sink: Input) -> Term:
        """exp(L_c − L), or that over exp(L) + exp(sink), the largest taken off."""
        *lead, _, head, row = cell
        part = parts.at(*cell)
        every = whole.at(*lead, head, row)
        share = call("exp", part - every)
        if sink:
            own = sink[0].at(head)
            top = largest(index(1, "j"), every, own)
            with_sink = call("exp", every - top) + call("exp", own - top)
            share = call("exp", part - top) / with_sink
        return where(is_seen(part), share, 0)


class MergeChunks(Op):
    """Σ over chunks of its share times its outputs."""

    signature = "batch? chunk head query, batch? chunk head query d -> batch? head query d"
    linear = ((0,), (1,))
    words = "The outputs of each chunk are multiplied by its share, and added up."

    def apply(self, shares: Array, outputs: Array) -> Array:
        merged = (shares[..., None] * outputs).sum(axis=-4, dtype=sum_type(outputs))
        return merged.astype(outputs.dtype, copy=False)

    def form(self, cell: Places, shares: Input, outputs: Input) -> Term:
        *lead, head, row, column = cell
        c = index(shares.shape[-3], "c")
        share = shares.at(*lead, c, head, row)
        output = outputs.at(*lead, c, head, row, column)
        return total(c, share * output)

    def cost(self, shape: Shape, *inputs: Shape) -> int:
        return 2 * prod(inputs[1])  # a product and a sum a term
