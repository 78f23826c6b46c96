"""Answers as expressions over the cells of a run: nobody types a number that can rot.

`scores[0,love,AI]`, `sqrt(size(Q,d_k))`, `sum(A[0,I,:])`, `id[mice#2]`, `largest(A[0,love,:])`; with
numbers, `+ - * /` and brackets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import exp, sqrt

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import all_of, quote
from attnctl.math import Array, Cell
from attnctl.record import Trace
from attnctl.record.cells import Address, parse_start, place_of_token
from attnctl.record.cells import Token as TokenPlace
from attnctl.verbs.check.check import check

NUMBER = re.compile(r"[0-9]+\.?[0-9]*(e[-+]?[0-9]+)?|\.[0-9]+(e[-+]?[0-9]+)?")
NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


@dataclass(frozen=True)
class Cells:
    """One or more cells of a step that answer a question alike."""

    step: str
    cells: tuple[Cell, ...]


Value = float | Array | Cells | str
"""An answer: numbers, cells, or the name of a step."""
Expression = Callable[[Trace], Value]


def parse_expression(text: str) -> Expression:
    """Parse an expression over a run. Raises AttnError where it means nothing."""
    reader = ExpressionReader(text)
    found = reader.sum()
    reader.space()
    if reader.rest:
        raise reader.refusal(f"{quote(reader.rest)} at the end")
    return found


def evaluate(text: str, trace: Trace) -> Value:
    """The value of an expression. Raises AttnError where this run has none."""
    return parse_expression(text)(trace)


def addresses(text: str) -> Iterator[Address]:
    reader = ExpressionReader(text)
    reader.sum()
    yield from reader.read


class ExpressionReader:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self.text = self.rest = text
        self.depth = 0
        self.read: list[Address] = []

    def refusal(self, what: str) -> AttnError:
        like = "write it like scores[0,love,AI] or sum(A[0,love,:])"
        return AttnError(f"{quote(self.text)}: {what}; {like}")

    def space(self) -> None:
        self.rest = self.rest.lstrip()

    def take(self, *signs: str) -> str:
        """The next sign, if it is one of these."""
        self.space()
        found = next((sign for sign in signs if self.rest.startswith(sign)), "")
        self.rest = self.rest[len(found) :]
        return found

    def sum(self) -> Expression:
        left = self.product()
        while sign := self.take("+", "-"):
            left = calculate(sign, left, self.product())
        return left

    def product(self) -> Expression:
        left = self.factor()
        while sign := self.take("*", "/"):
            left = calculate(sign, left, self.factor())
        return left

    def factor(self) -> Expression:
        """A number, a cell, a function, or what stands in brackets."""
        self.depth += 1
        if self.depth > 40:
            raise self.refusal("too many brackets")
        if self.take("-"):
            found = calculate("-", constant(0.0), self.factor())
        elif self.take("("):
            found = self.sum()
            self.close()
        elif number := NUMBER.match(self.rest):
            self.rest = self.rest[number.end() :]
            found = constant(float(number[0]))
        else:
            found = self.read_name()
        self.depth -= 1
        return found

    def close(self) -> None:
        if not self.take(")"):
            raise self.refusal("a ) is missing")

    def read_name(self) -> Expression:
        """A function or a part of a step."""
        word = NAME.match(self.rest)
        if not word:
            raise self.refusal("a step, a number or a function is missing")
        after = self.rest[word.end() :]
        if after.startswith("("):
            self.rest = after[1:]
            return self.read_call(word[0])
        if after.startswith("["):
            address, self.rest = parse_start(self.rest)
        else:
            address, self.rest = Address(word[0]), after
        if address.step == "id":
            return lambda trace: id_of(address, trace)
        self.read.append(address)
        return lambda trace: part_value(address, trace)

    def read_call(self, name: str) -> Expression:
        if name == "first_wrong":
            self.close()
            return first_wrong
        if name == "size":
            step = self.word()
            axis = self.word() if self.take(",") else ""
            self.close()
            return lambda trace: count_places(step, axis, trace)
        inner = self.sum()
        self.close()
        if name in PLACES:
            if not self.read:
                raise self.refusal(f"{name}() asks for a part of a step")
            address = self.read[-1]
            return lambda trace: place_in(name, address, trace)
        if name in FUNCTIONS:
            function = FUNCTIONS[name]
            return lambda trace: float(function(numbers(inner(trace))))
        known = [*FUNCTIONS, *PLACES, "size", "first_wrong"]
        raise self.refusal(f"no function {name}(); there are {all_of(known)}")

    def word(self) -> str:
        """A name of a step or an axis."""
        self.space()
        found = re.match(r"[^\s,()]+", self.rest)
        if not found:
            raise self.refusal("a name is missing")
        self.rest = self.rest[found.end() :]
        return found[0]


FUNCTIONS: dict[str, Callable[[Array], float]] = {
    "sqrt": lambda x: sqrt(x.item()),
    "exp": lambda x: exp(x.item()),
    "sum": lambda x: float(x.sum()),
    "mean": lambda x: float(x.mean()),
    "var": lambda x: float(x.var()),
    "max": lambda x: float(x.max()),
    "min": lambda x: float(x.min()),
    "count": lambda x: float(x.size),
    "seen": lambda x: float(np.isfinite(x).sum()),
}
"""Functions of numbers; `seen` counts the finite ones."""

PLACES = {"largest": np.max, "smallest": np.min}
"""Functions that answer with cells: those that hold the largest or smallest number of a part."""


def constant(value: float) -> Expression:
    return lambda _: value


def calculate(sign: str, left: Expression, right: Expression) -> Expression:

    def value(trace: Trace) -> Value:
        a, b = numbers(left(trace)), numbers(right(trace))
        with np.errstate(all="ignore"):
            found = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[sign](a, b)
        return float(found) if np.ndim(found) == 0 else found

    return value


def numbers(value: Value) -> Array:
    """A value as an array. Raises AttnError where it is none."""
    if isinstance(value, Cells | str):
        raise AttnError("a cell or a step where a number is wanted")
    return np.asarray(value, dtype=np.float64)


def part_value(address: Address, trace: Trace) -> Value:
    address = address.spell_out(trace)
    found = trace[address.step][address.resolve(trace)].astype(np.float64)
    return float(found) if found.ndim == 0 else found


def id_of(address: Address, trace: Trace) -> float:
    part = address.parts[0] if address.parts else None
    if not isinstance(part, TokenPlace) or not trace.tokens or not trace.ids:
        raise AttnError("id[…]: no such token; write one of the sentence, like id[love]")
    return float(trace.ids[place_of_token(part.text, part.nth, trace.tokens, "id")])


def count_places(step: str, axis: str, trace: Trace) -> float:
    """Count the numbers of a step, or the places along one of its axes."""
    name = Address(step).spell_out(trace).step
    array = trace[name]
    if not axis:
        return float(array.size)
    axes = trace.steps[name].axes
    if axis not in axes:
        raise AttnError(f"size({step},{axis}): {step} has the axes {all_of(axes)}")
    return float(array.shape[axes.index(axis)])


def place_in(function: str, address: Address, trace: Trace) -> Cells:
    """The cells of a part of a step that hold its largest or smallest number."""
    address = address.spell_out(trace)
    places = address.resolve(trace)
    array = trace[address.step]
    inside = np.zeros(array.shape, dtype=bool)
    inside[places] = True
    wanted = PLACES[function](array[inside])
    found = np.argwhere(inside & (array == wanted))
    return Cells(address.step, tuple(tuple(map(int, cell)) for cell in found))


def first_wrong(trace: Trace) -> str:
    """The first step of a dump that `check` finds wrong. Raises AttnError where none is."""
    first = check(trace).first
    if first is None:
        raise AttnError("first_wrong(): no step of this dump is wrong")
    return first
