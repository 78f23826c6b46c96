"""One cell's arithmetic, written out: the small language that `explain` speaks.

An expression is a tree of numbers and of what is done to them: + - * / and the functions exp, log,
sqrt, tanh, cos and sin. `code` writes it in full digits so that any calculator evaluates it;
`display` writes it for people; `abridge` makes long sums short; `evaluate` gives what an expression
comes to, and how far rounding may have moved that. A Number that was read from a step's input
remembers where it came from, which is how an explanation goes back along the derivation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from math import copysign, cos, exp, inf, isfinite, isinf, isnan, log, nan, sin, sqrt, tanh
from operator import add
from typing import NamedTuple

from attnctl.base.words import number_text
from attnctl.math import Cell


class Number(NamedTuple):
    """A number, and where it was read if it was: which input of the op, and which cell of that.

    One that was worked out may be off by `spread` units of rounding besides its own. One that stands for
    so many `terms` of a long sum, which are not written out, is what they come to.
    """

    value: float
    source: tuple[int, Cell] | None = None
    spread: float = 0.0
    terms: int = 0


class Operation(NamedTuple):
    """What is done to parts: + and * take any number of them, - and / two, a function by its name one."""

    kind: str
    parts: tuple[Expr, ...]


Expr = Number | Operation


LONGEST_SUM = 1000
"""Terms in a row: what evaluates an expression may give up on deeper nesting than its own stack."""


def group_terms(parts: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The parts of a sum, in sums of their own where there are very many."""
    if len(parts) <= LONGEST_SUM:
        return parts
    starts = range(0, len(parts), LONGEST_SUM)
    return group_terms(tuple(Operation("+", parts[start : start + LONGEST_SUM]) for start in starts))


def code(expr: Expr) -> str:
    """The expression in full digits, with only numbers, + - * / ( ) and function names."""
    match expr:
        case Number(value):
            text = number_text(value) if value or copysign(1, value) < 0 else "0"
            return f"({text})" if text.startswith("-") and not isinf(value) else text
        case Operation("+", parts):
            return "(" + " + ".join(map(code, group_terms(parts))) + ")" if parts else "0"
        case Operation("-", (left, right)):
            return f"({code(left)} - {code(right)})"
        case Operation("*", parts):
            nested = {"*", "/"}
            return " * ".join(f"({code(p)})" if operator_of(p) in nested else code(p) for p in parts)
        case Operation("/", (above, below)):
            return f"({code(above)}) / ({code(below)})"
        case Operation(name, parts):
            return f"{name}({code(parts[0])})"


def operator_of(expr: Expr) -> str:
    """What an expression does to its parts; nothing where it is a number."""
    return expr.kind if isinstance(expr, Operation) else ""


def display(expr: Expr, text_of: Callable[[Number], str], *, top: bool = True) -> str:
    """The expression for people: · for products, √ for roots, each number as `text_of` has it."""

    def inner(part: Expr) -> str:
        return display(part, text_of, top=False)

    def first(part: Expr) -> str:
        return text_of(part) if isinstance(part, Number) else inner(part)

    match expr:
        case Number():
            text = text_of(expr)
            return text if top or not text.startswith("-") else f"({text})"
        case Operation("+", parts):
            text = " + ".join([*map(first, parts[:1]), *map(inner, parts[1:])]) or "0"
            return text if top or len(parts) == 1 else f"({text})"
        case Operation("-", (left, right)):
            text = f"{first(left)} - {inner(right)}"
            return text if top else f"({text})"
        case Operation("*", parts):
            return "·".join(
                f"({inner(part)})" if operator_of(part) == "/" else inner(part) for part in parts
            )
        case Operation("/", (above, below)):
            return f"{first(above)} / {inner(below)}"
        case Operation("sqrt", (inside,)):
            return f"√{inner(inside)}"
        case Operation(name, parts):
            return f"{name}({display(parts[0], text_of)})"


def abridge(expr: Expr, most: int, longest: int | None = None) -> Expr:
    """The expression with the `most` largest terms of a long sum in their order, and the rest as one.

    A sum is long that has more than `longest` terms (None: more than `most`).
    """
    longest = most if longest is None else longest

    def inner(part: Expr) -> Expr:
        return abridge(part, most, longest)

    match expr:
        case Operation("+", parts) if len(parts) > longest:
            shown, rest = largest_terms(parts, most)
            return Operation("+", (*map(inner, shown), rest))
        case Operation(kind, parts):
            return Operation(kind, tuple(map(inner, parts)))
        case Number():
            return expr


