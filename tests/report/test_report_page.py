"""A page is one file that holds exactly the numbers of its traces, and nothing that could do harm."""

import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from page_arithmetic import write

import attnctl
import attnctl.pages
from attnctl import formats
from attnctl.base.errors import AttnError
from attnctl.pages import pieces
from attnctl.pages.describe import ROOM, WORDS, by_blocks, choose_kept, keep_within, model_name, value_norms
from attnctl.store.header import header_data
from attnctl.store.source import read
from attnctl.verbs.models.heads import KINDS, head_profiles

VARIANTS = sorted((Path(__file__).parents[2] / "samples" / "variants").glob("*.json"))
HOSTILE = "</script><script>alert(1)</script>"


def page(*traces):
    return b"".join(pieces(traces)).decode()


def weights(heads, tokens, dtype="float32"):
    """The trace of a layer with its weights alone."""
    draw = np.random.RandomState(0)
    arrays = {name: draw.standard_normal((heads, tokens, 8)).astype(dtype) for name in "QKV"}
    return attnctl.attend(arrays, keep=["attention_weights"], dtype=dtype)


# --- read back ---


@pytest.mark.sample(3)
@pytest.mark.parametrize("path", VARIANTS, ids=lambda path: path.stem)
def test_a_page_reads_back_to_the_bit(path, tmp_path):
    traces = read(path)
    back = read(write(traces, tmp_path / "x.html"))
    assert [header_data(each) for each in back] == [header_data(each) for each in traces]
    for trace, own in zip(back, traces, strict=True):
        for name in own:
            assert trace[name].dtype == own[name].dtype
            assert trace[name].tobytes() == own[name].tobytes(), name


def test_every_verb_reads_a_page(workplace):
    """The real executable: written by run, read by the others, from a path and from a pipe."""
    script = """
        attnctl run "I love AI" --heads 2 --causal -o a.html
        attnctl check a.html --quiet && attnctl stats a.html > /dev/null && attnctl diff a.html a.html
        attnctl explain - 'attention_weights[0,love,AI]' < a.html
        attnctl show a.html -o b.html && cmp a.html b.html
    """
    done = workplace.shell(f"set -euo pipefail\n{script}")
    assert done.stderr == b""
    assert done.returncode == 0
    assert b"hidden by causal" in done.stdout


def test_several_traces_are_one_page(tmp_path):
    traces = attnctl.run_many(["I love AI", "AI loves me and you"], heads=2)
    path = write(traces, tmp_path / "x.html")
    assert [each.sentence for each in read(path)] == ["I love AI", "AI loves me and you"]
    assert read(f"{path}[AI loves me and you]")[0].tokens == ["AI", "loves", "me", "and", "you"]


def test_a_page_is_the_same_bytes_each_time():
    trace = attnctl.run("I love AI", heads=2, positions="rope")
    assert page(trace) == page(trace)


def test_numbers_of_every_kind_are_kept(tmp_path):
    trace = attnctl.run("I love AI")
    kinds = ("bool", "int8", "uint16", "int64", "float16", "float32", "float64")
    for kind in kinds:
        own = (np.arange(9).reshape(1, 3, 3) % 2).astype(kind)
        changed = replace(trace, arrays={**trace, "scores": own})
        back = read(write([changed], tmp_path / "x.html"))[0]["scores"]
        assert back.dtype == own.dtype
        assert np.array_equal(back, own)


# --- one file, and no harm in it ---


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag in {"script", "style"}
        if self.inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data


def test_nothing_is_loaded_from_anywhere():
    for tag, attributes in Elements(page(attnctl.run("I love AI"))).tags:
        assert tag not in {"link", "iframe", "object", "embed", "base", "form"}
        for name, value in attributes.items():
            assert name not in {"href", "action", "srcset"} or value.startswith("#"), (tag, name)
            assert name != "src" or value.startswith("data:")
            assert not name.startswith("on")


def test_the_policy_names_the_only_script_and_the_only_style():
    found = Elements(page(attnctl.run("I love AI")))
    policy = next(attrs["content"] for _, attrs in found.tags if attrs.get("http-equiv"))
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    named = [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in found.scripts]
    assert rules["style-src"] == named[0]
    assert rules["script-src"] == named[-1]


