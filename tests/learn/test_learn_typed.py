"""Numbers as people type them: right at the digits typed, and never right by having none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnctl.base.errors import AttnError
from attnctl.base.values import Plain
from attnctl.verbs.learn.expression import parse_expression
from attnctl.verbs.learn.grade import fit_shape, read_matrix, read_number

ACCEPTED = [
    ("0.6234", 0.6234), ("0.62", 0.6234), ("0.623", 0.6234), (".62", 0.6234), ("62 %", 0.6234),
    ("62%", 0.6234), ("62.3%", 0.6234), ("6.2e-1", 0.6234), ("0.63", 0.6277), ("0.627", 0.6277),
    ("-1.5", -1.5), ("−1.5", -1.5), ("2", 2.0), ("2.0", 2.0), ("800", 800.0), ("0", 0.0), ("-inf", -np.inf),
    ("14", 14.2), ("0.00345", 0.003449), ("0.622", 0.6234), ("0.624", 0.6234), ("1.495", 1.494272),
    ("2.01", 2.0), ("-0.622", -0.6234),
]  # fmt: skip
REFUSED = [
    ("0.6", 0.6234), ("1", 0.6234), ("0", 0.6234), ("0.00", 0.0034), ("0.003", 0.0034), ("0", 1e-9),
    ("0.64", 0.6234), ("0.61", 0.6234), ("-0.62", 0.6234), ("2", 2.4), ("3", 2.9), ("62", 0.6234),
    ("-inf", 0.6234), ("0.62", -np.inf), ("0.63", 0.6234), ("0.62", 0.6277), ("1.4", 1.494),
    ("0.621", 0.6234), ("0.625", 0.6234), ("801", 800.0), ("799", 800.0), ("3", 2.0), ("2.1", 2.0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "right"), ACCEPTED)
def test_the_digits_that_are_typed_count(text, right):
    assert read_number(text).could_be(np.array(right))


@pytest.mark.parametrize(("text", "right"), REFUSED)
def test_too_few_digits_or_other_numbers_do_not(text, right):
    assert not read_number(text).could_be(np.array(right))


SOFTMAX = np.array([0.3875, 0.235, 0.235, 0.1425])


@pytest.mark.parametrize(
    ("text", "right", "is_right"),
    [
        ("0.39 0.235 0.235 0.14", SOFTMAX, True),
        ("0.39 0.24 0.235 0.14", SOFTMAX, True),
        ("0.39 0.235 0.235 0.15", SOFTMAX, False),
        ("0.38 0.235 0.235 0.14", SOFTMAX, False),
        ("0.4 0.235 0.235 0.14", SOFTMAX, False),
        ("0.5 0.25 0.25 0", np.array([0.498, 0.251, 0.249, 0.002]), True),
        ("0.5 0.25 0.25 0", np.array([0.48, 0.26, 0.25, 0.01]), False),
    ],
)
def test_each_number_is_judged_by_its_own_digits(text, right, is_right):
    assert read_matrix(text).could_be(right) == is_right


@pytest.mark.parametrize(
    "text", ["", "nan", "inf", "0,62", "1e999", "0x1", "1_0", "--1", ".", "%", "1 2", "٣"]
)
def test_what_is_no_number(text):
    with pytest.raises(AttnError):
        read_number(text)


@given(st.floats(-1e3, 1e3, allow_nan=False), st.integers(1, 4), st.integers(-3, 3))
def test_the_last_digit_may_be_off_by_one_and_not_by_two(right, decimals, by):
    value, unit = np.array(right), 10.0**-decimals
    text = f"{round(right, decimals) + by * unit:.{decimals}f}"
    if abs(float(text) - right) < 1e-6:  # it is right to many digits
        return
    if abs(abs(right) / unit % 1 - 0.5) * unit < 1e-8 * abs(right) + 1e-6 * unit:  # a tie goes either way
        return
    allowed = 1 if unit <= 0.01 * abs(right) else 0 if unit <= 0.1 * abs(right) else -1
    assert read_number(text).could_be(value) == (abs(by) <= allowed)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        Plain("0.4"),
        "[{a: 1}]",
        "[1, [2]]",
        "[[1], [2, 3]]",
        "[a]",
        "{a: 1}",
        "[[[[[[1]]]]]]",
        "[]",
    ],
)
def test_what_is_no_matrix(text):
    with pytest.raises(AttnError):
        read_matrix(text)


def test_a_matrix_is_right_at_its_finest_digits_and_axes_of_one_do_not_matter():
    right = np.array([[[0.38745562, 0.23500371], [0.5, 0.0]]])
    assert fit_shape(read_matrix("[[0.39, 0.24], [0.5, 0]]"), right.shape).could_be(right)
    assert not fit_shape(read_matrix("[[0.39, 0.26], [0.5, 0]]"), right.shape).could_be(right)
    assert not fit_shape(read_matrix("[[0.4, 0.2], [0.5, 0]]"), right.shape).could_be(right)
    assert not fit_shape(read_matrix("[[0, 0], [0, 0]]"), right.shape).could_be(right)
    assert not read_matrix("[0.39, 0.24, 0.5, 0]").could_be(right)


ROWS = [
    ("0.39 0.24 0.14", [0.39, 0.24, 0.14]), ("0.39, 0.24", [0.39, 0.24]), ("0.39,0.24", [0.39, 0.24]),
    ("1 2; 3 4", [[1, 2], [3, 4]]), ("1 2\n3 4\n", [[1, 2], [3, 4]]), ("-1 -2", [-1, -2]),
    ("[[1. 2.]\n [3. 4.]]", [[1, 2], [3, 4]]), ("[0.39 0.24]", [0.39, 0.24]), ("[1 -2]", [1, -2]),
    ("39 % 24%", [0.39, 0.24]), ("-inf 1; −1 2", [[-np.inf, 1], [-1, 2]]),
    ("[[1, 2], [3, 4]]", [[1, 2], [3, 4]]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "rows"), ROWS)
def test_rows_are_read_as_people_type_them(text, rows):
    np.testing.assert_allclose(read_matrix(text).numbers, rows)


def test_a_comma_for_the_point_is_said():
    with pytest.raises(AttnError, match="write a point for the comma"):
        read_matrix("0,39 0,24")


# --- expressions ---


def trace():
    import attnctl

    return attnctl.run("I love AI I", heads=2)


def test_expressions():
    run = trace()
    s, a = run["scores"], run["attention_weights"]
    for text, value in [
        ("scores[0,love,AI]", s[0, 1, 2]),
        ("S[1,love,AI]", s[1, 1, 2]),
        ("2 * scores[0,love,AI] - 1", 2 * s[0, 1, 2] - 1),
        ("-(1 + 2) * 3 / 2", -4.5),
        ("sum(A[0,love,:])", 1.0),
        ("var(scores)", np.square(s - s.mean()).mean()),
        ("max(scores)", s.max()),
        ("sqrt(size(Q,d_k))", np.sqrt(2)),
        ("size(A)", 32),
        ("id[AI]", 2),
        ("id[I#2]", 0),
        ("exp(scores[0,love,AI])", np.exp(s[0, 1, 2])),
    ]:
        assert parse_expression(text)(run) == pytest.approx(value), text
    found = parse_expression("largest(A[0,love,:])")(run)
    best = np.flatnonzero(a[0, 1] == a[0, 1].max())
    assert found == ("attention_weights", tuple((0, 1, int(key)) for key in best))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "scores[0",
        "1 +",
        "sqrt(",
        "foo(1)",
        "1 2",
        "()",
        "largest(2)",
        "size()",
        "'; import os",
        "(" * 99,
    ],
)
def test_what_is_no_expression(text):
    with pytest.raises(AttnError):
        parse_expression(text)


@pytest.mark.parametrize("text", ["nothing[0]", "scores[9,9,9]", "size(Q,key)", "id[x]", "1 + largest(A)"])
def test_what_a_run_does_not_have(text):
    with pytest.raises(AttnError):
        parse_expression(text)(trace())
