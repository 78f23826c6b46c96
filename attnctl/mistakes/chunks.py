"""Mistakes in the log-sum-exp, and in merging what chunks of keys gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from math import log

import numpy as np

from attnctl.math import Array
from attnctl.math.names import CHUNK_LOGSUMEXP, CHUNK_OUTPUTS, CHUNK_SHARES, HEAD_OUTPUTS, LOGSUMEXP, SINK
from attnctl.math.ops import ChunkLogSumExp, LogSumExp, Op
from attnctl.mistakes import wrong
from attnctl.mistakes.mistake import Plant, Plants, WrongStep, about

Merge = Callable[..., tuple[Array, Array]]
"""From the log-sum-exp of chunks, chunks first, to that of the whole and the share of each chunk."""

OF_SUMS = (CHUNK_LOGSUMEXP, LOGSUMEXP)
OF_MERGE = (LOGSUMEXP, CHUNK_SHARES, HEAD_OUTPUTS)
LN2 = log(2)


def with_merge(case: WrongStep, merge: Merge, *read: str) -> WrongStep:
    """The program that merges otherwise, by the log-sum-exp of chunks and what else it reads.

    What is recorded before the first wrong step is right, so that it is made beside that.
    """

    def sum_of_row(p: Array, *more: Array) -> Array:
        whole, _ = merge(np.moveaxis(p, -3, 0), *more)
        return whole

    def shares_of_chunks(p: Array, *more: Array) -> Array:
        _, of_chunks = merge(np.moveaxis(p, -3, 0), *more)
        return np.moveaxis(of_chunks, 0, -3)

    of_each = wrong.By(shares_of_chunks)
    inputs = (CHUNK_LOGSUMEXP, *read)
    if case.first not in {CHUNK_LOGSUMEXP, CHUNK_OUTPUTS, LOGSUMEXP, CHUNK_SHARES}:
        other = case.bare("other shares", of_each, inputs, CHUNK_SHARES)
        return case.through(HEAD_OUTPUTS, CHUNK_SHARES, other)
    ops: dict[str, Op] = {CHUNK_SHARES: of_each}
    if case.first != CHUNK_SHARES:
        ops[LOGSUMEXP] = wrong.By(sum_of_row)
    return case.put_all(ops, dict.fromkeys(ops, inputs))


def merged(*ways: tuple[str, Merge], sink: bool = False) -> Plants:
    """Plants other merges, each with what is done, where there is a sink, which they read, or none."""
    return lambda case: (
        Plant(with_merge(case, merge, *(SINK,) * sink), detail)
        for detail, merge in ways
        if has_chunks(case) and (SINK in case.derivation) is sink
    )


def has_chunks(case: WrongStep) -> bool:
    return isinstance(case.op(CHUNK_LOGSUMEXP), ChunkLogSumExp)


def scores_of(case: WrongStep) -> str:
    return case.derivation[CHUNK_LOGSUMEXP if has_chunks(case) else LOGSUMEXP].inputs[0]


def tops_of(case: WrongStep) -> Callable[[Array], Array]:
    """The largest score of each row of each chunk, chunks first."""
    op = case.op(CHUNK_LOGSUMEXP)
    assert isinstance(op, ChunkLogSumExp)
    return lambda s: np.stack([s[..., at].max(axis=-1, initial=-np.inf) for at in op.parts(s.shape[-1])])


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
    return np.where(np.isneginf(parts), 0.0, np.exp(parts - np.where(np.isneginf(top), 0.0, top)))


def add_sink(total: Array, *sink: Array) -> Array:
    """ln(exp(L) + exp(sink)), where there is a sink."""
    return np.logaddexp(total, sink[0][:, None]) if sink else total


# --- the log-sum-exp itself ---

BASE_2 = wrong.By(lambda total: np.asarray(total / LN2))


def in_base_2(case: WrongStep) -> Iterator[Plant]:
    """L / ln 2: of the row, or of chunks, which are merged as what they are."""
    if LOGSUMEXP in case.derivation:
        yield Plant(case.then(LOGSUMEXP, BASE_2))
    read = (SINK,) if SINK in case.derivation else ()
    for base in (LN2, 1.0) if has_chunks(case) else ():

        def merge(p: Array, *sink: Array, base: float = base) -> tuple[Array, Array]:
            total = log_of_sums(p * LN2)
            return total / base, grown(p * LN2, add_sink(total, *sink))

        yield Plant(with_merge(case, merge, *read).then(CHUNK_LOGSUMEXP, BASE_2))


def without_maximum(case: WrongStep) -> Iterator[Plant]:
    """ln Σ exp(s − max), and the maximum not put back: of the row, or of chunks, which are merged so."""
    if LOGSUMEXP in case.derivation:
        bare = wrong.By(lambda total, s: total - s.max(axis=-1))
        yield Plant(case.then(LOGSUMEXP, bare, scores_of(case)))
    if has_chunks(case):
        tops = tops_of(case)
        bare = wrong.By(lambda p, s: p - np.moveaxis(tops(s), 0, -3))
        yield Plant(case.then(CHUNK_LOGSUMEXP, bare, scores_of(case)))


def empty_rows(case: WrongStep) -> Iterator[Plant]:
    """0 or ∞ where nothing is seen; of chunks, merged as −∞."""
    for number in (0.0, np.inf):
        filled = wrong.By(lambda x, number=number: np.asarray(np.where(np.isneginf(x), number, x)))
        if LOGSUMEXP in case.derivation:
            yield Plant(case.then(LOGSUMEXP, filled), f"{number:g}")
        if has_chunks(case):

            def right(p: Array, number: float = number) -> tuple[Array, Array]:
                parts = np.where(p == number, -np.inf, p)
                return log_of_sums(parts), shares(parts)

            again = with_merge(case, right).then(CHUNK_LOGSUMEXP, filled)
            yield Plant(again, f"{number:g}")
            yield Plant(again.then(LOGSUMEXP, filled), f"{number:g}")


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
        return np.asarray(z * grown(parts, add_sink(parts, sink))[..., None])

    for merge in (
        lambda p, _: (log_of_sums(p), shares(p)),
        lambda p, sink: (log_of_sums(p), grown(p, add_sink(log_of_sums(p), sink))),
    ):
        again = with_merge(case, merge, SINK).then(CHUNK_LOGSUMEXP, wrong.By(add_sink), SINK)
        yield Plant(again, "of each chunk")
        yield Plant(again.then(CHUNK_OUTPUTS, wrong.By(scaled), scores_of(case), SINK), "of each chunk")


# --- the merge ---


def base_2_as_e(case: WrongStep) -> Iterator[Plant]:
    if has_chunks(case):
        yield Plant(case.then(CHUNK_LOGSUMEXP, BASE_2), "base 2 is read as e")
    yield from merged(*WAYS[OTHER_BASE])(case)


def not_rescaled(case: WrongStep) -> Iterator[Plant]:
    """Sums of chunks under maxima of their own, or under the running one, added up as they are."""
    if not has_chunks(case) or SINK in case.derivation:
        return
    tops = tops_of(case)
    ways = {"outputs and sums are": (True, True), "outputs are": (True, False), "sums are": (False, True)}
    for (detail, (output, total)), running in product(ways.items(), (False, True)):

        def merge(
            p: Array, s: Array, output: bool = output, total: bool = total, running: bool = running
        ) -> tuple[Array, Array]:
            own = tops(s)
            last = own.max(axis=0)
            kept = np.maximum.accumulate(own, axis=0) if running else own
            sums = grown(p, kept if total else last).sum(axis=0)
            outputs = grown(p, kept if output else last)
            return last + np.log(sums), outputs / np.where(sums == 0, 1, sums)

        yield Plant(with_merge(case, merge, scores_of(case)), detail)
    yield from merged(*WAYS[NOT_RESCALED])(case)


def sink_in_each(p: Array, sink: Array, more: int = 0) -> tuple[Array, Array]:
    """As many sinks as there are chunks, or more."""
    return log_of_sums(p), grown(p, add_sink(log_of_sums(p), sink + log(len(p) + more)))


def nothing_as_nan(case: WrongStep) -> Iterator[Plant]:
    """NaN for what sees nothing of its chunk; or for rows that see nothing of all, any or the first."""
    if not has_chunks(case):
        return
    yield from (Plant(spoiled(case, name, lambda none: none)) for name in (CHUNK_LOGSUMEXP, CHUNK_OUTPUTS))
    for rows in (lambda x: x.all(axis=-3), lambda x: x.any(axis=-3), lambda x: x[..., 0, :, :]):
        yield from (Plant(spoiled(case, name, rows)) for name in OF_MERGE)
        yield Plant(spoiled(spoiled(case, LOGSUMEXP, rows), CHUNK_SHARES, rows))


def spoiled(case: WrongStep, name: str, rows: Callable[[Array], Array]) -> WrongStep:
    """The program in which some rows of a step are NaN, by which chunks they see nothing of."""
    sums = case.derivation[CHUNK_LOGSUMEXP].op
    by_chunk = name in {CHUNK_OUTPUTS, CHUNK_SHARES}
    by_column = name in {CHUNK_OUTPUTS, HEAD_OUTPUTS}

    def apply(x: Array, s: Array) -> Array:
        lost = rows(np.isneginf(sums.apply(s)))
        lost = lost[..., None, :, :] if by_chunk and lost.ndim < s.ndim else lost
        return np.where(lost[..., None] if by_column else lost, np.nan, x)

    return case.then(name, wrong.By(apply), scores_of(case))


def lost(rows: Callable[[Array], Array]) -> Merge:
    def merge(p: Array) -> tuple[Array, Array]:
        nan = rows(np.isneginf(p))
        return np.where(nan, np.nan, log_of_sums(p)), np.where(nan, np.nan, shares(p))

    return merge


def bare(p: Array, dtype: str, nothing: float) -> tuple[Array, Array]:
    """exp(L_c) / Σ exp(L_c): what is large overflows its type, what is small comes to 0 / 0, or nothing."""
    e = np.exp(p.astype(dtype)).astype(p.dtype)
    total = e.sum(axis=0)
    return np.log(total), np.where(total == 0, nothing, e / total)


def first_not_rescaled(p: Array) -> tuple[Array, Array]:
    """Every chunk but the last as it is, the sum under the maximum of all."""
    e = wrong.grown(p, axis=0)
    sums = np.maximum(e.sum(axis=0), 1)
    e[:-1] = ~np.isneginf(p[:-1])
    return log_of_sums(p), e / sums


OTHER_BASE = "chunks-merged-in-other-base"
AVERAGED = "chunks-averaged"
NOT_RESCALED = "chunks-not-rescaled"
NOTHING_AS_NAN = "chunks-nan-where-nothing-is-seen"
NO_MAXIMUM = "merge-without-maximum"

WAYS: dict[str, tuple[tuple[str, Merge], ...]] = {
    OTHER_BASE: (
        ("base 2 is read as e", lambda p: (log_of_sums(p / LN2), shares(p / LN2))),
        ("base e is read as 2", lambda p: (log_of_sums(p * LN2) / LN2, shares(p * LN2))),
        ("exp2 of natural ones is taken", lambda p: (log_of_sums(p), grown(p * LN2, log_of_sums(p) * LN2))),
        (
            "exp of those in base 2 is taken",
            lambda p: (log_of_sums(p), grown(p / LN2, log_of_sums(p) / LN2)),
        ),
    ),
    AVERAGED: (
        ("averaged", lambda p: (log_of_sums(p), np.full_like(p, 1 / len(p)))),
        ("averaged over the chunks that a row sees", lambda p: (log_of_sums(p), seen(p))),
        ("added up", lambda p: (log_of_sums(p), np.ones_like(p))),
        (
            "added up, each times exp(L_c − max), and not divided",
            lambda p: (log_of_sums(p), wrong.grown(p, 0)),
        ),
        ("given the shares of one another", lambda p: (log_of_sums(p), shares(p)[::-1])),
    ),
    NOT_RESCALED: (("the outputs before the last chunk are", first_not_rescaled),),
    NOTHING_AS_NAN: tuple(
        ("", lost(rows))
        for rows in (lambda none: none.all(axis=0), lambda none: none.any(axis=0), lambda none: none[0])
    ),
    NO_MAXIMUM: tuple(
        ("", partial(bare, dtype=dtype, nothing=nothing))
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
        merged(("", lambda p, _: (log_of_sums(p), shares(p))), sink=True),
        why="The merge knows what chunks wrote down, and none of them has seen the sink.",
        example="chunk_shares = np.exp(chunk_logsumexp - logsumexp)",
    ),
    of_sink(
        "chunks-sink-in-each",
        "the sink is counted in each chunk, not once",
        "add exp(sink) to the sum of all chunks once",
        merged(("", sink_in_each), ("", partial(sink_in_each, more=1)), sink=True),
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
