"""Mistakes with what serving kernels take: documents in one row of tokens, keys and values in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import methodcaller

import numpy as np

from attnctl.math import Array
from attnctl.math.names import MASKED, WEIGHTS
from attnctl.math.ops import Rotate, Sinusoid, Softmax
from attnctl.math.ops.pages import Gather
from attnctl.math.rules import Documents, Padding
from attnctl.mistakes import wrong
from attnctl.mistakes.masks import near_misses
from attnctl.mistakes.mistake import Mistake, Plant, Plants, WrongStep, about
from attnctl.mistakes.plants import at, find_mask, rules_of_kind, swap_rule

PLACED = ("positions", "Q_rotated", "K_rotated")


def plant_last_dropped(case: WrongStep) -> Iterator[Plant]:
    """By the mask; or of the weights, where what rows that see nothing hold could be anything."""
    yield from near_misses("documents-last-dropped")(case)
    for rule in rules_of_kind(case, Documents):
        hide, last = find_mask(case), max(rule.borders)
        if hide and isinstance(case.op(WEIGHTS), Softmax):
            seen = wrong.By(lambda a, hide=hide, last=last: a * (hide.positions(a.shape)[0] < last))
            yield Plant(case.then(WEIGHTS, seen), "the last document is left out")


PAGED = at("K", "V", Gather)


def tables(ways: Mapping[str, Callable[[Array], Array]]) -> Plants:
    """Plants what is read by another table, as it is made of the right one."""
    return PAGED.instead(
        lambda gather: {
            detail: replace(gather, table=tuple(map(tuple, change(np.array(gather.table)).tolist())))
            for detail, change in ways.items()
        }
    )


SHIFTED = tables(
    {
        "counted from 1": lambda table: table - 1,
        "one too large": lambda table: table + 1,
        "those behind them in the table": lambda table: np.roll(table, -1, axis=1),
        "those before them in the table": lambda table: np.roll(table, 1, axis=1),
    }
)

OF_ANOTHER = tables(
    {
        "the next sequence": lambda table: np.roll(table, -1, axis=0),
        "the sequence before it": lambda table: np.roll(table, 1, axis=0),
        "the first sequence": lambda table: np.broadcast_to(table[:1], table.shape),
    }
)

IN_16_BITS = tables({kind: methodcaller("astype", kind) for kind in ("uint16", "int16")})


def plant_read_in_full(case: WrongStep) -> Iterator[Plant]:
    """Slots behind the last key are seen, and what is in them; or not seen, and 0 times NaN is NaN."""
    gathers, keys = PAGED.right(case), case.size("key") or 0
    for rule in rules_of_kind(case, Padding) if gathers else ():
        own = next(iter(gathers.values()))
        lengths, slots = np.array(own.lengths), keys // len(own.table[0])
        for what, full in (
            ("the last page is read to its last slot", -(-lengths // slots) * slots),
            ("all pages of the table are read to their last slots", lengths * 0 + keys),
        ):
            there = tuple(full.tolist()) if own.batched else int(full)
            read = {name: replace(gather, lengths=there) for name, gather in gathers.items()}
            yield Plant(swap_rule(case, rule, Padding(there)).put_all(read), what)
            yield Plant(case.put_all(read), "weights of 0 are multiplied by what free slots hold")


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
    Mistake(
        "documents-positions",
        PLACED,
        "positions run on from one document to the next",
        "count positions from 0 in each document, or say --positions-run-on if that is meant",
        at(*PLACED, Rotate, Sinusoid).instead(lambda op: replace(op, documents=())),
        why="position_ids are np.arange(total), as for one text.",
        meant="documents sinusoidal",
        example="i, column = np.indices((n, d_model))\n"
        "angle = i / 10000 ** (column // 2 * 2 / d_model)\n"
        "positions = np.where(column % 2, np.cos(angle), np.sin(angle))",
    ),
    Mistake(
        "page-read-in-full",
        (MASKED,),
        "{}",
        "hide slots from each sequence's length on, and make 0 of values there: 0 times NaN is NaN",
        plant_read_in_full,
        subject="padding",
        meant="paged",
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
        SHIFTED,
        why="Page 0 is often kept for padding, and whoever fills the table counts from 1.",
        example="table = page_table - 1\n"
        "K = gather(key_pages, table, lengths)\nV = gather(value_pages, table, lengths)",
    ),
    of_pages(
        "page-of-another",
        "the pages that are read are those of {}",
        "take the row of the table of the query's own sequence, and no page behind its length",
        OF_ANOTHER,
        why="The batch is sorted or cut, and the table is not; or the row is counted in another stride.",
        seen="gittensor-ai-lab/sparkinfer#41, #185",
        example="table = np.roll(page_table, -1, axis=0)\n"
        "K = gather(key_pages, table, lengths)\nV = gather(value_pages, table, lengths)",
    ),
    of_pages(
        "page-index-16-bits",
        "numbers of pages are kept in {}, and wrap where there are more",
        "keep numbers of pages in 32 bits, and multiply them by sizes in 64",
        IN_16_BITS,
        why="A few bytes less for each page; tests have few pages. Offsets in 32 bits wrap, too, later.",
        seen="vllm-project/vllm#50427",
        meant="paged far",
        example="table = page_table.astype(np.uint16)\n"
        "K = gather(key_pages, table, lengths)\nV = gather(value_pages, table, lengths)",
        equivalent="it takes a cache of more than 65,535 pages",
    ),
)
