"""`--head` for data: only these heads, under their own numbers."""

import csv
import io
import json

import numpy as np
import pytest

import attnctl

GROUPED = ["run", "I love AI", "--heads", "4", "--kv-heads", "2", "--d-model", "8"]
WHOLE = attnctl.run("I love AI", heads=4, kv_heads=2, d_model=8)
PLACES = {"K": [0, 1], "V": [0, 1], "W_K": [0, 1], "W_V": [0, 1]}
"""Heads 1 and 3 read kv heads 0 and 1."""


def of_heads(name):
    by_head = WHOLE.steps[name].axes[0] == "head"
    return WHOLE[name][PLACES.get(name, [1, 3])] if by_head else WHOLE[name]


@pytest.mark.parametrize("suffix", ["json", "npz", "safetensors", "jsonl"])
def test_a_dump_has_only_these_heads(call, tmp_path, suffix):
    assert call(*GROUPED, "--head", "1,3", "-o", f"h.{suffix}").code == 0
    found = attnctl.load(tmp_path / f"h.{suffix}")
    assert set(WHOLE) - set(found) == {"concat", "output"}
    for name in found:
        assert np.array_equal(found[name], of_heads(name)), name
    assert found.labels("scores", 0) == ["1", "3"]
    assert found.labels("K", 0) == ["0", "1"]


def test_json_and_csv_on_stdout(call):
    steps = json.loads(call(*GROUPED, "--head", "3", "--step", "K,scores", "--json").out)["steps"]
    assert np.array_equal(steps["scores"]["data"], WHOLE["scores"][3:])
    assert np.array_equal(steps["K"]["data"], WHOLE["K"][1:])
    done = call(*GROUPED, "--head", "3", "--step", "K,scores", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert {(row["step"], row["head"]) for row in rows} == {("K", "1"), ("scores", "3")}


def test_what_is_shown_of_such_a_dump_is_what_the_run_shows(call):
    call(*GROUPED, "--head", "1,3", "-o", "h.json")
    for step in ("scores", "attention_weights", "Q"):
        shown, run = (
            call(*args, "--step", step).out for args in (["show", "h.json"], [*GROUPED, "--head", "1,3"])
        )
        assert shown.replace("2 × 3", "4 × 3") == run


def test_tables_and_pictures_beside_data(call, tmp_path):
    call(*GROUPED, "--head", "3", "-o", "h.json", "-o", "h.svg", "-o", "-")
    call(*GROUPED, "--head", "3", "-o", "alone.svg")
    assert (tmp_path / "h.svg").read_text() == (tmp_path / "alone.svg").read_text()
    assert "head 3" in (tmp_path / "h.svg").read_text()


def test_check_wants_all_heads(call):
    call(*GROUPED, "--head", "3", "-o", "h.json")
    done = call("check", "h.json")
    assert (done.code, "written with --head" in done.err) == (2, True)


def test_a_head_that_there_is_not(call, tmp_path):
    done = call(*GROUPED, "--head", "4", "--json", "-o", "h.json")
    assert (done.code, done.out, list(tmp_path.iterdir())) == (2, "", [])
    assert "no head 4 in this trace; it has heads 0 to 3" in done.err


@pytest.mark.parametrize("hostile", [7, [1], {"scores": "x"}, {"scores": [True]}, {"scores": [1, 2, 3]}])
def test_a_header_that_says_something_else_is_no_matter(call, tmp_path, hostile):
    call(*GROUPED, "-o", "h.json")
    dump = json.loads((tmp_path / "h.json").read_text()) | {"kept_heads": hostile}
    (tmp_path / "h.json").write_text(json.dumps(dump))
    assert "head 3" in call("show", "h.json", "--step", "scores").out
