"""Numbers as text: exact, strict, with and without orjson, and a little at a time."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from attnctl.store import json_file

pytest.importorskip("orjson")

RARE = [0.0, -0.0, 5e-324, 1e-5, 9.999999999999999e-06, 9.999999999999999e-05, 1e-4, -1.5e-7, 1e-10]
LARGE = [1e15, 9999999999999998.0, 1e16, -1.5e16, 1e22, 1.7976931348623157e308, 1e111]
WORDS = [np.nan, np.inf, -np.inf]


def text_of(array, newline="\n"):
    return b"".join(json_file.json_pieces(array, newline))


def both(array, newline="\n"):
    """The text with orjson, and that of the standard library."""
    with pytest.MonkeyPatch.context() as patched:
        fast = text_of(array, newline)
        patched.setattr(json_file, "find_orjson", lambda: None)
        return fast, text_of(array, newline)


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
    "shape", [(3000,), (300, 10), (10, 300), (4, json_file.WIDE), (5, 4, 150), (1, 1, 3000)]
)
def test_every_digit_comes_back(shape, dtype):
    draw = np.random.RandomState(0)
    wide = 10 ** draw.uniform(-8, 20, 3000) * draw.choice([-1, 1], 3000)
    with np.errstate(over="ignore"):
        values = draw.permutation([*RARE, *LARGE, *WORDS, *wide])[: np.prod(shape)].astype(dtype)
    array = values.reshape(shape)
    for text in both(array):
        assert same_bits(numbers(text, dtype), array)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_the_smallest_and_largest_of_a_type_come_back(dtype):
    of = np.finfo(dtype)
    sizes = [of.smallest_subnormal, 3 * of.smallest_subnormal, of.tiny / 3, of.tiny, of.eps, of.max, 0.0]
    array = np.array([sizes, [-each for each in sizes]], dtype=dtype)
    for text in both(array):
        assert same_bits(numbers(text, dtype), array)


@pytest.mark.parametrize(
    "dtype", ["bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
)
def test_whole_numbers_come_back(dtype):
    ends = [False, True] if dtype == "bool" else [np.iinfo(dtype).min, 1, np.iinfo(dtype).max]
    for text in both(np.array([ends], dtype=dtype)):
        assert json.loads(text, parse_constant=refuse) == [ends]


@given(arrays_of.arrays(np.float64, arrays_of.array_shapes(max_dims=3, max_side=9)), st.sampled_from("\n "))
def test_any_number_comes_back(array, newline):
    for text in both(array, newline):
        assert same_bits(numbers(text, "float64"), array)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_the_digits_are_as_few_as_those_of_repr(values):
    for written in both(np.array(values)):
        for text, value in zip(written.decode()[1:-1].split(","), values, strict=True):
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
        (np.full((1, 3), -np.inf), '[["-Infinity","-Infinity","-Infinity"]]'),
        (np.array([np.nan, 1e16, np.inf, -np.inf]), '["NaN",1e+16,"Infinity","-Infinity"]'),
    ],
)
def test_a_row_is_a_line(array, text):
    assert both(array) == (text.encode(),) * 2
    assert both(array, "") == (text.replace("\n", "").encode(),) * 2


def test_small_numbers_have_one_form_with_orjson_and_another_without():
    array = np.array([1e-5, 1.25e-5, 1.5e-6, 1e-10, 1e16])
    assert both(array) == (
        b"[0.00001,0.0000125,1.5e-6,1e-10,1e+16]",
        b"[1e-05,1.25e-05,1.5e-06,1e-10,1e+16]",
    )


@pytest.mark.sample(8)
@pytest.mark.parametrize("shape", [(2**20,), (2**10, 2**10), (2**3, 2**16, 2), (1, 2**20)])
@pytest.mark.parametrize("orjson", [True, False])
def test_text_is_made_a_little_at_a_time(shape, orjson, monkeypatch):
    if not orjson:
        monkeypatch.setattr(json_file, "find_orjson", lambda: None)
        shape = tuple(n // 8 if n == max(shape) else n for n in shape)
    array = np.random.RandomState(0).normal(size=shape)
    tracemalloc.start()
    for _ in json_file.json_pieces(array):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**21


WITHOUT_TYPE = {
    "one number": (3, 3.0, "float64"),
    "one truth value": (True, True, "bool"),
    "truth values": ([[True, False]], [[True, False]], "bool"),
    "rows of nothing": ([[], []], np.zeros((2, 0)), "float64"),
    "more than are converted at a time": (list(map(float, range(70_000))), np.arange(70_000.0), "float64"),
    "rows that are converted in parts": (
        [[0.5, 1.5]] * 40_000,
        np.tile([0.5, 1.5], (40_000, 1)),
        "float64",
    ),
}


@pytest.mark.parametrize(("data", "array", "dtype"), WITHOUT_TYPE.values(), ids=WITHOUT_TYPE)
def test_lists_that_say_no_type_are_truth_values_or_numbers(data, array, dtype):
    read = json_file.array_of(data)
    assert read.dtype == dtype
    np.testing.assert_array_equal(read, array)
