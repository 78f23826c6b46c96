"""Pictures from the command line: what can be drawn, what is refused, and in which words."""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from attnctl.store.source import read

SVG = "{http://www.w3.org/2000/svg}"
GPT2 = str(Path(__file__).parent.parent / "models" / "checkpoints" / "gpt2")
TWO = ("run", "I love AI", "--heads", "2")


def words(path):
    return [each.text for each in ET.parse(path).getroot().iter(f"{SVG}text")]


def rows(dump):
    """The rows of weights of every head."""
    return [row for head in dump["steps"]["attention_weights"]["data"] for row in head]


@pytest.fixture
def dumps(call):
    call(*TWO, "-o", "a.json")
    call(*TWO, "--causal", "-o", "b.json")
    return call


def test_run_show_and_attend_draw_the_same(dumps):
    assert dumps(*TWO, "-o", "run.svg") == (0, "", "")
    assert dumps("show", "a.json", "-o", "show.svg") == (0, "", "")
    assert Path("run.svg").read_bytes() == Path("show.svg").read_bytes()
    assert words("run.svg")[:3] == [
        "I love AI",
        "self-attention · 2 heads · d_model 4 · d_k 2 · seed 0",
        "attention_weights",
    ]
    assert dumps("attend", "a.json", "--step", "scores", "-o", "attend.svg").code == 0
    assert "scores" in words("attend.svg")


