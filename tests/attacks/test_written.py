"""Text of a person in every place, through every verb that writes: no file of ours steers a terminal."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from command_line import trials

from attnctl.base.rooms import all_verbs, formats_of
from attnctl.models.next import Ranked
from attnctl.verbs.effect import Effects

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
    "corpus": ["corpus", "run", "corpus.txt"],
    "exercise": ["exercise", "make", "dump.json", "--blank", "scores"],
    "config": ["config", "init", EVIL, "--force"],
}
WRITE_NO_TEXT_OF_OTHERS = {
    "capture",
    "examples",
    "conform",
    "explore",
    "learn",
    "mistakes",
    "model",
    "mutants",
}
LINES |= {
    name: list(words) for name, words in trials().items() if name not in {*LINES, *WRITE_NO_TEXT_OF_OTHERS}
}


@pytest.fixture
def dump(call):
    """A dump with text of a person wherever a dump has text, and arrays with a name of theirs."""
    call("run", EVIL, "--context", EVIL, "-o", "dump.json")
    data = json.loads(Path("dump.json").read_text())
    for step in data["steps"].values():
        step["formula"] = step["symbol"] = EVIL
    data |= {"model": EVIL, "layer": 3, "note": EVIL}
    data["config"]["note"] = EVIL
    for name in ("dump.json", "a.json"):
        Path(name).write_text(json.dumps(data))
    Path("corpus.txt").write_text(EVIL)
    np.savez("theirs.npz", **dict.fromkeys(["Q", "K", "V", EVIL], np.ones((3, 4))))
    return call


def test_every_verb_that_writes_is_here():
    assert {*LINES, "effect"} | WRITE_NO_TEXT_OF_OTHERS == {*all_verbs()}


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


@pytest.mark.parametrize(
    "fmt", [fmt for fmt in formats_of("effect") if fmt.suffix != ".png"], ids=lambda fmt: fmt.suffix
)
def test_no_effect_of_a_head_steers_a_terminal(fmt, tmp_path):
    """Tokens are the tokenizer's, and so anyone's."""
    tokens = tuple(Ranked(number, EVIL, EVIL, 1.0, 0.5) for number in range(2))
    prompt = {"model": EVIL, "sentence": EVIL, "tokens": [EVIL], "ids": [0], "at": 0}
    path = tmp_path / f"out{fmt.suffix}"
    with path.open("wb") as stream:
        fmt.write([Effects(prompt, tokens, "zero", np.ones((1, 2)))], stream)
    assert STEERS.findall(path.read_text(encoding="utf-8", errors="replace")) == []
