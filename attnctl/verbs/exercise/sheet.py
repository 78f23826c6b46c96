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


MEANINGS = {
    "self-attention": "each token takes from all tokens of its own sentence",
    "cross-attention": "each token takes from the tokens of another sentence",
    "head": "queries, keys and values with weights of their own",
    "heads": "each with queries, keys and values of its own; what they give is put side by side",
    "kv heads": "heads of keys and values, each shared by several heads of queries",
    "d_model": "how many numbers stand for a token",
    "d_k": "how many numbers a query and a key have",
    "d_v": "how many numbers a value has",
    "causal": "a token sees itself and those before it",
}
"""What a sheet says of the words of its facts, to someone who meets them here."""


def words_on(trace: Trace) -> list[tuple[str, str]]:
    """Each fact of the run with what its word means; "" where the formulas say it."""
    explained = []
    for fact in facts_on(trace):
        word = fact.strip("0123456789 ")
        explained.append((fact, MEANINGS.get(word, "")))
    return explained


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
    name = f"**{inline(visible(str(exercise.student)))}**" if exercise.student else BOX * 5
    yield f"Name: {name}"
    yield ""
    yield f"**{task_of(exercise)}**"
    yield ""
    for fact, meaning in words_on(exercise.trace):
        yield f"- {inline(fact)}{f': {meaning}' if meaning else ''}"
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
    yield f'<p class="who">Name {name_html(exercise, typed=typed)}</p>'
    yield f'<p class="task">{escape(task_of(exercise))}</p>'
    yield f'<p class="facts">{"; ".join(word_html(*word) for word in words_on(exercise.trace))}</p>'

    layout = max(lay_out(exercise, heads_beside=False), lay_out(exercise, heads_beside=True), key=zoom_of)
    yield f'<div class="{" ".join(layout.classes)}">'
    is_first = True
    for line in layout.lines:
        yield '<div class="row">'
        for stage in line:
            if not is_first:
                yield from arrow_html(stage)
            yield from stage_html(exercise, stage, typed=typed)
            is_first = False
        yield "</div>"
    yield "</div>"
    yield "</article>"


def word_html(fact: str, meaning: str) -> str:
    said = f"<b>{escape(visible(fact))}</b>"
    return f"{said}: {escape(meaning)}" if meaning else said


class SheetStage(NamedTuple):
    """Steps that are made of those to the left of them, and the formulas on the arrow that leads there."""

    steps: list[Step]
    on_arrow: list[str]


def stages(exercise: Exercise) -> list[SheetStage]:
    """The tables of a sheet from left to right; one without is a formula on the next arrow."""
    with_tables = set(steps_with_tables(exercise))
    without_tables = steps_without_tables(exercise)

    found: list[SheetStage] = []
    on_arrow: list[str] = []
    for steps in steps_by_depth(exercise.steps):
        untabled = [step for step in steps if step.name in without_tables]
        on_arrow += [f"{formula_name(step)}{formula_on(step)}" for step in untabled]
        shown = [step for step in steps if step.name in with_tables]
        if shown:
            found.append(SheetStage(shown, on_arrow))
            on_arrow = []

    return found


def steps_by_depth(steps: Sequence[Step]) -> list[list[Step]]:
    """Steps behind all that they are made of; what is given stands just before the first that reads it."""
    depth_of: dict[str, int] = {}
    for step in steps:
        depths = [depth_of[name] + 1 for name in step.inputs if name in depth_of]
        depth_of[step.name] = max(depths, default=0)

    for step in steps:
        readers = [depth_of[reader.name] for reader in steps if step.name in reader.inputs]
        if not step.inputs and readers:
            depth_of[step.name] = min(readers) - 1

    by_depth: dict[int, list[Step]] = {}
    for step in steps:
        by_depth.setdefault(depth_of[step.name], []).append(step)
    return [by_depth[depth] for depth in sorted(by_depth)]


class PaperSize(NamedTuple):
    """Millimetres on paper, before they are made smaller."""

    width: float
    height: float


PAPER = PaperSize(width=277, height=138)
"""What an A4 page in landscape has for matrices, below the name and the task."""

ARROW = 14  # millimetres of an arrow between two stages
ZOOMS = range(100, 35, -5)
"""Per cent of their size that matrices may be drawn at, so that all of a sheet stands on one page."""


