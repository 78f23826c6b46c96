"""Mistakes in the log-sum-exp, and in merging what chunks of keys gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import log

import numpy as np

from attnctl.base.namedtuple import NamedTuple
from attnctl.math import Array
from attnctl.math.names import CHUNK_LOGSUMEXP, CHUNK_OUTPUTS, CHUNK_SHARES, HEAD_OUTPUTS, LOGSUMEXP, SINK
from attnctl.math.ops import ChunkLogSumExp, LogSumExp, Op
from attnctl.mistakes import wrong
from attnctl.mistakes.mistake import Plant, Plants, WrongStep, about


class Merged(NamedTuple):
    """What a merge of chunks gives."""

    total: Array
    """The log-sum-exp of the whole."""
    shares: Array
    """The share of each chunk, chunks first."""


Merge = Callable[..., Merged]
"""From the log-sum-exp of chunks, chunks first, to what they are merged to."""

OF_SUMS = (CHUNK_LOGSUMEXP, LOGSUMEXP)
OF_MERGE = (LOGSUMEXP, CHUNK_SHARES, HEAD_OUTPUTS)
LN2 = log(2)


def with_merge(case: WrongStep, merge: Merge, *read: str) -> WrongStep:
    """The program that merges otherwise, by the log-sum-exp of chunks and what else it reads.

    What is recorded before the first wrong step is right, so that it is made beside that.
    """

    def sum_of_row(p: Array, *more: Array) -> Array:
        return merge(chunks_first(p), *more).total

    def shares_of_chunks(p: Array, *more: Array) -> Array:
        return chunks_last(merge(chunks_first(p), *more).shares)

    of_each = wrong.By(shares_of_chunks)
    inputs = (CHUNK_LOGSUMEXP, *read)
    if case.first not in {CHUNK_LOGSUMEXP, CHUNK_OUTPUTS, LOGSUMEXP, CHUNK_SHARES}:
        other = case.bare("other shares", of_each, inputs, CHUNK_SHARES)
        return case.through(HEAD_OUTPUTS, CHUNK_SHARES, other)

    ops: dict[str, Op] = {CHUNK_SHARES: of_each}
    if case.first != CHUNK_SHARES:
        ops[LOGSUMEXP] = wrong.By(sum_of_row)
    return case.put_all(ops, dict.fromkeys(ops, inputs))


def chunks_first(parts: Array) -> Array:
    """(..., chunk, head, query) -> (chunk, ..., head, query)."""
    return np.moveaxis(parts, -3, 0)


def chunks_last(parts: Array) -> Array:
    """(chunk, ..., head, query) -> (..., chunk, head, query)."""
    return np.moveaxis(parts, 0, -3)


class NamedMerge(NamedTuple):
    """A wrong merge, and what is done in it."""

    detail: str
    merge: Merge


def merged(*ways: NamedMerge, sink: bool = False) -> Plants:
    """Plants other merges, where there is a sink, which they read, or none."""
    read = (SINK,) if sink else ()

    def plants(case: WrongStep) -> Iterator[Plant]:
        has_sink = SINK in case.derivation
        if not has_chunks(case) or has_sink is not sink:
            return
        for way in ways:
            yield Plant(with_merge(case, way.merge, *read), way.detail)

    return plants


def has_chunks(case: WrongStep) -> bool:
    return isinstance(case.op(CHUNK_LOGSUMEXP), ChunkLogSumExp)


def scores_of(case: WrongStep) -> str:
    """The step of which the log-sum-exp is taken."""
    sums = CHUNK_LOGSUMEXP if has_chunks(case) else LOGSUMEXP
    return case.derivation[sums].inputs[0]


def tops_of(case: WrongStep) -> Callable[[Array], Array]:
    """The largest score of each row of each chunk, chunks first."""
    op = case.op(CHUNK_LOGSUMEXP)
    assert isinstance(op, ChunkLogSumExp)

    def tops(s: Array) -> Array:
        chunks = op.parts(s.shape[-1])
        return np.stack([s[..., columns].max(axis=-1, initial=-np.inf) for columns in chunks])

    return tops


def log_of_sums(parts: Array) -> Array:
    """ln Σ exp over chunks."""
    return LogSumExp().apply(np.moveaxis(parts, 0, -1))


def shares(parts: Array) -> Array:
    return wrong.softmax(parts, axis=0)


def seen(parts: Array) -> Array:
    """1 over the number of chunks that a row sees."""
    return wrong.over(~np.isneginf(parts), axis=0)


def grown(parts: Array, top: Array) -> Array:
    """exp(L_c − top), 0 where nothing is seen."""
    safe_top = np.where(np.isneginf(top), 0.0, top)
    return np.where(np.isneginf(parts), 0.0, np.exp(parts - safe_top))


def add_sink(total: Array, *sink: Array) -> Array:
    """ln(exp(L) + exp(sink)), where there is a sink."""
    return np.logaddexp(total, sink[0][:, None]) if sink else total


# --- the log-sum-exp itself ---

BASE_2 = wrong.By(lambda total: np.asarray(total / LN2))


def in_base_2(case: WrongStep) -> Iterator[Plant]:
    """L / ln 2: of the row, or of chunks, which are merged as what they are."""
    if LOGSUMEXP in case.derivation:
        yield Plant(case.then(LOGSUMEXP, BASE_2))
    if not has_chunks(case):
        return

    read = (SINK,) if SINK in case.derivation else ()
    for base in (LN2, 1.0):  # of the whole

        def merge(p: Array, *sink: Array, base: float = base) -> Merged:
            natural = p * LN2
            total = log_of_sums(natural)
            return Merged(total / base, grown(natural, add_sink(total, *sink)))

        yield Plant(with_merge(case, merge, *read).then(CHUNK_LOGSUMEXP, BASE_2))


def without_maximum(case: WrongStep) -> Iterator[Plant]:
    """ln Σ exp(s − max), and the maximum not put back: of the row, or of chunks, which are merged so."""
    if LOGSUMEXP in case.derivation:

        def bare_row(total: Array, s: Array) -> Array:
            return total - s.max(axis=-1)

        yield Plant(case.then(LOGSUMEXP, wrong.By(bare_row), scores_of(case)))

    if has_chunks(case):
        tops = tops_of(case)

        def bare_chunks(p: Array, s: Array) -> Array:
            return p - chunks_last(tops(s))

        yield Plant(case.then(CHUNK_LOGSUMEXP, wrong.By(bare_chunks), scores_of(case)))


def empty_rows(case: WrongStep) -> Iterator[Plant]:
    """0 or ∞ where nothing is seen; of chunks, merged as −∞."""
    for number in (0.0, np.inf):
        said = f"{number:g}"
        filled = wrong.By(partial(fill_empty, number=number))
        if LOGSUMEXP in case.derivation:
            yield Plant(case.then(LOGSUMEXP, filled), said)

        if has_chunks(case):

            def right(p: Array, number: float = number) -> Merged:
                parts = np.where(p == number, -np.inf, p)
                return Merged(log_of_sums(parts), shares(parts))

            again = with_merge(case, right).then(CHUNK_LOGSUMEXP, filled)
            yield Plant(again, said)
            yield Plant(again.then(LOGSUMEXP, filled), said)


def fill_empty(total: Array, number: float) -> Array:
    return np.asarray(np.where(np.isneginf(total), number, total))


def sink_in_sums(case: WrongStep) -> Iterator[Plant]:
    """ln(exp(L) + exp(sink)) of the row; or of each chunk, its outputs scaled or not, and merged so."""
    if SINK not in case.derivation or LOGSUMEXP not in case.derivation:
        return
    yield Plant(case.then(LOGSUMEXP, wrong.By(add_sink), SINK), "of the row")
    if not has_chunks(case):
        return

    sums = case.derivation[CHUNK_LOGSUMEXP].op

    def scaled(z: Array, s: Array, sink: Array) -> Array:
        parts = sums.apply(s)
        share = grown(parts, add_sink(parts, sink))
        return np.asarray(z * share[..., None])

    def merge_with_sink(p: Array, sink: Array) -> Merged:
        total = log_of_sums(p)
        return Merged(total, grown(p, add_sink(total, sink)))

    for merge in (merge_without_sink, merge_with_sink):
        again = with_merge(case, merge, SINK).then(CHUNK_LOGSUMEXP, wrong.By(add_sink), SINK)
        yield Plant(again, "of each chunk")
        yield Plant(again.then(CHUNK_OUTPUTS, wrong.By(scaled), scores_of(case), SINK), "of each chunk")


# --- the merge ---


def base_2_as_e(case: WrongStep) -> Iterator[Plant]:
    if has_chunks(case):
        yield Plant(case.then(CHUNK_LOGSUMEXP, BASE_2), "base 2 is read as e")
    yield from merged(*WAYS[OTHER_BASE])(case)


class Rescaled(NamedTuple):
    """What is left under the maxima of chunks, and not brought to that of the whole."""

    output: bool
    sum: bool
    running: bool
    """Whether the maxima are those of all chunks up to each, not of each alone."""


def not_rescaled(case: WrongStep) -> Iterator[Plant]:
    """Sums of chunks under maxima of their own, or under the running one, added up as they are."""
    if not has_chunks(case) or SINK in case.derivation:
        return

    what = {"outputs and sums are": (True, True), "outputs are": (True, False), "sums are": (False, True)}
    for detail, (output, total) in what.items():
        for running in (False, True):
            merge = merge_of_maxima(tops_of(case), Rescaled(output, total, running))
            yield Plant(with_merge(case, merge, scores_of(case)), detail)
    yield from merged(*WAYS[NOT_RESCALED])(case)


def merge_of_maxima(tops: Callable[[Array], Array], left: Rescaled) -> Merge:
    def merge(p: Array, s: Array) -> Merged:
        own = tops(s)
        last = own.max(axis=0)
        kept = np.maximum.accumulate(own, axis=0) if left.running else own

        sums = grown(p, kept if left.sum else last).sum(axis=0)
        outputs = grown(p, kept if left.output else last)
        return Merged(last + np.log(sums), outputs / np.where(sums == 0, 1, sums))

    return merge


def merge_without_sink(p: Array, _: Array) -> Merged:
    return Merged(log_of_sums(p), shares(p))


def sink_in_each(p: Array, sink: Array, more: int = 0) -> Merged:
    """As many sinks as there are chunks, or more."""
    total = log_of_sums(p)
    sinks = sink + log(len(p) + more)
    return Merged(total, grown(p, add_sink(total, sinks)))


def nothing_as_nan(case: WrongStep) -> Iterator[Plant]:
    """NaN for what sees nothing of its chunk; or for rows that see nothing of all, any or the first."""
    if not has_chunks(case):
        return
    for name in (CHUNK_LOGSUMEXP, CHUNK_OUTPUTS):
        yield Plant(spoiled(case, name))

    for rows in (no_chunk, not_every_chunk, not_first_chunk):
        for name in OF_MERGE:
            yield Plant(spoiled(case, name, rows))
        in_sums = spoiled(case, LOGSUMEXP, rows)
        yield Plant(spoiled(in_sums, CHUNK_SHARES, rows))


def no_chunk(sees_nothing: Array) -> Array:
    """Rows that see nothing of all chunks; (chunk, …) -> (…), as are the next two."""
    return np.asarray(sees_nothing.all(axis=0))


def not_every_chunk(sees_nothing: Array) -> Array:
    return np.asarray(sees_nothing.any(axis=0))


def not_first_chunk(sees_nothing: Array) -> Array:
    return sees_nothing[0]


def spoiled(case: WrongStep, name: str, rows: Callable[[Array], Array] | None = None) -> WrongStep:
    """The program in which rows of a step are NaN that see nothing of these chunks, or of their own."""
    sums = case.derivation[CHUNK_LOGSUMEXP].op
    by_chunk = name in {CHUNK_OUTPUTS, CHUNK_SHARES}
    by_column = name in {CHUNK_OUTPUTS, HEAD_OUTPUTS}

    def apply(x: Array, s: Array) -> Array:
        is_lost = np.isneginf(sums.apply(s))
        if rows:
            is_lost = rows(chunks_first(is_lost))
        if by_chunk and is_lost.ndim < s.ndim:
            is_lost = is_lost[..., None, :, :]
        if by_column:
            is_lost = is_lost[..., None]
        return np.where(is_lost, np.nan, x)

    return case.then(name, wrong.By(apply), scores_of(case))


def lost(rows: Callable[[Array], Array]) -> Merge:
    """The right merge, and NaN for rows that see nothing of some chunks."""

    def merge(p: Array) -> Merged:
        is_lost = rows(np.isneginf(p))
        total = np.where(is_lost, np.nan, log_of_sums(p))
        return Merged(total, np.where(is_lost, np.nan, shares(p)))

    return merge


def bare(p: Array, dtype: str, nothing: float) -> Merged:
    """exp(L_c) / Σ exp(L_c): what is large overflows its type, what is small comes to 0 / 0, or nothing."""
    e = np.exp(p.astype(dtype)).astype(p.dtype)
    total = e.sum(axis=0)
    return Merged(np.log(total), np.where(total == 0, nothing, e / total))


def first_not_rescaled(p: Array) -> Merged:
    """Every chunk but the last as it is, the sum under the maximum of all."""
    e = wrong.grown(p, axis=0)
    sums = np.maximum(e.sum(axis=0), 1)
    e[:-1] = ~np.isneginf(p[:-1])
    return Merged(log_of_sums(p), e / sums)


OTHER_BASE = "chunks-merged-in-other-base"
AVERAGED = "chunks-averaged"
NOT_RESCALED = "chunks-not-rescaled"
NOTHING_AS_NAN = "chunks-nan-where-nothing-is-seen"
NO_MAXIMUM = "merge-without-maximum"


def base_2_read_as_e(p: Array) -> Merged:
    in_base_e = p / LN2
    return Merged(log_of_sums(in_base_e), shares(in_base_e))


def base_e_read_as_2(p: Array) -> Merged:
    in_base_2 = p * LN2
    return Merged(log_of_sums(in_base_2) / LN2, shares(in_base_2))


def exp2_of_natural(p: Array) -> Merged:
    """2^(L_c − L), where e^(L_c − L) is meant."""
    total = log_of_sums(p)
    return Merged(total, grown(p * LN2, total * LN2))


def exp_of_base_2(p: Array) -> Merged:
    """e^((L_c − L) / ln 2), where 2 is meant for e."""
    total = log_of_sums(p)
    return Merged(total, grown(p / LN2, total / LN2))


def averaged(p: Array) -> Merged:
    return Merged(log_of_sums(p), np.full_like(p, 1 / len(p)))


def averaged_of_seen(p: Array) -> Merged:
    return Merged(log_of_sums(p), seen(p))


def added_up(p: Array) -> Merged:
    return Merged(log_of_sums(p), np.ones_like(p))


def added_up_grown(p: Array) -> Merged:
    return Merged(log_of_sums(p), wrong.grown(p, 0))


def shares_reversed(p: Array) -> Merged:
    return Merged(log_of_sums(p), shares(p)[::-1])


WAYS: dict[str, tuple[NamedMerge, ...]] = {
    OTHER_BASE: (
        NamedMerge("base 2 is read as e", base_2_read_as_e),
        NamedMerge("base e is read as 2", base_e_read_as_2),
        NamedMerge("exp2 of natural ones is taken", exp2_of_natural),
        NamedMerge("exp of those in base 2 is taken", exp_of_base_2),
    ),
    AVERAGED: (
        NamedMerge("averaged", averaged),
        NamedMerge("averaged over the chunks that a row sees", averaged_of_seen),
        NamedMerge("added up", added_up),
        NamedMerge("added up, each times exp(L_c − max), and not divided", added_up_grown),
        NamedMerge("given the shares of one another", shares_reversed),
    ),
    NOT_RESCALED: (NamedMerge("the outputs before the last chunk are", first_not_rescaled),),
    NOTHING_AS_NAN: tuple(
        NamedMerge("", lost(rows)) for rows in (no_chunk, not_every_chunk, not_first_chunk)
    ),
    NO_MAXIMUM: tuple(
        NamedMerge("", partial(bare, dtype=dtype, nothing=nothing))
        for dtype in ("float64", "float32", "float16")
        for nothing in (np.nan, 0.0)
    ),
}
"""Merges by the log-sum-exp of chunks alone that are wrong, by mistake, each with what is done."""

of_merging = about(*OF_MERGE, subject="merge", meant="chunks")
of_sums = about(*OF_SUMS, meant="summed")
of_sink = about(*OF_MERGE, subject="sink", meant="chunks sink")

CHUNKS = (
    about(CHUNK_LOGSUMEXP, *OF_MERGE, subject="merge", meant="chunks")(
        OTHER_BASE,
        "chunks are merged in another base than their log-sum-exp has: {}",
        "use one base in both: exp(L_c − L) of natural ones, exp2(L_c − L) of those in base 2",
        base_2_as_e,
        why="Kernels count in base 2, where exp is quicker, and the merge of another library reads base e.",
        example="grown = np.exp2(chunk_logsumexp - chunk_logsumexp.max(axis=0))\n"
        "chunk_shares = grown / grown.sum(axis=0)",
    ),
    of_merging(
        AVERAGED,
        "the outputs of the chunks are {}",
        "give each the share exp(L_c − L) of its log-sum-exp",
        merged(*WAYS[AVERAGED]),
        why="Each output is a mean of values, and so, it seems, is the mean of them.",
        example="head_outputs = chunk_outputs.mean(axis=0)",
    ),
    of_merging(
        NOT_RESCALED,
        "{} added up over chunks that took off maxima of their own",
        "multiply what a chunk gave by exp(its maximum − that of all), or give it the share exp(L_c − L)",
        not_rescaled,
        why="Each chunk is right by itself, and one maximum is often that of all.",
        example="halves = np.array_split(scaled_scores, 2, axis=-1)\n"
        "sums = np.stack([np.exp(s - s.max(axis=-1, keepdims=True)).sum(axis=-1) for s in halves])\n"
        "chunk_shares = sums / sums.sum(axis=0)",
    ),
    about(*OF_SUMS, CHUNK_OUTPUTS, CHUNK_SHARES, HEAD_OUTPUTS, meant="blind chunks")(
        NOTHING_AS_NAN,
        "−∞ − (−∞) is NaN where a row sees nothing of a chunk",
        "take 0 off where the maximum, or L, is −∞: such a chunk has no share",
        nothing_as_nan,
        why="A chunk beyond the causal edge sees nothing, and tests of one chunk have none.",
        example="chunks = zip(np.array_split(masked_scores, 2, axis=-1), np.array_split(V, 2, axis=-2))\n"
        "grown = [(np.exp(s - s.max(axis=-1, keepdims=True)), v) for s, v in chunks]\n"
        "chunk_outputs = np.stack([e / e.sum(axis=-1, keepdims=True) @ v for e, v in grown])",
    ),
    of_merging(
        NO_MAXIMUM,
        "exp of a log-sum-exp overflows, or comes to nothing, as the largest is not taken off",
        "take exp(L_c − max) of the chunks, divided by its sum, and L = max + ln Σ exp(L_c − max)",
        merged(*WAYS[NO_MAXIMUM]),
        why="exp(L_c) is the sum of a chunk, and for small scores nothing happens to it.",
        meant="large chunks",
        example="e = np.exp(chunk_logsumexp)\nchunk_shares = e / e.sum(axis=0)",
    ),
    of_sink(
        "chunks-sink-missing",
        "the sink takes no share, so that those of the chunks sum to 1",
        "divide by exp(L) + exp(sink)",
        merged(NamedMerge("", merge_without_sink), sink=True),
        why="The merge knows what chunks wrote down, and none of them has seen the sink.",
        example="chunk_shares = np.exp(chunk_logsumexp - logsumexp)",
    ),
    of_sink(
        "chunks-sink-in-each",
        "the sink is counted in each chunk, not once",
        "add exp(sink) to the sum of all chunks once",
        merged(NamedMerge("", sink_in_each), NamedMerge("", partial(sink_in_each, more=1)), sink=True),
        seen="ROCm/rocm-libraries#12227",
        why="Every chunk runs the kernel of the whole, and that has the sink.",
        example="e = np.exp(chunk_logsumexp)\nchunk_shares = e / (e + np.exp(sink)[:, None]).sum(axis=0)",
    ),
    of_sums(
        "logsumexp-base-2",
        "the log-sum-exp is in base 2",
        "multiply it by ln 2, or say --lse-base 2 where it is meant so",
        in_base_2,
        why="Kernels count in base 2, where exp is quicker, and write down what they have.",
        example="logsumexp = logsumexp / np.log(2)",
    ),
    of_sums(
        "logsumexp-without-maximum",
        "the maximum of each row, taken off before exp, is not put back",
        "add it: max + ln Σ exp(scores − max)",
        without_maximum,
        why="Softmax does not need the maximum back, and its code was the beginning.",
        example="logsumexp = logsumexp - scaled_scores.max(axis=-1)",
    ),
    about(*OF_SUMS, CHUNK_OUTPUTS, subject="sink", meant="summed sink")(
        "sink-in-logsumexp",
        "the sink is counted in the log-sum-exp {}",
        "leave it out of L, which is over keys, and count it once: exp(L_c) / (exp(L) + exp(sink))",
        sink_in_sums,
        why="Softmax with a sink has one sum, and what is handed on is its logarithm.",
        example="logsumexp = np.logaddexp(logsumexp, sink[:, None])",
        equivalent="a convention: the sum may count the sink",
    ),
    of_sums(
        "logsumexp-empty-rows",
        "the log-sum-exp of what sees nothing is {}, not −∞",
        "write −∞, which gives no share, or say --lse-empty {} where it is meant so",
        empty_rows,
        why="−∞ looks like an accident, and buffers begin with zeros.",
        example="logsumexp = np.where(np.isneginf(logsumexp), 0, logsumexp)",
        meant="blind summed",
        equivalent="a convention",
    ),
)
