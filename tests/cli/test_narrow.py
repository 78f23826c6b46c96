"""Every view in a pipe and on a terminal of a few columns: it is printed, and ends."""

from pathlib import Path

import pytest
from command_line import trials

from attnctl.base.rooms import all_verbs

ROOT = Path(__file__).parents[2]
GPT2 = str(ROOT / "tests/models/checkpoints/gpt2")

VIEWS = [
    ("run", "I love 愛 AI", "--heads", "2", "--causal"),
    ("run", "I love 愛 AI", "--story"),
    ("run", "I love 愛 AI", "--cost"),
    ("show", "gradients.json", "--story"),
    ("show", "gradients.json", "--heat"),
    ("explain", "gradients.json", "d_Q[0,0,0]", "--depth", "9"),
    ("check", "gradients.json", "--full"),
    ("check", "--about", "no-scale"),
    ("diff", "gradients.json", "other.json"),
    ("stats", "other.json", "--rollout"),
    ("corpus", "run", str(ROOT / "samples/sentences.txt")),
    ("model", str(ROOT / "tests/models/checkpoints/bert")),
    ("run", "--model", GPT2, "--ids", "3,4,5", "--next", "3"),
    ("run", "--model", GPT2, "--ids", "3,4,5", "--lens"),
    ("effect", "--model", GPT2, "--ids", "3,4,5", "--between", "3", "4", "--direct"),
    ("learn", "--list"),
    ("learn", "--lesson", "19"),
    ("exercise", "grade", str(ROOT / "samples/exercises/handed-in.json")),
    ("attend", "other.json"),
    ("config", "check", "c.yaml"),
    ("examples",),
    ("mistakes",),
    ("mutants", "--rtol", "1e-2", "--shape", "1,2,8,4"),
]
VIEWS += [trial for name, trial in trials().items() if name not in {view[0] for view in VIEWS}]
UNFIT = {"explore", "conform", "capture"}
"""A screen of its own; the findings of a program that takes long to start (they are check's); a program."""


@pytest.fixture
def files(call):
    call("run", "I love 愛 AI", "--backward", "-o", "gradients.json")
    for name in ("other.json", "a.json"):
        call("run", "I love 愛 AI", "--heads", "2", "-o", name)
    call("config", "init", "-o", "c.yaml")
    return call


def test_every_verb_has_a_view_here():
    assert {view[0] for view in VIEWS} | UNFIT == set(all_verbs())


@pytest.mark.sample(48)
@pytest.mark.parametrize("columns", range(1, 13))
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: " ".join(map(str, view[:2])))
def test_a_view_of_few_columns_ends(files, view, columns):
    for environ in ({}, {"FORCE_COLOR": "1"}):
        done = files(*view, COLUMNS=str(columns), **environ)
        assert (done.code in {0, 1}, done.err) == (True, "")
