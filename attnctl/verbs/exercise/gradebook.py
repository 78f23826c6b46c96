"""Grades of a class: on a screen, for a spreadsheet (CSV), as JSON, for an autograder."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

from attnctl.base.words import all_of, plural
from attnctl.drawing.screen import Screen, Span
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.text import fold_text, visible
from attnctl.math.names import TABLE
from attnctl.store.files import encode_json, json_text, sink
from attnctl.store.long_csv import FORMULA_STARTS
from attnctl.verbs.check.view import format_number as digits
from attnctl.verbs.exercise.grade import BLANK, COARSE, RIGHT, UNTOLD, WRONG, HandIn, Mark

SIGNS = {RIGHT: "right", BLANK: "–", UNTOLD: "?", COARSE: "rounded"}
"""What stands in a cell of the table; anything else is wrong."""

MOST_STUDENTS = 6  # students that are named with a mistake


class SharedMistake(NamedTuple):
    """A mistake of a class: a mark that has it, and the students."""

    mark: Mark
    students: list[str]


def find_shared(sheets: Sequence[HandIn]) -> list[SharedMistake]:
    """The mistakes of a class, the commonest first; of equally common ones those that are known."""
    groups: dict[tuple[str, str | None], SharedMistake] = {}
    for sheet in sheets:
        for mark in sheet.marks:
            if mark.verdict != WRONG:
                continue
            shared = groups.setdefault((mark.step, mark.mistake), SharedMistake(mark, []))
            shared.students.append(str(sheet.student))

    return sorted(groups.values(), key=lambda shared: (-len(shared.students), shared.mark.mistake is None))


def say_shared(mark: Mark, students: Sequence[str]) -> str:
    who = ", ".join(students[:MOST_STUDENTS])
    if len(students) > MOST_STUDENTS:
        who += f" and {len(students) - MOST_STUDENTS} more"

    count = f"{len(students)} × {mark.mistake or 'no known mistake'} at {mark.step} ({who})"
    return f"{count}: {mark.words}." if mark.mistake else f"{count}."


def marked_steps(sheets: Sequence[HandIn]) -> list[str]:
    marked = {mark.step for sheet in sheets for mark in sheet.marks}
    return [name for name in TABLE if name in marked]


def remarks(sheet: HandIn, *, alone: bool = True) -> Iterator[str]:
    """Write the remarks on a hand-in; mistakes are explained once for all where it is not `alone`."""
    if sheet.error:
        yield f"{sheet.file} cannot be read." if sheet.file else "Nothing handed in."

    coarse = [mark for mark in sheet.marks if mark.verdict == COARSE]
    if coarse:  # one sentence for all of them, as their words are the same
        yield f"{all_of(mark.step for mark in coarse)}: {coarse[0].words}."

    for mark in sheet.marks:
        if mark.verdict == COARSE:
            continue
        if mark.mistake and not alone:
            yield f"{mark.step}: {name_mistake(mark)}."
        elif words := remark(mark):
            yield words

    for note in sheet.notes:
        yield f"Note: {note}."


def remark(mark: Mark, *, answers: bool = True) -> str:
    """The remark on a step, with `answers` what it should be, too; empty where it is right or blank."""
    if mark.verdict in {RIGHT, BLANK} and not mark.words:
        return ""
    if mark.verdict == UNTOLD:
        return f"{mark.step}: the numbers written before it do not settle whether this is right."

    words = f"{mark.step}: {mark.words or 'wrong'}"
    if mark.mistake:
        words += f" ({name_mistake(mark)})"
    if answers and mark.slips:
        words += f": {'; '.join(slip_words(mark))}"
    return f"{words}."


def slip_words(mark: Mark) -> Iterator[str]:
    for cell, (found, expected) in mark.slips.items():
        yield f"{cell} is {digits(found)} and should be {digits(expected)}"


def name_mistake(mark: Mark) -> str:
    if not mark.also:
        return f"{mark.mistake}"
    return f"{mark.mistake}; also fits: {', '.join(mark.also)}"


BLANK_MEANS = "– not filled in."
"""What stands below a table of signs."""


def class_summary(sheets: Sequence[HandIn]) -> str:
    """How many hand-ins are right, and which are not there or cannot be read."""
    right = sum(sheet.right for sheet in sheets)
    missing = [str(sheet.student) for sheet in sheets if not sheet.file]
    unreadable = [sheet for sheet in sheets if sheet.error and sheet.file]

    summary = f"{right} of {plural(len(sheets) - len(missing), 'hand-in')} all right"
    if unreadable:
        summary += f", {len(unreadable)} unreadable"
    if missing:
        summary += f"; missing: {', '.join(missing)}"
    return f"{summary}."


# --- a screen: what the class got wrong; a row a student, a column a step ---


def grade_lines(sheets: Sequence[HandIn], screen: Screen) -> Iterator[Element]:
    shared = find_shared(sheets)
    if len(sheets) > 1 and shared:
        yield [("What the class got wrong:", "name")]
        yield from indented_lines([say_shared(*mistake) for mistake in shared], screen)
        yield []

    yield from grade_table(sheets, screen).lines()

    for sheet in sheets:
        words = list(remarks(sheet, alone=len(sheets) == 1))
        if not words:
            continue
        yield []
        yield [(screen.printable(str(sheet.student)), "name")]
        yield from indented_lines(words, screen)

    yield []
    yield [(screen.printable(f"{BLANK_MEANS} {class_summary(sheets)}"), "")]


def grade_table(sheets: Sequence[HandIn], screen: Screen) -> Listing:
    steps = marked_steps(sheets)
    last = "points" if are_weighted(sheets) else "right"
    titles = ["name", *(step.replace("_", "\n") for step in steps), last]

    rows: list[list[Span]] = []
    for sheet in sheets:
        name = (screen.printable(str(sheet.student)), "name")
        cells = [(screen.printable(sign), "bad" if sign == WRONG else "") for sign in signs(sheet, steps)]
        rows.append([name, *cells])

    # All but the last column are words.
    return Listing(screen, [titles], rows, left=frozenset(range(len(steps) + 1)))


def signs(sheet: HandIn, steps: Sequence[str]) -> list[str]:
    """What stands below each step, and below `right` or `points`."""
    marks = {mark.step: mark.verdict for mark in sheet.marks}
    shown = [SIGNS.get(marks[step], marks[step]) if step in marks else "" for step in steps]
    total = "–" if sheet.error else f"{points(sheet)}/{most_points(sheet)}"
    return [*shown, total]


def indented_lines(texts: Sequence[str], screen: Screen) -> Iterator[Element]:
    width = max(20, screen.width - 2) if screen.fits else 10_000
    for text in texts:
        for line in fold_text(screen.printable(text), width):
            yield [(f"  {line}", "")]


def write_csv(sheets: Sequence[HandIn], stream: IO[str]) -> None:
    steps = marked_steps(sheets)
    shares = [f"{step} right" for step in steps]
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow(["name", "id", "file", *steps, "right", "of", "mistakes", "notes", *shares, *IN_POINTS])
    for sheet in sheets:
        rows.writerow(csv_row(sheet, steps))


def csv_row(sheet: HandIn, steps: Sequence[str]) -> list[object]:
    marks = {mark.step: mark for mark in sheet.marks}
    verdicts = [marks[step].verdict if step in marks else "" for step in steps]
    shares = [marks[step].part if step in marks else "" for step in steps]
    mistakes = [f"{mark.step}: {wrong_at(mark)}" for mark in sheet.marks if mark.mistake or mark.slips]

    row: list[object] = [harmless(sheet.student.name), harmless(sheet.student.id), harmless(sheet.file)]
    row += map(harmless, verdicts)
    row += [sum(mark.verdict == RIGHT for mark in sheet.marks), len(marks)]
    row += [harmless("; ".join(mistakes)), harmless("; ".join(sheet.doubts))]
    row += shares
    row += [points(sheet), most_points(sheet)]
    return row


def wrong_at(mark: Mark) -> str:
    return name_mistake(mark) if mark.mistake else " ".join(mark.slips)


IN_POINTS = ("points", "of points")


def points(sheet: HandIn) -> int:
    return sum(mark.worth for mark in sheet.marks if mark.verdict == RIGHT)


def most_points(sheet: HandIn) -> int:
    return sum(mark.worth for mark in sheet.marks)


def are_weighted(sheets: Sequence[HandIn]) -> bool:
    """True where a step is worth more or less than another, or than one point."""
    return any(mark.worth != 1 for sheet in sheets for mark in sheet.marks)


def harmless(text: str) -> str:
    """A text that no spreadsheet carries out."""
    shown = visible(text)
    return f"'{shown}" if shown.lstrip().startswith(FORMULA_STARTS) else shown


def write_json(sheets: Sequence[HandIn], stream: IO[Any]) -> None:
    sink(stream)(encode_json(f"{json_text(class_data(sheets), 1)}\n"))


def class_data(sheets: Sequence[HandIn]) -> dict[str, Any]:
    return {
        "hand_ins": [hand_in_data(sheet) for sheet in sheets],
        "wrong": [shared_data(shared) for shared in find_shared(sheets)],
    }


def hand_in_data(sheet: HandIn) -> dict[str, Any]:
    return {
        "name": sheet.student.name,
        "id": sheet.student.id or None,
        "file": sheet.file,
        "right": sheet.right,
        "error": sheet.error or None,
        "notes": list(sheet.notes),
        "points": points(sheet),
        "of": most_points(sheet),
        "steps": {mark.step: mark_data(mark) for mark in sheet.marks},
    }


def mark_data(mark: Mark) -> dict[str, Any]:
    return {
        "verdict": mark.verdict,
        "right": mark.part,
        "worth": mark.worth,
        "mistake": mark.mistake,
        "also": list(mark.also),
        "words": mark.words or None,
        "cells": list(mark.slips),
    }


def shared_data(shared: SharedMistake) -> dict[str, Any]:
    mark = shared.mark
    return {
        "step": mark.step,
        "mistake": mark.mistake,
        "words": mark.words if mark.mistake else None,
        "names": shared.students,
    }


def gradescope_result(sheet: HandIn) -> dict[str, Any]:
    """A results.json as Gradescope's autograders write it: a test a step, with its points.

    A hand-in whose given numbers were changed gets no points. No right number is told.
    Source: gradescope-autograders.readthedocs.io/en/latest/specs
    """
    result: dict[str, Any] = {
        "output": "\n".join(sheet.doubts),
        "output_format": "text",
        "tests": [gradescope_test(mark) for mark in sheet.marks],
        "extra_data": {"student": str(sheet.student), "file": sheet.file},
    }
    if sheet.doubts:
        result["score"] = 0
    return result


def gradescope_test(mark: Mark) -> dict[str, Any]:
    right = mark.verdict == RIGHT
    return {
        "name": mark.step,
        "score": mark.worth if right else 0,
        "max_score": mark.worth,
        "status": "passed" if right else "failed",
        "output": feedback(mark),
        "output_format": "text",
    }


def otter_result(sheet: HandIn) -> dict[str, Any]:
    """Results for Otter-Grader's `GradingResults.from_ottr_json`; no points where there are doubts."""
    doubted = bool(sheet.doubts)
    results = [otter_test("the sheet", 0, passed=not doubted, output="\n".join(sheet.doubts))]
    for mark in sheet.marks:
        passed = mark.verdict == RIGHT and not doubted
        results.append(otter_test(mark.step, mark.worth, passed=passed, output=feedback(mark)))
    return {"test_file_results": results}


def otter_test(name: str, worth: int, *, passed: bool, output: str) -> dict[str, Any]:
    case = {
        "name": name,
        "code": "",
        "points": worth,
        "hidden": False,
        "success_message": None,
        "failure_message": None,
    }
    result = {"passed": passed, "error": None if passed else output or WRONG, "test_case": case}
    return {"filename": name, "points": worth, "test_case_results": [result]}


def feedback(mark: Mark) -> str:
    """What a student is told of a step, without the right answer."""
    if mark.verdict in {RIGHT, BLANK} and not mark.words:
        return mark.verdict
    return visible(f"{remark(mark, answers=False)} {' '.join(mark.slips)}".strip())


AUTOGRADERS = {"gradescope": gradescope_result, "otter": otter_result}
"""What a single hand-in is written as for each program that grades a class."""
