"""A sheet to be filled in: JSON for a program, a page for a browser and a printer, Markdown for paper."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import IO, Any, NamedTuple, TextIO

from attnctl.base.errors import AttnError
from attnctl.base.words import plural
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.text import safe, visible
from attnctl.drawing.show import BOX, formula_of, heads_of, load_sheet, sheet_of
from attnctl.drawing.show.frames import number_format
from attnctl.drawing.show.headline import facts
from attnctl.drawing.show.markdown import code, inline, table_lines
from attnctl.math import Array, Cell
from attnctl.math.derivation import Step
from attnctl.math.ops import Copy, Given, Hide
from attnctl.record import Trace
from attnctl.store.files import encode_json, json_text
from attnctl.store.header import entry, heading
from attnctl.store.json_file import json_pieces
from attnctl.verbs.exercise import Exercise

MOST_NUMBERS = 4000  # numbers, given and to be filled in, of a sheet that a person reads
COLUMNS = 8  # columns of a table that fits on paper; wider matrices go on below


def write_json(exercise: Exercise, stream: IO[bytes]) -> None:
    stream.write(sheet_text(exercise).encode())


def sheet_text(exercise: Exercise) -> str:
    """The exercise as a dump, null in its blanks, a row of a matrix to a line."""
    trace = exercise.trace
    lines = [f"{json_text(key)}: {json_text(value)}" for key, value in heading(trace).items()]
    steps = []
    for name, array in trace.items():
        data = b"".join(json_pieces(array)).decode()
        if name in exercise.blank:
            data = data.replace('"NaN"', "null")
        about = json_text(entry(trace.steps[name], array.shape, array.dtype))
        steps.append(f'{json_text(name)}: {about[:-1]}, "data":\n{data}}}')

    lines.append('"steps": {\n' + ",\n".join(steps) + "}")
    text = "{\n" + ",\n".join(lines) + "}\n"
    return encode_json(text).decode()


class SheetCell(NamedTuple):
    """A number as it is written, "" where it is to be filled in, and where in its step it is."""

    text: str
    place: Cell


class SheetTable(NamedTuple):
    """A matrix, or the part of it that is as wide as paper."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[str]
    cells: Sequence[Sequence[SheetCell]]


def require_few(exercise: Exercise) -> None:
    count = sum(exercise.trace[name].size for name in steps_with_tables(exercise))
    if count > MOST_NUMBERS:
        most = f"a sheet for people holds {MOST_NUMBERS:,}"
        raise AttnError(f"{count:,} numbers: {most}; make the run smaller, or write .json")


def steps_with_tables(exercise: Exercise) -> list[str]:
    """The steps that have tables: a given copy of the step before it has none."""
    trace = exercise.trace
    return [
        name
        for name, step in trace.steps.items()
        if name in exercise.blank or not (isinstance(step.op, Copy) and step.inputs[0] in trace)
    ]


def tables_of(exercise: Exercise, name: str) -> Iterator[SheetTable]:
    trace = exercise.trace
    sheet = sheet_of(load_sheet(trace, name), name, heads_of(trace))
    number = number_writer(sheet.array, exercise, name)
    for caption, index in zip(sheet.captions, sheet.indices, strict=True):
        for start in range(0, len(sheet.columns), COLUMNS):
            columns = range(start, min(start + COLUMNS, len(sheet.columns)))
            cells = []
            for row, values in enumerate(sheet.array[index]):
                cells.append(
                    [SheetCell(number(values[column]), (*index, row, column)) for column in columns]
                )
            yield SheetTable(caption, [sheet.columns[column] for column in columns], sheet.rows, cells)


def number_writer(array: Array, exercise: Exercise, name: str) -> Callable[[Any], str]:
    if name in exercise.blank and not exercise.is_key:
        return lambda _: ""
    if array.dtype == bool:
        return lambda value: "see" if value else "·"
    format_ = number_format(array, exercise.decimals, Screen())
    return lambda value: format_(value).strip().replace("-", "−")


