"""What a target raises, and how it dies: a refusal, no verdict, or a failure that is said once."""

from __future__ import annotations

import kernels_here as kernels
import pytest

import attnctl


class InvalidArgument(Exception):  # noqa: N818  (as a library has it)
    """A library's own exception, derived from no other of Python."""


def conform(kernel, *features, dtypes=("float32",), **more):
    return attnctl.conform(kernel, quick=True, dtypes=dtypes, features=features, **more)


def of(found, name):
    return next(each for each in found.features if each.feature == name)


def only_small_windows(q, k, v, causal=False, window=None):
    """Plain attention is right; windows are taken up to 8 keys, and never with causal."""
    if window is not None and (causal or max(window) > 8):
        raise InvalidArgument(f"window {window} is not supported")
    return kernels.everything(q, k, v, causal=causal, window=window)[0]


def test_an_exception_in_an_option_is_a_refusal_whatever_its_class():
    found = conform(only_small_windows, "attention", "causal", "window", "pairs", "block boundaries")
    assert found.agrees is True, str(found)
    assert of(found, "window").status == "passed"
    assert "refused: InvalidArgument: window (16, 2) is not supported" in of(found, "window").reason
    assert of(found, "pairs").status == "skipped"
    assert of(found, "pairs").reason.startswith("refused: InvalidArgument: ")


@pytest.mark.parametrize("claimed", ["window", "pairs"])
def test_what_is_claimed_is_not_refused(claimed, tmp_path):
    claims = tmp_path / "claims.yaml"
    claims.write_text(f"features: [{claimed}]\n")
    found = conform(only_small_windows, "attention", claimed, claims=claims)
    assert found.agrees is False
    assert of(found, claimed).failure.mistake == "exception"


def refuses_heads(q, k, v):
    if q.shape[1] != k.shape[1]:
        raise InvalidArgument("kv heads")
    return kernels.good(q, k, v)


def test_grouped_heads_are_refused_in_a_class_of_its_own():
    found = conform(refuses_heads, "attention", "grouped heads")
    assert found.agrees is True, str(found)


def wants_tensors(q, k, v, causal=False):
    """As a library that looks up the type of what it is handed."""
    return {"tensor": q}[type(q).__name__]


def test_where_every_call_raises_the_same_there_is_no_verdict_and_one_paragraph():
    found = conform(wants_tensors, dtypes=())
    assert found.agrees is None
    said = str(found)
    assert said.count("KeyError") == 1
    assert "every call raises KeyError: 'ndarray' (" in said
    assert "it is given Q, K and V as NumPy arrays, in every layout: say --framework torch or jax" in said


def test_plain_attention_that_raises_in_some_calls_is_wrong():
    def attention(q, k, v):
        if q.shape[2] == 33:
            raise InvalidArgument("33")
        return kernels.good(q, k, v)

    found = conform(attention, "attention")
    assert found.agrees is False
    assert of(found, "attention").failure.mistake == "exception"


# --- processes that die ---

ABORTS = """
import os
from pathlib import Path

import numpy as np

starts = Path(__file__).with_suffix(".starts")
starts.write_text(starts.read_text() + "." if starts.exists() else ".")

def attention(q, k, v, causal=False, scale=None):
    if {when}:
        os.abort()
    s = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(("when", "starts"), [("True", 3), ("causal", 12)])
def test_three_deaths_in_a_row_end_it(tmp_path, when, starts):
    """A process is begun again for the next call; where it answers some in between it goes on."""
    file = tmp_path / "kernel.py"
    file.write_text(ABORTS.format(when=when))
    found = attnctl.conform(f"{file}:attention", quick=True, dtypes=["float64", "float32"])
    assert found.agrees is False
    assert len((tmp_path / "kernel.starts").read_text()) <= starts
    assert {each.failure.mistake for each in found.wrong} == {"crash"}


def test_a_type_in_which_plain_attention_dies_does_not_end_the_others(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(ABORTS.format(when="q.dtype == np.float64"))
    found = attnctl.conform(
        f"{file}:attention", quick=True, dtypes=["float64", "float32"], features=["scale"]
    )
    statuses = {(each.feature, each.dtype): each.status for each in found.features}
    assert statuses == {("scale", "float64"): "skipped", ("scale", "float32"): "passed"}
