"""A step's symbol is its name, wherever a step is named."""

import re

import numpy as np
import pytest

import attnctl
from attnctl.math.names import SYMBOLS

SAME = [
    (["run", "I love AI", "--step", "{A},{Y}"]),
    (["run", "I love AI", "--edit", "{A}[0,love,AI]=0", "--brief"]),
    (["run", "I love AI", "--cost", "--step", "{A}"]),
    (["run", "I love AI", "--backward", "--step", "{dA}"]),
    (["show", "a.json", "--step", "{A}"]),
    (["diff", "a.json", "a.json", "--step", "{A}"]),
    (["explain", "a.json", "{A}[0,love,AI]"]),
    (["attend", "theirs.npz", "--name", "p={A}", "--step", "{A}"]),
    (["exercise", "make", "example:i-love-ai", "--blank", "{A}"]),
]
NAMES = {"A": "attention_weights", "Y": "output", "dA": "d_attention_weights"}


@pytest.mark.parametrize("args", SAME, ids=" ".join)
def test_a_symbol_names_a_step(call, args):
    call("run", "I love AI", "-o", "a.json")
    q, k, v = np.random.default_rng(0).normal(size=(3, 3, 2))
    np.savez("theirs.npz", Q=q, K=k, V=v, p=np.eye(3))
    symbols = {symbol: symbol for symbol in NAMES}
    by_symbol, by_name = (call(*(word.format_map(each) for word in args)) for each in (symbols, NAMES))
    assert by_symbol.code == by_name.code == 0
    edits = re.compile(r"A\[0,love,AI\]=0|attention_weights\[0,love,AI\]=0")
    assert edits.sub("", by_symbol.out) == edits.sub("", by_name.out)


def test_in_python_too():
    trace = attnctl.run("I love AI", keep=["A"])
    assert list(trace) == ["attention_weights"]
    assert trace["A"] is trace["attention_weights"]
    with pytest.raises(KeyError, match="no step 'scores' here"):
        trace["S"]


def test_of_several_steps_with_a_symbol_the_first_is_meant():
    assert SYMBOLS["S"] == "scores"
    assert SYMBOLS["Z"] == "head_outputs"
    assert SYMBOLS["dS"] == "d_scores"


def test_a_step_with_an_axis_of_heads_alone_asks_for_one(call):
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, 3, 2))
    np.savez("sink.npz", Q=q, K=k, V=v, sink=np.zeros(2))
    call("attend", "sink.npz", "-o", "sink.json")
    done = call("explain", "sink.json", "sink")
    assert (done.code, done.out) == (2, "")
    assert "sink: 2 cells, expected one" in done.err
