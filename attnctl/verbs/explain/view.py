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
from attnctl.base.words import all_of, number_text
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.grid import matrix_format
from attnctl.drawing.screen.text import cells, pad_right
from attnctl.math.arithmetic import Number, Operation, abridge, display
from attnctl.math.ops import Given, Softmax
from attnctl.record.cells import Address
from attnctl.store.files import encode_json, sink
from attnctl.store.header import as_json_data
from attnctl.verbs.explain import SHOWN, Explainer, Explanation, Node, Parts, labels

DIFFERS = "but the dump has {} here"
ROUNDED = "rounding to {} moved it from {}"
MAXIMUM = "{} is the maximum of the row: softmax subtracts it from every score"
"""What is said below the arithmetic of a cell."""

FEWER = (SHOWN, 6, 4, 3, 2)  # terms of a sum in the tree, where more do not fit on a line

CHILDREN, NARROWEST = 8, 24
"""Of a node of the tree on a terminal; cells that an equation has at least to the right of its sign."""

GUIDES, PLAIN_GUIDES = ("├── ", "└── ", "│   ", "    "), ("|-- ", "`-- ", "|   ", "    ")


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
        found = root.explanation
        assert found is not None
        sign = ": " if isinstance(found.step.op, Given) else " = "
        title = [(found.step.name, "name"), (sign + found.step.formula, "formula")]
        yield [(self.screen.printable(text), style) for text, style in title]
        yield []
        most = SHOWN if self.fitted else None
        if found.inputs:
            yield from self.equation(found.name, [self.symbols(found, most)])
        yield from self.equation(found.name, self.figures(found, most))
        for note in (*self.notes(found), *self.forward(found)):
            yield from self.screen.flow([(self.screen.printable(note), "aside")], " ")
        parts = self.explainer.parts(root)
        if parts:
            yield []
            yield from self.parts(found.name, parts)
        if self.depth > 1 and found.inputs:
            yield []
            yield [(self.screen.printable(found.name), "label")]
            yield from self.tree_lines(root, "", set())

    def number(self, value: float) -> str:
        return number_for_people(value, self.precision)

    def symbols(self, found: Explanation, most: int | None) -> str:
        """The arithmetic with cells for numbers: `Q[0,love,0]·K[0,AI,0] + …`."""

        def symbol(read: Number) -> str:
            if read.terms:
                return words_for_rest(read.terms)
            if read.source is None:
                return self.number(read.value)
            position, cell = read.source
            return self.explainer.spell(found.step.reads[position], cell)

        return display(found.expr if most is None else abridge(found.expr, most), symbol)

    def figures(self, found: Explanation, most: int | None, *, bare: bool = False) -> list[str]:
        """The arithmetic in numbers, unless it is just one, and what it comes to.

        Terms that are not written are counted; unless `bare`, what they come to is said too.
        """

        def figure(read: Number) -> str:
            number = self.number(read.value)
            if not read.terms:
                return number
            return words_for_rest(read.terms) if bare else f"{words_for_rest(read.terms)}: {number}"

        worked_out = display(found.expr if most is None else abridge(found.expr, most), figure)
        result = self.number(found.value if found.gives is None else found.gives)
        return [result] if isinstance(found.expr, Number) else [worked_out, result]

    def notes(self, found: Explanation) -> Iterator[str]:
        if found.gives is not None:
            yield DIFFERS.format(self.number(found.value))
        exact = self.number(found.value - found.rounding)
        if isfinite(found.value) and exact != self.number(found.value):
            yield ROUNDED.format(self.explainer.trace[found.step.name].dtype.name, exact)
        match found.step.op, found.expr:
            case Softmax(), Operation("/", (Operation("exp", (Operation("-", (_, Number(top))),)), _)):
                yield MAXIMUM.format(self.number(top))
        if found.left_out:
            yield "of a long sum the largest terms are shown; --full shows all of them"
        yield from found.notes

    def forward(self, found: Explanation) -> Iterator[str]:
        needs = self.explainer.forward_of(found.step.name)
        own, behind = needs["reads"], needs["behind"]
        said = [f"this reads {all_of(own)}"] if own else []
        it = "it" if own else "this"
        said += [f"the gradients that {it} reads need {all_of(behind)}"] if behind else []
        if said:
            yield f"of the forward pass {'; '.join(said)}"

    def equation(self, name: str, sides: list[str]) -> Iterator[Line]:
        """`name = side = side`, going on below its first sign where it is too long."""
        name = self.screen.printable(name)
        terms = [term for side in sides for term in re.split(r" (?=[+/] )", f"= {side}")]
        indent = cells(name) + 1 if cells(name) <= self.screen.width - NARROWEST else 2
        start, text = name, ""
        for term in map(self.screen.printable, terms):
            wide = cells(start) + cells(text) + cells(term) + 1 > self.screen.width
            if text and self.screen.fits and wide:
                yield [(start, "label"), (text, "")]
                start, text = " " * (indent - 1), ""
            text += f" {term}"
        yield [(start, "label"), (text, "")]

    def parts(self, name: str, parts: Parts) -> Iterator[Line]:
        yield [(self.screen.printable(f"{name} by what it came from, query × key"), "aside")]
        values = np.array(list(parts.values()))
        form = matrix_format(values, self.precision, ascii_only=self.screen.ascii_only)
        words = [self.screen.printable(part.replace("×", " × ")) for part in parts]
        width = max(map(cells, words))
        for part, word, value in zip(parts, words, values.tolist(), strict=True):
            note = self.screen.printable(PART_NOTES.get(part, ""))
            yield [(f"  {pad_right(word, width)}", "label"), (f"  {form(value)}", ""), (note, "aside")]

    def tree_lines(self, node: Node, before: str, told: set[str]) -> Iterator[Line]:
        """The cells that a cell came from, and theirs; `told` are the givens that were introduced."""
        tee, corner, bar, gap = PLAIN_GUIDES if self.screen.ascii_only else GUIDES
        found = node.explanation
        listed, unlisted = (len(found.inputs), found.unlisted) if found else (0, 0)
        count = listed + unlisted
        shown = listed if not self.fitted or count <= CHILDREN + 1 else CHILDREN
        for at, child in enumerate(islice(node.children, shown)):
            last = at == count - 1
            guide = before + (corner if last else tee)
            yield [(guide, "frame"), *self.child_line(child, self.screen.width - cells(guide), told)]
            yield from self.tree_lines(child, before + (gap if last else bar), told)
        if shown < count:
            rest = f"{self.screen.left_out(count - shown)} (--full shows them)"
            yield [(before + corner, "frame"), (rest, "aside")]

    def child_line(self, node: Node, room: int, told: set[str]) -> Line:
        """A cell in the tree: its arithmetic where there is room, its value, where it is from."""
        name, found = self.screen.printable(node.name), node.explanation
        sides, more = [self.number(node.value)], ""
        if node.repeated:
            more = "  (above)"
        elif found is None:
            more = f"  ({node.why_not})" if node.why_not and node.step not in told else ""
            told |= {node.step} if node.why_not else set()
        elif isinstance(found.step.op, Given):
            more = "" if node.step in told else f"  {found.step.formula}"
            told.add(node.step)
        else:
            sides = self.figures(found, None)
            if self.fitted:
                tries = (self.figures(found, most, bare=bare) for bare in (False, True) for most in FEWER)
                fitting = (attempt for attempt in tries if cells(" = ".join([name, *attempt])) <= room)
                sides = next(fitting, sides[-1:])
        text = self.screen.printable(f" = {' = '.join(sides)}")
        rest = self.screen.printable(more)
        if self.fitted:
            rest = self.screen.short(rest, max(0, room - cells(name) - cells(text)))
        return [(name, "label"), (text, ""), (rest, "aside")]


