"""A token down the layers: lengths of what is added to it, by a sum written out; its picture and page."""

import io
import json

import numpy as np
import pytest
from checkpoints import ROOT

import attnctl
from attnctl.base.errors import AttnError
from attnctl.cli.program import program
from attnctl.inputs.config.settings import Settings
from attnctl.models.next import begin_pass
from attnctl.models.run import ModelInput
from attnctl.verbs.models.follow import follow

IDS = (9, 4, 17, 4, 26)


def followed(name, word="-1"):
    return follow(begin_pass(str(ROOT / name), ModelInput(ids=IDS), Settings(dtype="float32")), word)


@pytest.mark.parametrize(("name", "values"), [("gpt2", "V"), ("gemma2", "V_shared")])
def test_lengths_are_those_of_each_keys_value_through_all_heads(name, values):
    found = followed(name)
    for trace, moves in zip(attnctl.run_model(ROOT / name, ids=IDS), found.layers, strict=True):
        heads = len(trace["attention_weights"])
        matrices = trace["W_O"].reshape(heads, -1, trace["W_O"].shape[-1])
        for query, key in np.ndindex(5, 5):
            parts = [
                trace["attention_weights"][head, query, key] * trace[values][head, key] @ matrices[head]
                for head in range(heads)
            ]
            assert moves.norms[query, key] == pytest.approx(np.linalg.norm(sum(parts)), abs=1e-4)
            longest = int(np.argmax([np.linalg.norm(part) for part in parts]))
            if key <= query:
                assert moves.heads[query, key] == longest


def test_the_last_layer_says_what_the_model_says():
    found = followed("gpt2")
    (trace,) = attnctl.run_model(ROOT / "gpt2", ids=IDS, next=1)
    last = found.layers[-1].next[-1]
    assert last.id == trace.header["next"]["tokens"][0]["id"]
    assert last.probability == pytest.approx(trace.header["next"]["tokens"][0]["probability"], abs=1e-5)


@pytest.mark.parametrize(("word", "place"), [("4", 3), ("26", 4), ("0", 0), ("-2", 3)])
def test_a_token_is_named_by_its_word_or_its_position(word, place):
    assert followed("gpt2", word).place == place


def test_a_token_that_is_not_there_is_refused():
    with pytest.raises(AttnError, match="--follow: no token 'they'; there are '9' '4' '17' '26'"):
        followed("gpt2", "they")


def test_its_picture_and_its_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ["run", "--ids", ",".join(map(str, IDS)), "--model", str(ROOT / "gpt2"), "--follow", "4"]
    out = io.StringIO()
    assert program(given, stdout=out) == 0
    assert "4, position 3, down the layers" in out.getvalue()
    assert program([*given, "-o", "f.html", "-o", "f.svg", "-o", "f.json"]) == 0

    found = json.loads((tmp_path / "f.json").read_text())
    assert found["at"] == 3
    norms = found["layers"][1]["norms"]
    svg = (tmp_path / "f.svg").read_text()
    assert f"layer 1: “9” adds {norms[0]:.3g}, most by head 1.{found['layers'][1]['heads'][0]}" in svg
    assert svg.count("its network adds") == 3
    page = (tmp_path / "f.html").read_text()
    assert page.count("<details>") == 4
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
