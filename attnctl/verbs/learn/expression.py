"""Answers as expressions over the cells of a run: nobody types a number that can rot.

`scores[0,love,AI]`, `sqrt(size(Q,d_k))`, `sum(A[0,I,:])`, `id[mice#2]`, `largest(A[0,love,:])`; with
numbers, `+ - * /` and brackets.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import exp, sqrt

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.words import all_of, quote
from attnctl.math import Array, Cell
from attnctl.record import Trace
from attnctl.record.cells import Address, parse_start, place_of_token
from attnctl.record.cells import Token as TokenPlace

TOKEN = re.compile(
    r"[0-9.]+(?:e[-+]?[0-9]+)?|(?P<name>[A-Za-z_][A-Za-z_0-9]*)(?P<after>[(\[]?)|.", re.DOTALL
)
LONGEST = 400  # characters of an expression
NONSENSE = "no expression of steps, numbers and functions"
SIGNS = {ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide}


Cells = tuple[str, tuple[Cell, ...]]  # a step, and one or more cells of it that answer a question alike

Value = float | Array | Cells | str  # an answer: numbers, cells, or the name of a step
Expression = Callable[[Trace], Value]


def parse_expression(text: str) -> Expression:
    """Parse an expression over a run. Raises AttnError where it means nothing."""
    tree, read = tree_of(text)
    try:
        return expression_of(tree, read)
    except AttnError as error:
        raise refusal(text, error.problems[0]) from None


def refusal(text: str, what: str) -> AttnError:
    return AttnError(f"{quote(text)}: {what}; write it like scores[0,love,AI] or sum(A[0,love,:])")


def evaluate(text: str, trace: Trace) -> Value:
    """The value of an expression. Raises AttnError where this run has none."""
    return parse_expression(text)(trace)


def addresses(text: str) -> Iterator[Address]:
    """The parts of steps that an expression reads."""
    tree, read = tree_of(text)
    sized: set[int] = set()  # size(Q, d_k) reads no number of Q
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "size":
            sized.update(map(id, node.args))

    for node in ast.walk(tree):
        if not isinstance(node, ast.Name) or node.id not in read or id(node) in sized:
            continue
        address = read[node.id]
        if address.step != "id":
            yield address


def tree_of(text: str) -> tuple[ast.expr, dict[str, Address]]:
    """An expression as Python reads it, with a name for each address, and the addresses by these names."""
    rest = text
    code = ""
    read: dict[str, Address] = {}
    while rest:
        token = TOKEN.match(rest)
        assert token is not None
        name = token["name"]
        if not name or token["after"] == "(":  # a number, a sign, or a function
            code += token[0]
            rest = rest[token.end() :]
            continue

        if token["after"]:
            address, rest = parse_start(rest)
        else:
            address = Address(name)
            rest = rest[len(name) :]
        key = f"_{len(read)}"
        read[key] = address
        code += f" {key} "

    try:
        return ast.parse(code[:LONGEST].strip(), mode="eval").body, read
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise refusal(text, NONSENSE) from None


def expression_of(node: ast.expr, read: dict[str, Address]) -> Expression:
    match node:
        case ast.Constant(int() | float() as number):
            return lambda _: float(number)
        case ast.Name(name) if name in read:
            address = read[name]
            value_of = id_of if address.step == "id" else part_value
            return lambda trace: value_of(address, trace)
        case ast.UnaryOp(ast.USub(), inner):
            return calculate(np.subtract, lambda _: 0.0, expression_of(inner, read))
        case ast.BinOp(left, sign, right) if type(sign) in SIGNS:
            return calculate(SIGNS[type(sign)], expression_of(left, read), expression_of(right, read))
        case ast.Call(ast.Name(name), arguments, []):
            return call_of(name, arguments, read)
    raise AttnError(NONSENSE)


def call_of(name: str, arguments: Sequence[ast.expr], read: dict[str, Address]) -> Expression:
    nodes = chain.from_iterable(map(ast.walk, arguments))
    places = [read[node.id] for node in nodes if isinstance(node, ast.Name) and node.id in read]

    if name == "first_wrong" and not arguments:
        return first_wrong
    if name == "size" and len(places) == len(arguments) in {1, 2}:
        step, axis, *_ = (*(place.step for place in places), "")
        return lambda trace: count_places(step, axis, trace)
    if name in PLACES and len(arguments) == 1:
        if not places:
            raise AttnError(f"{name}() asks for a part of a step")
        return lambda trace: place_in(name, places[-1], trace)
    if name in FUNCTIONS and len(arguments) == 1:
        inner = expression_of(arguments[0], read)
        function = FUNCTIONS[name]
        return lambda trace: float(function(as_numbers(inner(trace))))
    known = [*FUNCTIONS, *PLACES, "size", "first_wrong"]
    raise AttnError(f"no function {name}(); there are {all_of(known)}")


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


def calculate(
    operation: Callable[[Array, Array], Array], left: Expression, right: Expression
) -> Expression:
    def result_in(trace: Trace) -> Value:
        with np.errstate(all="ignore"):
            result = operation(as_numbers(left(trace)), as_numbers(right(trace)))
        return float(result) if np.ndim(result) == 0 else result

    return result_in


def as_numbers(value: Value) -> Array:
    """Raises AttnError for cells and names of steps."""
    if isinstance(value, tuple | str):
        raise AttnError("a cell or a step where a number is wanted")
    return np.asarray(value, dtype=np.float64)


def part_value(address: Address, trace: Trace) -> Value:
    address = address.spell_out(trace)
    part = trace[address.step][address.resolve(trace)].astype(np.float64)
    return float(part) if part.ndim == 0 else part


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
    array = trace[address.step]
    inside = np.zeros(array.shape, dtype=bool)
    inside[address.resolve(trace)] = True
    extreme = PLACES[function](array[inside])
    cells = np.argwhere(inside & (array == extreme))
    return address.step, tuple(tuple(map(int, cell)) for cell in cells)


def first_wrong(trace: Trace) -> str:
    """The first step of a dump that `check` finds wrong. Raises AttnError where none is."""
    from attnctl.verbs.check.check import check

    first = check(trace).first
    if first is None:
        raise AttnError("first_wrong(): no step of this dump is wrong")
    return first
