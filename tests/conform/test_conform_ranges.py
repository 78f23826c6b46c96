"""Faults that show in a part of the range alone: each is found by some case of the quick suite.

A function that is right stays right there.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import attnctl


def softmax(scores, first=-np.inf):
    top = np.maximum(scores.max(-1, keepdims=True), first)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total, total, 1)


def attend(q, k, v, *, allowed=True, hidden=-np.inf, weights=softmax):
    kind = np.result_type(q.dtype, np.float32)
    k, v = (np.repeat(each, q.shape[1] // k.shape[1], axis=1) for each in (k, v))
    scores = q.astype(kind) @ k.astype(kind).swapaxes(-1, -2) * kind.type(q.shape[-1] ** -0.5)
    scores = np.where(allowed, scores, kind.type(hidden))
    return (weights(scores) @ v.astype(kind)).astype(q.dtype)


def tril(q, k):
    return np.tri(q.shape[2], k.shape[2], k.shape[2] - q.shape[2], dtype=bool)


def right(q, k, v, causal=False, mask=None):
    allowed = True if mask is None else mask
    return attend(q, k, v, allowed=allowed & tril(q, k) if causal else allowed)


def clips_values(q, k, v):
    return attend(q, k, np.clip(v, -448, 448))


def clips_keys(q, k, v):
    return attend(q, np.clip(k, -200, 200), v)


def begins_too_high(q, k, v):
    """The running maximum begins with a number, which scores may all be below."""
    return attend(q, k, v, weights=lambda scores: softmax(scores, first=-5e4))


def hides_by(number):
    def attention(q, k, v, causal=False):
        return attend(q, k, v, allowed=tril(q, k) if causal else True, hidden=number)

    return attention


def masks_by_a_number(q, k, v, mask=None):
    return attend(q, k, v, allowed=True if mask is None else mask, hidden=-1e4)


def windows_by_a_number(q, k, v, window=None):
    if window is None:
        return attend(q, k, v)
    ahead = np.arange(k.shape[2]) - np.arange(q.shape[2])[:, None] - k.shape[2] + q.shape[2]
    return attend(q, k, v, allowed=(ahead >= -window[0]) & (ahead <= window[1]), hidden=-1e4)


def pads_by_a_number(q, k, v, key_lengths=None):
    if key_lengths is None:
        return attend(q, k, v)
    seen = np.arange(k.shape[2]) < np.asarray(key_lengths)[:, None, None, None]
    return attend(q, k, v, allowed=seen, hidden=-1e4)


def reads_the_head_before(head):
    def attention(q, k, v):
        if q.shape[1] > head and k.shape[1] == q.shape[1]:
            k = np.concatenate([k[:, :head], k[:, head - 1 : head], k[:, head + 1 :]], axis=1)
        return attend(q, k, v)

    return attention


def takes_rows_for_contiguous(d):
    """Memory of strided rows is read as if it were not, where heads are so wide."""

    def attention(q, k, v):
        if v.shape[-1] == d and v.strides[-1] != v.itemsize:
            flat = np.lib.stride_tricks.as_strided(v, v.shape, (*v.strides[:-1], v.itemsize))
            v = np.where(np.isfinite(flat), flat, 0)
        return attend(q, k, v)

    return attention


def copies_the_first_member(d):
    """What has no stride is copied with the size of one row."""

    def attention(q, k, v):
        v = np.roll(v, 1, axis=-2) if v.shape[-1] == d and 0 in v.strides[:1] else v
        return attend(q, k, v)

    return attention


def skips_the_last_rows(q, k, v):
    """Queries of a last block that is not full are left out, where there are more than a block."""
    output = attend(q, k, v)
    if q.shape[2] > 64 and q.shape[2] != k.shape[2]:
        output[:, :, q.shape[2] // 64 * 64 :] = 0
    return output


FAULTS = {
    "K clipped where only heavy tails are": (clips_keys, "large values"),
    "V clipped as in float8": (clips_values, "large values"),
    "a maximum that begins at -5e4": (begins_too_high, "large scores"),
    "-1e4 under causal": (hides_by(-1e4), "causal"),
    "-2e4 under causal": (hides_by(-2e4), "causal"),
    "-1e4 under a mask": (masks_by_a_number, "mask"),
    "-1e4 in a window": (windows_by_a_number, "window"),
    "-1e4 in padding": (pads_by_a_number, "key_lengths"),
    "head 7 reads head 6": (reads_the_head_before(7), "attention"),
    "head 16 reads head 15": (reads_the_head_before(16), "attention"),
    "strides at d = 192": (takes_rows_for_contiguous(192), "memory layouts"),
    "strides of 0 at d = 256": (copies_the_first_member(256), "memory layouts"),
    "a last block of queries": (skips_the_last_rows, "lengths"),
}
"""What is wrong, and the feature in which it shows."""

NOT_IN = {"a maximum that begins at -5e4": {"float16"}, "-2e4 under causal": {"float16"}}
"""float16 has no scores below −65504, and products before they are scaled are larger."""


@pytest.mark.usefixtures("_unexplained")
@pytest.mark.sample(18)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_part_of_the_range_is_found(fault, dtype):
    kernel, feature = FAULTS[fault]
    found = attnctl.conform(kernel, quick=True, dtypes=[dtype], features=[feature])
    assert found.agrees is (dtype in NOT_IN.get(fault, ())), str(found)


def test_a_number_in_place_of_infinity_is_not_called_0_where_scores_are_large():
    """Large scores alone do not tell −1e4 from 0."""
    kernel = partial(hides_by(-1e4), causal=True)
    found = attnctl.conform(
        kernel,
        quick=True,
        dtypes=["float16"],
        features=["large scores"],
        always={"causal": True},
    )
    assert "Hidden scores are -1e4 instead" in str(found)


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_right_function_is_right_in_all_of_it(dtype):
    features = ["attention", "large scores", "large values", "memory layouts", "lengths", "causal", "mask"]
    found = attnctl.conform(right, quick=True, dtypes=[dtype], features=features)
    assert found.agrees is True, str(found)


# --- an earlier call's answer ---


def by_place(seen):
    """What is kept for arrays of this identity, whose numbers may have been changed since."""

    def attention(q, k, v):
        seen[:] = [each for each in seen if each[0] is v] or [(v, attend(q, k, v))]
        return seen[0][1]

    return attention


def test_the_answer_of_an_earlier_call_is_found():
    found = attnctl.conform(by_place([]), quick=True, dtypes=["float32"], features=["repeatable"])
    assert found.features[0].failure.mistake == "earlier-answer", str(found)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "answer", [np.zeros_like, lambda v: v * np.nan, lambda v: v > 0, lambda v: v.sum() > 0]
)
def test_an_answer_that_could_be_of_no_values_is_not_an_earlier_one(answer):
    found = attnctl.conform(
        lambda q, k, v: answer(attend(q, k, v)), quick=True, dtypes=["float32"], features=["repeatable"]
    )
    assert found.agrees or found.features[0].failure.mistake != "earlier-answer", str(found)


# --- a process that something else ended ---

KILLED = """
import os, signal
from pathlib import Path
import numpy as np

