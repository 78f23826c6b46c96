"""What flows beside the rows of Gemma 3n and 4: streams, earlier K and V, inputs of each layer."""

import re

import numpy as np
import pytest
from checkpoints import ROOT
from sweep import write_tensors

import attnctl
from attnctl.base.errors import AttnError
from attnctl.models.description import describe
from attnctl.models.source import open_model
from attnctl.models.tensors import json_file
from attnctl.verbs.check.layers import check_port

GEMMA4 = str(ROOT / "gemma4_text")
GEMMA3N = str(ROOT / "gemma3n_text")
IDS = [5, 9, 17, 3]


def test_later_layers_read_the_last_of_their_type():
    d = open_model(GEMMA4).description
    assert [d.of_layer(index)["source"] for index in range(5)] == [None, None, None, 2, 1]
    assert [d.of_layer(index)["d_k"] for index in range(5)] == [6, 8, 6, 6, 8]
    assert [d.of_layer(index)["intermediate"] for index in range(5)] == [24, 24, 24, 48, 48]


def test_what_they_read_is_what_was_made_and_edited_there():
    earlier, later = attnctl.run_model(GEMMA4, ids=IDS, layer="1,4", edits=["1:K_rotated[0,2]=0"])
    assert not earlier["K_rotated"][0, 2].any()
    assert np.array_equal(later["K"], earlier["K_rotated"])
    assert np.array_equal(later["V"], earlier["V_normed"])
    assert later.steps["K"].formula == "K_rotated of layer 1"
    assert "K_normed" not in later
    assert "W_K" not in later


def test_rows_alone_do_not_say_what_else_came_in():
    rows = np.ones((3, 16))
    attnctl.run_model(GEMMA4, hidden=rows, layer=1)
    with pytest.raises(AttnError, match="layer 4 of gemma4_text reads K and V of layer 1 beside"):
        attnctl.run_model(GEMMA4, hidden=rows, layer=4)


def test_a_type_without_keys_of_its_own_is_refused():
    config = json_file(ROOT / "gemma4_text" / "config.json", 10**6)
    with pytest.raises(AttnError, match="num_kv_shared_layers: no layer has K and V for layer 1"):
        describe({**config, "num_kv_shared_layers": 4})


def test_sizes_of_a_layer_are_held_to_what_can_be():
    config = json_file(ROOT / "gemma4_text" / "config.json", 10**6)
    with pytest.raises(AttnError, match="num_key_value_heads: 3 do not divide num_attention_heads, 4"):
        describe({**config, "per_layer_config": {"1": {"num_key_value_heads": 3}}})


def test_projections_that_a_sharing_layer_brings_all_the_same_are_left_aside(tmp_path):
    """As the released files do."""
    own = open_model(GEMMA4).checkpoint
    tensors = {name: tensor.load() for name, tensor in own.tensors.items()}
    tensors |= {f"layers.4.self_attn.{name}_proj.weight": np.zeros((8, 16)) for name in "kv"}
    write_tensors(tmp_path, json_file(ROOT / "gemma4_text" / "config.json", 10**6), tensors)
    found, right = (attnctl.run_model(where, ids=IDS, layer=4)[0] for where in (str(tmp_path), GEMMA4))
    assert np.array_equal(found["residual"], right["residual"])


def test_the_first_of_many_layers_are_sparse_where_nothing_is_said():
    config = json_file(ROOT / "gemma3n_text" / "config.json", 10**6)
    own = {"layer_types": None, "activation_sparsity_pattern": None, "intermediate_size": 24}
    for layers, sparse in ((10, 0), (12, 10)):
        d = describe({**config, **own, "num_hidden_layers": layers})
        cutoffs = [d.of_layer(index)["cutoff"] for index in range(layers)]
        assert cutoffs == [pytest.approx(1.6448536)] * sparse + [None] * (layers - sparse)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("intermediate_size", [24], "intermediate_size: 1 of 5 layers"),
        ("intermediate_size", [24, 0], "expected a whole number from 1, or a list"),
        ("activation_sparsity_pattern", [0.5] * 6, "activation_sparsity_pattern: 6 of 5 layers"),
        ("activation_sparsity_pattern", [1.0] * 5, "expected a list of numbers from 0 to below 1"),
        ("altup_active_idx", 1, "'altup_active_idx' is '1', but gemma3n_text reads no such key"),
    ],
)
def test_what_gemma_3n_cannot_be(key, value, said):
    config = json_file(ROOT / "gemma3n_text" / "config.json", 10**6)
    with pytest.raises(AttnError, match=re.escape(said)):
        describe({**config, key: value})


def test_streams_cannot_be_made_of_one():
    rows = np.ones((3, 16))
    attnctl.run_model(GEMMA3N, hidden=rows, layer=1)
    with pytest.raises(AttnError, match="layer 0 of gemma3n_text reads streams of its own beside its rows"):
        check_port(GEMMA3N, {"hidden_0": rows, "hidden_1": rows})
