"""Every family and layer: attention weights and hidden states are those of transformers in float32."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cases import IDS
from checkpoints import NAMES, ROOT, expected_of, folder_of
from tiny import EVERY_CASE, UNFROZEN, example_of

from attnctl.models.attention import prepare_attention
from attnctl.models.description import describe
from attnctl.models.families import FAMILIES
from attnctl.models.forward import embed_ids, final_norm, states
from attnctl.models.source import open_model

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NAMES)
def test_every_layer_is_that_of_transformers(name, tmp_path):
    expected = expected_of(name)
    folder = folder_of(name, tmp_path)
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    last = max(number for number in range(9) if f"hidden_{number}" in expected)
    memory = {"decoder": expected[f"hidden_{last}"]}
    for part in FAMILIES[kind]:
        if not part or f"{part}_hidden_0" in expected:
            assert parts_compared(folder, expected, part, memory.get(part)) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_every_config_that_transformers_writes_is_read(name):
    config = json.loads((ROOT / name / "config.json").read_text())
    with np.load(ROOT / name / "expected.npz") as expected:
        parts = [part for part in FAMILIES[config["model_type"]] if f"{part}_hidden_0" in expected.files]
    assert all(describe(config, part).layers for part in parts or [""])


def test_a_tiny_config_is_read_off_an_entry():
    stack = FAMILIES["bloom"][""]
    sizes = {"n_layer": 2, "n_head": 4, "hidden_size": 16, "vocab_size": 32, **IDS}
    assert example_of(stack) == sizes
    assert example_of(replace(stack, example={"n_head": 2})) == {**sizes, "n_head": 2}


def by_script(name, *args):
    """Run a script beside this file, which asks transformers and torch: a new family needs them."""
    command = [sys.executable, Path(__file__).with_name(name), *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_family_without_a_checkpoint_is_made_compared_and_swept(tmp_path):
    for name in UNFROZEN:
        by_script("make.py", "--in", tmp_path, name)
        with np.load(tmp_path / name / "expected.npz") as found:
            assert parts_compared(tmp_path / name, dict(found), "") >= 3
        by_script("make_sweep.py", "--dry", name)


@pytest.mark.slow
def test_every_family_has_a_checkpoint():
    """`python tests/models/make.py NAME` makes that of a new one."""
    assert UNFROZEN == []
    assert {case["name"] for case in EVERY_CASE} == set(NAMES)


def parts_compared(folder, expected, part, memory=None):
    """Hold each layer of a part to what is expected; how many arrays there were."""
    model = open_model(str(folder), part)
    start = f"{part}_" if part else ""
    found = {}

    def run(tensors, hidden, memory, cross):
        trace = prepare_attention(tensors, hidden, None, memory, cross=cross).run()
        if "attention_weights" in trace:
            found[f"{'cross_' if cross else start}weights_{tensors.index}"] = trace["attention_weights"]
        return trace

    last = len(model.description.layers)
    for index, hidden in states(model, first(model, expected, start), memory, run):
        found[f"{start}hidden_{index}"] = final_norm(model, hidden) if index == last else hidden
    for name, array in found.items():
        if name in expected and array.shape == expected[name].shape:
            np.testing.assert_allclose(array, expected[name], err_msg=name, **TOLERANCE)
    if any("weights" in name for name in expected):  # Falcon's with ALiBi are hidden states alone
        assert {name for name in found if "weights" in name} <= expected.keys()
    return len(found.keys() & expected.keys())


def first(model, expected, start):
    """What comes into layer 0: from ids where there are any, else as it is recorded."""
    ids = expected.get(f"{start}input_ids")
    if ids is None or "embed" not in model.description.shared:
        return expected[f"{start}hidden_0"]
    segments = expected.get("token_type_ids")
    return embed_ids(model, ids.tolist(), None if segments is None else segments.tolist())
