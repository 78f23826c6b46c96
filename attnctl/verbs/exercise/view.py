"""Grades as a table, as CSV for a gradebook, and as data for JSON."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import IO, Any

from attnctl.base.words import plural
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.screen import Screen, Span
from attnctl.drawing.screen.text import fold_text, visible
from attnctl.math.names import TABLE
from attnctl.verbs.exercise.grade import BLANK, BY_ITSELF, RIGHT, UNTOLD, HandIn, Mark

SIGNS = {RIGHT: "right", BLANK: "–", UNTOLD: "?"}
"""What stands in a cell of the table; anything else is wrong."""

ADVICE = (
    "A sheet that vouches for itself is not held to be right: add -c CONFIG --blank STEP,…, or grade where "
    "the key of its seal is."
)

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a cell of a spreadsheet begins with where it is carried out: such a text gets a ' before it."""


def steps_of(sheets: Sequence[HandIn]) -> list[str]:
    """Every step that is marked on any sheet, in order."""
    marked = {mark.step for sheet in sheets for mark in sheet.marks}
    return [name for name in TABLE if name in marked]


def grade_lines(sheets: Sequence[HandIn], screen: Screen) -> Iterator[Element]:
    """The table of names and steps, then what is to be said of each name."""
    steps = steps_of(sheets)
    titles = ["name", *(step.replace("_", "\n") for step in steps), "right"]
    rows = [row_of(sheet, steps, screen) for sheet in sheets]
    yield from Listing(screen, [titles], rows, left=frozenset(range(len(steps) + 1))).lines()
    width = screen.width if screen.fits else 10_000
    for sheet in sheets:
        said = list(remarks(sheet))
        if said:
            yield []
            yield [(screen.ours(sheet.student), "name")]
        for text in said:
            for line in fold_text(screen.ours(text), max(20, width - 2)):
                yield [(f"  {line}", "")]
    yield []
    yield [(screen.ours(summary(sheets)), "")]
    if any(sheet.vouched == BY_ITSELF and not sheet.error for sheet in sheets):
        yield from ([(screen.ours(line), "")] for line in fold_text(ADVICE, max(20, width)))


def row_of(sheet: HandIn, steps: Sequence[str], screen: Screen) -> list[Span]:
    """A name and its marks."""
    marks = {mark.step: mark for mark in sheet.marks}
    cells: list[Span] = [(screen.ours(sheet.student), "name")]
    for step in steps:
        mark = marks.get(step)
        sign = "" if mark is None else SIGNS.get(mark.verdict, mark.verdict)
        cells.append((screen.ours(sign), "bad" if sign == "wrong" else ""))
    right = sum(mark.verdict == RIGHT for mark in sheet.marks)
    cells.append((screen.ours("–") if sheet.error else f"{right}/{len(sheet.marks)}", ""))
    return cells


def remarks(sheet: HandIn) -> Iterator[str]:
    if sheet.error:
        yield f"{sheet.file} cannot be read."
    for mark in sheet.marks:
        said = remark(mark)
        if said:
            yield said
    for note in (*sheet.notes, *sheet.asides):
        yield f"Note: {note}."


def remark(mark: Mark) -> str:
    """What is said of a step; nothing where it is right, or blank as a whole."""
    if mark.verdict in {RIGHT, BLANK} and not mark.words:
        return ""
    if mark.verdict == UNTOLD:
        return f"{mark.step}: cannot be told from what is written before it."
    name = f" ({named(mark)})" if mark.mistake else ""
    return f"{mark.step}: {mark.words or 'wrong'}{name}."


def named(mark: Mark) -> str:
    return f"{mark.mistake}{'; also fits: ' * bool(mark.also)}{', '.join(mark.also)}"


def summary(sheets: Sequence[HandIn]) -> str:
    right = sum(sheet.right for sheet in sheets)
    lost = sum(bool(sheet.error) for sheet in sheets)
    unread = f", {lost} unreadable" if lost else ""
    return f"– not filled in. {right} of {plural(len(sheets), 'hand-in')} all right{unread}."


def write_csv(sheets: Sequence[HandIn], stream: IO[str]) -> None:
    """A row for each hand-in: name, file, the mark of each step, how many are right, mistakes, notes."""
    steps = steps_of(sheets)
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow(["name", "file", *steps, "right", "of", "mistakes", "notes"])
    for sheet in sheets:
        marks = {mark.step: mark.verdict for mark in sheet.marks}
        mistakes = [f"{mark.step}: {named(mark)}" for mark in sheet.marks if mark.mistake]
        notes = [sheet.error] if sheet.error else [*sheet.notes, *sheet.asides]
        texts = [sheet.student, sheet.file, *(marks.get(step, "") for step in steps)]
        right = sum(verdict == RIGHT for verdict in marks.values())
        rows.writerow(
            [
                *map(harmless, texts),
                right,
                len(marks),
                harmless("; ".join(mistakes)),
                harmless("; ".join(notes)),
            ]
        )


def harmless(text: str) -> str:
    """A text that no spreadsheet carries out."""
    seen = visible(text)
    return f"'{seen}" if seen.lstrip().startswith(FORMULA) else seen


def as_data(sheets: Sequence[HandIn]) -> dict[str, Any]:
    """The grades for JSON."""
    return {
        "hand_ins": [
            {
                "name": sheet.student,
                "file": sheet.file,
                "right": sheet.right,
                "error": sheet.error or None,
                "notes": list(sheet.notes),
                "asides": list(sheet.asides),
                "vouched_by": sheet.vouched,
                "steps": {
                    mark.step: {
                        "verdict": mark.verdict,
                        "mistake": mark.mistake,
                        "also": list(mark.also),
                        "words": mark.words or None,
                    }
                    for mark in sheet.marks
                },
            }
            for sheet in sheets
        ]
    }
