"""Every key of every family's config.json: read as transformers reads it, or refused by name.

What transformers makes of each move is in sweep.json.gz; `make_sweep.py` writes it.
"""

import json
import re

import numpy as np
import pytest
from sweep import (
    LEFT_OUT,
    bases,
    figures,
    hidden_states,
    moved,
    named,
    read_frozen,
    sections,
    write_checkpoint,
)

from attnctl.base.errors import AttnError
from attnctl.models.description import INERT, describe, unread
from attnctl.models.families import FAMILIES

BASES, FROZEN = bases(), read_frozen()
NAMES = [name for name in BASES if name in FROZEN]


def moves(name, outcomes):
    """The moves of a case with such outcomes: section, key, value, outcome, tensors that are others."""
    for section, keys in FROZEN[name]["moves"].items():
        for key, rows in keys.items():
            for value, outcome, *shapes in rows:
                if (outcome if isinstance(outcome, str) else "moved") in outcomes:
                    yield section, key, value, outcome, shapes[0] if shapes else {}


def described(name, config):
    return [describe(config, part) for part in FAMILIES[BASES[name]["model_type"]]]


@pytest.mark.slow
def test_every_family_has_been_swept():
    """`python tests/models/make_sweep.py NAME` sweeps a new one."""
    assert FROZEN.keys() == BASES.keys()
    assert {base["model_type"] for base in BASES.values()} == FAMILIES.keys()


@pytest.mark.parametrize("name", NAMES)
def test_every_key_that_a_family_reads_has_been_moved(name):
    """An entry that reads another key needs `make_sweep.py` again."""
    for section, stacks in sections(BASES[name]["model_type"]).items():
        swept = FROZEN[name]["moves"][section]
        assert {key for stack in stacks for key in stack.understood} - {"model_type"} <= swept.keys()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_refused_is_refused_by_name(name):
    base = BASES[name]
    for section, key, value, *_ in moves(name, {"refused"}):
        config = moved(base, section, key, value)
        with pytest.raises(AttnError) as caught:
            described(name, config)
        assert named(str(caught.value), key, config.get(section, config)), (key, value, str(caught.value))


@pytest.mark.parametrize("name", NAMES)
def test_what_changes_nothing_is_let_pass(name):
    for section, key, value, *_ in moves(name, {"same"}):
        described(name, moved(BASES[name], section, key, value))