def largest_terms(parts: tuple[Expr, ...], most: int) -> tuple[list[Expr], Number]:
    """The terms of a sum whose size is greatest (NaN above all), in their order, and the rest of them."""
    values = [evaluate(part, 0.0)[0] for part in parts]
    written = [at for at, part in enumerate(parts) if not terms_in(part)]
    by_size = sorted(written, key=lambda at: -inf if isnan(values[at]) else -abs(values[at]))
    shown = set(by_size[:most])
    others = [at for at in range(len(parts)) if at not in shown]
    count = sum(terms_in(parts[at]) or 1 for at in others)
    return [parts[at] for at in sorted(shown)], Number(add_up([values[at] for at in others]), terms=count)


def terms_in(part: Expr) -> int:
    """How many terms of a sum one of its parts stands for without writing them out."""
    return part.terms if isinstance(part, Number) else 0


FUNCTIONS = {function.__name__: function for function in (exp, log, sqrt, tanh, cos, sin)}

ROUNDINGS = 4
"""Units in the last place that one operation may be off, here or where the number was made."""


def evaluate(expr: Expr, eps: float, tiny: float = 0.0) -> tuple[float, float]:
    """Evaluate the expression as `code` writes it, with how far off a machine may honestly be.

    The second is a running error analysis (Higham 2002, sections 2.1 and 3.3) for numbers whose
    unit of rounding is `eps` and whose smallest is `tiny`, whatever the order in which sums were
    added up. Overflow is infinity.
    """

    def round_result(value: float, error: float) -> tuple[float, float]:
        return value, error + ROUNDINGS * eps * abs(value) + tiny

    match expr:
        case Number(value, read, spread):  # what was read is off by nothing before anything is done with it
            return value, 0.0 if read else eps * (abs(value) + spread) + tiny
        case Operation("+", parts):
            found = [evaluate(part, eps, tiny) for part in parts]
            size = sum(abs(value) for value, _ in found)
            error = sum(slack for _, slack in found)
            return add_up([value for value, _ in found]), error + eps * len(parts) * size
        case Operation("-", (left, right)):
            (a, a_error), (b, b_error) = evaluate(left, eps, tiny), evaluate(right, eps, tiny)
            return round_result(a - b, a_error + b_error)
        case Operation("*", parts):
            product, error = evaluate(parts[0], eps, tiny)
            for part in parts[1:]:
                value, slack = evaluate(part, eps, tiny)
                carried = error * (abs(value) + slack) + slack * abs(product)
                product, error = round_result(product * value, carried)
            return product, error
        case Operation("/", (above, below)):
            (a, a_error), (b, b_error) = evaluate(above, eps, tiny), evaluate(below, eps, tiny)
            if b == 0:
                return nan, inf
            return round_result(a / b, (a_error + b_error * abs(a / b)) / abs(b))
        case Operation(name, parts):
            value, error = evaluate(parts[0], eps, tiny)
            return call_with_error(name, value, error, eps)


def add_up(values: list[float]) -> float:
    """The sum from left to right, in the groups that `code` writes."""
    if len(values) <= LONGEST_SUM:
        return reduce(add, values, 0.0)
    starts = range(0, len(values), LONGEST_SUM)
    return add_up([add_up(values[start : start + LONGEST_SUM]) for start in starts])


def call_with_error(name: str, value: float, error: float, eps: float) -> tuple[float, float]:
    """A function of a number that may be off by `error`, and how far off the result may be."""
    try:
        result = FUNCTIONS[name](value)
    except OverflowError:
        return inf, inf
    except ValueError:  # the root of a negative number, the sine of infinity
        return nan, inf
    moved = error * (abs(result) if name == "exp" else 1.0) if isfinite(error) else inf
    return result, moved + ROUNDINGS * eps * (abs(result) + (abs(value) if name in {"cos", "sin"} else 0))


def numbers(expr: Expr) -> Iterator[Number]:
    """Every number of the expression, left to right."""
    match expr:
        case Number():
            yield expr
        case Operation(_, parts):
            for part in parts:
                yield from numbers(part)
