"""Sentences side by side: the longest common subsequence, what is left out, what is refused."""

from collections.abc import Mapping
from itertools import pairwise
from weakref import finalize

import numpy as np
import pytest
from diff_traces import trace_of
from hypothesis import given, settings
from hypothesis import strategies as st

import attnctl
from attnctl.record import Trace
from attnctl.verbs import diff as compare
from attnctl.verbs.diff.align import common_subsequence

WORDS = st.lists(st.sampled_from("abcd"), max_size=9)


def length(a, b):
    """Of a longest common subsequence, from the definition."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@settings(max_examples=500, deadline=None)
@given(WORDS, WORDS)
def test_common_tokens_are_a_longest_common_subsequence(a, b):
    pairs = common_subsequence(a, b)
    assert len(pairs) == length(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(pairs))


def test_ten_thousand_repeated_tokens_are_no_trouble():
    a = [str(i % 97) for i in range(10_000)]
    assert len(common_subsequence(a, a[17:])) == 9_983


def rows(*values):
    return np.array([[float(value)] for value in values])


@pytest.mark.parametrize(
    ("a", "b", "left_out", "same_rows"),
    [
        ("I love AI", "I really love AI", ([], ["really"]), 3),
        ("I really love AI", "love AI", (["I", "really"], []), 2),
        ("I love AI", "AI loves cats", (["I", "love"], ["loves", "cats"]), 1),
        ("the cat saw the dog", "the dog", (["cat", "saw", "the#2"], []), 2),
    ],
)
def test_sentences_are_aligned_by_token(a, b, left_out, same_rows):
    value = {word: i for i, word in enumerate(dict.fromkeys((a + " " + b).split()))}
    first, second = (trace_of({"X": rows(*map(value.get, s.split()))}, s) for s in (a, b))
    found = attnctl.diff(first, second)
    assert (found.steps["X"].measure.of, found.first) == (same_rows, None)
    assert found.left_out == left_out
    assert not found.same  # a token that one side lacks is a difference


def test_places_are_those_of_the_first():
    first = trace_of({"scores": [[[1.0, 2.0], [3.0, 4.0]]]}, "I AI")
    second = trace_of({"scores": np.arange(9.0).reshape(1, 3, 3)}, "I love AI")
    found = attnctl.diff(first, second).steps["scores"]
    assert (found.measure.at, found.cell, found.a, found.b) == ((0, 1, 1), "scores[0,AI,AI]", 4.0, 8.0)
    back = attnctl.diff(second, first).steps["scores"]
    assert (back.measure.at, back.cell, back.a, back.b) == ((0, 2, 2), "scores[0,AI,AI]", 8.0, 4.0)


def test_a_repeated_token_is_told_apart():
    first = trace_of({"X": rows(1, 2, 3)}, "the cat the")
    second = trace_of({"X": rows(1, 2, 4)}, "the cat the")
    assert attnctl.diff(first, second).steps["X"].cell == "X[the#2,0]"


def test_by_position_looks_at_no_tokens():
    first, second = trace_of({"X": rows(1, 2)}, "I love"), trace_of({"X": rows(1, 3)}, "I hate")
    assert attnctl.diff(first, second, by_position=True).steps["X"].measure.differing == 1
    assert attnctl.diff(first, second).first is None


def test_tokens_of_one_side_alone_do_not_stand_in_the_way():
    assert attnctl.diff(trace_of({"X": rows(1, 2)}, "I love"), trace_of({"X": rows(1, 2)})).same


def test_the_keys_of_another_sentence_are_aligned_by_their_own_tokens():
    options = {"heads": 2, "vocab": ("I", "love", "AI", "me")}
    first = attnctl.run("I love AI", context="AI me", **options)
    second = attnctl.run("I love AI", context="me", **options)
    found = attnctl.diff(first, second)
    assert found.left_out == (["AI"], [])
    assert found.steps["K"].same
    assert found.steps["K"].measure.of == 4
    assert found.steps["Q"].whole


REFUSED = {
    "heads": ({"Q": np.ones((2, 3, 2))}, {"Q": np.ones((1, 3, 2))}, "4 columns in all heads against 2"),
    "heads of scores": (
        {"scores": np.ones((2, 3, 3))},
        {"scores": np.ones((3, 3, 3))},
        "head: 2 against 3",
    ),
    "d_k": ({"Q": np.ones((1, 3, 2))}, {"Q": np.ones((1, 3, 4))}, "d_k: 2 against 4"),
    "axes": ({"scores": np.ones((2, 2, 3, 3))}, {"scores": np.ones((2, 3, 3))}, "4 axes against 3"),
    "length": ({"X": np.ones((3, 2))}, {"X": np.ones((4, 2))}, "token: 3 against 4"),
}


@pytest.mark.parametrize(("a", "b", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_laid_side_by_side_is_skipped_with_its_reason(a, b, reason):
    name, more = next(iter(a)), {"W_O": np.eye(2)}
    found = attnctl.diff(trace_of(a | more), trace_of(b | more))
    assert found.skipped == {name: reason}
    assert list(found.steps) == ["W_O"]
    assert not found.same  # what both have and cannot be compared is a difference
    with pytest.raises(attnctl.AttnError, match=f"nothing to compare\n{name}: {reason}"):
        attnctl.diff(trace_of(a), trace_of(b))
    with pytest.raises(attnctl.AttnError, match=f"{name} cannot be compared: {reason}"):
        attnctl.diff(trace_of(a | more), trace_of(b | more), steps=[name, "W_O"])


def test_arrays_without_numbers_are_the_same_and_nothing_to_compare():
    empty, more = {"X": np.ones((0, 2))}, {"W_O": np.eye(2)}
    assert attnctl.diff(trace_of(empty | more), trace_of(empty | more)).same
    with pytest.raises(attnctl.AttnError, match="nothing to compare"):
        attnctl.diff(trace_of(empty), trace_of(empty))


def test_no_token_in_common():
    first, second = trace_of({"X": rows(1, 2)}, "a b"), trace_of({"X": rows(1, 2)}, "c d")
    with pytest.raises(attnctl.AttnError, match="no token in common"):
        attnctl.diff(first, second)


def test_one_head_without_its_axis_stands_beside_one_with_it():
    first = trace_of({"scores": np.zeros((1, 2, 2))})
    second = trace_of({"scores": np.array([[0.0, 0.0], [1.0, 0.0]])})
    assert attnctl.diff(first, second).steps["scores"].measure.at == (0, 1, 0)
    assert attnctl.diff(second, first).steps["scores"].measure.at == (1, 0)


def test_steps_of_one_side_alone_are_named():
    first = trace_of({"X": rows(1), "scores": [[[1.0]]]})
    second = trace_of({"X": rows(1), "masked_scores": [[[1.0]]]})
    found = attnctl.diff(first, second)
    assert (found.only_in_a, found.only_in_b, found.same) == (["scores"], ["masked_scores"], True)


@pytest.mark.parametrize(
    ("a", "b", "steps", "message"),
    [
        (["X"], ["W_O"], None, "no step in common; A has X; B has W_O"),
        (["X", "W_O"], ["X"], ["W_O"], "no step 'W_O' in B; both have X"),
        (["X"], ["X", "W_O"], ["W_O"], "no step 'W_O' in A; both have X"),
        (["X"], ["X"], ["Q"], "no step 'Q' in either; both have X"),
        (["X"], ["X"], [], "nothing to compare"),
    ],
)
def test_nothing_compared_is_never_the_same(a, b, steps, message):
    first, second = (trace_of({name: np.eye(2) for name in names}) for names in (a, b))
    with pytest.raises(attnctl.AttnError, match=message):
        attnctl.diff(first, second, steps=steps)


def test_columns_are_compared_whatever_the_number_of_heads():
    one, two = attnctl.run("I love AI"), attnctl.run("I love AI", heads=2)
    found = attnctl.diff(one, two)
    assert list(found.steps) == list(one)
    assert found.first == "scores"  # W_Q … V are the same numbers, split or not
    assert not found.skipped
    assert found.heads[0].startswith("scores of the 2 heads of B add up to those of the one head of A")
    assert attnctl.diff(two, one).heads[0].startswith("scores of the 2 heads of A add up")


@pytest.mark.parametrize("swap", [False, True])
def test_the_place_of_a_column_is_that_of_its_head(swap):
    one = np.arange(12.0).reshape(1, 3, 4)
    two = np.stack([one[0, :, :2], one[0, :, 2:]])
    two[1, 2, 0] += 0.5
    pair = (
        [trace_of({"Q": two}), trace_of({"Q": one})]
        if swap
        else [trace_of({"Q": one}), trace_of({"Q": two})]
    )
    step = attnctl.diff(*pair).steps["Q"]
    assert (step.measure.differing, step.measure.of) == (1, 12)
    assert step.measure.at == ((1, 2, 0) if swap else (0, 2, 2))
    assert {step.a, step.b} == {10.0, 10.5}


def test_one_head_is_compared_with_each_of_several():
    one = np.array([[[0.25, 0.75]]])
    several = np.array([[[0.25, 0.75]], [[0.5, 0.5]]])
    found = attnctl.diff(trace_of({"attention_weights": one}), trace_of({"attention_weights": several}))
    step = found.steps["attention_weights"]
    assert (step.measure.differing, step.measure.of, step.cell) == (2, 4, "attention_weights[0,0,0]")
    assert (step.a, step.b) == (0.25, 0.5)


def test_the_difference_between_configs():
    first = attnctl.run("I love AI", rules=())
    second = attnctl.run("I love AI", heads=2, causal=True, scale=0.5)
    found = attnctl.diff(first, second).to_dict()["configs"]
    assert found == {
        "heads": {"a": 1, "b": 2},
        "kv_heads": {"a": 1, "b": 2},
        "d_k": {"a": 4, "b": 2},
        "d_v": {"a": 4, "b": 2},
        "scale": {"b": 0.5},
        "rules": {"a": [], "b": ["causal"]},
    }


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ({"w": [[1, 2], [3, 4]]}, {"w": [[1, 2], [3, 5]]}, {"w[1][1]": (4, 5)}),
        (
            {"rules": [{"window": [3, 0]}]},
            {"rules": [{"window": [3, None]}]},
            {"rules[0].window[1]": (0, None)},
        ),
        ({"a": True}, {"a": 1}, {"a": (True, 1)}),
        ({"a": 1}, {"a": 1.0}, {}),
        ({"a": {"b": {}}}, {"a": {"b": {"c": 1}}}, {"a.b.c": (..., 1)}),
        ({"v": ["a"]}, {"v": ["a", "b"]}, {"v": (["a"], ["a", "b"])}),
    ],
)
def test_paths_of_configs(a, b, expected):
    from attnctl.verbs.diff import ABSENT

    one = {"X": np.eye(2)}
    found = attnctl.diff(trace_of(one, config=a), trace_of(one, config=b)).configs
    assert {
        path: tuple(... if v is ABSENT else v for v in values) for path, values in found.items()
    } == expected


class Filed(Mapping):
    """Arrays that are loaded each time they are asked for, and how many of them are alive at most."""

    def __init__(self, arrays):
        self.arrays, self.alive, self.most = arrays, 0, 0

    def __getitem__(self, name):
        loaded = self.arrays[name].copy()
        self.alive += 1
        self.most = max(self.most, self.alive)
        finalize(loaded, self.let_go)
        return loaded

    def let_go(self):
        self.alive -= 1

    def __iter__(self):
        return iter(self.arrays)

    def __len__(self):
        return len(self.arrays)


def test_of_each_side_one_step_at_a_time_is_in_memory():
    traces = [attnctl.run("I love AI", heads=2, seed=seed) for seed in (0, 1)]
    filed = [Filed(trace.arrays) for trace in traces]
    a, b = (Trace(trace.steps, own, trace.header) for trace, own in zip(traces, filed, strict=True))
    assert not compare.diff(a, b, why=False).same
    assert [own.most for own in filed] == [1, 1]
