"""The text of models of images and sounds is that of transformers: hidden states, weights and logits."""

import json
from pathlib import Path

import numpy as np
import pytest

from attnctl.base.errors import AttnError
from attnctl.inputs.config.settings import Settings
from attnctl.models.description import describe
from attnctl.models.families import ATTENTIONS_ONLY, TOWERS
from attnctl.models.next import begin_pass, logits_of
from attnctl.models.run import ModelInput, run_model

ROOT = Path(__file__).parent / "towers"
NAMES = sorted(path.name for path in ROOT.iterdir())
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


def test_every_one_that_is_known_is_held():
    assert sorted(TOWERS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_text_goes_through_as_in_transformers(name):
    folder = str(ROOT / name)
    with np.load(ROOT / name / "expected.npz") as found:
        expected = dict(found)
    given = ModelInput(ids=tuple(expected["input_ids"].tolist()))
    compared = 0
    for trace in run_model(folder, given, "all"):
        for step, ours in (("hidden", "hidden"), ("weights", "attention_weights")):
            right = expected.get(f"{step}_{trace.header['layer']}")
            if right is not None:
                large = {**CLOSE, "atol": 2e-5 * max(1, np.abs(right).max())}
                np.testing.assert_allclose(trace[ours], right, err_msg=step, **large)
                compared += 1
    assert compared >= 2
    if name in ATTENTIONS_ONLY:
        with pytest.raises(AttnError, match="has no head that is read here"):
            begin_pass(folder, given, Settings(dtype="float32"))
        return
    prompt = begin_pass(folder, given, Settings(dtype="float32"))
    right = expected["logits"]
    large = {**CLOSE, "atol": 2e-5 * max(1, np.abs(right).max())}
    np.testing.assert_allclose(logits_of(prompt, prompt.last()), right, err_msg="logits", **large)


def config_of(name):
    return json.loads((ROOT / name / "config.json").read_text())


def test_one_that_was_not_held_is_refused_with_the_family_of_its_text():
    config = {**config_of("llava"), "model_type": "llava_of_tomorrow"}
    with pytest.raises(
        AttnError, match="its text is llama, which is, but what surrounds it has not been held"
    ):
        describe(config)


def test_a_text_of_no_known_family_is_not_known():
    config = config_of("llava")
    config["text_config"]["model_type"] = "mamba"
    with pytest.raises(AttnError, match="model_type 'llava' is not known"):
        describe(config)


def test_what_the_first_llava_leaves_out_is_what_its_family_means():
    text = {
        "model_type": "llama",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 4096,
        "vocab_size": 32064,
    }
    found = describe({"model_type": "llava", "text_config": text, "image_token_index": 32000})
    assert (len(found.layers), found["width"], found["intermediate"], found["heads"]) == (
        32,
        4096,
        11008,
        32,
    )
    assert found.family == "llava/llama"
