"""Positions of tokens are recorded beside a call, as the function or one of its callers has them."""

import json

import numpy as np
import pytest

PADDED = [[0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize(("made", "mistake"), [("right", None), ("slots", "rotary-places")])
def test_rotary_positions_go_by_those_that_a_function_is_passed(captured, call, made, mistake):
    captured("-o", "c.npz", "--function", "__main__:attend_at", "positioned.py", made)
    done = call("check", "c.npz", "--positions", "rope", "--json")
    found = json.loads(done.out)
    assert (found["agrees"], found["mistake"]) == (mistake is None, mistake)


@pytest.mark.parametrize(
    ("words", "kept"), [([], PADDED), (["--query", "2:5"], [row[2:5] for row in PADDED])]
)
def test_positions_of_a_caller_are_those_of_the_call(captured, call, words, kept):
    captured("-o", "c.npz", *words, "--function", "__main__:attend", "positioned.py", "model")
    with np.load("c.npz") as file:
        assert file["0/position_ids"].tolist() == kept
        assert [name for name in file.files if "position_ids" in name] == ["0/position_ids"]
    assert call("check", "c.npz").out.splitlines()[0] == "3 calls agree."
