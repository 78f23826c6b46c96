"""An explanation on the screen and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from math import isfinite, log10
from typing import IO, Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.words import all_of, number_text
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.grid import matrix_format
from attnctl.drawing.screen.text import cells, pad_right
from attnctl.math.arithmetic import Expr, Number, Operation, abridge, display
from attnctl.math.ops import Given, Softmax
from attnctl.record.cells import Address
from attnctl.store.files import encode_json, sink
from attnctl.store.header import as_json_data
from attnctl.verbs.explain import SHOWN, Explainer, Explanation, Node, Parts, labels

DIFFERS = "but {} was recorded here"
ROUNDED = "rounding to {} moved it from {}"
MAXIMUM = "{} is the maximum of the row: softmax subtracts it from every score"
"""What is said below the arithmetic of a cell."""

FEWER = (SHOWN, 6, 4, 3, 2)  # terms of a sum in the tree, where more do not fit on a line

CHILDREN = 8
"""Of a node of the tree on a terminal."""

NARROWEST = 24
"""Cells that an equation has at least to the right of its sign."""


class Guides(NamedTuple):
    """What leads to a cell in the tree and to the last one, and what stands below either."""

    tee: str
    corner: str
    below_tee: str
    below_corner: str


GUIDES = Guides("├── ", "└── ", "│   ", "    ")
ASCII_GUIDES = Guides("|-- ", "`-- ", "|   ", "    ")


@dataclass(frozen=True)
class Page:
    explainer: Explainer
    screen: Screen
    precision: int = 4
    depth: int = 1
    full: bool = False

    @property
    def fitted(self) -> bool:
        return self.screen.fits and not self.full

    def lines(self, root: Node) -> Iterator[Line]:
        explanation = root.explanation
        assert explanation is not None
        step = explanation.step

        sign = ": " if isinstance(step.op, Given) else " = "
        yield [
            (self.screen.printable(step.name), "name"),
            (self.screen.printable(sign + step.formula), "formula"),
        ]
        yield []

        most = SHOWN if self.fitted else None
        if explanation.inputs:
            yield from self.equation(explanation.name, [self.symbols(explanation, most)])
        yield from self.equation(explanation.name, self.figures(explanation, most))
        for note in (*self.notes(explanation), *self.forward(explanation)):
            yield from self.screen.flow([(self.screen.printable(note), "aside")], " ")

        parts = self.explainer.parts(root)
        if parts:
            yield []
            yield from self.parts(explanation.name, parts)

        if self.depth > 1 and explanation.inputs:
            yield []
            yield [(self.screen.printable(explanation.name), "label")]
            yield from self.tree_lines(root, "", set())

    def number(self, value: float) -> str:
        return number_for_people(value, self.precision)

    def symbols(self, explanation: Explanation, most: int | None) -> str:
        """The arithmetic with cells for numbers: `Q[0,love,0]·K[0,AI,0] + …`."""

        def symbol(read: Number) -> str:
            if read.terms:
                return words_for_rest(read.terms)
            if read.source is None:
                return self.number(read.value)
            position, cell = read.source
            return self.explainer.spell(explanation.step.reads[position], cell)

        return display(shortened(explanation.expr, most), symbol)

    def figures(self, explanation: Explanation, most: int | None, *, bare: bool = False) -> list[str]:
        """The arithmetic in numbers, unless it is just one, and what it comes to.

        Terms that are not written are counted; unless `bare`, what they come to is said too.
        """

        def figure(read: Number) -> str:
            number = self.number(read.value)
            if not read.terms:
                return number
            return words_for_rest(read.terms) if bare else f"{words_for_rest(read.terms)}: {number}"

        result = self.number(explanation.value if explanation.gives is None else explanation.gives)
        if isinstance(explanation.expr, Number):
            return [result]
        return [display(shortened(explanation.expr, most), figure), result]

    def notes(self, explanation: Explanation) -> Iterator[str]:
        value = self.number(explanation.value)
        if explanation.gives is not None:
            yield DIFFERS.format(value)

        exact = self.number(explanation.value - explanation.rounding)
        if isfinite(explanation.value) and exact != value:
            dtype = self.explainer.trace[explanation.step.name].dtype
            yield ROUNDED.format(dtype.name, exact)

        match explanation.step.op, explanation.expr:
            case Softmax(), Operation("/", (Operation("exp", (Operation("-", (_, Number(top))),)), _)):
                yield MAXIMUM.format(self.number(top))

        if explanation.left_out:
            yield "of a long sum the largest terms are shown; --full shows all of them"
        yield from explanation.notes

    def forward(self, explanation: Explanation) -> Iterator[str]:
        needs = self.explainer.forward_of(explanation.step.name)
        reads = needs["reads"]
        behind = needs["behind"]

        words = []
        if reads:
            words.append(f"this reads {all_of(reads)}")
        if behind:
            subject = "it" if reads else "this"
            words.append(f"the gradients that {subject} reads need {all_of(behind)}")
        if words:
            yield f"of the forward pass {'; '.join(words)}"

    def equation(self, name: str, sides: list[str]) -> Iterator[Line]:
        """`name = side = side`, going on below its first sign where it is too long."""
        name = self.screen.printable(name)
        terms: list[str] = []
        for side in sides:
            terms += re.split(r" (?=[+/] )", f"= {side}")

        has_room = cells(name) <= self.screen.width - NARROWEST
        indent = " " * (cells(name) if has_room else 1)  # the sign stands one cell behind it
        start = name
        text = ""
        for term in map(self.screen.printable, terms):
            is_wide = cells(start) + cells(text) + cells(term) + 1 > self.screen.width
            if text and self.screen.fits and is_wide:
                yield [(start, "label"), (text, "")]
                start = indent
                text = ""
            text += f" {term}"
        yield [(start, "label"), (text, "")]

    def parts(self, name: str, parts: Parts) -> Iterator[Line]:
        printable = self.screen.printable
        yield [(printable(f"{name} by what it came from, query × key"), "aside")]

        values = np.array(list(parts.values()))
        form = matrix_format(values, self.precision, ascii_only=self.screen.ascii_only)
        words = [printable(part.replace("×", " × ")) for part in parts]
        width = max(map(cells, words))
        for part, word, value in zip(parts, words, values.tolist(), strict=True):
            label = f"  {pad_right(word, width)}"
            note = printable(PART_NOTES.get(part, ""))
            yield [(label, "label"), (f"  {form(value)}", ""), (note, "aside")]

    def tree_lines(self, node: Node, before: str, introduced: set[str]) -> Iterator[Line]:
        """The cells that a cell came from, and theirs; of `introduced` givens the formula is known."""
        guides = ASCII_GUIDES if self.screen.ascii_only else GUIDES
        explanation = node.explanation
        listed = len(explanation.inputs) if explanation else 0
        count = listed + explanation.unlisted if explanation else 0
        # One cell more takes no more room than the line that counts it.
        shown = CHILDREN if self.fitted and count > CHILDREN + 1 else listed

        for number, child in enumerate(islice(node.children, shown), start=1):
            is_last = number == count
            guide = before + (guides.corner if is_last else guides.tee)
            below = before + (guides.below_corner if is_last else guides.below_tee)
            yield [(guide, "frame"), *self.child_line(child, self.screen.width - cells(guide), introduced)]
            yield from self.tree_lines(child, below, introduced)

        if shown < count:
            rest = f"{self.screen.left_out(count - shown)} (--full shows them)"
            yield [(before + guides.corner, "frame"), (rest, "aside")]

    def child_line(self, node: Node, room: int, introduced: set[str]) -> Line:
        """A cell in the tree: its arithmetic where there is room, its value, where it is from."""
        name = self.screen.printable(node.name)
        sides = [self.number(node.value)]
        explanation = node.explanation
        if explanation is not None and not node.repeated and not isinstance(explanation.step.op, Given):
            sides = self.figures_that_fit(explanation, name, room)
        text = self.screen.printable(f" = {' = '.join(sides)}")

        aside = self.screen.printable(self.aside_of_child(node, introduced))
        if self.fitted:
            aside = self.screen.short(aside, max(0, room - cells(name) - cells(text)))
        return [(name, "label"), (text, ""), (aside, "aside")]

    def aside_of_child(self, node: Node, introduced: set[str]) -> str:
        """Where a cell is from that is not worked out here; of a step that is given once is enough."""
        if node.repeated:
            return "  (above)"

        if node.explanation is None:
            words = f"  ({node.why_not})" if node.why_not else ""
        elif isinstance(node.explanation.step.op, Given):
            words = f"  {node.explanation.step.formula}"
        else:
            return ""

        if not words or node.step in introduced:
            return ""
        introduced.add(node.step)
        return words

    def figures_that_fit(self, explanation: Explanation, name: str, room: int) -> list[str]:
        """The arithmetic with as many terms as there is room for; where there is none, its result."""
        whole = self.figures(explanation, None)
        if not self.fitted:
            return whole

        for bare in (False, True):
            for most in FEWER:
                sides = self.figures(explanation, most, bare=bare)
                if cells(" = ".join([name, *sides])) <= room:
                    return sides
        return whole[-1:]


PART_NOTES = {
    "bias": "  every product that a bias is in",
    "rest": "  rounding, or numbers that were changed on the way",
}
"""What stands beside a part whose name does not say what it is."""


def shortened(expr: Expr, most: int | None) -> Expr:
    """The arithmetic with so many terms of each sum; None is all of them."""
    return expr if most is None else abridge(expr, most)


def words_for_rest(terms: int) -> str:
    return f"… {terms:,} more"


def number_for_people(value: float, precision: int) -> str:
    """So many decimals at most, none of them trailing zeros; very small and large ones by exponent."""
    if not isfinite(value):
        return number_text(value).replace("Infinity", "∞")
    if not value:
        return "0"
    if -min(3, precision) <= log10(abs(value)) < 6:
        return trim_zeros(f"{value:.{precision}f}")
    mantissa, exponent = f"{value:.{precision}e}".split("e")
    return f"{trim_zeros(mantissa)}e{int(exponent)}"


def trim_zeros(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


Question = tuple[Explainer, Address, int]
"""What explains a cell, the cell, and how many lines back."""


def write_json(found: Sequence[Question], stream: IO[Any]) -> None:
    """Write one explanation as an object, several as an array."""
    write = sink(stream)
    several = len(found) != 1
    for number, (explainer, address, depth) in enumerate(found):
        if several:
            write(b"," if number > 0 else b"[")
        for piece in json_pieces(explainer, explainer.root(address, depth)):
            write(encode_json(piece))
    if several:
        write(b"]\n")


def json_pieces(explainer: Explainer, root: Node) -> Iterator[str]:
    """The explanation as JSON, a piece at a time: a deep one is long."""
    of_root: dict[str, Any] = {}
    parts = explainer.parts(root)
    if parts:
        of_root["parts"] = parts
    forward = explainer.forward_of(root.step)
    if any(forward.values()):
        of_root["forward"] = forward

    yield from node_pieces(explainer, root, of_root, "\n")
    yield "\n"


def node_pieces(explainer: Explainer, node: Node, more: dict[str, Any], newline: str) -> Iterator[str]:
    text = json.dumps(as_json_data(node_data(explainer, node) | more), ensure_ascii=False)
    if node.explanation is None:
        yield text
        return

    yield f'{text[:-1]}, "inputs": ['
    for number, child in enumerate(node.children):
        yield f"{',' if number > 0 else ''}{newline}  "
        yield from node_pieces(explainer, child, {}, f"{newline}  ")
    yield "]}"


def node_data(explainer: Explainer, node: Node) -> dict[str, Any]:
    data: dict[str, Any] = {"cell": node.name, "value": node.value}
    if node.explanation is not None:
        data |= explanation_data(node.explanation)
    if node.repeated:
        data["repeated"] = True
    if node.why_not:
        data["why_not"] = node.why_not

    data["step"] = node.step
    data["index"] = list(node.cell)
    data["tokens"] = labels(explainer.trace, node.step, node.cell)
    return data


def explanation_data(explanation: Explanation) -> dict[str, Any]:
    data: dict[str, Any] = {
        "formula": explanation.step.formula,
        "expression": explanation.expression,
    }
    if explanation.gives is not None:
        data["gives"] = explanation.gives
    left_out = [{"terms": number.terms, "sum": number.value} for number in explanation.left_out]
    if left_out:
        data["left_out"] = left_out
    if explanation.notes:
        data["notes"] = list(explanation.notes)
    return data
