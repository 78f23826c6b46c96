"""How gates and norms are written."""

from __future__ import annotations

from typing import Any, NamedTuple

from attnctl.drawing.show.program.ops.writing import Writing, writes
from attnctl.math import Shape
from attnctl.math.ops import delta, models, norms


@writes(models.Gate)
def gate(w: Writing) -> str:
    x, own = w.names
    if w.library.name in {"torch", "jax"}:
        return f"{x} * {w.library.sigmoid(own)}"
    grown = w.call("exp", f"-{own}")
    return f"{x} / (1 + {grown})"


@writes(models.GateBack)
def gate_back(w: Writing) -> str:
    d, x, own = w.names
    open_ = w.let("opened", w.library.sigmoid(own))
    return f"{d} * {x} * {open_} * (1 - {open_})"


@writes(delta.Sigmoid)
def sigmoid(w: Writing) -> str:
    return w.library.sigmoid(w.x)


@writes(delta.SwishGate)
def swish_gate(w: Writing) -> str:
    x, own = w.names
    grown = w.call("exp", f"-{own}")
    return f"{x} * {own} / (1 + {grown})"


class Normed(NamedTuple):
    """A row without its weight as an expression, and the root that it was divided by as a variable."""

    text: str
    root: str


def normed(w: Writing, norm: Any, x: str) -> Normed:
    if norm.centred:
        mean = mean_of_row(w, norm, x)
        x = w.let(f"{x}_centred", f"{x} - {mean}")
    square = mean_of_row(w, norm, f"({x}**2)")
    root = w.let(f"root_of_{x}", w.call("sqrt", f"{square} + {norm.eps!r}"))
    return Normed(f"{x} / {root}", root)


def mean_of_row(w: Writing, norm: Any, x: str) -> str:
    """The mean over what a norm takes as one row."""
    over: Any = (-3, -1) if norm.heads else -1
    return w.library.reduce("mean", x, over, keep=True)


def factor_of(norm: Any, weight: str, shape: Shape) -> str:
    by_head = f"{weight}[:, None, :]" if len(shape) == 2 else weight
    return f"(1 + {by_head})" if norm.plus_one else by_head


@writes(norms.RMSNorm, norms.LayerNorm)
def norm(w: Writing) -> str:
    x, *factors = w.names
    text = normed(w, w.op, x).text
    if factors:
        weight = factor_of(w.op, factors[0], w.shapes[1])
        text = f"{text} * {weight}"
    if len(factors) > 1:
        bias = factors[1]
        by_head = f"{bias}[:, None, :]" if len(w.shapes[2]) == 2 else bias
        text = f"{text} + {by_head}"
    return text


@writes(norms.NormBack)
def norm_back(w: Writing) -> str:
    d, x, *weight = w.names
    norm = w.op.norm
    text, root = normed(w, norm, x)
    n = w.let(f"{x}_unweighted", text)
    g = d
    if weight:
        factor = factor_of(norm, weight[0], w.shapes[2])
        g = w.let(f"{d}_weighted", f"{d} * {factor}")

    along = mean_of_row(w, norm, f"({g} * {n})")
    taken_off = f"{g} - {n} * {along}"
    if norm.centred:
        mean = mean_of_row(w, norm, g)
        taken_off = f"{taken_off} - {mean}"
    return f"({taken_off}) / {root}"


@writes(norms.NormWeightBack)
def norm_weight_back(w: Writing) -> str:
    d, x = w.names
    n = w.let(f"{x}_unweighted", normed(w, w.op.norm, x).text)
    last = len(w.shapes[0]) - 1
    kept = {last, last - 2} if w.op.by_head else {last}
    summed = tuple(axis for axis in range(last + 1) if axis not in kept)
    return w.library.reduce("sum", f"({d} * {n})", summed)
