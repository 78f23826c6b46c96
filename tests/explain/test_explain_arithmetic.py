"""Expressions: how they are written for people, what they come to, how far rounding may move them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from explained import evaluated
from hypothesis import given
from hypothesis import strategies as st

from attnctl.math.arithmetic import Number, Operation, abridge, code, display, evaluate

A, B, C = Number(2.0), Number(-0.5), Number(3.0)


def op(kind, *parts):
    return Operation(kind, parts)


def text(number):
    return f"{number.terms} more: {number.value:g}" if number.terms else f"{number.value:g}"


@pytest.mark.parametrize(
    ("expr", "shown"),
    [
        (B, "-0.5"),
        (op("+"), "0"),
        (op("+", B, B, A), "-0.5 + (-0.5) + 2"),
        (op("+", op("*", B, A), op("*", A, B)), "(-0.5)·2 + 2·(-0.5)"),
        (op("-", B, B), "-0.5 - (-0.5)"),
        (op("/", B, op("sqrt", A)), "-0.5 / √2"),
        (op("*", C, op("tanh", op("/", B, C))), "3·tanh(-0.5 / 3)"),
        (
            op("/", op("exp", B), op("+", op("exp", B), op("exp", A))),
            "exp(-0.5) / (exp(-0.5) + exp(2))",
        ),
        (op("*", op("+", A, B), C), "(2 + (-0.5))·3"),
    ],
)
def test_display(expr, shown):
    assert display(expr, text) == shown


@pytest.mark.parametrize(
    ("most", "shown"),
    [
        (6, "0 + 1 + (-7) + 3 + 4 + 5"),
        (4, "-7 + 3 + 4 + 5 + 2 more: 1"),
        (2, "-7 + 5 + 4 more: 8"),
    ],
)
def test_of_a_long_sum_the_largest_terms_are_kept_in_their_order(most, shown):
    expr = op("+", *map(Number, (0.0, 1.0, -7.0, 3.0, 4.0, 5.0)))
    assert display(abridge(expr, most), text) == shown


def test_what_was_abridged_is_abridged_again_to_the_same():
    expr = op("/", A, op("+", *(op("exp", Number(float(-at))) for at in range(40))))
    assert abridge(abridge(expr, 16, 30), 4) == abridge(expr, 4)
    assert abridge(expr, 16, 40) == expr


@pytest.mark.parametrize(
    ("terms", "rest"),
    [
        ((1.0, math.nan, 2.0), Number(1.0, terms=1)),
        ((1.0, math.inf, -math.inf, 1.0), Number(2.0, terms=2)),
        ((1e308, 1e308, 1e308, 1e308), Number(math.inf, terms=2)),
        ((0.0, 0.0, 0.0), Number(0.0, terms=1)),
    ],
)
def test_a_long_sum_of_anything_is_abridged(terms, rest):
    assert abridge(op("+", *map(Number, terms)), 2).parts[-1] == rest


@given(st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=40), st.integers(1, 4))
def test_an_abridged_sum_comes_to_the_same_and_leaves_out_only_smaller_terms(values, most):
    short = abridge(op("+", *map(Number, values)), most)
    *kept, rest = short.parts
    assert (len(kept), rest.terms) == (most, len(values) - most)
    assert sorted(abs(each.value) for each in kept) == sorted(map(abs, values))[-most:]
    whole = sum(map(abs, values))
    assert evaluated(code(short)) == pytest.approx(math.fsum(values), abs=1e-14 * whole)


def numbers():
    return st.floats(-1e3, 1e3).map(Number)


def expressions():
    return st.recursive(
        numbers(),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=4).map(lambda parts: op("+", *parts)),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: op("*", *parts)),
            st.builds(op, st.just("-"), inner, inner),
            st.builds(op, st.just("/"), inner, numbers().filter(lambda number: abs(number.value) > 1e-3)),
            st.builds(op, st.sampled_from(["tanh", "cos", "sin"]), inner),
        ),
        max_leaves=12,
    )


@given(expressions())
def test_evaluate_gives_what_a_calculator_makes_of_code(expr):
    value, slack = evaluate(expr, 2.0**-52)
    if math.isfinite(value):
        assert evaluated(code(expr)) == value
        assert slack >= 0


@given(
    st.lists(st.tuples(st.floats(-100, 100), st.floats(-100, 100)), min_size=1, max_size=40), st.randoms()
)
def test_the_slack_covers_what_float32_does_in_any_order(pairs, random):
    """Products and sums in float32, added up in an order of their own, stay within what is allowed."""
    single = [(float(np.float32(a)), float(np.float32(b))) for a, b in pairs]
    value, slack = evaluate(op("+", *(op("*", Number(a), Number(b)) for a, b in single)), 2.0**-23)
    total = np.float32(0)
    for a, b in random.sample(single, len(single)):
        total = np.float32(total + np.float32(a) * np.float32(b))
    assert abs(float(total) - value) <= slack + 1e-44


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        (op("/", A, Number(0.0)), math.nan),
        (op("exp", Number(1e4)), math.inf),
        (op("sin", Number(math.inf)), math.nan),
        (op("sqrt", B), math.nan),
    ],
)
def test_what_has_no_value_is_no_crash(expr, value):
    assert evaluate(expr, 2.0**-52) == (pytest.approx(value, nan_ok=True), math.inf)
