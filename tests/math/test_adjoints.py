"""The backward lines of every op are its derivative: scalar dual numbers put through its form say so."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_strategies import examples

from attnctl.math.filling import form_of
from attnctl.math.notation import Term
from attnctl.math.ops import OPS, Backward, Op, chunks
from attnctl.math.ops.base import ForwardOnly, Line


@dataclass
class Dual:
    """A number, and how it changes with each number of the inputs."""

    value: float
    slope: np.ndarray | float = 0.0

    def times(self, factor, value):
        """The dual of a function whose slope here is `factor`."""
        return Dual(value, self.slope * factor if factor else 0.0)


FUNCTIONS = {
    "exp": lambda x: x.times(math.exp(x.value), math.exp(x.value)),
    "log": lambda x: x.times(1 / x.value if x.value else 0.0, math.log(x.value) if x.value else -math.inf),
    "sqrt": lambda x: x.times(0.5 / math.sqrt(x.value), math.sqrt(x.value)),
    "tanh": lambda x: x.times(1 - math.tanh(x.value) ** 2, math.tanh(x.value)),
    "cos": lambda x: x.times(-math.sin(x.value), math.cos(x.value)),
    "sin": lambda x: x.times(math.cos(x.value), math.sin(x.value)),
}


def quotient(a, b):
    if b.value == 0:
        return Dual(math.nan)
    return Dual(a.value / b.value, (a.slope - b.slope * (a.value / b.value)) / b.value)


OPERATIONS = {
    "+": lambda a, b: Dual(a.value + b.value, a.slope + b.slope),
    "-": lambda a, b: Dual(a.value - b.value, a.slope - b.slope),
    "*": lambda a, b: Dual(a.value * b.value, a.slope * b.value + b.slope * a.value),
    "/": quotient,
}

PLACES = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


class Duals:
    """Puts dual numbers through a form, a cell at a time; shares nothing with `attnctl.filling`."""

    def __init__(self, inputs):
        self.inputs = inputs
        self.starts = np.cumsum([0, *(x.size for x in inputs)])

    def read(self, position, cell):
        array = self.inputs[position]
        slope = np.zeros(self.starts[-1])
        slope[self.starts[position] + np.ravel_multi_index(cell, array.shape)] = 1.0
        return Dual(float(array[cell]), slope)

    def place(self, place, at):
        if not isinstance(place, Term):
            return place
        match place.kind, place.parts:
            case (("axis" | "index"), (which, *_)):
                return at[which]
            case "abs", (inside,):
                return abs(self.place(inside, at))
            case "table", (_, one, *places):
                return int(one(tuple(self.place(each, at) for each in places)))
            case sign, (left, right):
                return PLACES[sign](self.place(left, at), self.place(right, at))
        raise TypeError(place.kind)

    def holds(self, condition, at):
        match condition.kind, condition.parts:
            case "<", (left, right):
                return self.place(left, at) < self.place(right, at)
            case "seen", (score,):
                return self.dual(score, at).value != -math.inf
        return self.dual(condition, at).value != 0

    def dual(self, term, at):
        if not isinstance(term, Term):
            return Dual(float(term))
        match term.kind, term.parts:
            case "read", (position, *places):
                return self.read(position, tuple(self.place(each, at) for each in places))
            case "table", (_, one, *places):
                return Dual(float(one(tuple(self.place(each, at) for each in places))))
            case "number", (place,):
                return Dual(float(self.place(place, at)))
            case "known", (body,):
                return self.dual(body, at)
            case "call", (name, inside):
                return FUNCTIONS[name](self.dual(inside, at))
            case "where", (condition, yes, no):
                return self.dual(yes if self.holds(condition, at) else no, at)
            case "sum", (name, size, body, *seen):
                places = [{**at, name: i} for i in range(size)]
                parts = [self.dual(body, each) for each in places if all(self.holds(s, each) for s in seen)]
                return Dual(sum(part.value for part in parts), sum(part.slope for part in parts))
            case "max", (name, size, body, *others):
                values = [self.dual(body, {**at, name: i}) for i in range(size)]
                return max(
                    [*values, *(self.dual(each, at) for each in others)], key=lambda each: each.value
                )
            case sign, (left, right):
                return OPERATIONS[sign](self.dual(left, at), self.dual(right, at))
        raise TypeError(term.kind)

    def gradients(self, op, result, d):
        """Σ over the cells of d · slope, for each input."""
        form = form_of(op, result.ndim, self.inputs)
        total = np.zeros(self.starts[-1])
        for cell in np.ndindex(result.shape):
            total += d[cell] * self.dual(form, dict(enumerate(cell))).slope
        starts = zip(self.starts, self.inputs, strict=False)
        return [total[start : start + x.size].reshape(x.shape) for start, x in starts]


def by_lines(op, inputs, result, d):
    """The gradient by each input that its lines make, by number."""
    names = tuple(f"x{at}" for at in range(len(inputs)))
    axes = tuple(tuple(f"axis {at}" for at in range(x.ndim)) for x in inputs)
    values = {**dict(zip(names, inputs, strict=True)), "y": result, "d": d}
    found = {}
    for line in op.adjoint(Line("y", names, axes), "d"):
        made = line.op.apply(*(values[each] for each in line.inputs))
        assert line.op.shape(*(values[each].shape for each in line.inputs)) == made.shape
        if line.by in names:
            found[names.index(line.by)] = made
        else:
            values[line.by] = made
    return found


FORWARD = [
    kind
    for kind in OPS.values()
    if kind.apply is not Op.apply
    and not issubclass(kind, Backward | ForwardOnly)
    and kind.__module__ != chunks.__name__
]
"""Gradients of what is cut into chunks go through the lines of the whole."""


@pytest.mark.parametrize("kind", FORWARD, ids=lambda kind: kind.__name__)
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_the_lines_of_an_adjoint_are_the_derivative(kind, data):
    op, inputs, result = data.draw(examples(kind))
    d = np.random.RandomState(0).standard_normal(result.shape)
    with np.errstate(all="ignore"):
        found = by_lines(op, inputs, result, d)
    numbers = [at for at, x in enumerate(inputs) if x.dtype != bool]
    assert sorted(found) == numbers
    expected = Duals(inputs).gradients(op, result, d)
    for at in numbers:
        assert found[at].shape == inputs[at].shape
        scale = max(1.0, np.abs(expected[at]).max(initial=0.0))
        np.testing.assert_allclose(found[at], expected[at], rtol=0, atol=1e-12 * scale)


# --- the law can fail ---


class Twice(OPS["Scale"]):
    """Its adjoint forgets the factor."""

    def adjoint(self, line, d):
        yield from OPS["Copy"]().adjoint(line, d)


def test_a_wrong_adjoint_is_found():
    op, x = Twice(d_k=4), np.arange(4.0)
    d = np.ones(4)
    assert by_lines(op, [x], op.apply(x), d)[0].tolist() == [1, 1, 1, 1]
    assert Duals([x]).gradients(op, op.apply(x), d)[0].tolist() == [0.5] * 4


def test_an_op_without_an_adjoint_is_found():
    class Lacking(Op):
        def apply(self, x):
            return x

    with pytest.raises(NotImplementedError):
        by_lines(Lacking(), [np.ones(2)], np.ones(2), np.ones(2))