@pytest.mark.parametrize(
    ("options", "there", "absent"),
    [
        (["--step", "scores,Q"], {"Q", "scores"}, {"attention_weights"}),
        (["--head", "1"], {"head 1"}, {"head 0"}),
        (["--precision", "4"], {"0.7133"}, {"0.71"}),
        (["--log"], {"0.91, by logarithm"}, set()),
        (["--without-first"], {"Without the first key, I (its mean is 0.33)."}, {"0.71"}),
        (["--brief"], {"attention_weights", "output"}, {"scores"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options(dumps, options, there, absent):
    assert dumps("show", "a.json", *options, "-o", "x.svg") == (0, "", "")
    found = set(words("x.svg"))
    assert there <= found
    assert not absent & found


def test_a_page_opens_as_it_is_asked_to(dumps):
    """Its data say how: what a browser makes of them is in tests/browser."""
    args = ("--log", "--without-first", "--head", "1", "--precision", "3")
    assert dumps("show", "a.json", *args, "-o", "x.html") == (0, "", "")
    data = json.loads(re.search('id="attnctl-report">([^<]*)<', Path("x.html").read_text())[1])
    assert data["look"] == {"log": True, "first": True, "heads": [1], "precision": 3, "cell": None}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--log"], "--log: only pictures and heat maps have that; write -o picture.svg, or add --heat"),
        (["--without-first", "-o", "x.json"], "--without-first: only pictures and heat maps have that"),
        (["--log", "-o", "x.svg", "-o", "x.npz"], "--log: only pictures and heat maps have that"),
        (["--full", "-o", "x.svg"], "--full: only tables have that"),
        (["--heat", "-o", "x.svg"], "--heat: only tables have that"),
        (["--heat", "--json"], "--heat: only tables have that"),
        (["--heat", "--precision", "2"], "--precision: a heat map has no numbers"),
        (["--head", "7", "-o", "x.svg"], "--head: no head 7 in this trace; it has heads 0 to 1"),
        (["--step", "Q", "--without-first", "-o", "x.svg"], "--without-first: Q has no keys"),
        (["--step", "scores", "--log", "-o", "x.svg"], "--log: scores has numbers below 0"),
        (["-o", "x.gif"], "no format for the suffix '.gif'; expected one of .json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_refused_is_said_and_leaves_nothing(dumps, args, said):
    done = dumps("show", "a.json", *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert sorted(path.name for path in Path().iterdir()) == ["a.json", "b.json"]


def test_the_missing_extra_is_named(dumps, monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    for args in (["show", "a.json"], ["diff", "a.json", "b.json"], ["stats", "a.json"]):
        done = dumps(*args, "-o", "x.png")
        assert done.code == 2
        assert "attnctl[png]" in done.err
        assert not Path("x.png").exists()


def test_a_difference_is_signed_and_says_where_it_is_largest(dumps):
    assert dumps("diff", "a.json", "b.json", "--step", "attention_weights", "-o", "x.svg") == (1, "", "")
    found = words("x.svg")
    assert "attention_weights, B − A" in found
    assert "The first step that differs; largest 0.974 at attention_weights[0,I,I]." in found
    assert {"0.97", "-0.91", "-0.974", "0.974"} <= set(found)
    assert dumps("diff", "a.json", "a.json", "-o", "same.svg") == (0, "", "")
    assert "No number differs." in words("same.svg")


def test_a_difference_of_what_is_hidden_on_one_side(dumps):
    dumps(*TWO, "--window", "0", "-o", "c.json")
    assert dumps("diff", "b.json", "c.json", "--step", "masked_scores", "-o", "x.svg").code == 1
    assert any("6 cells hidden on one side only." in each for each in words("x.svg"))


@pytest.mark.parametrize(
    ("first", "second"),
    [("I love AI", "I really love AI"), ("I love AI", "AI we trust")],
    ids=["longer", "other"],
)
def test_differences_of_other_sentences_and_heads_can_be_drawn(call, first, second):
    call("run", first, "--heads", "2", "-o", "a.json")
    call("run", second, "--heads", "1", "-o", "b.json")
    for step in ("Q", "scores", "head_outputs", "output", "X"):
        assert call("diff", "a.json", "b.json", "--step", step, "-o", "x.svg").code == 1, step
        assert f"{step}, B − A" in words("x.svg")


def test_statistics_have_dumps_down_and_heads_across(dumps):
    assert dumps("stats", "a.json", "b.json", "-o", "x.svg") == (0, "", "")
    found = words("x.svg")
    assert {"a.json", "b.json", "previous", "first", "self", "same token", "entropy", "distance"} <= set(
        found
    )
    assert dumps("stats", "a.json", "b.json", "--rollout", "-o", "y.svg").code == 0
    assert "rollout" in words("y.svg")


def test_a_model_is_a_grid_of_layers_and_heads(call):
    done = call("run", "--model", GPT2, "--ids", "1,2,3,4,5", "-o", "map.svg")
    assert done.code == 0
    found = words("map.svg")
    assert [each for each in found if each.startswith("layer")] == ["layer 0", "layer 1", "layer 2"]
    assert [each for each in found if each.startswith("head")] == ["head 0", "head 1", "head 2", "head 3"]
    assert Path("map.svg").read_text().count("<image") == 12
    assert call("run", "--model", GPT2, "--ids", "1,2,3,4,5", "-o", "map.html").code == 0
    assert [list(each) for each in read("map.html")] == [["attention_weights"]] * 3
    assert (
        call("run", "--model", GPT2, "--ids", "1,2,3", "--layer", "1", "--head", "2", "-o", "one.svg").code
        == 0
    )
    assert {"head 2", "layer 1"} & set(words("one.svg")) == {"head 2"}
    call(
        "run",
        "--model",
        GPT2,
        "--ids",
        "1,2,3",
        "--layer",
        "all",
        "--step",
        "attention_weights",
        "-o",
        "all.json",
    )
    call("run", "--model", GPT2, "--ids", "1,2,3", "--without-first", "-o", "rest.svg")
    first = [row[0] for each in json.loads(Path("all.json").read_text()) for row in rows(each)]
    assert f"Without the first key, 1 (its mean is {sum(first) / len(first):.2f})." in words("rest.svg")
    refused = call("run", "--model", GPT2, "--ids", "1,2,3", "-o", "map.json")
    assert (refused.code, Path("map.json").exists()) == (2, False)
    assert "-o map.svg" in refused.err
