"""A trace as a document of LaTeX, Typst or Markdown: each step with its formula and its matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isinf, isnan
from typing import TextIO

from attnctl.base.errors import AttnError
from attnctl.drawing import show
from attnctl.drawing.screen import Screen
from attnctl.drawing.show import View
from attnctl.drawing.show.frames import number_format
from attnctl.drawing.show.headline import facts
from attnctl.drawing.show.written.formulas import formula, symbol_of
from attnctl.drawing.show.written.languages import LANGUAGES, Language, Matrix
from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.math.ops import Given, Unstated
from attnctl.record import Trace

MOST_NUMBERS = 20_000
"""Numbers of a document: about a hundred pages."""

SCREEN = Screen()  # nothing is cut, and no colours


def write_latex(traces: Iterable[Trace], stream: TextIO, view: View | None = None) -> None:
    write_document(traces, stream, LANGUAGES["latex"], view or View())


def write_typst(traces: Iterable[Trace], stream: TextIO, view: View | None = None) -> None:
    write_document(traces, stream, LANGUAGES["typst"], view or View())


def write_markdown(traces: Iterable[Trace], stream: TextIO, view: View | None = None) -> None:
    write_document(traces, stream, LANGUAGES["markdown"], view or View())


def write_document(traces: Iterable[Trace], stream: TextIO, language: Language, view: View) -> None:
    body = [line for trace in traces for line in trace_lines(trace, language, view)]
    stream.writelines(f"{line}\n" for line in language.document(body))


def trace_lines(trace: Trace, language: Language, view: View) -> Iterator[str]:
    """Raises AttnError for a step or head that is not there, and for more numbers than anyone reads."""
    steps = show.steps_of(trace, view)
    heads = show.count_heads(trace, view.heads)
    count = sum(trace[step.name].size for step in steps)
    if count > MOST_NUMBERS:
        few = f"a document holds {MOST_NUMBERS:,}"
        raise AttnError(f"{count:,} numbers: {few}; choose some with --step and --head")

    yield from language.begin(trace.sentence or "attention")
    if words := facts(trace):
        yield from language.paragraph(", ".join(words))
    for step in steps:
        yield from step_lines(show.load_sheet(trace, step.name), step, language, view, heads)


def step_lines(trace: Trace, step: Step, language: Language, view: View, heads: int) -> Iterator[str]:
    yield from language.heading(step.name)
    yield from formula_lines(step, language)
    yield from language.matrices(list(matrices_of(trace, step, language, view, heads)))


def formula_lines(step: Step, language: Language) -> Iterator[str]:
    """`A = softmax over keys`; of what is given, where it is from, in words."""
    if isinstance(step.op, Given | Unstated):
        if step.formula:
            yield from language.paragraph(step.formula)
        return
    left = symbol_of(step.symbol, language)
    right = formula(step.formula, language)
    yield from language.equation([right if right.startswith(f"{left} ") else f"{left} = {right}"])


def matrices_of(trace: Trace, step: Step, language: Language, view: View, heads: int) -> Iterator[Matrix]:
    sheet = show.sheet_of(trace, step.name, heads, view.heads)
    format_ = number_format(sheet.array, view.precision, SCREEN)
    truths = sheet.array.dtype == bool

    def number(value: float) -> str:
        if truths:
            return "1" if value else "0"
        if isnan(value):
            return language.quoted("NaN")
        if isinf(value):
            return language.number("−∞" if value < 0 else "∞")
        return language.number(format_(value).strip())

    for caption, index in zip(sheet.captions, sheet.indices, strict=True):
        matrix: Array = sheet.array[index]
        cells = [[number(value) for value in row] for row in matrix.tolist()]
        rows = [label.strip() for label in sheet.rows]
        yield Matrix(caption, rows, [label.strip() for label in sheet.columns], cells)
