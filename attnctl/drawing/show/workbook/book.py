"""A run as a workbook: a first sheet that explains, and a sheet for each step.

Numbers that are given are written down, on yellow; every other is a formula, so that a change of one number
shows in all that follow. Weights are coloured by what they come to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite, isnan
from re import fullmatch
from typing import IO, Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.drawing.screen.text import visible
from attnctl.drawing.show import formula_of, heads_of, shape_of, sheet_of
from attnctl.drawing.show.headline import facts
from attnctl.drawing.show.workbook.formulas import HIDDEN, VISIBLE_ABOVE, CellValue, StepFormulas
from attnctl.drawing.show.workbook.layout import FIRST_COLUMN, FIRST_ROW, StepSheet, letters, sheet_names
from attnctl.math import Cell
from attnctl.math.derivation import Step
from attnctl.math.names import shares_in
from attnctl.math.ops import Given, Unstated
from attnctl.record import Trace

MOST_NUMBERS = 200_000
"""Numbers of a workbook: each formula takes a kilobyte while it is written, and its time to be opened."""

ABOUT = "about"
"""The name of the first sheet."""

NUMBERS = f'[<{VISIBLE_ABOVE}]"−∞";0.0000'
VISIBILITY = '[=0]"·";"see"'
TITLE_ROW, NOTE_ROW = 1, 2

GIVEN_COLOUR = "FFF7D6"
HEAD_COLOUR = "EEF1F5"
WEIGHT_COLOUR = "7FB2E5"
"""Of a weight of 1; 0 is white."""

LINK_COLOUR = "0563C1"

WIDTHS_OF_ABOUT = (26, 10, 60, 34)
"""Characters of the columns: step, symbol, formula, shape."""


def require_openpyxl() -> Any:
    """Import what writes workbooks. Raises AttnError where it is not installed."""
    try:
        import openpyxl
    except ImportError:
        raise AttnError("an .xlsx file needs openpyxl; pip install 'attnctl[xlsx]'") from None
    return openpyxl


def write_xlsx(trace: Trace, stream: IO[bytes]) -> None:
    """Write a trace as a workbook. Raises AttnError for more numbers than one should have."""
    book = Workbook(trace)
    book.add_about(how_to_read(trace))
    for name in trace:
        book.add_step(name)
    book.write_into(stream)


def how_to_read(trace: Trace) -> list[str]:
    sentences = [
        "Each sheet is a step. Numbers on yellow are given; others are formulas over the sheets before.",
        "Click a number to see what it is made of. Change a yellow one, and all that follows changes.",
    ]
    dtype = trace.config.get("dtype", "float64")
    if dtype != "float64":
        sentences.append(f"The run rounds each step to {dtype}; a spreadsheet counts in float64.")
    return sentences


class Workbook:
    """A workbook that is being made of a trace; `sheets` says where each step stands."""

    def __init__(self, trace: Trace) -> None:
        openpyxl = require_openpyxl()
        count = sum(array.size for array in trace.values())
        if count > MOST_NUMBERS:
            few = f"a workbook holds {MOST_NUMBERS:,}"
            raise AttnError(f"{count:,} numbers: {few}; make the run smaller, or write .npz")
        self.trace = trace
        self.book = openpyxl.Workbook()
        self.book.remove(self.book.active)
        # Formulas are written without their values: whoever opens the file works them out.
        self.book.calculation.fullCalcOnLoad = True
        names = sheet_names(trace, taken=[ABOUT])
        self.sheets = {step: StepSheet(name, trace[step].shape) for step, name in names.items()}

    def write_into(self, stream: IO[bytes]) -> None:
        self.book.save(stream)

    def facts(self) -> list[str]:
        return facts(self.trace)

    def formula_of(self, step: Step) -> str:
        return formula_of(step)

    # --- the first sheet ---

    def add_about(self, sentences: Sequence[str]) -> Any:
        """What this is, how to read it, and every step with a link to its sheet."""
        sheet = self.book.create_sheet(ABOUT)
        write_text(sheet, (1, 1), self.trace.sentence or "attention", "title")
        row = 2
        for line in (", ".join(self.facts()), *sentences):
            write_text(sheet, (row, 1), line)
            row += 1

        row += 1
        for column, title in enumerate(("step", "symbol", "formula", "shape"), 1):
            write_text(sheet, (row, column), title, "head")
        sheet.freeze_panes = f"A{row + 1}"
        for name, step in self.trace.steps.items():
            row += 1
            write_text(sheet, (row, 1), name, "link")
            sheet.cell(row, 1).hyperlink = f"#'{self.sheets[name].name}'!A1"
            texts = (step.symbol, self.formula_of(step), shape_of(self.trace, step))
            for column, text in enumerate(texts, 2):
                write_text(sheet, (row, column), text)
        for column, width in enumerate(WIDTHS_OF_ABOUT, 1):
            sheet.column_dimensions[letters(column)].width = width
        fit_on_paper(sheet)
        return sheet

    # --- the sheet of a step ---

    def add_step(self, name: str) -> None:
        step = self.trace.steps[name]
        sheet = self.add_frame(name)
        is_input = is_given(self.trace, step)
        is_complete = self.fill(
            sheet, name, self.contents_of(step), style="given" if is_input else "number"
        )
        if not is_complete:
            note = "In italics: numbers whose formula is longer than a spreadsheet takes."
            write_text(sheet, (NOTE_ROW, 1), note, "note")
        if name in shares_in(self.trace):
            self.colour_weights(sheet, name)
        self.add_names(name)

    def add_frame(self, name: str) -> Any:
        """A sheet with its title, and the tokens of rows and columns of each matrix."""
        step = self.trace.steps[name]
        place = self.sheets[name]
        sheet = self.book.create_sheet(place.name)
        write_text(sheet, (TITLE_ROW, 1), self.formula_of(step), "title")
        write_text(sheet, (NOTE_ROW, 1), f"{name}: {shape_of(self.trace, step)}", "note")

        labels = sheet_of(self.trace.select([name]), name, heads_of(self.trace))
        for caption, lead in zip(labels.captions, place.leads, strict=True):
            top = place.top(lead)
            write_text(sheet, (top - 1, 1), caption, "head")
            for number, text in enumerate(labels.columns):
                write_text(sheet, (top - 1, FIRST_COLUMN + number), text.strip(), "head")
            for number, text in enumerate(labels.rows):
                write_text(sheet, (top + number, 1), text.strip(), "head")

        sheet.column_dimensions["A"].width = 16
        fit_on_paper(sheet)
        # Of several matrices the tokens of the first would stand above all of them.
        pane = FIRST_ROW if len(place.leads) == 1 else NOTE_ROW + 1
        sheet.freeze_panes = f"{letters(FIRST_COLUMN)}{pane}"
        return sheet

    def contents_of(self, step: Step) -> Callable[[Cell], CellValue | None]:
        """What stands in each cell of a step; None where its formula is too long."""
        array = self.trace[step.name]
        if is_given(self.trace, step):
            return lambda cell: plain_number(array[cell])
        inputs = [self.trace[name] for name in step.reads]
        sheets = [self.sheets[name] for name in step.reads]
        return StepFormulas(step, array.ndim, inputs, sheets).formula

    def fill(
        self, sheet: Any, name: str, contents: Callable[[Cell], CellValue | None], *, style: str
    ) -> bool:
        """Write the numbers; False where one has no formula, and is written down as it is."""
        array = self.trace[name]
        is_complete = True
        for index in np.ndindex(array.shape):
            content = contents(index)
            cell = sheet.cell(*self.sheets[name].position(index))
            cell.number_format = VISIBILITY if array.dtype == bool else NUMBERS
            if content is not None:
                cell.value = content
                dress(cell, style)
            else:
                cell.value = plain_number(array[index])
                dress(cell, "written down")
                is_complete = False
        return is_complete

    def colour_weights(self, sheet: Any, name: str) -> None:
        from openpyxl.formatting.rule import ColorScaleRule

        scale = ColorScaleRule(
            start_type="num", start_value=0, start_color="FFFFFF",
            end_type="num", end_value=1, end_color=WEIGHT_COLOUR,
        )  # fmt: skip
        place = self.sheets[name]
        for lead in place.leads:
            sheet.conditional_formatting.add(place.cells_of_matrix(lead), scale)

    def add_names(self, name: str) -> None:
        """Name each matrix for a person's own formulas: scores, or scores_0 and scores_1 of two heads."""
        from openpyxl.workbook.defined_name import DefinedName

        place = self.sheets[name]
        for lead in place.leads:
            suffix = "".join(f"_{number}" for number in lead) if len(place.leads) > 1 else ""
            word = range_name(name + suffix)
            if word not in self.book.defined_names:
                self.book.defined_names[word] = DefinedName(word, attr_text=place.range_of_matrix(lead))


