"""The arithmetic of a form, filled in: it evaluates to the cell, and reads the cells it says it reads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from attention_cases import cases
from hypothesis import given, settings

import attnctl
from attnctl.arithmetic import Call, Difference, Number, Product, Quotient, Sum, code, numbers
from attnctl.notation import filler, form_of
from attnctl.ops import Given

NAMES = {name: getattr(math, name) for name in ("exp", "sqrt", "tanh", "cos", "sin")}
NAMES |= {"Infinity": math.inf, "__builtins__": {}}


def value(text: str) -> float:
    """What a calculator makes of an expression."""
    return float(eval(text, NAMES))


def size(expr) -> float:
    """The sum of the absolute values of what is added up: what rounding errors are relative to."""
    match expr:
        case Number(number):
            return abs(number)
        case Sum(parts):
            return math.fsum(map(size, parts))
        case Difference(left, right):
            return size(left) + size(right)
        case Product(parts):
            return math.prod(map(size, parts))
        case Quotient(above, below):
            return size(above) / abs(value(code(below)))
        case Call():
            return abs(value(code(expr)))
    raise TypeError(expr)


def explained(trace: attnctl.Trace) -> int:
    """Evaluate every cell of every step; how many there were."""
    cells = 0
    for name, step in trace.steps.items():
        if isinstance(step.op, Given):
            continue
        inputs = [trace[each] for each in step.inputs]
        expr_of = filler(form_of(step.op, trace[name].ndim, inputs), inputs)
        for cell in np.ndindex(trace[name].shape):
            cells += 1
            expr = expr_of(cell)
            actual, expected = value(code(expr)), float(trace[name][cell])
            allowed = 0 if math.isinf(expected) else 1e-12 * max(abs(expected), size(expr))
            assert actual == expected or abs(actual - expected) <= allowed, (
                name,
                cell,
                code(expr),
                expected,
            )
            for number in numbers(expr):
                if number.source:
                    source = inputs[number.source.position]
                    assert len(number.source.cell) == source.ndim
                    assert float(source[number.source.cell]) == number.value
    return cells


@settings(max_examples=80, deadline=None)
@given(case=cases())
def test_every_cell_of_every_step(case):
    assert explained(attnctl.attend(case.arrays, **case.options))


@pytest.mark.parametrize("positions", ["none", "sinusoidal", [[0.5, -1.0, 0.25, 3.0]] * 3])
def test_every_cell_of_a_run(positions):
    assert explained(attnctl.run("I love AI", heads=2, positions=positions))