class SheetLayout(NamedTuple):
    """Stages in lines on one page, at so many per cent of their size; 0 where they do not fit on one."""

    zoom: int
    lines: list[list[SheetStage]]
    heads_beside: bool

    @property
    def classes(self) -> list[str]:
        """What style.css knows it by."""
        if not self.zoom:
            return ["steps"]
        return ["steps", "fit", f"z{self.zoom}", *(["beside"] if self.heads_beside else [])]


def zoom_of(layout: SheetLayout) -> int:
    return layout.zoom


def lay_out(exercise: Exercise, *, heads_beside: bool) -> SheetLayout:
    """The layout of a sheet with the heads of a step side by side, or one below the other."""
    all_stages = stages(exercise)
    sizes = [size_of_stage(exercise, stage, heads_beside=heads_beside) for stage in all_stages]

    for zoom in ZOOMS:
        room = PaperSize(PAPER.width * 100 / zoom, PAPER.height * 100 / zoom)
        lines: list[list[SheetStage]] = []
        used = PaperSize(room.width, 0)  # of the last line
        height = 0.0
        for stage, size in zip(all_stages, sizes, strict=True):
            if used.width + size.width > room.width:
                height += used.height
                lines.append([])
                used = PaperSize(0, 0)
            lines[-1].append(stage)
            used = PaperSize(used.width + size.width, max(used.height, size.height))

        is_wide_enough = max((size.width for size in sizes), default=0) <= room.width
        if is_wide_enough and height + used.height <= room.height:
            return SheetLayout(zoom, lines, heads_beside)

    return SheetLayout(0, [all_stages], heads_beside)


def size_of_stage(exercise: Exercise, stage: SheetStage, *, heads_beside: bool) -> PaperSize:
    """How much paper a stage takes: the arrow to it, then its steps one below the other."""
    on_arrow = max((len(formula) for formula in stage.on_arrow), default=0)
    arrow = max(ARROW, on_arrow * 1.9)
    width = height = 0.0
    for step in stage.steps:
        width = max(width, len(formula_on(step)) * 2.0)
        sizes = [size_of_table(table) for table in tables_of(exercise, step.name)]
        widths = [size.width for size in sizes]
        heights = [size.height for size in sizes]
        if heads_beside:
            width = max(width, sum(widths))
            height += 13 + max(heights)
        else:
            width = max(width, *widths)
            height += 13 + sum(heights)
    return PaperSize(arrow + width, height + 4)


def size_of_table(table: SheetTable) -> PaperSize:
    label = max(map(len, table.rows), default=0) * 2 + 4
    texts = [cell.text for row in table.cells for cell in row]
    has_blanks = "" in texts
    widest = max(map(len, (*texts, *table.columns)), default=0) * 2.1 + 4
    cell = max(18.5, widest) if has_blanks else widest
    row_height = 8.4 if has_blanks else 6.2
    titles = 11 if table.caption else 6
    return PaperSize(label + cell * len(table.columns), titles + row_height * len(table.rows))


def arrow_html(stage: SheetStage) -> Iterator[str]:
    formulas = "".join(f'<p class="way">{escape(formula)}</p>' for formula in stage.on_arrow)
    yield f'<div class="arrow">{formulas}<i></i></div>'


def stage_html(exercise: Exercise, stage: SheetStage, *, typed: bool) -> Iterator[str]:
    yield '<div class="stage">'
    for step in stage.steps:
        yield from step_html(exercise, step, typed=typed)
    yield "</div>"


def step_html(exercise: Exercise, step: Step, *, typed: bool) -> Iterator[str]:
    kind = ' class="fill"' if step.name in exercise.blank else ""
    is_given = ' class="given"' if isinstance(step.op, Given) else ""
    formula = f"<span{is_given}>{escape(formula_on(step))}</span>"
    title = escape(f"{step.name}{say_points(exercise, step.name)}")
    scrolls = f' role="group" tabindex="0" aria-label="{escape(step.name)}"'
    if typed and step.name in exercise.blank:
        scrolls = ""  # the keyboard is in its cells, and so is all that one tabs through
    yield f'<section{kind}>\n<h2>{title} {formula}</h2>\n<div class="matrices"{scrolls}>'
    for table in tables_of(exercise, step.name):
        yield table_html(table, step.name, typed=typed)
    yield "</div>\n</section>"


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