def compare(name, chosen, folder):
    """Hold the hidden states of these moves to those of transformers."""
    frozen, kind = FROZEN[name], BASES[name]["model_type"]
    written = None
    for section, key, value, outcome, changes in chosen:
        shapes = {
            each: shape for each, shape in {**frozen["shapes"], **changes}.items() if shape is not None
        }
        config = moved(BASES[name], section, key, value)
        if shapes == written:
            (folder / "config.json").write_text(json.dumps(config))
        else:
            write_checkpoint(folder, config, shapes)
            written = shapes
        expected = frozen["figures"] if outcome == "same" else outcome
        found = figures(hidden_states(folder, kind))
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5, err_msg=f"{key} {value}")


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NAMES)
def test_a_key_is_read_as_transformers_reads_it(name, tmp_path):
    """One of the moves that change hidden states, and one that changes the tensors too."""
    every = list(moves(name, {"moved"}))
    larger = [move for move in every if move[-1]]
    compare(name, [every[len(every) // 2], larger[len(larger) // 2]], tmp_path)


SHARED = re.compile(
    r"rope_parameters|rope_scaling|hidden_act(?:ivation)?|activation(?:_function)?|dense_act_fn"
)
"""Keys whose values all families share the code of: rotary positions of each kind, and activations."""

IN_TURN = 3
"""Of the values of such a key a slow test holds one in so many to transformers, of each family others."""


def changing(name):
    """The moves that change hidden states, or what is made of the config.json here."""
    yield from moves(name, {"moved"})
    base = described(name, BASES[name])
    for move in moves(name, {"same"}):
        if described(name, moved(BASES[name], *move[:3])) != base:
            yield move


def in_turn(name, *, now):
    """Of the values that families share those whose turn it is, and all of other keys; or the rest."""
    first = NAMES.index(name)
    for number, move in enumerate(changing(name), first):
        has_turn = number % IN_TURN == 0 or not SHARED.fullmatch(move[1])
        if has_turn == now:
            yield move


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_key_is_read_as_transformers_reads_it(name, tmp_path):
    compare(name, in_turn(name, now=True), tmp_path)


@pytest.mark.whole
@pytest.mark.parametrize("name", NAMES)
def test_every_value_that_families_share_is_read_as_transformers_reads_it(name, tmp_path):
    compare(name, in_turn(name, now=False), tmp_path)


EXAMPLES = {"true or false": True, "a text": "relu", "an object": {"rope_type": "linear", "factor": 2.0}}
EVERY = {
    name: EXAMPLES.get(key.kind.expected, 3)
    for stacks in FAMILIES.values()
    for stack in stacks.values()
    for key in stack.keys
    for name in key.names
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_key_that_only_other_families_read_is_refused(kind):
    for stacks in sections(kind).values():
        understood = {name for stack in stacks for name in stack.understood}
        for name in EVERY.keys() - understood:
            if not INERT.fullmatch(name):
                (problem,) = unread(kind, stacks[0], {name: EVERY[name]})
                assert repr(name) in problem


@pytest.mark.parametrize("name", NAMES)
def test_what_says_something_by_being_false_is_refused(name):
    """A model that sees both ways is another one, whatever its family."""
    for section in sections(BASES[name]["model_type"]):
        config = moved(BASES[name], section, "is_causal", False)
        if not any(
            "is_causal" in stack.understood for stack in FAMILIES[BASES[name]["model_type"]].values()
        ):
            with pytest.raises(AttnError, match="'is_causal' is 'False', but"):
                described(name, config)


def test_a_key_that_nobody_knows_is_refused():
    (problem,) = unread("llama", FAMILIES["llama"][""], {"attention_temprature": 2, "hidden_siz": None})
    assert "'attention_temprature' is '2', but llama reads no such key" in problem
    (problem,) = unread("llama", FAMILIES["llama"][""], {"hiden_act": "relu"})
    assert "did you mean hidden_act" in problem


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("llama", {"is_llama_config": True, "rope_interleaved": False, "transformers.js_config": {"a": 1}}),
        ("llama", {"unsloth_fixed": True, "max_sequence_length": 2048, "pretraining_tp": 1}),
        ("gpt-neox", {"rotary_emb_base": 10000, "rope_theta": 10000, "partial_rotary_factor": 0.5}),
        ("starcoder2", {"mlp_type": "default", "norm_type": "layer_norm", "activation_function": "gelu"}),
        ("stablelm", {"rope_pct": 0.25, "rotary_scaling_factor": 1.0, "norm_eps": 1e-5}),
        ("gemma", {"hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}),
        ("gpt-oss", {"experts_per_token": 2, "initial_context_length": 4096}),
        ("deepseek-v3", {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1}),
        ("bloom", {"offset_alibi": 100, "masked_softmax_fusion": True, "seq_length": 2048}),
        ("t5", {"n_positions": 512, "output_past": True, "task_specific_params": {"a": 1}}),
    ],
)
def test_keys_that_released_files_have_besides_are_no_offence(kind, said):
    base = BASES[kind] | ({"rotary_pct": 0.5} if kind == "gpt-neox" else {})
    assert describe({**base, **said}) == describe(base)


def test_a_key_under_two_names_says_one_thing():
    config = {**BASES["gpt2"], "hidden_size": BASES["gpt2"]["n_embd"]}
    assert describe(config) == describe(BASES["gpt2"])
    with pytest.raises(AttnError, match="hidden_size: '99', but n_embd is '16'"):
        describe({**config, "hidden_size": 99})


def test_null_is_no_value_where_something_stands_for_nothing():
    with pytest.raises(AttnError, match="rms_norm_eps: null, expected a number from 0 to 1"):
        describe({**BASES["llama"], "rms_norm_eps": None})
    assert describe({**BASES["mistral"], "sliding_window": None}).layers[0].window is None


def test_a_factor_of_one_says_nothing():
    assert describe({**BASES["llama"], "partial_rotary_factor": 1.0}) == describe(BASES["llama"])


def test_rope_scaling_of_gemma_is_not_about_windows():
    config = moved(BASES["gemma3"], "", "rope_scaling", {"rope_type": "linear", "factor": 4.0})
    kinds = {(each.window is None, each.rope.kind) for each in describe(config).layers}
    assert kinds == {(True, "linear"), (False, "default")}


def test_whether_t5_has_a_gate_may_be_said_by_itself():
    assert describe({**BASES["t5"], "is_gated_act": True})["gated"]
    assert not describe({**BASES["t5-gated"], "is_gated_act": False})["gated"]


@pytest.mark.parametrize("name", ["qwen2-vl", "qwen3-vl"])
def test_sections_of_positions_change_nothing_in_a_text(name):
    own = BASES[name]["text_config"]
    rope = {**own["rope_parameters"], "mrope_section": [0, 1, 1]}
    moved_rope = {**BASES[name], "text_config": {**own, "rope_parameters": rope}}
    layers = describe(moved_rope).layers
    assert [layer.rope.rotary(7) for layer in layers] == [
        layer.rope.rotary(7) for layer in describe(BASES[name]).layers
    ]


def test_a_config_of_text_and_pictures_may_stand_in_one():
    whole = BASES["qwen2-vl"]
    in_one = {**whole["text_config"], "model_type": "qwen2_vl"}
    assert describe(in_one) == describe(whole)


def test_as_many_heads_of_keys_as_of_queries_may_be_null():
    text = {**BASES["qwen3-vl"]["text_config"], "num_key_value_heads": None}
    said = describe({**BASES["qwen3-vl"], "text_config": text})
    assert said["kv_heads"] == text["num_attention_heads"]


def test_leaving_a_key_out_is_a_move():
    assert any(value == LEFT_OUT for *_, value, _, _ in moves("llama", {"moved", "same", "refused"}))
