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

from attnctl.base.namedtuple import NamedTuple
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
    groups = tuple(Operation("+", parts[start : start + LONGEST_SUM]) for start in starts)
    return group_terms(groups)


def code(expr: Expr) -> str:
    """The expression in full digits, with only numbers, + - * / ( ) and function names."""
    match expr:
        case Number(value):
            is_plain_zero = value == 0 and copysign(1, value) > 0
            text = "0" if is_plain_zero else number_text(value)
            needs_parentheses = text.startswith("-") and not isinf(value)
            return f"({text})" if needs_parentheses else text
        case Operation("+", ()):
            return "0"
        case Operation("+", parts):
            terms = map(code, group_terms(parts))
            return f"({' + '.join(terms)})"
        case Operation("-", (left, right)):
            return f"({code(left)} - {code(right)})"
        case Operation("*", parts):
            return " * ".join(map(code_of_factor, parts))
        case Operation("/", (above, below)):
            return f"({code(above)}) / ({code(below)})"
        case Operation(name, parts):
            return f"{name}({code(parts[0])})"


def code_of_factor(part: Expr) -> str:
    """A factor of a product as `code` writes it: other products, and quotients, in parentheses."""
    text = code(part)
    return f"({text})" if operator_of(part) in {"*", "/"} else text


def operator_of(expr: Expr) -> str:
    """What an expression does to its parts; nothing where it is a number."""
    return expr.kind if isinstance(expr, Operation) else ""


def display(expr: Expr, text_of: Callable[[Number], str], *, top: bool = True) -> str:
    """The expression for people: · for products, √ for roots, each number as `text_of` has it."""

    def inner(part: Expr) -> str:
        return display(part, text_of, top=False)

    match expr:
        case Number():
            text = text_of(expr)
            needs_parentheses = text.startswith("-")
        case Operation("+", (start, *others)):
            text = " + ".join([display_first(start, text_of), *map(inner, others)])
            needs_parentheses = bool(others)
        case Operation("+", ()):
            text = "0"
            needs_parentheses = True
        case Operation("-", (left, right)):
            text = f"{display_first(left, text_of)} - {inner(right)}"
            needs_parentheses = True
        case Operation("*", parts):
            factors = [f"({inner(part)})" if operator_of(part) == "/" else inner(part) for part in parts]
            return "·".join(factors)
        case Operation("/", (above, below)):
            return f"{display_first(above, text_of)} / {inner(below)}"
        case Operation("sqrt", (inside,)):
            return f"√{inner(inside)}"
        case Operation(name, parts):
            return f"{name}({display(parts[0], text_of)})"
    return f"({text})" if needs_parentheses and not top else text


def display_first(part: Expr, text_of: Callable[[Number], str]) -> str:
    """What stands at the left end, where a negative number needs no parentheses."""
    return text_of(part) if isinstance(part, Number) else display(part, text_of, top=False)


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
    values = [evaluate(part, 0.0).value for part in parts]

    def by_size(place: int) -> float:
        value = values[place]
        return -inf if isnan(value) else -abs(value)

    written = [place for place, part in enumerate(parts) if not terms_in(part)]
    shown = set(sorted(written, key=by_size)[:most])
    others = [place for place in range(len(parts)) if place not in shown]

    count = sum(terms_in(parts[place]) or 1 for place in others)
    rest = add_up([values[place] for place in others])
    return [parts[place] for place in sorted(shown)], Number(rest, terms=count)


def terms_in(part: Expr) -> int:
    """How many terms of a sum one of its parts stands for without writing them out."""
    return part.terms if isinstance(part, Number) else 0


FUNCTIONS = {function.__name__: function for function in (exp, log, sqrt, tanh, cos, sin)}

ROUNDINGS = 4
"""Units in the last place that one operation may be off, here or where the number was made."""


class Evaluation(NamedTuple):
    """What an expression comes to, and how far off a machine may honestly be."""

    value: float
    error: float


def evaluate(expr: Expr, eps: float, tiny: float = 0.0) -> Evaluation:
    """Evaluate the expression as `code` writes it, with how far off a machine may honestly be.

    The error is a running error analysis (Higham 2002, sections 2.1 and 3.3) for numbers whose
    unit of rounding is `eps` and whose smallest is `tiny`, whatever the order in which sums were
    added up. Overflow is infinity.
    """

    def rounded(value: float, error: float) -> Evaluation:
        return Evaluation(value, error + ROUNDINGS * eps * abs(value) + tiny)

    match expr:
        case Number(value, source, spread):
            # What was read is off by nothing before anything is done with it.
            error = 0.0 if source else eps * (abs(value) + spread) + tiny
            return Evaluation(value, error)
        case Operation("+", parts):
            terms = [evaluate(part, eps, tiny) for part in parts]
            size = sum(abs(term.value) for term in terms)
            carried = sum(term.error for term in terms)
            summed = add_up([term.value for term in terms])
            return Evaluation(summed, carried + eps * len(parts) * size)
        case Operation("-", (left, right)):
            a = evaluate(left, eps, tiny)
            b = evaluate(right, eps, tiny)
            return rounded(a.value - b.value, a.error + b.error)
        case Operation("*", (first, *others)):
            product = evaluate(first, eps, tiny)
            for other in others:
                factor = evaluate(other, eps, tiny)
                larger = abs(factor.value) + factor.error
                carried = product.error * larger + factor.error * abs(product.value)
                product = rounded(product.value * factor.value, carried)
            return product
        case Operation("/", (above, below)):
            a = evaluate(above, eps, tiny)
            b = evaluate(below, eps, tiny)
            if b.value == 0:
                return Evaluation(nan, inf)
            quotient = a.value / b.value
            carried = a.error + b.error * abs(quotient)
            return rounded(quotient, carried / abs(b.value))
        case Operation(name, (inside, *_)):
            return call_with_error(name, evaluate(inside, eps, tiny), eps)
    raise TypeError(expr)


def add_up(values: list[float]) -> float:
    """The sum from left to right, in the groups that `code` writes."""
    if len(values) <= LONGEST_SUM:
        return reduce(add, values, 0.0)
    starts = range(0, len(values), LONGEST_SUM)
    sums = [add_up(values[start : start + LONGEST_SUM]) for start in starts]
    return add_up(sums)


def call_with_error(name: str, inside: Evaluation, eps: float) -> Evaluation:
    """A function of a number, and how far off it may be."""
    value, error = inside
    try:
        result = FUNCTIONS[name](value)
    except OverflowError:
        return Evaluation(inf, inf)
    except ValueError:  # the root of a negative number, the sine of infinity
        return Evaluation(nan, inf)

    slope = abs(result) if name == "exp" else 1.0
    moved = error * slope if isfinite(error) else inf
    # An angle is brought to one turn first, and that rounds by its own size.
    size = abs(result) + abs(value) if name in {"cos", "sin"} else abs(result)
    return Evaluation(result, moved + ROUNDINGS * eps * size)


def numbers(expr: Expr) -> Iterator[Number]:
    """Every number of the expression, left to right."""
    match expr:
        case Number():
            yield expr
        case Operation(_, parts):
            for part in parts:
                yield from numbers(part)
