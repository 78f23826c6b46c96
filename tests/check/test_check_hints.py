"""What is said of a wrong step that no known mistake explains."""

import numpy as np
import planted as own
import pytest
from check_foreign import foreign, meant

import attnctl


def changed(name, change):
    """A run of which one step, and all that follows from it, is made otherwise."""
    arrays = own.attend(own.CAUSAL)
    kept = {each: arrays[each] for each in ("Q", "K", "V", "scores", "scaled_scores")}
    return {**kept, name: change(arrays[name])}


CHANGES = {
    "a factor": ("attention_weights", lambda x: 3.0 * x, "Every number is 3 times what it should be."),
    "an offset": ("scaled_scores", lambda x: x - 0.25, "Every number is 0.25 too small."),
    "one head": (
        "scores",
        lambda x: np.where(np.arange(2)[:, None, None] == 1, x[::-1] + x, x),
        "All of them are at head 1.",
    ),
    "one key": (
        "scores",
        lambda x: np.where(np.arange(6) == 4, x**2, x),
        "All of them are at key 4.",
    ),
    "nothing to say": (
        "scores",
        lambda x: np.sin(3 * x),
        (
            "The wrong numbers are everywhere: the differences are 1.1 times the spread of the right ones, "
            "and found and right numbers correlate by 0.21."
        ),
    ),
}


@pytest.mark.parametrize(("name", "change", "said"), CHANGES.values(), ids=CHANGES)
def test_hints(name, change, said):
    arrays = changed(name, change)
    if name == "scores":
        del arrays["scaled_scores"]
    report = attnctl.check(foreign(arrays), meant(own.CAUSAL))
    assert (report.first, report.mistake) == (name, None)
    assert report.findings[0].hint == said


@pytest.mark.parametrize("decimals", [3, 5])
def test_printed_numbers_are_known_as_such(decimals):
    arrays = own.attend(own.CAUSAL)
    printed = {name: np.round(x, decimals) for name, x in arrays.items() if name in ("scores", "output")}
    report = attnctl.check(foreign({**arrays, **printed}), meant(own.CAUSAL))
    assert not report.agrees
    rounded = {name: np.round(x, decimals) if x.dtype.kind == "f" else x for name, x in arrays.items()}
    for name in ("X", "W_Q", "W_K", "W_V", "W_O"):
        rounded[name] = arrays[name]
    report = attnctl.check(foreign(rounded), meant(own.CAUSAL))
    assert report.findings[0].hint == f"It agrees to {decimals} decimals: add --decimals {decimals}."
    assert attnctl.check(foreign(rounded), meant(own.CAUSAL), decimals=decimals).agrees


def test_a_mistake_is_named_in_printed_numbers_too():
    arrays = own.attend(own.CAUSAL, "mask-ignored")
    rounded = {name: np.round(x, 4) for name, x in arrays.items()}
    report = attnctl.check(foreign(rounded), meant(own.CAUSAL), decimals=4)
    assert report.mistake == "mask-ignored"
