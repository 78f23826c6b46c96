"""Two models of one shape: what of their weights differs, and what comes of it."""

import json
import shutil

import numpy as np
import pytest
from checkpoints import ROOT
from ggufs import gguf_of

from attnctl.base.errors import AttnError
from attnctl.cli.program import program
from attnctl.inputs.config.settings import Settings
from attnctl.models.next import begin_pass, logits_of
from attnctl.models.run import ModelInput
from attnctl.models.tensors import Checkpoint
from attnctl.store.safetensors import write_tensors
from attnctl.verbs.models.compare import compare_models

IDS = ModelInput(ids=(3, 5, 9, 4))
BASE = str(ROOT / "qwen3")
Q = "model.layers.1.self_attn.q_proj.weight"


def changed(folder, name, change):
    """A copy of a checkpoint with one tensor changed."""
    shutil.copytree(ROOT / "qwen3", folder, copy_function=shutil.copyfile)
    tensors = {each: np.array(tensor.load()) for each, tensor in Checkpoint(ROOT / "qwen3").tensors.items()}
    before = tensors[name].copy()
    change(tensors[name])
    with (folder / "model.safetensors").open("wb") as stream:
        write_tensors(tensors, stream, {})
    return str(folder), np.linalg.norm(tensors[name] - before) / np.linalg.norm(before)


def logits(name):
    prompt = begin_pass(name, IDS, Settings(dtype="float64"))
    return logits_of(prompt, prompt.last())


def test_a_model_is_the_same_as_itself():
    found = compare_models(BASE, BASE, IDS)
    assert found.same
    assert found.first is None
    assert [layer.cosine for layer in found.layers] == pytest.approx([1, 1])


def test_one_head_that_was_changed_is_found(tmp_path):
    def change(weights):
        weights[2 * 6 : 3 * 6] *= 1.5  # the rows of head 2

    other, share = changed(tmp_path / "other", Q, change)
    found = compare_models(BASE, other, IDS)
    first, second = found.layers
    assert found.first == "layer 1: self_attn.q_proj.weight"
    assert not found.outside
    assert (first.weights, first.tensors, first.cosine) == (0, {}, pytest.approx(1))
    assert second.tensors == {"self_attn.q_proj.weight": pytest.approx(share)}
    assert [head > 0 for head in second.heads] == [False, False, True, False]
    assert not any(first.heads)
    assert second.cosine < 1
    assert not found.same

    p, q = (
        np.exp(row - np.logaddexp.reduce(row, axis=-1)[:, None]) for row in (logits(BASE), logits(other))
    )
    np.testing.assert_allclose(found.divergence, np.sum(p * np.log(p / q), axis=-1), rtol=1e-3, atol=1e-7)
    assert [token.id for token in found.next_a] == np.argsort(-p[-1])[:3].tolist()


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("model.embed_tokens.weight", "model.embed_tokens.weight"),
        ("lm_head.weight", "lm_head.weight"),
        ("model.norm.weight", "model.norm.weight"),
    ],
)
def test_what_stands_outside_of_layers_is_compared_too(tmp_path, name, first):
    other, share = changed(tmp_path / "other", name, lambda weights: weights.__imul__(1.25))
    found = compare_models(BASE, other, IDS)
    assert found.first == first
    assert found.outside == {name: pytest.approx(share)}
    assert share == pytest.approx(0.25)


def test_a_gguf_file_is_what_it_was_made_from(tmp_path):
    pytest.importorskip("gguf")
    found = compare_models(BASE, str(gguf_of("qwen3", "qwen3", tmp_path / "x.gguf")), IDS)
    assert found.same


def test_models_of_other_shapes_are_refused():
    with pytest.raises(AttnError, match="--model: layers: 2 of one and 3"):
        compare_models(BASE, str(ROOT / "gemma3"), IDS)


def test_the_command_says_what_differs(tmp_path, capsysbinary):
    other, _ = changed(tmp_path / "other", Q, lambda weights: weights.__imul__(1.5))
    words = ["diff", "--model", BASE, "--model", other, "--ids", "3,5,9,4"]
    assert program(words) == 1
    out = capsysbinary.readouterr().out.decode()
    assert "the first tensor that differs: layer 1: self_attn.q_proj.weight" in out
    assert program([*words, "--json"]) == 1
    said = json.loads(capsysbinary.readouterr().out)
    assert said["layers"][1]["tensors"] == {"self_attn.q_proj.weight": pytest.approx(0.5)}
    assert program(["diff", "--model", BASE, "--model", BASE, "--ids", "3,4"]) == 0
    file = tmp_path / "d.json"
    assert program([*words, "-o", str(file)]) == 1
    assert json.loads(file.read_text())["first_tensor"] == said["first_tensor"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", BASE, "--ids", "3"], "1 model; two are compared"),
        (["--model", BASE, "--model", BASE], "one text is asked of both models"),
        (["--model", BASE, "--model", BASE, "--ids", "3", "-o", "d.csv"], "no format for the suffix"),
        (["--model", BASE, "--model", BASE, "--ids", "3", "--step", "Q"], "compares dumps"),
        (["--ids", "3"], "only models take ids"),
        ([], "missing: A and B"),
    ],
)
def test_what_does_not_go_with_models_is_refused(capsysbinary, words, message):
    assert program(["diff", *words]) == 2
    assert message in capsysbinary.readouterr().err.decode()


def test_two_models_have_a_page_and_a_picture(tmp_path, monkeypatch):
    def change(weights):
        weights[2 * 6 : 3 * 6] *= 1.5

    other, _ = changed(tmp_path / "other", Q, change)
    monkeypatch.chdir(tmp_path)
    given = ["diff", "--ids", "3,5,9,4", "--model", BASE, "--model", other]
    assert program([*given, "-o", "d.html", "-o", "d.svg", "-o", "d.json"]) == 1
    page = (tmp_path / "d.html").read_text()
    assert "The first tensor that differs: layer 1: self_attn.q_proj.weight. Layer 1 differs most: " in page
    assert "those of head 2 by" in page
    assert "<caption>1 tensor differs</caption>" in page
    assert "<script" not in page
    found = json.loads((tmp_path / "d.json").read_text())
    assert [layer["next_divergence"] > 0 for layer in found["layers"]] == [False, True]
    assert found["layers"][-1]["next_divergence"] == pytest.approx(found["divergence"][-1], rel=1e-4)
    assert (tmp_path / "d.svg").read_text().count("layer 1") >= 2

    assert program(["diff", "--ids", "3,5", "--model", BASE, "--model", BASE, "-o", "same.html"]) == 0
    assert "The same weights, and the same logits." in (tmp_path / "same.html").read_text()
