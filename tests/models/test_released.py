"""Released models open: each key of their config.json as public files have it is read, or to be inert.

`released.json` has the model, where its config.json was seen, and what it says.
"""

import json
from pathlib import Path

import pytest

from attnctl.models.description import CANNOT_TELL, describe

RELEASED = json.loads(Path(__file__).with_name("released.json").read_text(encoding="utf-8"))


def key_sets():
    return {(entry["config"]["model_type"], *sorted(entry["config"])) for entry in RELEASED}


def test_there_are_forty_sets_of_keys_each_with_where_it_was_seen():
    assert len(key_sets()) >= 40
    assert len({entry["config"]["model_type"] for entry in RELEASED}) >= 20
    assert all(len(entry["seen"]) > 20 for entry in RELEASED)


@pytest.mark.parametrize("entry", RELEASED, ids=[entry["model"] for entry in RELEASED])
def test_every_key_of_a_released_config_is_understood(entry):
    config = entry["config"]
    found = describe(config)
    text = config.get("text_config") or config.get("encoder") or config
    sizes = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers")
    assert len(found.layers) == next(text[name] for name in sizes if name in text)


@pytest.mark.parametrize(
    ("model", "dims"), [("MiniMax-M2", 64), ("phi-4-mini", 96), ("phi-1", 32), ("gpt_j", 64)]
)
def test_as_many_columns_turn_as_were_released(model, dims):
    (config,) = (entry["config"] for entry in RELEASED if entry["model"] == model)
    assert {layer.rope.dims for layer in describe(config).layers} == {dims}


def test_every_fourth_layer_of_exaone_sees_all():
    (config,) = (entry["config"] for entry in RELEASED if entry["model"] == "EXAONE-4.0-32B")
    windows = [layer.window is not None for layer in describe(config).layers]
    assert windows == [True, True, True, False] * 16
    in_words = {key: value for key, value in config.items() if key != "layer_types"}
    assert [layer.window is not None for layer in describe(in_words).layers] == windows


def test_nobody_is_told_to_leave_out_what_may_mean_something():
    """Without `rotary_dim` every column of MiniMax-M2 would turn."""
    assert "leave" not in CANNOT_TELL
    assert "cannot tell" in CANNOT_TELL
