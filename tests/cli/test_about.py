"""The page of a mistake on the command line, and the report that names it."""

import json
import re
import shlex

import numpy as np
import pytest

from attnctl.verbs.check import about

PAGE = """\
output-projection-missing
What you get when the heads are not projected by W_O.

Why people make it
Where d_v · heads = d_model the shapes fit without it.

Instead
Take concat @ W_O.

Example (self-attention, 2 heads)
  output = concat

output
"""


def test_the_page(call):
    done = call("check", "--about", "output-projection-missing")
    assert (done.code, done.err) == (0, "")
    text, table = done.out.split("╭", 1)
    assert text == PAGE
    right = about.mistake_page("output-projection-missing").example.right
    concat, output = right["concat"], right["output"]
    row = next(line for line in table.split("\n") if line.startswith("│ 2 "))
    shown = [float(word) for word in re.findall(r"-?[0-9.]+", row)]
    assert shown[1:] == [round(float(x), 3) for x in (*concat[2, :4], *output[2, :4])]


def test_the_page_as_json(call):
    done = call("check", "--about", "mask-ignored", "--json")
    page = json.loads(done.out)
    assert page["name"] == page["check"]["mistake"] == "mask-ignored"
    assert page["example"] == ["masked_scores = scaled_scores"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--about", "no-scal"], 'no mistake "no-scal"; did you mean no-scale?'),
        (["x.npz", "--about", "no-scale"], "--about: a page on a mistake needs no SOURCE; leave it out"),
        ([], "no SOURCE; give one, or --about MISTAKE"),
    ],
)
def test_what_is_no_page(call, args, message):
    assert call("check", *args) == (2, "", f"attnctl: {message}\n")


def test_the_report_names_the_page(call):
    call("run", "I love AI", "--scale", "1", "-o", "a.npz")
    done = call("check", "a.npz", "--scale", "0.5")
    assert done.code == 1
    assert "\n(no-scale)\nMore: attnctl check --about no-scale\n\n" in done.out


@pytest.mark.parametrize(
    ("made", "meant"),
    [
        (["--scale", "1"], ["--scale", "0.5"]),
        (["--heads", "2", "--causal"], ["--heads", "2"]),
        ([], ["--causal", "--scale", "2"]),
    ],
)
def test_the_last_line_is_the_command_for_the_arithmetic(call, made, meant):
    call("run", "I love AI", *made, "-o", "a.npz")
    kept = ("Q", "K", "V", "attention_weights")
    with np.load("a.npz") as arrays:
        np.savez("theirs.npz", **{name: arrays[name] for name in kept})
    done = call("check", "theirs.npz", *meant)
    assert done.code == 1
    last = done.out.splitlines()[-1]
    assert last.startswith("Why: attnctl explain theirs.npz 'attention_weights[")
    explained = call(*shlex.split(last.removeprefix("Why: "))[1:])
    assert explained.code == 0
    assert "was recorded here" in explained.out


def test_a_pipe_cannot_be_read_again(call):
    made = call("run", "I love AI", "--edit", "scores[0,0,0]=9", "--json").out
    data = json.loads(made)
    del data["edits"]
    done = call("check", "-", stdin=json.dumps(data).encode())
    assert done.code == 1
    assert "Why:" not in done.out
