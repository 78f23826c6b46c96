"""Hostile arrays: what `attend` must refuse, or answer without a NaN."""

# ruff: noqa: E501  (a row a line)
import io
import json
import struct

import numpy as np
from attack import OK, REFUSED, Attack

FLOATS = np.arange(12.0).reshape(3, 4) / 10
ARRAYS = {}


def npz(**arrays):
    """The bytes of a .npz."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def qkv(**changed):
    """Q, K and V that fit each other, some of them changed; those that are None left out."""
    named = {"Q": FLOATS, "K": FLOATS, "V": FLOATS, **changed}
    return {name: value for name, value in named.items() if value is not None}


def with_one(value):
    """An array of which one number is this."""
    out = FLOATS.copy()
    out[1, 2] = value
    return out


def attack(name, tries, arrays, *options, codes=REFUSED, says=""):
    """Enter arrays into the corpus."""
    ARRAYS[name] = Attack(
        tries, ("attend", "x.npz", *options), codes, {"x.npz": lambda: npz(**arrays)}, says=says
    )


def text_attack(name, tries, text, *options, codes=REFUSED, says=""):
    """Enter a JSON file into the corpus."""
    raw = text.encode() if isinstance(text, str) else text
    ARRAYS[name] = Attack(tries, ("attend", "x.json", *options), codes, {"x.json": lambda: raw}, says=says)


attack("nan", "a number that is none", qkv(K=with_one(np.nan)), says="[1, 2]")
attack("infinity", "a number without end", qkv(V=with_one(np.inf)), says="[1, 2]")
attack("minus_infinity_in_q", "the same below", qkv(Q=with_one(-np.inf)), says="[1, 2]")
attack("nan_in_the_bias", "a mask of NaN", qkv(mask=np.full((3, 3), np.nan)), says="mask")
attack("infinity_in_the_mask", "a mask that adds infinity", qkv(mask=np.full((3, 3), np.inf)), says="mask")
attack(
    "nothing_may_be_seen",
    "a mask that hides all",
    qkv(mask=np.full((3, 3), -np.inf)),
    codes=OK,
    says="zeros",
)
attack("complex", "numbers of two parts", qkv(Q=FLOATS + 1j), says="Q")
attack("strings", "words for numbers", qkv(Q=FLOATS.astype(str)), says="Q")
attack("bytes_for_numbers", "bytes for numbers", qkv(Q=FLOATS.astype("S8")), says="Q")
attack("dates", "dates for numbers", qkv(Q=np.zeros((3, 4), "M8[s]")), says="Q")
attack("records", "fields for numbers", qkv(Q=np.zeros((3, 4), [("a", "f8")])), says="Q")
attack("booleans_for_q", "truth for numbers", qkv(Q=FLOATS > 0.5), codes=REFUSED | OK)
attack("whole_numbers", "whole numbers for real ones", qkv(Q=np.arange(12).reshape(3, 4)), codes=OK)
attack(
    "huge_whole_numbers",
    "whole numbers no float holds",
    qkv(Q=np.full((3, 4), 2**63 - 1)),
    codes=REFUSED | OK,
)
attack(
    "long_floats", "a type that JSON cannot hold", qkv(Q=FLOATS.astype(np.longdouble)), codes=REFUSED | OK
)
attack("big_endian", "bytes the other way round", qkv(Q=FLOATS.astype(">f8")), codes=OK)
attack("fortran", "columns first", qkv(Q=np.asfortranarray(FLOATS)), codes=OK)
attack("huge", "scores that overflow", qkv(Q=FLOATS * 1e300, K=FLOATS * 1e300), codes=REFUSED | OK)
attack(
    "huge_in_halves",
    "the same in half precision",
    qkv(Q=FLOATS * 1e4, K=FLOATS * 1e4),
    "--dtype",
    "float16",
    codes=REFUSED | OK,
)
attack(
    "too_huge_for_halves",
    "numbers that the type cannot hold",
    qkv(Q=FLOATS * 1e300),
    "--dtype",
    "float16",
    says="Q",
)
attack("tiny", "numbers that vanish", qkv(Q=FLOATS * 5e-324), codes=OK)
attack("no_numbers", "an axis of nothing", qkv(Q=np.zeros((0, 4))), codes=REFUSED | OK)
attack("no_keys", "no key to attend to", qkv(K=np.zeros((0, 4)), V=np.zeros((0, 4))), codes=REFUSED | OK)
attack("no_columns", "vectors of nothing", qkv(Q=np.zeros((3, 0)), K=np.zeros((3, 0))), codes=REFUSED)
attack("no_value_columns", "values of nothing", qkv(V=np.zeros((3, 0))), codes=REFUSED | OK)
attack("no_heads", "no head at all", qkv(**dict.fromkeys("QKV", np.zeros((0, 3, 4)))), codes=REFUSED)
attack(
    "no_batch", "a batch of none", qkv(**dict.fromkeys("QKV", np.zeros((0, 1, 3, 4)))), codes=REFUSED | OK
)
attack("scalars", "a number for a matrix", qkv(Q=np.float64(1)), says="Q")
attack("vectors", "a row for a matrix", qkv(Q=np.ones(4)), says="Q")
attack("five_axes", "more axes than attention has", qkv(Q=np.ones((1, 1, 1, 3, 4))), says="Q")
attack("thirty_axes", "more axes than anyone has", qkv(Q=np.ones((1,) * 30)), says="Q")
attack("other_d_k", "vectors of two lengths", qkv(K=np.ones((3, 5))), says="d_k")
attack("other_keys", "more keys than values", qkv(V=np.ones((4, 4))), says="V")
attack(
    "other_heads",
    "heads that do not divide",
    qkv(Q=np.ones((3, 3, 4)), K=np.ones((2, 3, 4)), V=np.ones((2, 3, 4))),
    says="divide",
)
attack("heads_that_do_not_divide", "columns that no head gets", qkv(), "--heads", "3", says="3")
attack("no_q", "Q left out", qkv(Q=None), says="Q")
attack("no_arrays", "nothing in it", {}, says="x.npz")
attack("other_names", "names that say nothing", {"a": FLOATS}, says="Q")
attack("x_without_weights", "X and no weights", {"X": FLOATS}, says="W_Q")
attack(
    "weights_that_do_not_fit",
    "weights of another width",
    {"X": FLOATS, **dict.fromkeys(("W_Q", "W_K", "W_V"), np.ones((5, 7)))},
    says="W_Q",
)
attack("mask_of_another_shape", "a mask of another sentence", qkv(mask=np.ones((2, 7), bool)), says="mask")
attack(
    "mask_of_numbers", "a mask of ones, true or added", qkv(mask=np.ones((3, 3), int)), codes=REFUSED | OK
)
attack("mask_of_words", "a mask in words", qkv(mask=np.full((3, 3), "yes")), says="mask")
attack("lengths_below_zero", "fewer keys than none", qkv(key_lengths=np.array([-1])), says="key_lengths")
attack(
    "lengths_beyond_the_keys",
    "more keys than there are",
    qkv(key_lengths=np.array([99])),
    says="key_lengths",
)
attack("lengths_with_a_point", "half a key", qkv(key_lengths=np.array([1.5])), says="key_lengths")
attack("past_without_its_values", "half a cache", qkv(past_key=FLOATS), says="past_value")
attack(
    "past_of_another_width",
    "a cache of another model",
    qkv(past_key=np.ones((3, 9)), past_value=FLOATS),
    says="past_key",
)
attack("steering_names", "names that would steer the screen", {"\x1b[31m\u202eQ": FLOATS}, says="no Q")
attack("parent_folders", "a name that climbs", {"../../../Q": FLOATS}, says="Q")

text_attack(
    "ragged_rows", "rows of two lengths", '{"Q": [[1, 2], [3]], "K": [[1, 2]], "V": [[1, 2]]}', says="Q"
)
text_attack(
    "numbers_and_rows", "a number among rows", '{"Q": [[1, 2], 3], "K": [[1, 2]], "V": [[1, 2]]}', says="Q"
)
text_attack(
    "truth_in_a_matrix",
    "a truth value for a number",
    '{"Q": [[1, true]], "K": [[1, 2]], "V": [[1, 2]]}',
    says="Q",
)
text_attack(
    "null_in_a_matrix", "null for a number", '{"Q": [[1, null]], "K": [[1, 2]], "V": [[1, 2]]}', says="Q"
)
text_attack(
    "words_in_a_matrix", "a word for a number", '{"Q": [[1, "2"]], "K": [[1, 2]], "V": [[1, 2]]}', says="Q"
)
text_attack(
    "whole_numbers_as_json",
    "whole numbers for real ones",
    '{"Q": [[1, 2]], "K": [[1, 2]], "V": [[1, 2]]}',
    codes=OK,
)
text_attack(
    "nan_as_a_word", "NaN as dumps spell it", '{"Q": [["NaN", 2]], "K": [[1, 2]], "V": [[1, 2]]}', says="Q"
)
text_attack(
    "beyond_every_float",
    "a number that is infinite once read",
    '{"Q": [[1e999, 2]], "K": [[1, 2]], "V": [[1, 2]]}',
    says="Q",
)
text_attack(
    "an_object_for_a_matrix",
    "an object for a matrix",
    '{"Q": {"a": 1}, "K": [[1, 2]], "V": [[1, 2]]}',
    says="Q",
)
text_attack("an_empty_matrix", "a matrix of nothing", '{"Q": [], "K": [[1, 2]], "V": [[1, 2]]}', says="Q")
text_attack(
    "rows_of_nothing", "rows of nothing", json.dumps({"Q": [[]] * 1000, "K": [[1, 2]], "V": [[1, 2]]})
)


def header_of(rows):
    """A .npy that says it has so many rows, and holds none."""
    text = repr({"descr": "<f8", "fortran_order": False, "shape": (rows, 4)}).encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text) + 1) + text + b"\n"


def safetensors_of(rows):
    """The same as safetensors."""
    text = json.dumps({"Q": {"dtype": "F64", "shape": [rows, 4], "data_offsets": [0, rows * 32]}}).encode()
    return struct.pack("<Q", len(text)) + text


for rows in (10**9, 2**62, -1):
    ARRAYS[f"header_of_{rows}_rows"] = Attack(
        "a size that is only said", ("attend", "x"), files={"x": lambda rows=rows: header_of(rows)}
    )
    ARRAYS[f"tensor_of_{rows}_rows"] = Attack(
        "the same in safetensors", ("attend", "x"), files={"x": lambda rows=rows: safetensors_of(rows)}
    )

# 300,000 × 300,000 scores out of ten megabytes: sizes are multiplied before anything is allocated.
ARRAYS["scores_beyond_memory"] = Attack(
    "few numbers whose scores are many", ("attend", "x.npz", "--max-memory", "1G"),
    files={"x.npz": lambda: npz(**dict.fromkeys("QKV", np.zeros((300_000, 4), np.float32)))}, says="--max-memory",
)  # fmt: skip
