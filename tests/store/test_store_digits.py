"""Numbers as text: exact, strict, the same with and without orjson, and a little at a time."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from attnctl.store import digits

pytest.importorskip("orjson")

RARE = [0.0, -0.0, 5e-324, 1e-5, 9.999999999999999e-06, 9.999999999999999e-05, 1e-4, -1.5e-7, 1e-10]
LARGE = [1e15, 9999999999999998.0, 1e16, -1.5e16, 1e22, 1.7976931348623157e308, digits.BREAK]
WORDS = [np.nan, np.inf, -np.inf]


def text_of(array, newline="\n"):
    return b"".join(digits.pieces(array, newline))


def both(array, newline="\n"):
    """The text, the same with orjson and without."""
    fast = text_of(array, newline)
    kept, digits.orjson = digits.orjson, None
    try:
        slow = text_of(array, newline)
    finally:
        digits.orjson = kept
    assert fast == slow
    return fast


def refuse(word):
    raise AssertionError(f"{word} is not JSON")


def numbers(text, dtype):
    """What the text says, read by the standard library: strictly."""
    told = json.loads(text, parse_constant=refuse)
    return np.array(told, dtype=np.float64).astype(dtype)


def same_bits(one, other):
    return np.array_equal(np.isnan(one), np.isnan(other)) and (
        one[~np.isnan(one)].tobytes() == other[~np.isnan(other)].tobytes()
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize(
    "shape", [(3000,), (300, 10), (10, 300), (4, digits.WIDE), (5, 4, 150), (1, 1, 3000)]
)
def test_every_digit_comes_back(shape, dtype):
    draw = np.random.RandomState(0)
    wide = 10 ** draw.uniform(-8, 20, 3000) * draw.choice([-1, 1], 3000)
    with np.errstate(over="ignore"):
        values = draw.permutation([*RARE, *LARGE, *WORDS, *wide])[: np.prod(shape)].astype(dtype)
    array = values.reshape(shape)
    assert same_bits(numbers(both(array), dtype), array)


@given(arrays_of.arrays(np.float64, arrays_of.array_shapes(max_dims=3, max_side=9)), st.sampled_from("\n "))
def test_the_text_is_the_same_with_and_without_orjson(array, newline):
    assert same_bits(numbers(both(array, newline), "float64"), array)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_the_digits_are_as_few_as_those_of_repr(values):
    told = both(np.array(values)).decode()[1:-1].split(",")
    for text, value in zip(told, values, strict=True):
        assert float(text) == value
        assert len(significant(text)) <= len(significant(repr(value)))


def significant(text):
    return text.lstrip("-").split("e")[0].replace(".", "").strip("0")


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array(1.5), "1.5"),
        (np.array([]), "[]"),
        (np.zeros((0, 3)), "[]"),
        (np.zeros((2, 0)), "[[],\n[]]"),
        (np.zeros((2, 0, 3)), "[[],\n[]]"),
        (np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]), "[[[1,2],\n[3,4]],\n[[5,6],\n[7,8]]]"),
        (np.array([[1.0, 2.0], [3.0, 4.0]]), "[[1.0,2.0],\n[3.0,4.0]]"),
        (np.array([True, False]), "[true,false]"),
        (np.array([2**64 - 1], dtype=np.uint64), "[18446744073709551615]"),
        (np.array([-(2**63)]), "[-9223372036854775808]"),
        (np.array([0.5], dtype=">f4"), "[0.5]"),
        (np.array([1e-5, 1.25e-5, 1.5e-6, 1e-10, 1e16]), "[0.00001,0.0000125,1.5e-6,1e-10,1e+16]"),
        (np.full((1, 3), -np.inf), '[["-Infinity","-Infinity","-Infinity"]]'),
    ],
)
def test_a_row_is_a_line(array, text):
    assert both(array).decode() == text
    assert both(array, "").decode() == text.replace("\n", "")


@pytest.mark.parametrize("shape", [(2**20,), (2**10, 2**10), (2**3, 2**16, 2), (1, 2**20)])
@pytest.mark.parametrize("orjson", [True, False])
def test_text_is_made_a_little_at_a_time(shape, orjson, monkeypatch):
    if not orjson:
        monkeypatch.setattr(digits, "orjson", None)
        shape = tuple(n // 8 if n == max(shape) else n for n in shape)
    array = np.random.RandomState(0).normal(size=shape)
    tracemalloc.start()
    for _ in digits.pieces(array):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**21
