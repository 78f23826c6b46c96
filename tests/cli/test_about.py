"""The page of a mistake on the command line, and the report that names it."""

import json
import re

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
    right = about.about("output-projection-missing").example.right
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
        (["--about", "no-scal"], '--about: no mistake "no-scal"; did you mean no-scale?'),
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
