"""Mistakes with what serving kernels take: documents in one row of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnctl.math.names import MASKED, WEIGHTS
from attnctl.math.ops import Rotate, Sinusoid, Softmax
from attnctl.math.rules import Documents
from attnctl.mistakes import wrong
from attnctl.mistakes.masks import near_misses
from attnctl.mistakes.mistake import Mistake, Plant, WrongStep, about
from attnctl.mistakes.plants import at, find_mask, rules_of_kind

PLACED = ("positions", "Q_rotated", "K_rotated")


def plant_last_dropped(case: WrongStep) -> Iterator[Plant]:
    """By the mask; or of the weights, where what rows that see nothing hold could be anything."""
    yield from near_misses("documents-last-dropped")(case)
    for rule in rules_of_kind(case, Documents):
        hide, last = find_mask(case), max(rule.borders)
        if hide and isinstance(case.op(WEIGHTS), Softmax):
            seen = wrong.By(lambda a, hide=hide, last=last: a * (hide.positions(a.shape)[0] < last))
            yield Plant(case.then(WEIGHTS, seen), "the last document is left out")


of_documents = about(MASKED, subject="documents", meant="documents")

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
)
