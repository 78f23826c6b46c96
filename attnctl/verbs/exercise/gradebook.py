"""Grades for other programs: a page, CSV for a spreadsheet, JSON, and the results of an autograder."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import IO, Any

from attnctl.drawing.screen.text import visible
from attnctl.store.files import encode_json, json_text
from attnctl.store.long_csv import FORMULA_STARTS
from attnctl.verbs.exercise.grade import BLANK, RIGHT, WRONG, HandIn, Mark
from attnctl.verbs.exercise.sheet import page
from attnctl.verbs.exercise.view import SIGNS, find_shared, name_mistake, remark, remarks, steps_of, summary

# --- CSV ---


def write_csv(sheets: Sequence[HandIn], stream: IO[str]) -> None:
    """A row for each hand-in: name, file, the mark of each step, how many are right, mistakes, notes."""
    steps = steps_of(sheets)
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow(["name", "file", *steps, "right", "of", "mistakes", "notes"])
    for sheet in sheets:
        marks = {mark.step: mark.verdict for mark in sheet.marks}
        mistakes = [f"{mark.step}: {wrong_at(mark)}" for mark in sheet.marks if mark.mistake or mark.slips]
        notes = [sheet.error] if sheet.error else list(sheet.notes)
        texts = [sheet.student, sheet.file, *(marks.get(step, "") for step in steps)]
        said = [harmless("; ".join(mistakes)), harmless("; ".join(notes))]
        rows.writerow([*map(harmless, texts), points(sheet), len(marks), *said])


def csv_text(sheets: Sequence[HandIn]) -> str:
    stream = io.StringIO()
    write_csv(sheets, stream)
    return stream.getvalue()


def wrong_at(mark: Mark) -> str:
    """A mistake, or the cells that are wrong."""
    return name_mistake(mark) if mark.mistake else " ".join(slip.cell for slip in mark.slips)


def points(sheet: HandIn) -> int:
    return sum(mark.verdict == RIGHT for mark in sheet.marks)


def harmless(text: str) -> str:
    """A text that no spreadsheet carries out."""
    seen = visible(text)
    return f"'{seen}" if seen.lstrip().startswith(FORMULA_STARTS) else seen


# --- JSON ---


def write_json(sheets: Sequence[HandIn], stream: IO[bytes]) -> None:
    stream.write(encode_json(f"{json_text(as_data(sheets), 1)}\n"))


def as_data(sheets: Sequence[HandIn]) -> dict[str, Any]:
    def mark_data(mark: Mark) -> dict[str, Any]:
        cells = [slip.cell for slip in mark.slips]
        said = {"verdict": mark.verdict, "mistake": mark.mistake, "also": list(mark.also)}
        return {**said, "words": mark.words or None, "cells": cells}

    return {
        "hand_ins": [
            {
                "name": sheet.student,
                "file": sheet.file,
                "right": sheet.right,
                "error": sheet.error or None,
                "notes": list(sheet.notes),
                "steps": {mark.step: mark_data(mark) for mark in sheet.marks},
            }
            for sheet in sheets
        ],
        "wrong": [
            {
                "step": each.step,
                "mistake": each.mistake,
                "words": each.words or None,
                "names": list(each.names),
            }
            for each in find_shared(sheets)
        ],
    }


# --- a page ---


def write_page(sheets: Sequence[HandIn], stream: IO[bytes]) -> None:
    body = "\n".join(["<body>", "<h1>Grades</h1>", *page_lines(sheets), "</body>"])
    stream.write(page("Grades", body))


def page_lines(sheets: Sequence[HandIn]) -> Iterator[str]:
    steps = steps_of(sheets)
    yield f'<p class="facts">{escape(summary(sheets))}</p>'
    yield '<div class="scroll">'
    yield table_html(["name", *steps, "right"], [list(row_html(sheet, steps)) for sheet in sheets])
    yield "</div>"
    shared = find_shared(sheets)
    if shared:
        yield "<h2>What the class got wrong</h2>"
        rows = [
            [
                f"<td>{len(each.names)}</td>",
                f'<td class="wrong">{escape(each.mistake or "no known mistake")}</td>',
                f"<td>{escape(each.step)}</td>",
                f"<td>{escape(visible(each.words))}</td>",
                f"<td>{escape(visible(', '.join(each.names)))}</td>",
            ]
            for each in shared
        ]
        yield table_html(["", "mistake", "step", "what it is", "who"], rows)
    said = [(sheet.student, list(remarks(sheet, alone=False))) for sheet in sheets]
    if any(lines for _, lines in said):
        yield "<h2>One by one</h2>"
        yield "<dl>"
        for name, lines in said:
            if lines:
                yield f"<dt>{escape(visible(name))}</dt>"
                yield from (f"<dd>{escape(visible(line))}</dd>" for line in lines)
        yield "</dl>"


def table_html(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f'<table class="grades"><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>'


def row_html(sheet: HandIn, steps: Sequence[str]) -> Iterator[str]:
    note = ' class="note" title="see its notes"' if sheet.notes or sheet.error else ""
    yield f'<th scope="row"{note}>{escape(visible(sheet.student))}</th>'
    marks = {mark.step: mark for mark in sheet.marks}
    for mark in map(marks.get, steps):
        if mark is None:
            yield "<td></td>"
            continue
        kind = {RIGHT: "right", WRONG: "wrong"}.get(mark.verdict, "none")
        small = wrong_at(mark) if mark.verdict == WRONG else ""
        more = f"<small>{escape(visible(small))}</small>" if small else ""
        yield f'<td class="{kind}">{escape(SIGNS.get(mark.verdict, mark.verdict))}{more}</td>'
    yield f"<td>{'–' if sheet.error else f'{points(sheet)} of {len(marks)}'}</td>"


# --- autograders ---


def gradescope_result(sheet: HandIn) -> dict[str, Any]:
    """A results.json as Gradescope's autograders write it: a test a step, a point each.

    A hand-in whose given numbers were changed gets no points. No right number is told.
    Source: gradescope-autograders.readthedocs.io/en/latest/specs
    """
    tests = [
        {
            "name": mark.step,
            "score": int(mark.verdict == RIGHT),
            "max_score": 1,
            "status": "passed" if mark.verdict == RIGHT else "failed",
            "output": words_for(mark),
            "output_format": "text",
        }
        for mark in sheet.marks
    ]
    notes = [sheet.error] if sheet.error else list(sheet.notes)
    result: dict[str, Any] = {
        "output": "\n".join(notes),
        "output_format": "text",
        "tests": tests,
        "extra_data": {"student": sheet.student, "file": sheet.file},
    }
    return result | ({"score": 0} if sheet.error or sheet.notes else {})


def otter_result(sheet: HandIn) -> dict[str, Any]:
    """Results as Otter-Grader reads those of another grader: `GradingResults.from_ottr_json`.

    A hand-in whose given numbers were changed gets no points.
    """
    doubted = bool(sheet.error or sheet.notes)
    notes = [sheet.error] if sheet.error else list(sheet.notes)
    told = [("the sheet", 0, not doubted, "\n".join(notes))]
    told += [(mark.step, 1, mark.verdict == RIGHT and not doubted, words_for(mark)) for mark in sheet.marks]
    found = []
    for name, worth, passed, says in told:
        case = {"name": name, "code": "", "points": worth, "hidden": False}
        case |= {"success_message": None, "failure_message": None}
        results = [{"passed": passed, "error": None if passed else says or WRONG, "test_case": case}]
        found.append({"filename": name, "points": worth, "test_case_results": results})
    return {"test_file_results": found}


def words_for(mark: Mark) -> str:
    """Return a student's own words on a step, without the right answer."""
    if mark.verdict in {RIGHT, BLANK} and not mark.words:
        return mark.verdict
    cells = " ".join(slip.cell for slip in mark.slips)
    return visible(f"{remark(mark, answers=False)} {cells}".strip())


AUTOGRADERS: dict[str, Callable[[HandIn], dict[str, Any]]] = {
    "gradescope": gradescope_result,
    "otter": otter_result,
}
"""What a single hand-in is written as for each program that grades a class."""
