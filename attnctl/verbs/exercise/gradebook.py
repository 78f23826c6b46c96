"""Grades of a class: on a screen, for a spreadsheet (CSV), as JSON, for an autograder."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import IO, Any

from attnctl.base.words import all_of, plural
from attnctl.drawing.screen import Screen
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


def find_shared(sheets: Sequence[HandIn]) -> list[tuple[Mark, list[str]]]:
    """The mistakes of a class, the commonest first: a mark that has it, and the students."""
    groups: dict[tuple[str, str | None], tuple[Mark, list[str]]] = {}
    for sheet in sheets:
        for mark in sheet.marks:
            if mark.verdict == WRONG:
                groups.setdefault((mark.step, mark.mistake), (mark, []))[1].append(str(sheet.student))
    return sorted(groups.values(), key=lambda shared: (-len(shared[1]), shared[0].mistake is None))


def say_shared(mark: Mark, students: Sequence[str]) -> str:
    more = len(students) - 6
    who = ", ".join(students[:6]) + f" and {more} more" * (more > 0)
    said = f"{len(students)} × {mark.mistake or 'no known mistake'} at {mark.step} ({who})"
    return f"{said}: {mark.words}." if mark.mistake else f"{said}."


def marked_steps(sheets: Sequence[HandIn]) -> list[str]:
    marked = {mark.step for sheet in sheets for mark in sheet.marks}
    return [name for name in TABLE if name in marked]


def remarks(sheet: HandIn, *, alone: bool = True) -> Iterator[str]:
    """Write the remarks on a hand-in; mistakes are explained once for all where it is not `alone`."""
    if sheet.error:
        yield f"{sheet.file} cannot be read." if sheet.file else "Nothing handed in."
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
    """The remark on a step, with `answers` what it should be, too; empty where it is right or blank."""
    if mark.verdict in {RIGHT, BLANK} and not mark.words:
        return ""
    if mark.verdict == UNTOLD:
        return f"{mark.step}: cannot be told from what is written before it."
    name = f" ({name_mistake(mark)})" if mark.mistake else ""
    slips = "; ".join(
        f"{cell} is {digits(found)} and should be {digits(expected)}"
        for cell, (found, expected) in mark.slips.items()
        if answers
    )
    return f"{mark.step}: {mark.words or 'wrong'}{name}{': ' * bool(slips)}{slips}."


def name_mistake(mark: Mark) -> str:
    return f"{mark.mistake}{'; also fits: ' * bool(mark.also)}{', '.join(mark.also)}"


def class_summary(sheets: Sequence[HandIn]) -> str:
    right = sum(sheet.right for sheet in sheets)
    lost = sum(bool(sheet.error and sheet.file) for sheet in sheets)
    missing = [str(sheet.student) for sheet in sheets if not sheet.file]
    more = f", {lost} unreadable" * bool(lost) + f"; missing: {', '.join(missing)}" * bool(missing)
    return f"– not filled in. {right} of {plural(len(sheets) - len(missing), 'hand-in')} all right{more}."


# --- a screen: what the class got wrong; a row a student, a column a step ---


def grade_lines(sheets: Sequence[HandIn], screen: Screen) -> Iterator[Element]:
    if len(sheets) > 1 and (shared := find_shared(sheets)):
        yield [("What the class got wrong:", "name")]
        yield from indented_lines([say_shared(*mistake) for mistake in shared], screen)
        yield []
    steps = marked_steps(sheets)
    titles = ["name", *(step.replace("_", "\n") for step in steps), "right"]
    rows = []
    for sheet in sheets:
        cells = [(screen.printable(sign), "bad" * (sign == WRONG)) for sign in signs(sheet, steps)]
        rows.append([(screen.printable(str(sheet.student)), "name"), *cells])
    yield from Listing(screen, [titles], rows, left=frozenset(range(len(steps) + 1))).lines()
    for sheet in sheets:
        said = list(remarks(sheet, alone=len(sheets) == 1))
        if said:
            yield []
            yield [(screen.printable(str(sheet.student)), "name")]
        yield from indented_lines(said, screen)
    yield []
    yield [(screen.printable(class_summary(sheets)), "")]


def signs(sheet: HandIn, steps: Sequence[str]) -> list[str]:
    """What stands below each step, and below `right`."""
    marks = {mark.step: mark.verdict for mark in sheet.marks}
    shown = [SIGNS.get(marks[step], marks[step]) if step in marks else "" for step in steps]
    return [*shown, "–" if sheet.error else f"{points(sheet)}/{len(marks)}"]


def indented_lines(texts: Sequence[str], screen: Screen) -> Iterator[Element]:
    width = max(20, screen.width - 2) if screen.fits else 10_000
    yield from ([(f"  {line}", "")] for text in texts for line in fold_text(screen.printable(text), width))


def write_csv(sheets: Sequence[HandIn], stream: IO[str]) -> None:
    steps = marked_steps(sheets)
    parts = [f"{step} right" for step in steps]
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow(["name", "id", "file", *steps, "right", "of", "mistakes", "notes", *parts])
    for sheet in sheets:
        marks = {mark.step: mark.verdict for mark in sheet.marks}
        shares = {mark.step: mark.part for mark in sheet.marks}
        mistakes = [f"{mark.step}: {wrong_at(mark)}" for mark in sheet.marks if mark.mistake or mark.slips]
        texts = [sheet.student.name, sheet.student.id, sheet.file, *(marks.get(step, "") for step in steps)]
        said = [harmless("; ".join(mistakes)), harmless("; ".join(sheet.doubts))]
        of_steps = [shares.get(step, "") for step in steps]
        rows.writerow([*map(harmless, texts), points(sheet), len(marks), *said, *of_steps])


def wrong_at(mark: Mark) -> str:
    return name_mistake(mark) if mark.mistake else " ".join(mark.slips)


def points(sheet: HandIn) -> int:
    return sum(mark.verdict == RIGHT for mark in sheet.marks)


def harmless(text: str) -> str:
    """A text that no spreadsheet carries out."""
    seen = visible(text)
    return f"'{seen}" if seen.lstrip().startswith(FORMULA_STARTS) else seen


def write_json(sheets: Sequence[HandIn], stream: IO[Any]) -> None:
    sink(stream)(encode_json(f"{json_text(class_data(sheets), 1)}\n"))


def class_data(sheets: Sequence[HandIn]) -> dict[str, Any]:
    def mark_data(mark: Mark) -> dict[str, Any]:
        said = {"verdict": mark.verdict, "right": mark.part, "mistake": mark.mistake}
        also, cells = list(mark.also), list(mark.slips)
        return {**said, "also": also, "words": mark.words or None, "cells": cells}

    wrong = []
    for mark, students in find_shared(sheets):
        words = mark.words if mark.mistake else None
        wrong.append({"step": mark.step, "mistake": mark.mistake, "words": words, "names": students})
    hand_ins = []
    for sheet in sheets:
        who = {"name": sheet.student.name, "id": sheet.student.id or None, "file": sheet.file}
        said = {"right": sheet.right, "error": sheet.error or None, "notes": list(sheet.notes)}
        hand_ins.append({**who, **said, "steps": {mark.step: mark_data(mark) for mark in sheet.marks}})
    return {"hand_ins": hand_ins, "wrong": wrong}


def gradescope_result(sheet: HandIn) -> dict[str, Any]:
    """A results.json as Gradescope's autograders write it: a test a step, a point each.

    A hand-in whose given numbers were changed gets no points. No right number is told.
    Source: gradescope-autograders.readthedocs.io/en/latest/specs
    """
    tests: list[dict[str, Any]] = []
    for mark in sheet.marks:
        right = mark.verdict == RIGHT
        test = {"name": mark.step, "score": int(right), "max_score": 1}
        test |= {"status": "passed" if right else "failed"}
        tests.append({**test, "output": feedback(mark), "output_format": "text"})
    return {
        "output": "\n".join(sheet.doubts),
        "output_format": "text",
        "tests": tests,
        "extra_data": {"student": str(sheet.student), "file": sheet.file},
        **({"score": 0} if sheet.doubts else {}),
    }


def otter_result(sheet: HandIn) -> dict[str, Any]:
    """Results for Otter-Grader's `GradingResults.from_ottr_json`; no points where there are doubts."""
    doubted = bool(sheet.doubts)
    told = [("the sheet", 0, not doubted, "\n".join(sheet.doubts))]
    told += [(mark.step, 1, mark.verdict == RIGHT and not doubted, feedback(mark)) for mark in sheet.marks]
    found = []
    for name, worth, passed, says in told:
        case = {"name": name, "code": "", "points": worth, "hidden": False}
        case |= {"success_message": None, "failure_message": None}
        results = [{"passed": passed, "error": None if passed else says or WRONG, "test_case": case}]
        found.append({"filename": name, "points": worth, "test_case_results": results})
    return {"test_file_results": found}


def feedback(mark: Mark) -> str:
    """What a student is told of a step, without the right answer."""
    if mark.verdict in {RIGHT, BLANK} and not mark.words:
        return mark.verdict
    return visible(f"{remark(mark, answers=False)} {' '.join(mark.slips)}".strip())


AUTOGRADERS = {"gradescope": gradescope_result, "otter": otter_result}
"""What a single hand-in is written as for each program that grades a class."""