def test_comments_and_indentation_are_not_shipped():
    """Line by line, which is safe as long as no template goes over lines."""
    for path in Path(attnctl.pages.__file__).parent.glob("page/*.mjs"):
        assert all(line.count("`") % 2 == 0 for line in path.read_text().splitlines()), path.name
    found = Elements(page(attnctl.run("I love AI")))
    for text in (found.scripts[0], found.scripts[-1]):
        assert len(text) > 10_000
        assert not re.search(r"^([ \t]|//|/\*)", text, re.MULTILINE)


def test_a_hostile_token_stays_text():
    words = f"I {HOSTILE} <!-- <b>"
    trace = attnctl.run(words)
    plain, found = Elements(page(attnctl.run("I love all AI"))), Elements(page(trace))
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in plain.tags]
    assert "alert" not in found.scripts[-1]


def test_a_hostile_token_reads_back(tmp_path):
    trace = attnctl.run(f"I {HOSTILE} {chr(0x2028)}x")
    assert read(write([trace], tmp_path / "x.html"))[0].tokens == trace.tokens


# --- what a page says of its model ---


def layer(trace, number, model="/home/someone/.cache/hub/models--org--tiny-bert/snapshots/0123"):
    trace.header.update(layer=number, model=model)
    return trace


def test_no_page_tells_where_a_model_lies(tmp_path):
    path = write([layer(attnctl.run("I love AI"), 3)], tmp_path / "x.html")
    assert "someone" not in path.read_text()
    assert read(path)[0].header["model"] == "tiny-bert"
    assert "<title>I love AI · tiny-bert layer 3</title>" in path.read_text()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/opt/models/MiniLM/model", "MiniLM"),
        ("MiniLM", "MiniLM"),
        ("org/gpt2/", "gpt2"),
        (r"C:\Users\someone\qwen", "qwen"),
        ("/model", "model"),
    ],
)
def test_a_model_is_called_after_the_folder_that_says_so(path, name):
    assert model_name(path) == name


def test_heads_are_named_as_the_map_of_a_model_names_them():
    trace = layer(attnctl.run("I love AI and AI loves me", heads=2), 1)
    found = description(page(trace))["traces"][0]["view"]["heads"]
    assert [each["name"] for each in found] == [each.name for each in head_profiles(trace)]
    foreign = replace(trace, header={"layer": "x", "ids": [1]})
    assert description(page(foreign))["traces"][0]["view"]["heads"] is None


def test_what_a_head_may_attend_to_has_words():
    assert set(WORDS["kinds"]) == set(KINDS)


def test_queries_that_are_padding_say_nothing_of_a_head():
    """Neither in the map nor in stats: what their rows hold changes no share."""
    trace = attnctl.run("I love AI [PAD] [PAD]", heads=2)
    weights = trace["attention_weights"].copy()
    first = weights[:, :3, 0].mean(axis=-1)
    weights[:, 3:] = [0, 0, 1, 0, 0]
    other = replace(trace, arrays={**trace, "attention_weights": weights})
    for each in (trace, other):
        heads = description(page(each))["traces"][0]["view"]["heads"]
        assert np.allclose([head["shares"]["first"] for head in heads], first, atol=1e-4)
        assert np.allclose([head.means["first"] for head in attnctl.stats(each).heads], first)


def description(text):
    return json.loads(re.search('id="attnctl-report">([^<]*)<', text)[1])


# --- what a page keeps ---


def test_a_page_of_a_layer_is_small_without_the_matrices_of_its_checkpoint(tmp_path):
    """12 heads of 14 tokens, d_model 384, as MiniLM has them."""
    trace = attnctl.run(" ".join(f"w{at}" for at in range(14)), heads=12, d_model=384, dtype="float32")
    path = write([trace], tmp_path / "x.html")
    assert path.stat().st_size < 1_000_000
    assert len(re.search("<noscript>.*</noscript>", path.read_text(), re.DOTALL)[0]) <= 10_240
    small = page(attnctl.run("I love AI", heads=2))
    assert "<pre>" in re.search("<noscript>.*</noscript>", small, re.DOTALL)[0]
    back = read(path)[0]
    assert [name for name in trace if name not in back] == ["W_Q", "W_K", "W_V", "W_O"]
    assert "Left out, so that the page stays small: W_Q, W_K, W_V and W_O." in path.read_text()
    alone = trace.select(["X", "W_Q", "Q"])
    assert list(read(write([alone], tmp_path / "y.html"))[0]) == ["X", "W_Q", "Q"]


