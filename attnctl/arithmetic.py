"""One cell's arithmetic, written out: the small language that `explain` speaks.

An expression is a tree of numbers, sums, products, quotients and the functions exp, sqrt, tanh,
cos and sin. `code` writes it in full digits so that any calculator evaluates it; `display` writes
it for people. A Number that was read from a step's input remembers where it came from, which is
how an explanation goes back along the derivation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isinf, isnan

Cell = tuple[int, ...]
Format = Callable[[float], str]


@dataclass(frozen=True)
class Source:
    """The cell of an input that a number was read from: input number `position`, at `cell`."""

    position: int
    cell: Cell


@dataclass(frozen=True)
class Number:
    """A number, and where it was read if it was."""

    value: float
    source: Source | None = None


@dataclass(frozen=True)
class Sum:
    """a + b + …"""

    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Difference:
    """a − b."""

    left: Expr
    right: Expr


@dataclass(frozen=True)
class Product:
    """a · b · …"""

    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Quotient:
    """a / b."""

    above: Expr
    below: Expr


@dataclass(frozen=True)
class Call:
    """A function of one expression: exp, sqrt, tanh, cos or sin."""

    name: str
    inside: Expr


Expr = Number | Sum | Difference | Product | Quotient | Call


def number_text(value: float) -> str:
    """The shortest digits that read back as this float; the names of section 6 where it has none."""
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(float(value))


def code(expr: Expr) -> str:
    """The expression in full digits, with only numbers, + - * / ( ) and function names."""
    match expr:
        case Number(value):
            text = number_text(value)
            return f"({text})" if text.startswith("-") and not isinf(value) else text
        case Sum(parts):
            return "(" + " + ".join(map(code, parts)) + ")" if parts else "0.0"
        case Difference(left, right):
            return f"({code(left)} - {code(right)})"
        case Product(parts):
            return " * ".join(map(code, parts))
        case Quotient(above, below):
            return f"({code(above)}) / ({code(below)})"
        case Call(name, inside):
            return f"{name}({code(inside)})"


def display(expr: Expr, fmt: Format, *, top: bool = True) -> str:
    """The expression for people: · for products, √ for roots, rounded by `fmt`."""

    def inner(part: Expr) -> str:
        return display(part, fmt, top=False)

    match expr:
        case Number(value):
            text = fmt(value)
            return text if top or not text.startswith(("-", "−")) else f"({text})"
        case Sum(parts):
            text = " + ".join(map(inner, parts)) or "0"
            return text if top or len(parts) == 1 else f"({text})"
        case Difference(left, right):
            text = f"{inner(left)} − {inner(right)}"
            return text if top else f"({text})"
        case Product(parts):
            return "·".join(map(inner, parts))
        case Quotient(above, below):
            return f"{inner(above)} / {inner(below)}"
        case Call("sqrt", inside):
            return f"√{inner(inside)}"
        case Call(name, inside):
            return f"{name}({display(inside, fmt)})"


def numbers(expr: Expr) -> Iterator[Number]:
    """Every number of the expression, left to right."""
    match expr:
        case Number():
            yield expr
        case Sum(parts) | Product(parts):
            for part in parts:
                yield from numbers(part)
        case Difference(left, right) | Quotient(left, right):
            yield from numbers(left)
            yield from numbers(right)
        case Call(_, inside):
            yield from numbers(inside)