PART_NOTES = {
    "bias": "  every product that a bias is in",
    "rest": "  rounding, or numbers that were changed on the way",
}
"""What stands beside a part whose name does not say what it is."""


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


Question = tuple[Explainer, Address, int]  # what explains a cell, the cell, and how many lines back


def write_json(found: Sequence[Question], stream: IO[Any]) -> None:
    """Write one explanation as an object, several as an array."""
    write, several = sink(stream), len(found) != 1
    for number, (explainer, address, depth) in enumerate(found):
        write(b"" if not several else b"," if number else b"[")
        for piece in json_pieces(explainer, explainer.root(address, depth)):
            write(encode_json(piece))
    write(b"]\n" if several else b"")


def json_pieces(explainer: Explainer, root: Node) -> Iterator[str]:
    """The explanation as JSON, a piece at a time: a deep one is long."""
    parts, needs = explainer.parts(root), explainer.forward_of(root.step)
    more = ({"parts": parts} if parts else {}) | ({"forward": needs} if any(needs.values()) else {})
    yield from node_pieces(explainer, root, more, "\n")
    yield "\n"


def node_pieces(explainer: Explainer, node: Node, more: dict[str, Any], newline: str) -> Iterator[str]:
    found = node.explanation
    data: dict[str, Any] = {"cell": node.name, "value": node.value}
    if found is not None:
        data |= {"formula": found.step.formula, "expression": found.expression}
        data |= {} if found.gives is None else {"gives": found.gives}
        rest = [{"terms": term.terms, "sum": term.value} for term in found.left_out]
        data |= {"left_out": rest} if rest else {}
        data |= {"notes": list(found.notes)} if found.notes else {}
    data |= {"repeated": True} if node.repeated else {}
    data |= {"why_not": node.why_not} if node.why_not else {}
    tokens = labels(explainer.trace, node.step, node.cell)
    data |= {"step": node.step, "index": list(node.cell), "tokens": tokens}
    text = json.dumps(as_json_data(data | more), ensure_ascii=False)
    if found is None:
        yield text
        return
    yield f'{text[:-1]}, "inputs": ['
    for at, child in enumerate(node.children):
        yield f"{',' if at else ''}{newline}  "
        yield from node_pieces(explainer, child, {}, f"{newline}  ")
    yield "]}"
