"""What came into each layer of a port: a right one agrees in any type of number, a mistake has its layer.

The states are those of transformers (`make_states.py`). A mistake is planted in the model that they are
held to, in one of its layers: the same difference as in a port of it.
"""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from checkpoints import ROOT
from ports import tensors

from attnctl.base.errors import AttnError
from attnctl.cli.program import program
from attnctl.store.safetensors import write_tensors
from attnctl.verbs.check.layers import check_port

FOUND = np.load(Path(__file__).parent / "states.npz")
CASES = sorted({name.rpartition(" ")[0] for name in FOUND})


def states(case):
    """The arrays of a dump."""
    return {
        f"hidden_{name.rpartition(' ')[2]}": FOUND[name] for name in FOUND if name.startswith(f"{case} ")
    }


@pytest.mark.parametrize("case", CASES)
def test_a_right_run_is_right(case):
    checked = check_port(str(ROOT / case.split()[0]), states(case))
    assert [layer.layer for layer in checked] == list(range(len(states(case)) - 1))
    assert all(layer.agrees for layer in checked), checked


def planted(name, layer, folder, change):
    """The checkpoint with other tensors in one layer."""
    arrays = tensors(name)
    at = re.compile(rf".*(?:layers|h)\.{layer}\.")
    start = next(filter(None, map(at.match, arrays)))[0]
    own = {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
    change(own)
    arrays |= {start + key: np.float32(array) for key, array in own.items()}
    shutil.copytree(ROOT / name, folder, copy_function=shutil.copyfile)
    with (folder / "model.safetensors").open("wb") as stream:
        write_tensors(arrays, stream, {})
    return str(folder)


def swap(first, second):
    """Two tensors of a layer in each other's place."""
    return lambda own: own.update({first: own[second], second: own[first]})


def edit(new, *keys):
    """Some tensors of a layer through a function."""
    return lambda own: own.update({key: new(own[key]) for key in keys})


def pairs_of_neighbours(w):
    """The rows of 8 columns a head, halves side by side: what turns with what is another."""
    return w.reshape(-1, 2, 4, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def heads_tiled(w):
    """4 heads that go 0 2 1 3: another one's keys."""
    return w.reshape(2, 2, -1, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape)


QUERIES = "self_attn.q_proj.weight", "self_attn.q_proj.bias"
KEYS = "self_attn.k_proj.weight", "self_attn.k_proj.bias"
EXPERTS = [f"block_sparse_moe.experts.{number}.w1.weight" for number in range(2)]
MISTAKES = {
    "rotary": ("llama", edit(pairs_of_neighbours, *QUERIES, *KEYS)),
    "norm": ("llama", edit(np.ones_like, "input_layernorm.weight")),
    "scale": ("llama", edit(lambda w: w * 8**0.5, *QUERIES)),
    "groups": ("llama", edit(heads_tiled, *QUERIES)),
    "gate": ("llama", swap("mlp.gate_proj.weight", "mlp.up_proj.weight")),
    "bias": ("llama", edit(np.zeros_like, "self_attn.v_proj.bias")),
    "keys for values": ("llama", swap("self_attn.k_proj.weight", "self_attn.v_proj.weight")),
    "one plus": ("gemma2", edit(lambda w: w - 1, "input_layernorm.weight")),
    "norms": ("gemma2", swap("input_layernorm.weight", "post_attention_layernorm.weight")),
    "transposed": ("gpt2", edit(np.transpose, "attn.c_proj.weight")),
    "experts": ("mixtral", swap(*EXPERTS)),
    "router": ("mixtral", edit(lambda w: w[::-1], "block_sparse_moe.gate.weight")),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_at_its_layer(mistake, layer, tmp_path):
    name, change = MISTAKES[mistake]
    folder = planted(name, layer, tmp_path / "model", change)
    for case in CASES:
        if case.split()[0] == name:
            wrong = [found.layer for found in check_port(folder, states(case)) if not found.agrees]
            assert wrong == [layer], case


def test_a_mistake_that_no_single_number_shows_is_found(tmp_path, capsys):
    """A gate 2 % too large, in bfloat16."""
    folder = planted("llama", 1, tmp_path / "model", edit(lambda w: w * 1.02, "mlp.gate_proj.weight"))
    np.savez(tmp_path / "states.npz", **states("llama bfloat16"))
    first, second = check_port(folder, states("llama bfloat16"))
    assert first.agrees
    assert second.largest < second.allowed
    assert not second.agrees
    assert program(["check", str(tmp_path / "states.npz"), "--model", folder]) == 1
    said = capsys.readouterr().out
    assert "layer 0: agrees, off by" in said
    assert "; all numbers together 1.12 times what rounding explains" in said
    assert "Layer 1 is the first wrong one" in said


def test_more_states_than_layers_are_refused():
    found = states("llama bfloat16")
    with pytest.raises(AttnError, match="hidden_3: the model has 2 layers"):
        check_port(str(ROOT / "llama"), {**found, "hidden_3": found["hidden_2"]})


def test_a_state_of_another_width_is_refused():
    found = states("llama bfloat16")
    with pytest.raises(AttnError, match=r"hidden_1: \(128, 15\), expected \(token, 16\)"):
        check_port(str(ROOT / "llama"), {**found, "hidden_1": found["hidden_1"][:, :15]})


def test_nan_is_wrong():
    found = states("llama bfloat16")
    found["hidden_1"] = found["hidden_1"].copy()
    found["hidden_1"][5, 3] = np.nan
    assert not check_port(str(ROOT / "llama"), found)[0].agrees