def is_given(trace: Trace, step: Step) -> bool:
    """True where no formula says the numbers: inputs, edits, what runs along tokens, inputs left out."""
    if isinstance(step.op, Given | Unstated) or step.op.recurrent:
        return True
    return step.name in trace.edited or any(name not in trace for name in step.reads)


def plain_number(value: Any) -> CellValue:
    """A number that is written down as it is; nothing for one that is not there, and ∞ as a word."""
    number = float(value)
    if isnan(number):
        return ""
    if number == -inf:
        return HIDDEN
    return number if isfinite(number) else str(number)


def range_name(name: str) -> str:
    """A name that spreadsheets take: none that could be a cell (Q1), and neither R nor C."""
    is_cell = fullmatch(r"[A-Za-z]{1,3}\d+|[RrCc](\d.*)?", name)
    return f"{name}_" if is_cell else name


# --- styles ---


def fit_on_paper(sheet: Any) -> None:
    """Printed as wide as a page, lying, and as long as it takes."""
    sheet.page_setup.orientation = "landscape"
    sheet.page_setup.fitToHeight = 0
    sheet.sheet_properties.pageSetUpPr.fitToPage = True


def write_text(sheet: Any, place: tuple[int, int], text: str, style: str = "text") -> None:
    """A text as a text: a token that begins with = is no formula."""
    cell = sheet.cell(*place)
    cell.value = visible(text)
    cell.data_type = "s"
    dress(cell, style)


def dress(cell: Any, style: str) -> None:
    for attribute, value in styles()[style].items():
        setattr(cell, attribute, value)


STYLES: dict[str, dict[str, Any]] = {}


def styles() -> Mapping[str, Mapping[str, Any]]:
    """How each kind of cell looks; made once, as thousands of cells share them."""
    if not STYLES:
        from openpyxl.styles import Alignment, Font, PatternFill

        head = PatternFill("solid", start_color=HEAD_COLOUR)
        STYLES.update(
            {
                "text": {},
                "number": {},
                "title": {"font": Font(bold=True, size=14)},
                "note": {"font": Font(italic=True, color="666666")},
                "head": {
                    "font": Font(bold=True),
                    "fill": head,
                    "alignment": Alignment(horizontal="center"),
                },
                "link": {"font": Font(color=LINK_COLOUR, underline="single")},
                "given": {"fill": PatternFill("solid", start_color=GIVEN_COLOUR)},
                "written down": {"font": Font(italic=True)},
            }
        )
    return STYLES