calls = Path(__file__).with_suffix(".calls")

def attention(q, k, v):
    calls.write_text(calls.read_text() + "." if calls.exists() else ".")
    if {when}:
        os.kill(os.getpid(), signal.{name})
    s = np.exp(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5)
    return s / s.sum(-1, keepdims=True) @ v
"""


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize("at", [1, 6])
def test_a_lost_process_is_begun_again(tmp_path, name, at):
    file = tmp_path / "kernel.py"
    file.write_text(KILLED.format(name=name, when=f"len(calls.read_text()) == {at}"))
    found = attnctl.conform(f"{file}:attention", quick=True, dtypes=["float64"], features=["attention"])
    assert found.agrees is True, str(found)
    assert any("1 call was made again" in note for note in found.notes)


@pytest.mark.slow
def test_one_that_is_lost_in_every_call_is_a_crash(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(KILLED.format(name="SIGKILL", when="q.shape[2] == 33"))
    found = attnctl.conform(f"{file}:attention", quick=True, dtypes=["float64"], features=["attention"])
    assert found.features[0].failure.mistake == "crash"


# --- arrays of one type, arithmetic of another ---


def to_bfloat16(x):
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def autocast(q, k, v, causal=False):
    """Every product in bfloat16, as autocast has it; anything else than float32 is refused."""
    if q.dtype != np.float32:
        raise TypeError(f"{q.dtype}")
    q, k, v = map(to_bfloat16, (q, k, v))
    scores = to_bfloat16(to_bfloat16(q @ k.swapaxes(-1, -2)) * np.float32(q.shape[-1] ** -0.5))
    scores = np.where(tril(q, k), scores, -np.inf) if causal else scores
    return to_bfloat16(to_bfloat16(softmax(scores)) @ v)


def in_float16(q, k, v, causal=False):
    return right(*(each.astype(np.float16) for each in (q, k, v)), causal=causal).astype(q.dtype)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("kernel", "dtype"), [(autocast, "float32:bfloat16"), (in_float16, "float32:float16")]
)
def test_arrays_may_be_of_another_type_than_what_is_computed(kernel, dtype, tmp_path):
    features = ["attention", "causal", "lengths"]
    found = attnctl.conform(kernel, quick=True, dtypes=[dtype], features=features)
    assert found.agrees is True, str(found)
    assert [each.dtype for each in found.features] == [dtype.partition(":")[2]] * 3
    own = attnctl.conform(kernel, quick=True, dtypes=["float32"], features=["attention"])
    assert own.features[0].failure.mistake == "low-precision"
    assert f"say --dtype {dtype} if that is meant" in own.features[0].failure.explanation


def test_a_saved_case_says_of_which_type_its_arrays_are(tmp_path):
    """Replayed as it was called: in float32, where bfloat16 alone would be refused."""

    def off(q, k, v):
        return autocast(q, k, v) * 2

    found = attnctl.conform(
        off, quick=True, dtypes=["float32:bfloat16"], features=["attention"], save=tmp_path
    )
    dump = attnctl.load(found.features[0].failure.saved)
    assert dump.header["conform"]["handed"] == {"bfloat16": "float32"}
