"""Expressions: how they are written for people, what they come to, how far rounding may move them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from explained import evaluated
from hypothesis import given
from hypothesis import strategies as st

from attnctl.arithmetic import Call, Difference, Number, Product, Quotient, Sum, code, display, evaluate

A, B, C = Number(2.0), Number(-0.5), Number(3.0)


def text(number):
    return f"{number.value:g}"


@pytest.mark.parametrize(
    ("expr", "shown"),
    [
        (B, "-0.5"),
        (Sum(()), "0"),
        (Sum((B, B, A)), "-0.5 + (-0.5) + 2"),
        (Sum((Product((B, A)), Product((A, B)))), "(-0.5)·2 + 2·(-0.5)"),
        (Difference(B, B), "-0.5 - (-0.5)"),
        (Quotient(B, Call("sqrt", A)), "-0.5 / √2"),
        (Product((C, Call("tanh", Quotient(B, C)))), "3·tanh(-0.5 / 3)"),
        (
            Quotient(Call("exp", B), Sum((Call("exp", B), Call("exp", A)))),
            "exp(-0.5) / (exp(-0.5) + exp(2))",
        ),
        (Product((Sum((A, B)), C)), "(2 + (-0.5))·3"),
    ],
)
def test_display(expr, shown):
    assert display(expr, text) == shown


@pytest.mark.parametrize(
    ("most", "shown"),
    [
        (None, "0 + 1 + 2 + 3 + 4 + 5"),
        (6, "0 + 1 + 2 + 3 + 4 + 5"),
        (4, "0 + 1 + 2 + … 2 more … + 5"),
        (2, "0 + … 4 more … + 5"),
    ],
)
def test_long_sums_are_shortened_with_the_count_of_what_is_left_out(most, shown):
    assert display(Sum(tuple(map(Number, map(float, range(6))))), text, most) == shown


def numbers():
    return st.floats(-1e3, 1e3).map(Number)


def expressions():
    return st.recursive(
        numbers(),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=4).map(tuple).map(Sum),
            st.lists(inner, min_size=1, max_size=3).map(tuple).map(Product),
            st.builds(Difference, inner, inner),
            st.builds(Quotient, inner, numbers().filter(lambda number: abs(number.value) > 1e-3)),
            st.builds(Call, st.sampled_from(["tanh", "cos", "sin"]), inner),
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
    value, slack = evaluate(Sum(tuple(Product((Number(a), Number(b))) for a, b in single)), 2.0**-23)
    total = np.float32(0)
    for a, b in random.sample(single, len(single)):
        total = np.float32(total + np.float32(a) * np.float32(b))
    assert abs(float(total) - value) <= slack + 1e-44


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        (Quotient(A, Number(0.0)), math.nan),
        (Call("exp", Number(1e4)), math.inf),
        (Call("sin", Number(math.inf)), math.nan),
        (Call("sqrt", B), math.nan),
    ],
)
def test_what_has_no_value_is_no_crash(expr, value):
    assert evaluate(expr, 2.0**-52) == (pytest.approx(value, nan_ok=True), math.inf)
