"""A sheet to be filled in as a workbook: a right answer turns green, a wrong one red.

Answers are formulas on hidden sheets, over the numbers that are handed out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

import numpy as np

from attnctl.drawing.show.workbook.book import (
    Workbook,
    plain_number,
)
from attnctl.drawing.show.workbook.formulas import VISIBLE_ABOVE, StepFormulas
from attnctl.drawing.show.workbook.layout import StepSheet, letters, sheet_names
from attnctl.math.engine import carry_out
from attnctl.math.steps import Derivation, Step
from attnctl.verbs.exercise import Exercise
from attnctl.verbs.exercise.sheet import facts_on, formula_on, require_few, task_of

ANSWERS, MARKS = "answer", "mark"
"""The hidden sheets of a blank step begin with these words: what is right, and 1 where what is there is."""

RIGHT_COLOUR, WRONG_COLOUR, BLANK_COLOUR = "C6EFCE", "FFC7CE", "FFFFFF"

LAST_DIGIT = 1.5
"""Of the last decimal: it may be off by one, and the answer is rounded by half of one."""


def write_xlsx(exercise: Exercise, stream: IO[bytes]) -> None:
    """Write an exercise as a workbook. Raises AttnError for more numbers than a person fills in."""
    require_few(exercise)
    Worksheet(exercise).write(stream)


class Worksheet(Workbook):
    def __init__(self, exercise: Exercise) -> None:
        super().__init__(exercise.trace)
        self.exercise = exercise
        self.tolerance = LAST_DIGIT * 10.0**-exercise.decimals
        self.steps = {step.name: step for step in exercise.steps}
        # Answers are formulas: of the run itself only the shapes are asked.
        derivation = Derivation(exercise.steps)
        self.run = carry_out(
            derivation, exercise.trace, exercise.trace.config.get("dtype", "float64")
        ).values
        self.answers = self.hidden_sheets(ANSWERS, self.steps_answered())
        self.marks = self.hidden_sheets(MARKS, exercise.blank)

    def steps_answered(self) -> list[str]:
        """The blank steps, and those between them that the sheet leaves out."""
        needed = set(self.exercise.blank)
        answered: list[str] = []
        for step in reversed(self.exercise.steps):
            if step.name in needed:
                answered.insert(0, step.name)
                needed.update(read for read in step.reads if read not in self.trace)
        return answered

    def hidden_sheets(self, word: str, steps: Sequence[str]) -> dict[str, StepSheet]:
        names = sheet_names(f"{word} {step}" for step in steps)
        return {step: StepSheet(names[f"{word} {step}"], self.run[step].shape) for step in steps}

    def facts(self) -> list[str]:
        return facts_on(self.trace)

    def formula_of(self, step: Step) -> str:
        return formula_on(step)

    def write(self, stream: IO[bytes]) -> None:
        about = self.add_about([*self.who(), task_of(self.exercise), "What is right turns green."])
        for name in self.trace:
            if name in self.exercise.blank:
                self.add_blank(name)
            else:
                self.add_given(name)
        for name in self.answers:
            self.add_answers(name)
        for name in self.marks:
            self.add_marks(name)
        self.add_score(about)
        self.write_into(stream)

    def who(self) -> Sequence[str]:
        student = self.exercise.student
        return () if student is None else (str(student),)

    def add_given(self, name: str) -> None:
        """A step that is handed out: its numbers as they are written, which answers follow from."""
        array = self.trace[name]
        self.fill(self.add_frame(name), name, lambda cell: plain_number(array[cell]), style="given")
        self.add_names(name)

    def add_blank(self, name: str) -> None:
        from openpyxl.formatting.rule import FormulaRule
        from openpyxl.styles import Border, PatternFill, Side

        sheet = self.add_frame(name)
        line = Side(style="thin", color="999999")
        for index in np.ndindex(self.trace[name].shape):
            cell = sheet.cell(*self.sheets[name].position(index))
            cell.border = Border(left=line, right=line, top=line, bottom=line)

        place = self.sheets[name]
        for lead in place.leads:
            cells = place.cells_of_matrix(lead)
            first = cells.partition(":")[0]
            mark = f"'{self.marks[name].name}'!{first}"
            right = PatternFill(bgColor=RIGHT_COLOUR)
            wrong = PatternFill(bgColor=WRONG_COLOUR)
            sheet.conditional_formatting.add(cells, FormulaRule([f"{mark}=1"], fill=right))
            sheet.conditional_formatting.add(cells, FormulaRule([f'AND({first}<>"",{mark}=0)'], fill=wrong))

    def add_answers(self, name: str) -> None:
        """The answers, over what is handed out and over the answers of blank steps before."""
        step = self.steps[name]
        inputs = [self.run[read] for read in step.reads]
        sheets = [self.answers.get(read) or self.sheets[read] for read in step.reads]
        formulas = StepFormulas(step, self.run[name].ndim, inputs, sheets)
        hidden = self.hidden_sheet(self.answers[name])
        for index in np.ndindex(self.run[name].shape):
            hidden.cell(*self.answers[name].position(index), formulas.formula(index))

    def add_marks(self, name: str) -> None:
        """1 where what was filled in is right; a hidden score is written as text by whoever has no −∞."""
        hidden = self.hidden_sheet(self.marks[name])
        for index in np.ndindex(self.trace[name].shape):
            place = self.sheets[name].position(index)
            typed = self.sheets[name].range(place, place)
            answer = self.answers[name].range(place, place)
            is_near = f"IF(ISNUMBER({typed}),ABS({typed}-{answer})<={self.tolerance!r},FALSE)"
            is_minus_infinity = f'OR({typed}="-inf",{typed}="−inf",{typed}="-∞",{typed}="−∞")'
            is_right = f"IF({answer}<{VISIBLE_ABOVE},{is_minus_infinity},{is_near})"
            hidden.cell(*place, f"=IF({is_right},1,0)")

    def hidden_sheet(self, place: StepSheet) -> Any:
        sheet = self.book.create_sheet(place.name)
        sheet.sheet_state = "hidden"
        return sheet

    def add_score(self, about: Any) -> None:
        """On the first sheet, beside each blank step: how many of its numbers are right."""
        column = about.max_column + 1
        rows = {about.cell(row, 1).value: row for row in range(1, about.max_row + 1)}
        for name in self.exercise.blank:
            marks = self.marks[name]
            cells = [marks.range_of_matrix(lead) for lead in marks.leads]
            total = "+".join(f"SUM({each})" for each in cells)
            about.cell(rows[name], column, f'={total}&" of {self.trace[name].size} right"')
        about.column_dimensions[letters(column)].width = 16