def title_of(exercise: Exercise) -> str:
    return visible(exercise.trace.sentence or "attention")


def facts_on(trace: Trace) -> list[str]:
    """What the run is, without the seed: who has it has the answers."""
    config = {name: value for name, value in trace.config.items() if name != "seed"}
    return facts(replace(trace, header={**trace.header, "config": config}))


def task_of(exercise: Exercise) -> str:
    if exercise.is_key:
        return f"The answers, to {exercise.decimals} decimals."
    hidden = any(isinstance(exercise.trace.steps[name].op, Hide) for name in exercise.blank)
    task = f"Fill in every blank, to {exercise.decimals} decimals; the last may be off by one."
    return f"{task} A hidden score is −∞: write -inf." if hidden else task


def formula_on(step: Step) -> str:
    """The formula of a step and the rules that hide its scores; what is drawn is just given on a sheet."""
    rules = step.op.rules if isinstance(step.op, Hide) else ()
    formula = "given" if isinstance(step.op, Given) else formula_of(step)
    return visible(" · ".join([formula, *(rule.said for rule in rules)]))


def formula_name(step: Step) -> str:
    """The name to write before a formula that does not begin with it."""
    return "" if formula_of(step).startswith(f"{step.name} ") else f"{step.name}: "


def steps_without_tables(exercise: Exercise) -> set[str]:
    """The steps that have a formula and no table: what a later blank follows from, and given copies."""
    needed: set[str] = set()
    for step in reversed(exercise.steps):
        if step.name in exercise.blank or step.name in needed:
            needed.update(step.inputs)
    return needed - set(steps_with_tables(exercise))


def write_markdown(exercises: Sequence[Exercise], stream: TextIO) -> None:
    """Sheets for paper, one after the other, with a box in each blank."""
    for exercise in exercises:
        require_few(exercise)
        stream.writelines(f"{safe(line)}\n" for line in markdown_lines(exercise))


def markdown_lines(exercise: Exercise) -> Iterator[str]:
    yield f"# {inline(title_of(exercise))}"
    yield ""
    yield ", ".join(map(inline, facts_on(exercise.trace)))
    yield ""
    name = f"**{inline(visible(str(exercise.student)))}**" if exercise.student else BOX * 5
    yield f"Name: {name}"
    yield ""
    yield f"**{task_of(exercise)}**"
    yield ""

    without_tables = steps_without_tables(exercise)
    with_tables = set(steps_with_tables(exercise))
    for step in exercise.steps:
        if step.name in without_tables:
            yield f"{formula_name(step)}{code(formula_on(step))}"
            yield ""
        if step.name in with_tables:
            yield from markdown_tables(exercise, step)


def say_points(exercise: Exercise, name: str) -> str:
    """What a step is worth, in parentheses; nothing where nobody said it."""
    return f" ({plural(exercise.points[name], 'point')})" if name in exercise.points else ""


def markdown_tables(exercise: Exercise, step: Step) -> Iterator[str]:
    if step.name in exercise.blank:
        what = "answers" if exercise.is_key else "fill in"
        yield f"## {step.name}: {what}{say_points(exercise, step.name)}"
    else:
        yield f"## {step.name}"
    yield ""
    yield code(formula_on(step))
    yield ""

    for table in tables_of(exercise, step.name):
        if table.caption:
            yield f"{table.caption}:"
            yield ""
        texts = [[cell.text or BOX for cell in row] for row in table.cells]
        yield from table_lines(table.columns, table.rows, texts)
        yield ""


def write_page(exercises: Sequence[Exercise], stream: IO[bytes]) -> None:
    """One sheet to be filled in and saved in a browser, or several for paper, each on pages of its own."""
    for exercise in exercises:
        require_few(exercise)
    if len(exercises) != 1:
        sheets = "\n".join(line for exercise in exercises for line in article(exercise, typed=False))
        stream.write(page(title_of(exercises[0]), f"<body>\n<main>\n{sheets}\n</main>\n</body>"))
        return

    (exercise,) = exercises
    text = sheet_text(exercise)
    sheet = "\n".join(article(exercise, typed=True))
    digest = sha256(text.encode()).hexdigest()[:32]
    body = fill_in("sheet.html", digest=digest, sheet=sheet, dump=text.replace("<", "\\u003c"))
    stream.write(page(title_of(exercise), body, "sheet.mjs"))


