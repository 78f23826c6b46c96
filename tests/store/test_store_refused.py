"""JSON that is no dump: one clear message with the place, and nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from attnctl.base.errors import AttnError
from attnctl.store import json_file
from attnctl.store.source import read, read_one

GOLDEN = Path(__file__).parent / "golden"


def dump(**step):
    """A dump of one step, as text; a field given as None is left out."""
    fields = {"formula": "", "axes": ["query", "key"], "inputs": [], "shape": [1, 2], "dtype": "float64"}
    fields |= {"data": [[1.0, 2.0]]} | step
    kept = {key: value for key, value in fields.items() if value is not None}
    return json.dumps({"schema": "attnctl/trace/1", "steps": {"scores": kept}})


def top(**fields):
    """A dump with these fields of its header."""
    return json.dumps(json.loads(dump()) | fields)


REFUSED = {
    "nothing": ("", "empty; expected a dump"),
    "white space": (" \n\n", "nothing in it; expected a dump"),
    "text": ("hello", "neither JSON, .pt, .npz, .npy, safetensors nor a page of attnctl"),
    "a number": ("[1, 2]", "number 1: not a dump: expected an object, found 1"),
    "an empty array": ("[]", "nothing in it; expected a dump"),
    "an empty object": ("{}", "no arrays in it"),
    "no number": ('{"V": [[], []]}', "V: 2 × 0, no number in it"),
    "cut off": ('{"schema": "attnctl/trace/1", "steps"', "Expecting ':' delimiter at line 1 column 38"),
    "two commas": ('{"Q": [1,,2]}', "not JSON: Expecting value at line 1 column 10"),
    "NaN": ('{"Q": [NaN]}', 'NaN is not JSON; write the string "NaN"'),
    "-Infinity": ('{"Q": [-Infinity]}', '-Infinity is not JSON; write the string "-Infinity"'),
    "a key twice": ('{"Q": [1], "Q": [2]}', "the key 'Q' stands twice in one object"),
    "a field twice": (dump().replace('"formula"', '"dtype"'), "the key 'dtype' stands twice in one object"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "deep header": (top(more=json.loads("[" * 100 + "]" * 100)), "$.more: nested more than 64 deep"),
    "long digits": ('{"Q": [' + "9" * 5000 + "]}", "a whole number with thousands of digits"),
    "not UTF-8": (b'{"Q": ["\xff"]}', "not UTF-8 at byte 8"),
    "a later schema": (
        top(schema="attnctl/trace/7"),
        "a dump of schema 'attnctl/trace/7'; this attnctl reads",
    ),
    "no schema": ('{"steps": {}}', 'no "schema" that says'),
    "schema a number": (top(schema=1), 'no "schema" that says'),
    "steps a list": (top(steps=[]), "$.steps: expected an object with steps in it"),
    "no steps": (top(steps={}), "$.steps: expected an object with steps in it"),
    "step a list": (
        top(steps={"Q": [1], "K": {"data": [1]}}),
        "$.steps.Q: expected an object, found a list",
    ),
    "tokens a word": (top(tokens="I love"), "$.tokens: expected a list or null, found 'I love'"),
    "tokens numbers": (top(tokens=[1]), "$.tokens[0]: expected a string, found 1"),
    "ids words": (top(ids=["1"]), "$.ids[0]: expected a whole number, found '1'"),
    "config a list": (top(config=[]), "$.config: expected an object, found a list"),
    "a step in the header": (
        top(config={"data": [1], "dtype": "float64"}),
        "the numbers of a step where none",
    ),
    "no data": (dump(data=None), "$.steps.scores: this step has no numbers"),
    "data a word": (dump(data="1"), "$data: the shape says 1 × 2, but the numbers are one number"),
    "shape too long": (dump(shape=[1, 2, 1]), "the shape says 1 × 2 × 1, but the numbers are 1 × 2"),
    "shape wrong": (dump(shape=[2, 1]), "$data: the shape says 2 × 1, but the numbers are 1 × 2"),
    "shape of words": (dump(shape=["1", "2"]), "$scores.shape[0]: expected a whole number, found '1'"),
    "shape huge": (dump(shape=[10**12, 0], data=[]), "$data: the shape says 1000000000000 × 0"),
    "rows of nothing": (dump(shape=None, data=[[]] * 70_000), "$data: the shape 70000 × 0 is too large"),
    "ragged": (dump(shape=[2, 2], data=[[1, 2], [3]]), "$data[1]: expected a list of 2, found 1 of them"),
    "not a row": (dump(shape=[2, 1], data=[[1], 2]), "$data[1]: expected a list of 1, found 2"),
    "too deep": (dump(data=[[1.0, [2.0]]]), "$data[0][1]: a list is not a number of type float64"),
    "a word": (dump(data=[[1, "two"]]), "$data[0][1]: 'two' is not a number of type float64"),
    "digits in quotes": (dump(data=[[1, "2"]]), "$data[0][1]: '2' is not a number"),
    "inf for Infinity": (dump(data=[["inf", 2]]), "$data[0][0]: 'inf' is not a number"),
    "true": (dump(data=[[1, True]]), "$data[0][1]: true is not a number of type float64"),
    "null": (dump(data=[[None, 1]]), "$data[0][0]: null is not a number of type float64"),
    "an object": (dump(data=[[{}, 1]]), "$data[0][0]: an object is not a number"),
    "1 for true": (dump(dtype="bool", data=[[True, 1]]), "[0][1]: 1 is not a number of type bool"),
    "1.5 for 1": (dump(dtype="int8", data=[[1, 1.5]]), "[0][1]: 1.5 is not a number of type int8"),
    "300 in a byte": (dump(dtype="uint8", data=[[1, 300]]), "[0][1]: 300 is not a number of type uint8"),
    "-1 in a byte": (dump(dtype="uint8", data=[[-1, 3]]), "[0][0]: -1 is not a number of type uint8"),
    "too large": (dump(data=[[1, 10**400]]), "$data: a whole number in it is too large"),
    "too large for float16": (
        dump(dtype="float16", data=[[1, 7e4]]),
        "a number in it is too large for float16",
    ),
    "many axes": (dump(shape=None, data=[[[[[[[[[1]]]]]]]]]), "$data: 9 axes; 8 are the most"),
    "dtype unknown": (dump(dtype="object"), "$data: dtype 'object' is none of bool, float16"),
    "dtype a number": (dump(dtype=8), "$data: dtype 8 is none of"),
    "axes too few": (dump(axes=["query"]), "$scores.axes: 1 names for numbers with 2 axes"),
    "axes numbers": (dump(axes=[0, 1]), "$scores.axes[0]: expected a string, found 0"),
    "inputs a word": (dump(inputs="Q"), "$scores.inputs: expected a list, found 'Q'"),
    "reads itself": (dump(inputs=["scores"]), "$scores.inputs[0]: no step 'scores' above this one"),
    "reads nothing known": (dump(inputs=["Q", "K2"]), "$scores.inputs[1]: no step 'K2' above this one"),
    "op unknown": (dump(op={"name": "Eval"}), "$scores.op.name: unknown name 'Eval'"),
    "op null": (dump(op=None, formula=3), "$scores.formula: expected a string, found 3"),
    "foreign ragged": ('{"Q": [[1, 2], [3]]}', "$.Q[1]: expected a list of 2, found 1 of them"),
    "foreign word": ('{"Q": "x"}', "$.Q: 'x' is not a number of type float64"),
    "foreign name": ('{"a\\u001b[31m": [null]}', "$['a\\x1b[31m'][0]: null is not a number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_and_says_where(case, tmp_path):
    text, message = REFUSED[case]
    message = message.replace("$data", "$scores.data").replace("$scores", "$.steps.scores")
    path = tmp_path / "x.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(AttnError) as found:
        read(path)
    assert message in str(found.value)
    assert all(problem.startswith(f"{path}: ") for problem in found.value.problems)
    assert len(str(found.value)) < 500


def test_problems_are_told_together_but_not_without_end():
    steps = {f"s{i}": {"data": ["x"]} for i in range(100)}
    with pytest.raises(AttnError) as found:
        list(json_file.read_json(json.dumps({"schema": "attnctl/trace/1", "steps": steps}).encode(), "x"))
    assert found.value.problems[0] == "x: $.steps.s0.data[0]: 'x' is not a number of type float64"
    assert found.value.problems[20:] == ("… and 80 more like these",)


def test_what_may_be_left_out_and_added(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(
        '\ufeff{"schema": "attnctl/trace/1", "new": {"data": [1]}, "tokens": null,'
        '"steps": {"scores": {"data": [["NaN", 1]], "new": 3}, "own": {"data": 2.5}}}',
        encoding="utf-8",
    )
    trace = read_one(path)
    assert trace.steps["scores"].axes == ("query", "key")
    assert trace.steps["own"].axes == ()
    assert trace["own"] == 2.5
    assert trace.header == {"new": {"data": [1]}, "tokens": None}


def test_a_number_too_large_for_the_digits_of_json_is_infinity(tmp_path):
    (tmp_path / "x.json").write_text('{"Q": [1e999, 5e-400]}')
    assert read_one(tmp_path / "x.json")["Q"].tolist() == [float("inf"), 0.0]


def test_a_text_longer_than_is_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(json_file, "LONGEST", 100)
    (tmp_path / "x.json").write_text(dump())
    with pytest.raises(AttnError, match=r"more than 100 B of JSON; write \.npz or \.safetensors instead"):
        read(tmp_path / "x.json")


def test_a_text_whose_values_do_not_fit_into_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("attnctl.store.header.available", lambda: 1000)
    (tmp_path / "x.json").write_text('{"Q": [' + "[]," * 100 + "[]]}")
    with pytest.raises(AttnError, match=r"reading this JSON needs .* and 1000 B are left for it"):
        read(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.json", "missing.json: cannot be read: No such file or directory"),
        (".", ".: a folder without a file of arrays (.pt, .pth, .npy); give a dump"),
        ("a\0b", "'a\\x00b': not the name of a file"),
        ("/dev/null", "/dev/null: empty; expected a dump"),
        ("/dev/zero", "/dev/zero: not a dump"),
    ],
)
def test_what_is_no_file_to_read(source, message):
    with pytest.raises(AttnError) as found:
        read(source)
    assert message in str(found.value)


@pytest.mark.sample(4)
@pytest.mark.parametrize("suffix", ["json", "jsonl", "npz", "safetensors"])
def test_a_process_substitution_and_a_named_pipe_are_read(suffix, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    code = "import sys; from attnctl.store.source import read_one; print(*read_one(sys.argv[1]))"
    for script in ('"$0" -c "$1" <(cat "$2")', 'cat "$2" > pipe & "$0" -c "$1" pipe'):
        command = ["bash", "-c", script, sys.executable, code, str(GOLDEN / f"typed.{suffix}")]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600
        )
        assert done.stdout == "scores mask b_O masked_scores\n"
