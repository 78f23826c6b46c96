"""The grades of a class as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from attnctl.pages.tables import html_table, page
from attnctl.verbs.exercise.grade import WRONG, HandIn
from attnctl.verbs.exercise.gradebook import (
    class_summary,
    find_shared,
    marked_steps,
    remarks,
    signs,
    wrong_at,
)

HEADING = "Grades"


def write_grades(sheets: Sequence[HandIn], stream: IO[bytes]) -> None:
    """What the class got wrong, a row for each student, and what is to be said to each."""
    steps, body = marked_steps(sheets), []
    shared = [
        (mark.mistake or "no known mistake", mark.step, mark.words * bool(mark.mistake), ", ".join(names))
        for mark, names in find_shared(sheets)
    ]
    if shared:
        titles = ["mistake", "step", "what it is", "who"]
        body.append(html_table("What the class got wrong", titles, shared, words=True))
    rows = [(str(sheet.student), *signs_and_mistakes(sheet, steps)) for sheet in sheets]
    notes = [f"{sheet.student}: {line}" for sheet in sheets for line in remarks(sheet, alone=False)]
    body.append(html_table(HEADING, ["name", *steps, "right"], rows, notes, words=True))
    stream.write(page(HEADING, HEADING, class_summary(sheets), body))


def signs_and_mistakes(sheet: HandIn, steps: Sequence[str]) -> list[str]:
    mistakes = {mark.step: wrong_at(mark) for mark in sheet.marks if mark.verdict == WRONG}
    shown = zip([*steps, ""], signs(sheet, steps), strict=True)
    return [f"{sign}: {mistakes[step]}" if mistakes.get(step) else sign for step, sign in shown]