def test_values_are_weighed_by_what_they_add(tmp_path):
    trace = attnctl.run("I love AI", heads=2, d_model=4)
    mixed = [trace["V"][head] @ trace["W_O"][2 * head : 2 * head + 2] for head in range(2)]
    assert np.allclose(value_norms(trace), [[np.hypot.reduce(row) for row in head] for head in mixed])
    assert value_norms(trace.select(["V", "attention_weights", "head_outputs"])) is None


def test_weights_of_a_whole_model_fit_into_five_megabytes(tmp_path):
    layers = [weights(12, 128) for _ in range(12)]
    for layer, trace in enumerate(layers):
        trace.header["layer"] = layer
    path = write(layers, tmp_path / "x.html")
    assert path.stat().st_size < 5_000_000
    back = read(path)
    assert len(back) == 12
    assert back[3]["attention_weights"].dtype == np.float16
    assert np.abs(back[3]["attention_weights"] - layers[3]["attention_weights"]).max() < 5e-4
    assert "kept to four decimals here" in path.read_text()


def layers_of_a_model(d_k):
    """Six layers of twelve heads over fourteen tokens, every step of them."""
    draw = np.random.RandomState(0)
    layers = []
    for layer in range(6):
        arrays = {name: draw.standard_normal((12, 14, d_k)).astype("float32") for name in "QKV"}
        trace = attnctl.attend(arrays, dtype="float32")
        trace.header.update(model="any", layer=layer)
        layers.append(trace)
    return layers


@pytest.mark.parametrize(("d_k", "has_both"), [(64, False), (8, True)])
def test_a_page_of_all_layers_is_small_and_holds_q_and_k_together(d_k, has_both, tmp_path):
    path = write(layers_of_a_model(d_k), tmp_path / "x.html")
    assert path.stat().st_size < 500_000
    for trace in read(path):
        assert {"scores", "scaled_scores", "attention_weights"} <= {*trace}
        assert ("Q" in trace, "K" in trace) == (has_both, has_both)


def test_more_traces_than_anyone_looks_at_are_refused(tmp_path):
    path = tmp_path / "x.html"
    with pytest.raises(AttnError, match="201 traces: a page holds 200; pick one with --trace"):
        formats.write([attnctl.run("I love AI")] * 201, path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_small_is_kept_whole():
    trace = attnctl.run("I love AI")
    found = keep_within(trace, ROOM)
    assert found.trace is trace
    assert (found.pictures, found.said) == ({}, [])


def test_the_weights_are_kept_before_the_rest():
    trace = weights(2, 10, "float64")
    full = attnctl.attend({name: np.ones((2, 10, 4)) for name in "QKV"})
    room = trace["attention_weights"].nbytes + 2 * full["Q"].nbytes
    found = keep_within(full, room)
    assert list(found.trace) == ["Q", "K", "attention_weights"]
    (said,) = found.said
    assert said.startswith(
        "Left out, so that the page stays small: V, scores, scaled_scores, head_outputs and concat."
    )
    assert "--step concat -o FILE.html" in said


def test_where_there_is_no_room_weights_are_shown_by_blocks(tmp_path):
    trace = weights(12, 700)
    (found,) = choose_kept([trace])
    array, side = found.pictures["attention_weights"]
    assert (array.shape, side) == ((12, 234, 234), 3)
    assert len(found.trace) == 0
    assert "(700 × 700 a head) are shown by blocks of 3 × 3" in found.said[0]
    path = write([trace], tmp_path / "x.html")
    assert "are shown by blocks of 3 × 3" in re.search("<ul id=.notes.>(.*?)</ul>", path.read_text())[1]
    with pytest.raises(AttnError, match="a picture alone"):
        read(path)


def test_a_block_is_what_its_queries_give_to_its_keys_on_average():
    rows = [[0.5, 0.5, 0.0], [0.25, 0.25, 0.5], [0.0, 0.0, 1.0]]
    assert by_blocks(np.array([rows]), 2).tolist() == [[[0.75, 0.25], [0.0, 1.0]]]
