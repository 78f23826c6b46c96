"""Text of a person in every place, through every verb that writes: no file of ours steers a terminal."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from attnctl import VERBS

STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
EVIL = "I\x1b[31m\u202elove\x9b1m \u2066AI\u2028\x07 <b>&"
LINES = {
    "run": ["run", EVIL],
    "show": ["show", "dump.json"],
    "attend": ["attend", "theirs.npz"],
    "explain": ["explain", "dump.json", "output[0,0]"],
    "check": ["check", "dump.json"],
    "diff": ["diff", "dump.json", "theirs.npz"],
    "stats": ["stats", "dump.json"],
    "exercise": ["exercise", "make", "dump.json", "--blank", "scores"],
    "config": ["config", "init", EVIL, "--force"],
}
WRITE_NO_TEXT_OF_OTHERS = {"examples", "conform", "explore", "learn", "mistakes", "model"}


@pytest.fixture
def dump(call):
    """A dump with text of a person wherever a dump has text, and arrays with a name of theirs."""
    call("run", EVIL, "--context", EVIL, "-o", "dump.json")
    data = json.loads(Path("dump.json").read_text())
    for step in data["steps"].values():
        step["formula"] = step["symbol"] = EVIL
    data |= {"model": EVIL, "layer": 3, "note": EVIL}
    data["config"]["note"] = EVIL
    Path("dump.json").write_text(json.dumps(data))
    np.savez("theirs.npz", **dict.fromkeys(["Q", "K", "V", EVIL], np.ones((3, 4))))
    return call


def test_every_verb_that_writes_is_here():
    assert {*LINES} | WRITE_NO_TEXT_OF_OTHERS == {*VERBS}


@pytest.mark.sample(9)
@pytest.mark.parametrize("suffix", ["html", "svg", "md", "csv", "json", "jsonl", "yaml"])
@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_no_file_steers_a_terminal(dump, line, suffix):
    done = dump(*line, "-o", f"out.{suffix}")
    written = Path(f"out.{suffix}")
    assert (done.code in {0, 1}) == written.exists()
    assert done.code in {0, 1, 2}
    for text in (done.out, done.err, written.read_text() if written.exists() else ""):
        assert STEERS.findall(text) == []
