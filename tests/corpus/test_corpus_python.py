"""Corpora from Python: the values, and the bytes, of the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpora import written

import attnctl


def test_it_is_what_the_command_writes(run, tmp_path):
    path = written(tmp_path / "c.txt")
    part = attnctl.corpus(path, heads=2, causal=True, pairs=True)
    (tmp_path / "x.yaml").write_text("heads: 2\nrules: [causal]\n")
    assert part.to_bytes().decode() == run("run", "c.txt", "-c", "x.yaml", "--pairs", "--json")[1]
    assert f"{part}\n" == run("run", "c.txt", "-c", "x.yaml", "--pairs")[1]
    head = json.loads(part.to_bytes())["layers"][0]["heads"][1]
    assert part.layers[0].heads[1].means == {name: head[name] for name in head["sums"]}


def test_a_model_and_shards(run, tmp_path, model):
    path = written(tmp_path / "c.txt")
    parts = [attnctl.corpus(path, model=model, shard=f"{number}/3") for number in (3, 1)]
    second = tmp_path / "2.json"
    attnctl.corpus(path, model=Path(model), shard="2/3", save=second)
    whole = attnctl.merge_corpus([*parts, second])
    assert whole.to_bytes().decode() == run("run", "c.txt", "--model", model, "--json")[1]
    assert repr(parts[0]).startswith("<CorpusPart: ")
    assert repr(parts[0]).endswith("lines 27 to 40 of 40>")


def test_sentences_are_as_a_file_of_them(tmp_path):
    sentences = ["a b", "", "c \u2028 d a", "b"]
    (tmp_path / "c.txt").write_text("".join(f"{each}\n" for each in sentences), encoding="utf-8")
    of_file = attnctl.corpus(str(tmp_path / "c.txt")).to_bytes()
    assert attnctl.corpus(sentences).to_bytes() == of_file
    parts = [attnctl.corpus(iter(sentences), shard=f"{number}/2") for number in (2, 1)]
    assert attnctl.merge_corpus(parts).to_bytes() == of_file


def test_bad_sentences_are_left_out():
    part = attnctl.corpus(["a b", "c\nd", "\ud800", "e\0"], skip_bad=True)
    assert {reason: each.first for reason, each in part.skipped.items()} == {
        "a line break": [2],
        "not UTF-8": [3],
        "a NUL byte": [4],
    }
    with pytest.raises(attnctl.AttnError, match="sentences:2: a line break within a sentence"):
        attnctl.corpus(["a b", "c\nd"])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: attnctl.corpus(["a"], shard="3/2"), "shard: 3/2: no such shard"),
        (lambda: attnctl.corpus(["a", 3]), "sentence: 3 is not text"),
        (lambda: attnctl.corpus([]), "sentences: no sentence in it"),
        (lambda: attnctl.corpus("none.txt"), "none.txt: No such file"),
        (lambda: attnctl.corpus(["a"], model="m", heads=2), "model: it has its own attention"),
        (lambda: attnctl.corpus(["a"], head=2), "head: no such option; did you mean heads"),
        (lambda: attnctl.merge_corpus([]), "parts: none"),
        (lambda: attnctl.merge_corpus([attnctl.corpus(["a", "b"], shard="1/2")]), "line 2: in none of"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(attnctl.AttnError, match=said):
        call()
