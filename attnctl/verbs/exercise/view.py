"""Grades on a screen: a row a student, a column a step, and what the class got wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnctl.base.dataclass import dataclass
from attnctl.base.words import all_of, plural
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.screen import Screen
from attnctl.drawing.screen.text import fold_text
from attnctl.math.names import TABLE
from attnctl.verbs.check.view import number as digits
from attnctl.verbs.exercise.grade import BLANK, COARSE, RIGHT, UNTOLD, WRONG, HandIn, Mark

SIGNS = {RIGHT: "right", BLANK: "–", UNTOLD: "?", COARSE: "rounded"}
"""What stands in a cell of the table; anything else is wrong."""


@dataclass(frozen=True)
class Shared:
    """A mistake of several students, or of one, at a step."""

    step: str
    mistake: str | None
    words: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        more = len(self.names) - 6
        who = ", ".join(self.names[:6]) + f" and {more} more" * (more > 0)
        return f"{len(self.names)} × {self.mistake or 'no known mistake'} at {self.step} ({who})"


def find_shared(sheets: Sequence[HandIn]) -> list[Shared]:
    """The mistakes of a class, the commonest first."""
    groups: dict[tuple[str, str | None], list[tuple[str, str]]] = {}
    for sheet in sheets:
        for mark in sheet.marks:
            if mark.verdict == WRONG:
                words = mark.words if mark.mistake else ""
                groups.setdefault((mark.step, mark.mistake), []).append((sheet.student, words))
    found = [
        Shared(step, mistake, said[0][1], tuple(name for name, _ in said))
        for (step, mistake), said in groups.items()
    ]
    return sorted(found, key=lambda each: (-len(each.names), each.mistake is None))


def steps_of(sheets: Sequence[HandIn]) -> list[str]:
    """Every step that is marked on any sheet, in order."""
    marked = {mark.step for sheet in sheets for mark in sheet.marks}
    return [name for name in TABLE if name in marked]


def grade_lines(sheets: Sequence[HandIn], screen: Screen) -> Iterator[Element]:
    steps = steps_of(sheets)
    titles = ["name", *(step.replace("_", "\n") for step in steps), "right"]
    rows = []
    for sheet in sheets:
        marks = {mark.step: mark.verdict for mark in sheet.marks}
        signs = [SIGNS.get(marks[step], marks[step]) if step in marks else "" for step in steps]
        right = "–" if sheet.error else f"{sum(mark == RIGHT for mark in marks.values())}/{len(marks)}"
        cells = [(screen.ours(sign), "bad" if sign == "wrong" else "") for sign in signs]
        rows.append([(screen.ours(sheet.student), "name"), *cells, (screen.ours(right), "")])
    yield from Listing(screen, [titles], rows, left=frozenset(range(len(steps) + 1))).lines()
    width = screen.width if screen.fits else 10_000
    for sheet in sheets:
        said = list(remarks(sheet, alone=len(sheets) == 1))
        if said:
            yield []
            yield [(screen.ours(sheet.student), "name")]
        for text in said:
            for line in fold_text(screen.ours(text), max(20, width - 2)):
                yield [(f"  {line}", "")]
    shared = find_shared(sheets) if len(sheets) > 1 else []
    yield []
    if shared:
        yield [("What the class got wrong:", "name")]
        for each in shared:
            text = f"{each}: {each.words}." if each.words else f"{each}."
            yield from ([(f"  {line}", "")] for line in fold_text(screen.ours(text), max(20, width - 2)))
        yield []
    yield [(screen.ours(summary(sheets)), "")]


def remarks(sheet: HandIn, *, alone: bool = True) -> Iterator[str]:
    """Write the remarks on a hand-in; mistakes are explained once for all where it is not `alone`."""
    if sheet.error:
        yield f"{sheet.file} cannot be read."
    coarse = [mark for mark in sheet.marks if mark.verdict == COARSE]
    if coarse:
        yield f"{all_of(mark.step for mark in coarse)}: {coarse[0].words}."
    for mark in sheet.marks:
        shared = mark.mistake and not alone
        said = f"{mark.step}: {name_mistake(mark)}." if shared else remark(mark)
        if said and mark.verdict != COARSE:
            yield said
    for note in sheet.notes:
        yield f"Note: {note}."


def remark(mark: Mark, *, answers: bool = True) -> str:
    """Write the remark on a step; empty where it is right, or blank as a whole.

    With `answers` also what a wrong number should be.
    """
    if mark.verdict in {RIGHT, BLANK} and not mark.words:
        return ""
    if mark.verdict == UNTOLD:
        return f"{mark.step}: cannot be told from what is written before it."
    name = f" ({name_mistake(mark)})" if mark.mistake else ""
    slips = "; ".join(
        f"{each.cell} is {digits(each.found)} and should be {digits(each.expected)}"
        for each in mark.slips
        if answers
    )
    return f"{mark.step}: {mark.words or 'wrong'}{name}{': ' * bool(slips)}{slips}."


def name_mistake(mark: Mark) -> str:
    return f"{mark.mistake}{'; also fits: ' * bool(mark.also)}{', '.join(mark.also)}"


def summary(sheets: Sequence[HandIn]) -> str:
    right = sum(sheet.right for sheet in sheets)
    lost = sum(bool(sheet.error) for sheet in sheets)
    unread = f", {lost} unreadable" if lost else ""
    return f"– not filled in. {right} of {plural(len(sheets), 'hand-in')} all right{unread}."
