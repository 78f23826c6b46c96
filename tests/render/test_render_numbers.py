"""One number format a matrix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from attnctl.drawing.screen.grid import matrix_format

UNHURRIED = settings(deadline=None)


@pytest.mark.parametrize(
    ("numbers", "precision", "shown"),
    [
        ([0.5, -1.25], 4, [" 0.5000", "-1.2500"]),
        ([0.5, 12.25], 2, [" 0.50", "12.25"]),
        ([1, 0, -3], 4, [" 1", " 0", "-3"]),
        ([1.0, 0.0, 10.0], 4, [" 1", " 0", "10"]),
        ([0.0, -0.0], 4, [" 0", " 0"]),
        ([-0.00001, 0.5], 4, [" 0.0000", " 0.5000"]),
        ([-0.00001, -10.5], 4, ["  0.0000", "-10.5000"]),
        ([-0.4, 1.5], 0, [" 0", " 2"]),
        ([0.0001, -0.0002], 4, [" 1.0000e-04", "-2.0000e-04"]),
        ([0.00099, 0.0], 2, ["9.90e-04", "0.00e+00"]),
        ([1e6, 2.5], 4, ["1.0000e+06", "2.5000e+00"]),
        ([999999.5, 2.5], 1, ["999999.5", "     2.5"]),
        ([1e100, 1e-3], 1, ["1.0e+100", " 1.0e-03"]),
        ([0.0005, 0.25], 8, ["0.00050000", "0.25000000"]),
        ([-np.inf, 0.5], 4, ["    -∞", "0.5000"]),
        ([np.nan, np.inf, 1.0], 4, ["NaN", "  ∞", "  1"]),
        ([-np.inf, -np.inf], 4, ["  -∞", "  -∞"]),
        ([1e-320, -np.inf], 1, ["1.0e-320", "      -∞"]),
    ],
)
def test_a_matrix_has_one_format(numbers, precision, shown):
    write = matrix_format(np.array(numbers), precision)
    assert [write(value) for value in numbers] == shown


def test_infinity_in_ascii():
    write = matrix_format(np.array([-np.inf, np.inf, 0.5]), 4, ascii_only=True)
    assert [write(value) for value in (-np.inf, np.inf, 0.5)] == ["  -inf", "   inf", "0.5000"]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "uint8"])
def test_every_type_of_number(dtype):
    assert matrix_format(np.array([0, 1, 10], dtype=dtype))(1) == " 1"


def test_nothing_needs_no_width():
    assert matrix_format(np.zeros((3, 0))).width == 1


MATRICES = arrays.arrays(
    st.sampled_from([np.float64, np.float32, np.float16]),
    arrays.array_shapes(min_dims=1, max_dims=2, max_side=6),
)


@UNHURRIED
@given(MATRICES, st.integers(0, 12))
def test_all_numbers_are_equally_wide_and_right(matrix, precision):
    write = matrix_format(matrix, precision)
    values = matrix.ravel().tolist()
    texts = [write(value) for value in values]
    assert {len(text) for text in texts} == {write.width}
    for value, text in zip(values, texts, strict=True):
        if 1e308 < abs(value) < np.inf:
            continue  # its rounding is beyond what float reads
        read = float(text.replace("∞", "inf"))
        assert read == pytest.approx(value, rel=10.0**-precision, abs=0.501 * 10.0**-precision, nan_ok=True)
        assert not text.strip().startswith("-") or read != 0


@UNHURRIED
@given(MATRICES, st.integers(0, 6), st.integers(0, 5))
def test_a_row_at_once_is_its_numbers_one_by_one(matrix, precision, wider):
    write = matrix_format(matrix, precision)
    values = matrix.ravel().tolist()
    row = write.write(write.template([write.width + wider] * len(values)), values)
    assert row == "".join(f" {write(value).rjust(write.width + wider)} " for value in values)
