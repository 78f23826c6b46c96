"""A trace as Markdown: a heading and a table (GitHub's kind) for each matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from re import findall
from typing import TextIO

from attnctl.base.words import number_repeats, number_text
from attnctl.drawing import show
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.text import safe, token_text, visible
from attnctl.drawing.show import View, formula_of, shape_of
from attnctl.drawing.show.frames import number_format
from attnctl.drawing.show.headline import facts
from attnctl.math.derivation import Step
from attnctl.record import Trace

HARMLESS = str.maketrans("", "", " -")
SCREEN = Screen()  # Markdown is UTF-8, never cut and without colours


def write_markdown(
    traces: Iterable[Trace], stream: TextIO, precision: int | None = 4, view: View | None = None
) -> None:
    """`precision` None is every digit. Raises AttnError for a step or head that is not there."""
    for trace in traces:
        stream.writelines(f"{safe(line)}\n" for line in trace_lines(trace, precision, view or View()))


def trace_lines(trace: Trace, precision: int | None, view: View) -> Iterator[str]:
    steps = show.steps_of(trace, view)
    heads = show.count_heads(trace, view.heads)

    yield f"# {inline(visible(trace.sentence or 'attention'))}"
    if words := facts(trace):
        yield ""
        yield ", ".join(inline(visible(fact)) for fact in words)

    if trace.tokens and trace.ids:
        yield ""
        yield from table_lines(number_repeats(map(token_text, trace.tokens)), ["id"], [map(str, trace.ids)])

    for step in steps:
        yield from step_lines(show.load_sheet(trace, step.name), step, precision, view, heads)
    yield ""


def step_lines(trace: Trace, step: Step, precision: int | None, view: View, heads: int) -> Iterator[str]:
    sheet = show.sheet_of(trace, step.name, heads, view.heads)
    marked = show.marks(trace, step.name, sheet.array, SCREEN)
    about = [code(visible(formula_of(step))), shape_of(trace, step), *marked.notes]
    yield ""
    yield f"## {step.name}"
    yield ""
    yield "; ".join(about)

    number = writer(sheet, precision)
    for caption, index in zip(sheet.captions, sheet.indices, strict=True):
        yield ""
        if caption:
            yield f"### {caption}"
            yield ""
        yield from table_lines(sheet.columns, sheet.rows, cells_of(sheet, index, marked, number))


def writer(sheet: show.Sheet, precision: int | None) -> Callable[[float], str]:
    if precision is None:
        return number_text if sheet.array.dtype.kind == "f" else str
    format_ = number_format(sheet.array, precision, SCREEN)
    return lambda value: format_(value).strip()


def cells_of(
    sheet: show.Sheet, index: show.Index, marked: show.Marks, text: Callable[[float], str]
) -> Iterator[list[str]]:
    """The cells of a matrix, row by row: a number, or the word that stands in its place."""
    codes = marked.codes(index)
    columns = range(len(sheet.columns))
    for row, values in enumerate(sheet.array[index]):
        block = codes(range(row, row + 1), columns)
        kinds = [0] * len(columns) if block is None else block[0].tolist()

        row_cells = []
        for value, kind in zip(values.tolist(), kinds, strict=True):
            word, _ = marked.kinds[kind]
            row_cells.append(word or text(value))
        yield row_cells


def table_lines(
    columns: Sequence[str], rows: Sequence[str], cells: Iterable[Iterable[str]]
) -> Iterator[str]:
    yield f"| | {' | '.join(map(in_table, columns))} |"
    yield f"|:--|{'--:|' * len(columns)}"
    for label, row in zip(rows, cells, strict=True):
        yield f"| {in_table(label)} | {' | '.join(row)} |"


def in_table(label: str) -> str:
    """A label that no pipe in it can break out of its cell."""
    if "\\|" in label:  # readers disagree on what a backslash before an escaped pipe is
        return f"<code>{''.join(f'&#{ord(char)};' for char in label)}</code>"
    return inline(label.strip()).replace("|", "\\|")


def inline(text: str) -> str:
    """Words as they are; anything that Markdown might read as more than words as code."""
    is_plain = not text or text.translate(HARMLESS).isalnum()
    return text if is_plain else code(text)


def code(text: str) -> str:
    """A code span, its fence longer than any run of backticks inside."""
    longest_run = max(map(len, findall("`+", text)), default=0)
    fence = "`" * (longest_run + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"
