"""The small parts: expressions, positions, derivations, costs, carrying out."""

from __future__ import annotations

import numpy as np
import pytest

from attnctl.math.arithmetic import Number, Operation, code, numbers
from attnctl.math.derivation import Rotary, Variant, derive
from attnctl.math.engine import carry_out, empty_rows, overflow
from attnctl.math.ops import (
    Add,
    Append,
    Copy,
    Given,
    Hide,
    MatMul,
    MatMulT,
    Merge,
    Op,
    Project,
    Repeat,
    Rotate,
    Scale,
    Sinusoid,
    Slope,
    Softmax,
    Squeeze,
)
from attnctl.math.ops.vectors import rotary_pairs, rotate, sinusoids
from attnctl.math.rules import Alibi, Causal, Softcap

TWO, MINUS = Number(2.0, (0, (1,))), Number(-0.5)


def op(kind, *parts):
    return Operation(kind, parts)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (TWO, "2.0"),
        (MINUS, "(-0.5)"),
        (Number(-np.inf), "-Infinity"),
        (Number(np.nan), "NaN"),
        (Number(1e-300), "1e-300"),
        (op("+", TWO, MINUS), "(2.0 + (-0.5))"),
        (op("-", TWO, op("+", MINUS)), "(2.0 - ((-0.5)))"),
        (op("*", TWO, op("+", MINUS, TWO)), "2.0 * ((-0.5) + 2.0)"),
        (op("/", TWO, op("*", MINUS, MINUS)), "(2.0) / ((-0.5) * (-0.5))"),
        (op("exp", op("/", TWO, MINUS)), "exp((2.0) / ((-0.5)))"),
    ],
)
def test_code(expr, text):
    assert code(expr) == text


def test_numbers_left_to_right():
    expr = op("+", op("/", TWO, MINUS), op("sin", op("-", MINUS, TWO)), op("*", TWO))
    assert [n.value for n in numbers(expr)] == [2.0, -0.5, -0.5, 2.0, 2.0]
    assert next(numbers(expr)).source == (0, (1,))


def test_sinusoids():
    expected = [
        [0, 1, 0, 1],
        [0.8414709848078965, 0.5403023058681398, 0.009999833334166664, 0.9999500004166653],
    ]
    np.testing.assert_allclose(sinusoids(np.arange(2), 4), expected, rtol=0, atol=1e-15)
    assert (sinusoids(np.arange(2, 5), 5) == sinusoids(np.arange(5), 5)[2:]).all()


def test_pairs_of_columns():
    assert [list(range(6))[pair] for pair in rotary_pairs(6, interleaved=False)] == [[0, 1, 2], [3, 4, 5]]
    assert [list(range(6))[pair] for pair in rotary_pairs(6, interleaved=True)] == [[0, 2, 4], [1, 3, 5]]


def test_rotating_leaves_its_input_and_the_other_columns():
    x = np.array([[1.0, 2.0, 3.0, 4.0]])
    quarter = np.array([[0.0]]), np.array([[1.0]])
    assert rotate(x, *quarter).tolist() == [[-2.0, 1.0, 3.0, 4.0]]
    assert x.tolist() == [[1.0, 2.0, 3.0, 4.0]]


SCORES = (2, 3, 4)


@pytest.mark.parametrize(
    ("op", "shape", "inputs", "flops"),
    [
        (Given(), (5, 4), [], 0),
        (Copy(), (5, 4), [(5, 4)], 0),
        (Append(), SCORES, [SCORES, SCORES], 0),
        (Repeat(2), SCORES, [(1, 3, 4)], 0),
        (Merge(), (3, 8), [SCORES], 0),
        (Add(), (5, 4), [(5, 4), (5, 4)], 20),
        (Sinusoid(5, 4), (5, 4), [], 40),
        (Project(), (2, 5, 3), [(5, 4), (2, 4, 3)], 240),
        (Rotate(), (2, 5, 4), [(2, 5, 4)], 120),
        (MatMulT(), SCORES, [(2, 3, 6), (2, 4, 6)], 288),
        (MatMul(), (2, 3, 5), [SCORES, (2, 4, 5)], 240),
        (Scale(4), SCORES, [SCORES], 24),
        (Squeeze(2.0), SCORES, [SCORES], 72),
        (Slope(), SCORES, [SCORES], 48),
        (Hide(), SCORES, [SCORES], 0),
        (Softmax(), SCORES, [SCORES], 120),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Op) else "",
)
def test_cost(op, shape, inputs, flops):
    assert op.cost(shape, *inputs) == flops


