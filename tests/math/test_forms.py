"""What every op says of itself is so: its form at each cell is `apply`, its signature the shapes."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from attention_cases import cases
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from registry_strategies import examples

import attnctl
from attnctl.math import ops
from attnctl.math.arithmetic import code, evaluate, numbers
from attnctl.math.filling import filler, form_of
from attnctl.math.ops import OPS, Given, Op

NAMES = {name: getattr(math, name) for name in ("exp", "log", "sqrt", "tanh", "cos", "sin")}
NAMES |= {"Infinity": math.inf, "NaN": math.nan, "__builtins__": {}}

COMPUTED = [kind for kind in OPS.values() if kind.apply is not Op.apply]


def says_what_it_makes(op, inputs, result):
    """Hold the form of an op to its result at every cell, and every number to where it says it was read."""
    assert op.shape(*(x.shape for x in inputs)) == result.shape
    inputs = [*inputs, result] if op.recurrent else inputs
    expr_of = filler(form_of(op, result.ndim, inputs), inputs)
    for cell in np.ndindex(result.shape):
        expr, expected = expr_of(cell), float(result[cell])
        found, slack = evaluate(expr, 2.0**-52)
        written = float(eval(code(expr), NAMES))
        assert found == written or (math.isnan(found) and math.isnan(written))
        same = found == expected or (math.isnan(found) and math.isnan(expected))
        assert same or abs(found - expected) <= slack < math.inf, (cell, code(expr), expected)
        for number in numbers(expr):
            if number.source:
                position, place = number.source
                assert len(place) == inputs[position].ndim
                assert float(inputs[position][place]) == number.value


@pytest.mark.parametrize("kind", COMPUTED, ids=lambda kind: kind.__name__)
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_an_op_says_what_it_makes(kind, data):
    says_what_it_makes(*data.draw(examples(kind)))


@settings(max_examples=80, deadline=None)
@given(case=cases())
def test_every_cell_of_every_step(case):
    trace = attnctl.attend(case.arrays, **case.options)
    for name, step in trace.steps.items():
        if not isinstance(step.op, Given):
            says_what_it_makes(step.op, [trace[each] for each in step.inputs], trace[name])


# --- in what it is linear ---


def is_linear(op, inputs, chosen):
    """Whether f(a x + b y) = a f(x) + b f(y) where x and y differ in these inputs alone."""
    rng = np.random.RandomState(0)
    x, y = ({at: rng.standard_normal(inputs[at].shape) for at in chosen} for _ in "xy")

    def f(changed):
        return op.apply(*(changed.get(at, each) for at, each in enumerate(inputs)))

    with np.errstate(all="ignore"):
        apart = 2 * f(x) - 3 * f(y)
        return np.allclose(f({at: 2 * x[at] - 3 * y[at] for at in chosen}), apart, rtol=1e-9, atol=1e-9)


def linear_sets(kind):
    """The smallest sets of inputs that an op of this class is linear in, whatever its parameters."""
    seen, refuted = set(), set()

    @settings(max_examples=25, deadline=None, derandomize=True, phases=[Phase.generate])
    @given(example=examples(kind))
    def law(example):
        op, inputs, _ = example
        inputs = [x if x.dtype == bool else np.where(np.isfinite(x), x, 0) for x in inputs]
        there = [at for at, x in enumerate(inputs) if x.dtype != bool]
        for chosen in subsets(there):
            seen.add(chosen)
            counterexample = chosen, frozenset(there)
            if counterexample not in refuted and not is_linear(op, inputs, chosen):
                refuted.add(counterexample)

    law()
    held = {each for each in seen if not any(each & there == chosen for chosen, there in refuted)}
    return {tuple(sorted(each)) for each in held if not any(other < each for other in held)}


def subsets(items):
    """Every set of one or more of them."""
    sizes = range(1, len(items) + 1)
    return [frozenset(each) for size in sizes for each in combinations(items, size)]


@pytest.mark.parametrize("kind", COMPUTED, ids=lambda kind: kind.__name__)
def test_an_op_says_in_which_of_its_inputs_it_is_linear(kind):
    assert linear_sets(kind) == set(kind.linear)


# --- the laws can fail ---


class OffByOnePercent(ops.MatMulT):
    """Every product is one percent more than it is."""

    def form(self, cell, q, k):
        return super().form(cell, q, k) * 1.01


class ReadsAnotherRow(ops.MatMulT):
    """The first key is multiplied by every query."""

    def form(self, cell, q, k):
        return super().form((*cell[:-1], 0), q, k)


class OfAnotherShape(ops.MatMulT):
    """Queries and keys are mixed up."""

    signature = "... query d, ... key d -> ... key query"


class SaysNothing(Op):
    """No one knows what it takes."""

    def apply(self, x):
        return x


class ForgetsTheBias(ops.MatMul):
    """A change of the first input alone is no product where a bias is added."""

    linear = ((0,), (1,))


class SaysTooLittle(ops.Gate):
    """A gate is linear in what it lets through."""

    linear = ()


@pytest.mark.parametrize("kind", [ForgetsTheBias, SaysTooLittle], ids=lambda kind: kind.__name__)
def test_a_lie_about_what_an_op_is_linear_in_is_found(kind):
    assert linear_sets(kind) != set(kind.linear)


LIES = {
    OffByOnePercent: AssertionError,
    ReadsAnotherRow: AssertionError,
    OfAnotherShape: AssertionError,
    SaysNothing: NotImplementedError,
}


@pytest.mark.parametrize("kind", LIES, ids=lambda kind: kind.__name__)
def test_a_lie_about_an_op_is_found(kind):
    @settings(phases=[Phase.generate])
    @given(example=examples(kind))
    def law(example):
        says_what_it_makes(*example)

    with pytest.raises(LIES[kind]):
        law()
