"""Mistakes of kernels: documents in one row, keys in pages, keys block by block, too few digits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import log
from operator import methodcaller

import numpy as np

from attnctl.base.namedtuple import NamedTuple
from attnctl.evidence.allowed import root_mean_square
from attnctl.evidence.blocks import stretch
from attnctl.evidence.precision import BFLOAT16, FLOAT16, FLOAT32, Precision
from attnctl.evidence.precision import round_to as nearest
from attnctl.evidence.recompute import (
    FEWEST,
    Rounding,
    keep_digits,
    on_its_grid,
    recompute,
    same_errors,
    where_finite,
)
from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.math.names import HEAD_OUTPUTS, MASKED, WEIGHTS
from attnctl.math.ops import Hide, MatMul, Op, Rotate, Sinusoid, Softmax
from attnctl.math.ops.pages import Gather
from attnctl.math.rules import Documents, Padding
from attnctl.mistakes import wrong
from attnctl.mistakes.masks import near_misses
from attnctl.mistakes.mistake import Plant, Plants, WrongStep, about
from attnctl.mistakes.plants import (
    at,
    blocks_of_keys,
    find_mask,
    rules_of_kind,
    shifts,
    square,
    swap_rule,
)

# --- documents in one row of tokens, keys and values in pages ---

PLACED = ("positions", "Q_rotated", "K_rotated")


def plant_last_dropped(case: WrongStep) -> Iterator[Plant]:
    """By the mask; or of the weights, where what rows that see nothing hold could be anything."""
    yield from near_misses("documents-last-dropped")(case)

    hide = find_mask(case)
    if hide is None or not isinstance(case.op(WEIGHTS), Softmax):
        return
    for rule in rules_of_kind(case, Documents):
        last = max(rule.borders)

        def without_last(weights: Array, hide: Hide = hide, last: int = last) -> Array:
            queries, _ = hide.positions(weights.shape)
            return weights * (queries < last)

        yield Plant(case.then(WEIGHTS, wrong.By(without_last)), "the last document is left out")


PAGED = at("K", "V", Gather)


def tables(ways: Mapping[str, Callable[[Array], Array]]) -> Plants:
    """Plants what is read by another table, as it is made of the right one."""

    def gathers(gather: Gather) -> dict[str, Op]:
        ops: dict[str, Op] = {}
        for detail, change in ways.items():
            changed = change(np.array(gather.table))
            table = tuple(map(tuple, changed.tolist()))
            ops[detail] = replace(gather, table=table)
        return ops

    return PAGED.instead(gathers)


def plant_read_in_full(case: WrongStep) -> Iterator[Plant]:
    """Slots behind the last key are seen, and what is in them; or not seen, and 0 times NaN is NaN."""
    gathers = PAGED.right(case)
    keys = case.size("key") or 0
    if not gathers:
        return

    one = next(iter(gathers.values()))  # keys and values have one table
    lengths = np.array(one.lengths)
    slots = keys // len(one.table[0])
    pages = -(-lengths // slots)  # rounded up
    ways = {
        "the last page is read to its last slot": pages * slots,
        "all pages of the table are read to their last slots": np.full_like(lengths, keys),
    }

    for rule in rules_of_kind(case, Padding):
        for what, full in ways.items():
            there = tuple(full.tolist()) if one.batched else int(full)
            read = {name: replace(gather, lengths=there) for name, gather in gathers.items()}
            seen = swap_rule(case, rule, Padding(there))
            yield Plant(seen.put_all(read), what)
            yield Plant(case.put_all(read), "weights of 0 are multiplied by what free slots hold")


def next_pages(table: Array) -> Array:
    return np.roll(table, -1, axis=1)


def pages_before(table: Array) -> Array:
    return np.roll(table, 1, axis=1)


def next_sequence(table: Array) -> Array:
    return np.roll(table, -1, axis=0)


def sequence_before(table: Array) -> Array:
    return np.roll(table, 1, axis=0)


def first_sequence(table: Array) -> Array:
    return np.broadcast_to(table[:1], table.shape)


def without_documents(op: Rotate | Sinusoid) -> Op:
    return replace(op, documents=())


of_documents = about(MASKED, subject="documents", meant="documents")

of_pages = about("K", "V", subject="pages", meant="paged")

SERVING = (
    of_documents(
        "documents-leak",
        "a query sees {}",
        "hide keys of other documents: document[:, None] == document",
        near_misses("documents-leak"),
        why="Texts are packed into one row, and the mask is causal alone, as for one text.",
        seen="huggingface/transformers#25452",
        example="masked_scores = scaled_scores",
    ),
    of_documents(
        "documents-counts",
        "the numbers of tokens of documents are taken for where they begin",
        "take sums: cu_seqlens = [0, *np.cumsum(lengths)]",
        near_misses("documents-counts"),
        why="cu_seqlens and seqlens are both a few whole numbers, and both are called lengths.",
        example="document = (np.arange(n)[:, None] >= np.diff([*starts, n])).sum(axis=1)\n"
        "masked_scores = np.where(document[:, None] == document, scaled_scores, -np.inf)",
    ),
    of_documents(
        "documents-last-dropped",
        "{}",
        "end the last document at the last token: cu_seqlens has one number more than there are documents",
        plant_last_dropped,
        why="A loop over pairs of starts ends where the last document begins.",
        example="seen = np.zeros((n, n), bool)\n"
        "for first, end in zip(starts, starts[1:]):\n"
        "    seen[first:end, first:end] = True\n"
        "masked_scores = np.where(seen, scaled_scores, -np.inf)",
    ),
    about(*PLACED, meant="documents sinusoidal")(
        "documents-positions",
        "positions run on from one document to the next",
        "count positions from 0 in each document, or say --positions-run-on if that is meant",
        at(*PLACED, Rotate, Sinusoid).instead(without_documents),
        why="position_ids are np.arange(total), as for one text.",
        example="i, column = np.indices((n, d_model))\n"
        "angle = i / 10000 ** (column // 2 * 2 / d_model)\n"
        "positions = np.where(column % 2, np.cos(angle), np.sin(angle))",
    ),
    about(MASKED, subject="padding", meant="paged")(
        "page-read-in-full",
        "{}",
        "hide slots from each sequence's length on, and make 0 of values there: 0 times NaN is NaN",
        plant_read_in_full,
        why="Whole pages are loaded, and the lengths are rounded up with them; fresh pages hold zeros.",
        seen="vllm-project/vllm#936; pegainfer-project/pegainfer#291",
        example="full = -(-lengths // slots) * slots\n"
        "K = gather(key_pages, page_table, full)\nV = gather(value_pages, page_table, full)\n"
        "seen = np.arange(keys) < full[:, None, None, None]\n"
        "masked_scores = np.where(seen, scaled_scores, -np.inf)",
    ),
    of_pages(
        "page-table-shifted",
        "the pages that are read are {}",
        "read key j in page table[j // slots], counted from 0, at slot j % slots",
        tables(
            {
                "counted from 1": lambda table: table - 1,
                "one too large": lambda table: table + 1,
                "those behind them in the table": next_pages,
                "those before them in the table": pages_before,
            }
        ),
        why="Page 0 is often kept for padding, and whoever fills the table counts from 1.",
        example="table = page_table - 1\n"
        "K = gather(key_pages, table, lengths)\nV = gather(value_pages, table, lengths)",
    ),
    of_pages(
        "page-of-another",
        "the pages that are read are those of {}",
        "take the row of the table of the query's own sequence, and no page behind its length",
        tables(
            {
                "the next sequence": next_sequence,
                "the sequence before it": sequence_before,
                "the first sequence": first_sequence,
            }
        ),
        why="The batch is sorted or cut, and the table is not; or the row is counted in another stride.",
        seen="gittensor-ai-lab/sparkinfer#41, #185",
        example="table = np.roll(page_table, -1, axis=0)\n"
        "K = gather(key_pages, table, lengths)\nV = gather(value_pages, table, lengths)",
    ),
    of_pages(
        "page-index-16-bits",
        "numbers of pages are kept in {}, and wrap where there are more",
        "keep numbers of pages in 32 bits, and multiply them by sizes in 64",
        tables({kind: methodcaller("astype", kind) for kind in ("uint16", "int16")}),
        why="A few bytes less for each page; tests have few pages. Offsets in 32 bits wrap, too, later.",
        seen="vllm-project/vllm#50427",
        meant="paged far",
        example="table = page_table.astype(np.uint16)\n"
        "K = gather(key_pages, table, lengths)\nV = gather(value_pages, table, lengths)",
        equivalent="it takes a cache of more than 65,535 pages",
    ),
)


# --- keys block by block ---


class Powers(NamedTuple):
    """Powers of exp(old − new maximum) by which output and sum shrink; None where they are overwritten."""

    output: float | None
    sum: float | None


FORMS: dict[str, Powers] = {
    "the output is not rescaled": Powers(0, 1),
    "the sum is not rescaled": Powers(1, 0),
    "neither output nor sum is rescaled": Powers(0, 0),
    "output and sum are rescaled by exp(new − old)": Powers(-1, -1),
    "output and sum are rescaled by a power of 2": Powers(log(2), log(2)),
    "the sum is overwritten": Powers(1, None),
    "the output is overwritten": Powers(None, 1),
}
"""What happens to output and sum when the running maximum grows: the powers of `wrong.online`."""

MIX = at(HEAD_OUTPUTS, MatMul)
SOFTMAX = at(WEIGHTS, Softmax)


class BlockForm(NamedTuple):
    """How a softmax over blocks of so many keys goes wrong."""

    form: str
    block: int


def block_forms(case: WrongStep) -> list[BlockForm]:
    return [BlockForm(form, block) for form in FORMS for block in blocks_of_keys(case)]


def summed_by_blocks(_: Softmax, way: BlockForm) -> wrong.By:
    powers = FORMS[way.form]
    return wrong.By(lambda s: wrong.online(s, way.block, powers.output, powers.sum))


def say_block_form(way: BlockForm) -> str:
    return f"{way.form} (blocks of {way.block}) when the running maximum grows"


def averaged_by_blocks(_: Softmax, block: int) -> wrong.By:
    return wrong.By(lambda s: wrong.averaged_blocks(s, block))


def say_averaged(block: int) -> str:
    return f"the outputs of the blocks (of {block}) are averaged, whatever each of them sums to"


def say_shift(by: int) -> str:
    places = "places" if abs(by) > 1 else "place"
    side = "before" if by > 0 else "after"
    return f"{abs(by)} {places} {side}"


def count_twice(_: Softmax, count: int) -> wrong.By:
    """Softmax with the last keys twice in the sum: exp(s + ln 2) is 2 exp(s)."""

    def softmax(s: Array) -> Array:
        from_the_end = np.arange(s.shape[-1], 0, -1)
        is_twice = from_the_end <= count
        return wrong.softmax(s + log(2) * is_twice)

    return wrong.By(softmax)


MOST_TWICE = 256
"""Keys that are tried as those that are counted twice are fewer than these."""


def counts_of_last(case: WrongStep) -> range:
    keys = case.size("key") or 0
    return range(1, min(keys, MOST_TWICE))


def plant_without_rows(case: WrongStep) -> Iterator[Plant]:
    queries = case.size("query") or 0
    axes = case.derivation[case.first].axes
    if not MIX.right(case) or axes[-2] != "query":
        return

    if case.like:  # as many as were left out in another case
        start = queries - int(case.like.detail)
    elif case.differs.any():
        rows = np.argwhere(case.differs)[:, -2]
        start = int(rows.min())
    else:
        return

    start = max(start, 0)
    kept = (np.arange(queries) < start)[:, None]
    yield Plant(case.then(HEAD_OUTPUTS, wrong.By(lambda z: z * kept)), f"{queries - start}")


def plant_other_values(case: WrongStep) -> Iterator[Plant]:
    if "scores" not in case.derivation:
        return

    for op in MIX.right(case).values():
        weights, _ = case.derivation[HEAD_OUTPUTS].inputs
        queries, keys = (case.source(name) for name in case.derivation["scores"].inputs)
        for name in dict.fromkeys([keys, queries, "K", "Q"]):
            if name in case.derivation:
                yield Plant(case.put(HEAD_OUTPUTS, op, (weights, name)), name)


def zeros(weights: Array, values: Array) -> Array:
    """Zeros of the shape that weights @ values has."""
    return np.zeros((*weights.shape[:-1], values.shape[-1]))


def mixes_shifted(op: MatMul, by: int) -> wrong.Arranged:
    """Each weight times the value so many places before that of its key."""
    rolled = partial(np.roll, shift=by, axis=-2)
    return wrong.Arranged(op, (wrong.keep_positions, rolled))


def shifts_of_values(case: WrongStep) -> list[int]:
    """Half of the keys at most: what is moved by more is moved by less the other way round."""
    keys = case.size("key") or 0
    return shifts(keys // 2)


of_outputs = about(HEAD_OUTPUTS)
of_softmax = about(WEIGHTS, fitted=True, subject="softmax")

KERNELS = (
    of_outputs(
        "weights-applied-to-wrong",
        "the weights are applied to {} rather than V",
        "take weights @ V",
        plant_other_values,
        why="K and V have one shape, and stand beside each other in every call.",
        example="head_outputs = attention_weights @ K",
    ),
    of_outputs(
        "weights-transposed",
        "the weights are transposed before they are applied to V",
        "take weights @ V: each row is one query's",
        MIX.where(square).instead(wrong.MixTransposed),
        across=True,
        why="einsum with its indices exchanged fits wherever there are as many queries as keys.",
        example="head_outputs = attention_weights.swapaxes(-1, -2) @ V",
    ),
    of_outputs(
        "zeros",
        "nothing is written, so that the output is all zeros",
        "write every row of the output",
        MIX.by(zeros),
        why="The grid is empty, or a copy of the buffer is written to; small outputs pass for it.",
        seen="ScalingIntelligence/KernelBench#165",
        example="head_outputs = np.zeros_like(head_outputs)",
    ),
    of_softmax(
        "online-not-rescaled",
        "{}",
        "multiply both by exp(old maximum − new maximum) before a block is added",
        SOFTMAX.best(summed_by_blocks, block_forms, say_block_form),
        SOFTMAX.best(averaged_by_blocks, blocks_of_keys, say_averaged),
        why="When a later block has a larger maximum, what was summed before must shrink with it.",
        meant="loud",
        example="ends = np.minimum(np.arange(keys) // 4 * 4 + 3, keys - 1)\n"
        "e = np.exp(scaled_scores - np.maximum.accumulate(scaled_scores, axis=-1)[..., ends])\n"
        "attention_weights = e / e.sum(axis=-1, keepdims=True)",
    ),
    of_softmax(
        "keys-twice",
        "the last {} keys are counted twice",
        "let the last block begin where the one before ends, and hide what is past the last key",
        SOFTMAX.best(count_twice, counts_of_last),
        why="The last block is moved back so that it fits, and overlaps the one before.",
        example="e = np.exp(scaled_scores)\n"
        "e[..., -2:] *= 2\n"
        "attention_weights = e / e.sum(axis=-1, keepdims=True)",
    ),
    of_outputs(
        "queries-dropped",
        "the last {} queries are left at 0",
        "round the number of blocks of queries up",
        plant_without_rows,
        fitted=True,
        across=True,
        why="The grid has n // block blocks: the rest is never written.",
        example="head_outputs[..., -2:, :] = 0",
    ),
    of_outputs(
        "values-shifted",
        "each weight is applied to the value {} its key",
        "take keys and values of the same block",
        MIX.best(mixes_shifted, shifts_of_values, say_shift),
        fitted=True,
        why="Keys and values are loaded with different offsets.",
        example="head_outputs = attention_weights @ np.roll(V, 1, axis=-2)",
    ),
)


# --- too few digits ---


def plant_fewer_digits(case: WrongStep) -> Iterator[Plant]:
    most_bits = case.record.precision(case.first).bits
    fewer = [precision for precision in (FLOAT32, FLOAT16, BFLOAT16) if precision.bits < most_bits]
    if not fewer:
        return

    steps = stretch(case.derivation, case.record, case.first)
    plain: dict[str, Array] = {}  # steps before the first that is rounded
    every = {step.name for step in steps}
    one_each = [{step.name} for step in steps]
    groups = [every, *one_each] if len(steps) > 1 else [every]

    coarsest = (simulate_precision(case, steps, every, each, plain, inputs_too=True) for each in fewer[-2:])
    if is_beyond_rounding(case, coarsest):
        return

    for precision in fewer:
        for names in groups:
            with_inputs = simulate_precision(case, steps, names, precision, plain, inputs_too=True)
            results_alone = simulate_precision(case, steps, names, precision, plain, inputs_too=False)
            if is_shown(case, with_inputs, precision) or is_shown(case, results_alone, precision):
                coarse = partial(wrong.Coarse, unit=precision.unit, largest=precision.largest)
                ops = {name: coarse(case.derivation[name].op) for name in names}
                yield Plant(case.put_all(ops), precision.name)


def simulate_precision(
    case: WrongStep,
    steps: list[Step],
    names: set[str],
    precision: Precision,
    plain: dict[str, Array],
    *,
    inputs_too: bool,
) -> Array | None:
    """The step that disagrees, results of these steps rounded, and what they read."""

    def rounding_of(step: Step, *read: int) -> Rounding:
        rounds = step.name in names and (inputs_too or not read)
        return (lambda x: nearest(x, precision)) if rounds else keep_digits

    return recompute(case.record, steps, rounding_of, rounding_of, plain)


FAR_BEYOND = 8.0
"""The multiple of what it does to round all steps that numbers are off which no few digits explain."""


def is_beyond_rounding(case: WrongStep, coarsest: Iterable[Array | None]) -> bool:
    """True where half of the numbers, and all of them together, are off by far more than any of these."""
    most = 0.0
    for value in coarsest:
        if value is None or value.shape != case.found.shape:
            return False
        right, simulated = where_finite(case.expected.value, value)
        most = max(most, root_mean_square(simulated - right))

    found, right = where_finite(case.found, case.expected.value)
    if found.size < FEWEST:
        return False
    off = found - right
    half = np.median(np.abs(off))
    together = np.std(off)
    return bool(min(half, together) > FAR_BEYOND * most)


def is_shown(case: WrongStep, value: Array | None, precision: Precision) -> bool:
    if value is None:
        return False
    found = case.found
    right = case.expected.value
    least = case.record.precision(case.first).smallest
    return same_errors(found, right, value, least) or on_its_grid(found, right, value, precision)


NUMBERS = (
    about("Q", "K", "V", "scores", "attention_weights", "head_outputs", "output", exact=False)(
        "low-precision",
        "it is computed in {}",
        "compute it in the type of the other steps, and round at the end",
        plant_fewer_digits,
        why="An autocast region, or a kernel that multiplies in TF32 or half precision.",
        example="scores = (np.float16(Q) @ np.float16(K).swapaxes(-1, -2)).astype(float)",
    ),
)