def test_the_order_of_the_lines_is_that_of_the_numerics():
    rules = (Causal(), Alibi(), Softcap(5.0))
    lines = derive(Variant({"Q": "", "K": "", "V": "", "bias": "", "mask": ""}, d_k=4, rules=rules))
    assert [step.name for step in lines if step.symbol == "S"] == [
        "scores",
        "scaled_scores",
        "softcapped_scores",
        "alibi_scores",
        "biased_scores",
        "masked_scores",
    ]
    assert lines["masked_scores"].inputs == ("biased_scores", "mask")
    assert lines.given == ("Q", "K", "V", "bias", "mask")
    assert "output" not in lines


def test_every_line_reads_what_stands_above_it():
    given = (
        "embeddings",
        "memory",
        "W_Q",
        "W_K",
        "W_V",
        "b_K",
        "past_key",
        "past_value",
        "mask",
        "W_O",
        "b_O",
    )
    lines = derive(
        Variant(
            dict.fromkeys(given, "given"),
            d_k=4,
            kv_share=2,
            sinusoid=Sinusoid(3, 4),
            rotary=Rotary(),
            rules=(Causal(),),
            past=2,
            batch=True,
        )
    )
    above: set[str] = set()
    for step in lines:
        assert set(step.inputs) <= above
        assert step.name not in above
        above.add(step.name)
    assert lines["Q"].formula == "X W_Q"
    assert lines["K"].formula == "M W_K + b_K"
    assert lines["K_rotated"].op == Rotate(start=2)
    assert lines["present_key"].inputs == ("past_key", "K_rotated")
    assert lines["K_shared"].inputs == ("present_key",)
    assert lines["scores"].axes == ("batch", "head", "query", "key")
    assert lines["W_Q"].axes == ("head", "d_model", "d_k")


QKV = {
    "Q": np.array([[[1.0, 0.0]]]),
    "K": np.array([[[2.0, 0.0], [0.0, 2.0]]]),
    "V": np.array([[[1.0], [3.0]]]),
}
PLAIN = derive(Variant(dict.fromkeys(QKV, "given"), d_k=2, scale=1.0))


def test_an_edit_comes_before_the_next_step_reads():
    edits = {"scores": lambda scores: scores * 0, "head_outputs": lambda z: z + 1}
    values = carry_out(PLAIN, QKV, edits=edits).values
    assert values["scaled_scores"].tolist() == [[[0.0, 0.0]]]
    assert values["attention_weights"].tolist() == [[[0.5, 0.5]]]
    assert values["concat"].tolist() == [[3.0]]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_every_step_is_of_the_type_asked_for(dtype):
    assert {array.dtype.name for array in carry_out(PLAIN, QKV, dtype).values.values()} == {dtype}


def test_rows_that_see_nothing():
    assert empty_rows(np.array([[[0.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]])) == [[0, 0], [1, 1]]


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("scores", np.inf, ("scores", [0, 0, 1])),
        ("attention_weights", np.nan, ("attention_weights", [0, 0, 1])),
        ("scores", 1.0, None),
    ],
)
def test_overflow_is_found_where_it_begins(name, value, found):
    def spoil(array):
        array[0, 0, 1] = value
        return array

    values = carry_out(PLAIN, QKV, edits={name: spoil}).values
    assert overflow(PLAIN, values) == found
    assert carry_out(PLAIN, QKV, edits={name: spoil}).overflow == found