def article(exercise: Exercise, *, typed: bool) -> Iterator[str]:
    """A sheet; its blanks are boxes to type in, or to write in on paper."""
    yield "<article>"
    yield f"<h1>{escape(title_of(exercise))}</h1>"
    yield f'<p class="facts">{escape(" · ".join(map(visible, facts_on(exercise.trace))))}</p>'
    yield f'<p class="who">Name {name_html(exercise, typed=typed)}</p>'
    yield f'<p class="task">{escape(task_of(exercise))}</p>'

    without_tables = steps_without_tables(exercise)
    with_tables = set(steps_with_tables(exercise))
    for step in exercise.steps:
        if step.name in without_tables:
            yield f'<p class="way">{formula_name(step)}{escape(formula_on(step))}</p>'
        if step.name in with_tables:
            kind = ' class="fill"' if step.name in exercise.blank else ""
            formula = f"<span>{escape(formula_on(step))}</span>"
            title = escape(f"{step.name}{say_points(exercise, step.name)}")
            yield f'<section{kind}>\n<h2>{title} {formula}</h2>\n<div class="matrices">'
            for table in tables_of(exercise, step.name):
                yield table_html(table, step.name, typed=typed)
            yield "</div>\n</section>"

    yield "</article>"


def name_html(exercise: Exercise, *, typed: bool) -> str:
    """The name of the student, or a place for it."""
    if exercise.student:
        return f"<b>{escape(visible(str(exercise.student)))}</b>"
    if typed:
        return '<input id="name" aria-label="name" autocomplete="name">'
    return '<span class="line"></span>'


def table_html(table: SheetTable, step: str, *, typed: bool) -> str:
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    titles = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    head = f'<tr><td class="corner"></td>{titles}</tr>'

    rows = []
    for label, row in zip(table.rows, table.cells, strict=True):
        cells = "".join(cell_html(step, cell, typed=typed) for cell in row)
        rows.append(f'<tr><th scope="row">{escape(label)}</th>{cells}</tr>')
    body = "\n".join(rows)
    return f"<table>{caption}<thead>{head}</thead>\n<tbody>{body}</tbody></table>"


def cell_html(step: str, cell: SheetCell, *, typed: bool) -> str:
    if cell.text:
        return f"<td>{cell.text}</td>"
    if not typed:
        return '<td class="blank"></td>'
    place = " ".join(map(str, cell.place))
    address = ",".join(map(str, cell.place))
    return (
        f'<td class="blank"><input data-step="{escape(step)}" data-at="{place}" '
        f'aria-label="{escape(step)}[{address}]" autocomplete="off" spellcheck="false"></td>'
    )


# --- pages: nothing outside them is read, and only their own script is run ---

ASSETS = files(__package__ or "") / "page"


@cache
def asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def fill_in(name: str, **places: str) -> str:
    """An asset, what belongs into each {{place}} of it filled in."""
    return re.sub(r"{{(\w+)}}", lambda place: places[place[1]], asset(name)).removesuffix("\n")


def allow(text: str) -> str:
    """The source of a content policy that allows this very script or style."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def page(title: str, body: str, script: str = "") -> bytes:
    """A page of this body, which has escaped what is not ours. `script` is the name of an asset."""
    style = asset("style.css")
    code = asset(script) if script else ""
    allowed_script = allow(code) if code else "'none'"
    policy = (
        f"default-src 'none'; style-src {allow(style)}; script-src {allowed_script}; base-uri 'none'; "
        "form-action 'none'"
    )

    text = fill_in(
        "page.html",
        title=escape(title),
        style=style,
        body=body,
        policy=policy,
        script=f'<script type="module">{code}</script>' if code else "",
    )
    return f"{text}\n".encode("utf-8", "backslashreplace")
