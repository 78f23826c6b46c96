"""An explanation as a document of LaTeX, Typst or Markdown: each line of its arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TextIO

from attnctl.drawing.screen import Screen
from attnctl.drawing.show.written.document import formula_lines
from attnctl.drawing.show.written.formulas import expression, has_index, name_of
from attnctl.drawing.show.written.languages import LANGUAGES, Language, lines_of
from attnctl.math import Cell
from attnctl.math.arithmetic import Number
from attnctl.math.ops import Given
from attnctl.record.cells import Token, parse_address
from attnctl.verbs.explain import SHOWN, Explainer, Explanation, Node
from attnctl.verbs.explain.view import Page, Question, number_for_people, shortened

DIGITS = 4


def write_latex(found: Sequence[Question], stream: TextIO) -> None:
    stream.write(explanation_text(found, "latex"))


def write_typst(found: Sequence[Question], stream: TextIO) -> None:
    stream.write(explanation_text(found, "typst"))


def write_markdown(found: Sequence[Question], stream: TextIO) -> None:
    stream.write(explanation_text(found, "markdown"))


def explanation_text(
    found: Sequence[Question], notation: str, digits: int = DIGITS, *, full: bool = False
) -> str:
    """The explanations as one document, numbers to so many digits; unless `full`, long sums are cut."""
    language = LANGUAGES[notation]
    body: list[str] = []
    for explainer, address, depth in found:
        root = explainer.root(address, depth)
        body += Written(explainer, language, digits, full).lines(root)
    return "".join(f"{line}\n" for line in language.document(body))


class Written:
    """What writes the nodes of one explanation in a language."""

    def __init__(self, explainer: Explainer, language: Language, digits: int, full: bool) -> None:
        self.explainer = explainer
        self.language = language
        self.digits = digits
        self.most = None if full else SHOWN
        self.page = Page(explainer, Screen(), digits, full=full)  # which says what is worth a note

    def lines(self, root: Node) -> Iterator[str]:
        """The title, the arithmetic of a cell, and of each cell that it goes back to."""
        explanation = root.explanation
        assert explanation is not None
        yield from self.language.heading(explanation.name)
        yield from formula_lines(explanation.step, self.language)
        yield from self.arithmetic(explanation)
        for note in self.page.notes(explanation):
            yield from self.language.paragraph(note)
        yield from self.below(root)

    def below(self, node: Node) -> Iterator[str]:
        """The arithmetic of the cells that were read, where it is asked for and they are not given."""
        children = [child for child in node.children if is_worked_out(child)]
        for child in children:
            assert child.explanation is not None
            yield from self.arithmetic(child.explanation)
        for child in children:
            yield from self.below(child)

    def arithmetic(self, explanation: Explanation) -> Iterator[str]:
        """`scores[…] = Q[…]·K[…] + … = 0.1·0.2 + … = 0.3`, each side on a line of its own."""
        sides = [self.cell(explanation.step.name, explanation.cell)]
        expr = shortened(explanation.expr, self.most)
        if explanation.inputs:
            sides.append(expression(expr, self.language, lambda read: self.symbol(explanation, read)))
        if not isinstance(explanation.expr, Number):
            sides.append(expression(expr, self.language, self.figure))
        result = explanation.value if explanation.gives is None else explanation.gives
        sides.append(self.number(result))
        yield from self.language.equation(lines_of(sides, self.language))

    def number(self, value: float) -> str:
        text = number_for_people(value, self.digits)
        return self.language.number(text if isfinite(value) else text.replace("-", "−"))

    def symbol(self, explanation: Explanation, read: Number) -> str:
        if read.terms:
            return self.rest(read.terms)
        if read.source is None:
            return self.number(read.value)
        position, cell = read.source
        return self.cell(explanation.step.reads[position], cell)

    def figure(self, read: Number) -> str:
        number = self.number(read.value)
        return f"{self.rest(read.terms)}{self.language.quoted(': ')} {number}" if read.terms else number

    def rest(self, terms: int) -> str:
        return self.language.quoted(f"({terms:,} more)")

    def cell(self, step: str, cell: Cell) -> str:
        """A cell as its step with its places below: tokens where they say where it is."""
        places = []
        for part in parse_address(self.explainer.spell(step, cell)).parts:
            if isinstance(part, Token):
                nth = "" if part.nth is None else f"#{part.nth}"
                places.append(self.language.quoted(f"{part.text}{nth}"))
            else:
                places.append(str(part))
        name = name_of(step, self.language)
        if not places:
            return name
        put = self.language.below_again if has_index(step) else self.language.below
        return put(name, ",".join(places))


def is_worked_out(node: Node) -> bool:
    explanation = node.explanation
    return explanation is not None and not node.repeated and not isinstance(explanation.step.op, Given)
