"""Several seeds are several runs: a trace each, the same as one after the other."""

import json

import numpy as np
import pytest

import attnctl


@pytest.mark.parametrize(("text", "seeds"), [("1-3", [1, 2, 3]), ("7,9", [7, 9]), ("0,2-3", [0, 2, 3])])
def test_each_seed_has_its_trace(call, text, seeds):
    found = json.loads(call("run", "I love AI", "--seed", text, "--json").out)
    assert [trace["config"]["seed"] for trace in found] == seeds
    for seed, trace in zip(seeds, found, strict=True):
        right = attnctl.run("I love AI", seed=seed)["output"]
        np.testing.assert_array_equal(trace["steps"]["output"]["data"], right)


def test_several_seeds_of_several_sentences_are_read_once(call):
    out = call("run", "-", "--seed", "1-2", "--format", "jsonl", stdin=b"I love AI\nwe\n").out
    found = [json.loads(line) for line in out.splitlines()]
    told = [(trace["config"]["seed"], trace["sentence"]) for trace in found]
    assert told == [(1, "I love AI"), (1, "we"), (2, "I love AI"), (2, "we")]


def test_one_seed_is_one_run(call):
    assert json.loads(call("run", "I love AI", "--seed", "4-4", "--json").out)["config"]["seed"] == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "I", "--seed", "5-1"], "--seed: 5-1 runs backwards; write 1-5"),
        (["run", "I", "--seed", "-1"], "--seed"),
        (["run", "I", "--seed", "0-1000"], "more than 1000 seeds"),
        (["run", "I", "--seed", "1,x"], "--seed: x is not a whole number"),
        (["explain", "I", "A[0,I,I]", "--seed", "1-2"], "several seeds are several runs"),
        (["exercise", "make", "I", "--blank", "scores", "--seed", "1,2"], "several seeds are several runs"),
    ],
)
def test_what_is_no_list_of_seeds_is_refused(call, words, message):
    done = call(*words)
    assert done.code == 2
    assert message in done.err
