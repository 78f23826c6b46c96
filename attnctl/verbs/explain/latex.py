"""An explanation as LaTeX, as notebooks typeset it."""

from __future__ import annotations

from attnctl.math.arithmetic import Call, Expr, Number, Product, Quotient, Rest, Subtraction, Sum, abridge
from attnctl.verbs.explain.line import Explanation
from attnctl.verbs.explain.view import number_for_people

ESCAPED = str.maketrans({**{each: f"\\{each}" for each in "#$%&_{}"}, "\\": r"\textbackslash{}"})
FUNCTIONS = {"exp": r"e^{{{}}}", "sqrt": r"\sqrt{{{}}}"}
MOST = 12
"""Terms of a sum that are set; the rest is what they come to."""


def latex_of(found: Explanation) -> str:
    """The cell, its arithmetic and its value, in lines that are aligned."""
    value = found.value if found.gives is None else found.gives
    lines = [rf"\text{{{found.name.translate(ESCAPED)}}} &= {set_expr(abridge(found.expr, MOST))}"]
    if not isinstance(found.expr, Number):
        lines.append(rf"&= {set_number(value)}")
    return "$$\n\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}\n$$"


def set_expr(expr: Expr, *, inside: bool = False) -> str:
    """An expression; a sum or a negative number `inside` another stands in brackets."""
    match expr:
        case Number(value, _, _) | Rest(value, _):
            text = set_number(value)
            return rf"\left({text}\right)" if inside and value < 0 else text
        case Sum(parts):
            text = " + ".join(set_expr(part, inside=True) for part in parts) or "0"
            return rf"\left({text}\right)" if inside and len(parts) > 1 else text
        case Subtraction(left, right):
            text = f"{set_expr(left)} - {set_expr(right, inside=True)}"
            return rf"\left({text}\right)" if inside else text
        case Product(parts):
            return r" \cdot ".join(set_expr(part, inside=True) for part in parts)
        case Quotient(above, below):
            return rf"\frac{{{set_expr(above)}}}{{{set_expr(below)}}}"
        case Call(name, inner):
            return FUNCTIONS.get(name, rf"\{name}\left({{}}\right)").format(set_expr(inner))


def set_number(value: float) -> str:
    """A number in few digits; its exponent as a power of ten."""
    text = number_for_people(value, 4)
    mantissa, e, exponent = text.partition("e")
    return (rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if e else text).replace("∞", r"\infty")
