"""Every family and layer: attention weights and hidden states are those of transformers in float32."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cases import IDS
from checkpoints import NAMES, ROOT, expected_of, folder_of
from sweep import write_tensors
from tiny import EVERY_CASE, UNFROZEN, example_of

from attnctl.math.axes import rearrange
from attnctl.models.attention import prepare_attention
from attnctl.models.description import describe
from attnctl.models.families import FAMILIES
from attnctl.models.forward import embed_ids, final_norm, states
from attnctl.models.images import pixels_given, takes_images
from attnctl.models.network import route
from attnctl.models.source import open_model

TOLERANCE = 1e-5
"""Of a number, and of the largest of its array: a sum in float32 is as rough as its largest terms."""
IN_FLOAT64 = {"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"}
"""Families whose sums over experts are too rough in float32 for it."""


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
    model.dtype = "float64" if model.description.family in IN_FLOAT64 else model.dtype
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
            close = {"rtol": TOLERANCE, "atol": TOLERANCE * max(1.0, np.abs(expected[name]).max())}
            np.testing.assert_allclose(array, expected[name], err_msg=name, **close)
    if any("weights" in name for name in expected):  # Falcon's with ALiBi are hidden states alone
        assert {name for name in found if "weights" in name} <= expected.keys()
    return len(found.keys() & expected.keys())


def first(model, expected, start):
    """What comes into layer 0: from pixels or ids where there are any, else as it is recorded."""
    ids = expected.get(f"{start}input_ids")
    if takes_images(model):
        return pixels_given(model, pixels_of(model, expected))
    if ids is None or "embed" not in model.description.stack.outer:
        return expected[f"{start}hidden_0"]
    segments = expected.get("token_type_ids")
    return embed_ids(model, ids.tolist(), None if segments is None else segments.tolist())


def pixels_of(model, expected):
    """The picture of a case; SigLIP 2 is given its patches, a row each."""
    pixels = expected["pixel_values"]
    if pixels.ndim == 3:
        return pixels
    rows, columns = expected["spatial_shapes"]
    side = model.description["patch"]
    return rearrange(pixels, "(h w) (p q c) -> c (h p) (w q)", h=rows, w=columns, p=side, q=side)


def test_experts_stand_each_by_itself_or_all_in_one_tensor(tmp_path):
    """As transformers writes those of Qwen3.5, and as its files have them."""
    alone = open_model(str(ROOT / "qwen3_5_moe_text"))
    tensors = {name: tensor.load() for name, tensor in alone.checkpoint.tensors.items()}
    for layer in range(2):
        start = f"layers.{layer}.mlp.experts."
        one = {
            name: np.stack([tensors.pop(f"{start}{expert}.{name}_proj.weight") for expert in range(4)])
            for name in ("gate", "up", "down")
        }
        tensors[f"{start}gate_up_proj"] = np.concatenate([one["gate"], one["up"]], axis=1)
        tensors[f"{start}down_proj"] = one["down"]
    config = json.loads((ROOT / "qwen3_5_moe_text" / "config.json").read_text())
    write_tensors(tmp_path, config, tensors)
    ids = list(range(3, 9))
    ends = [list(states(model, embed_ids(model, ids))) for model in (alone, open_model(str(tmp_path)))]
    np.testing.assert_allclose(ends[0][-1][1], ends[1][-1][1], rtol=1e-6)


def test_experts_are_those_of_the_groups_whose_two_best_sum_to_most(tmp_path):
    """DeepSeek-V3 (arXiv 2412.19437, 2.1.2): affinities are sigmoids, moved by a bias to choose by."""
    shutil.copytree(ROOT / "deepseek-v3", tmp_path, copy_function=shutil.copyfile, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"n_group": 2, "topk_group": 1}))
    tensors = open_model(str(tmp_path), dtype="float64").layer(1)
    width, experts = tensors.d["width"], 8
    x = np.random.RandomState(0).randn(40, width)
    affinities = 1 / (1 + np.exp(-x @ tensors.matrix("router", width, experts)))
    rows = (affinities + tensors.read("router_correction", "", (experts,))).tolist()

    def group(row, most):
        return max((0, 1), key=lambda half: sum(sorted(row[4 * half : 4 * half + 4])[-most:]))

    chosen = [{expert // 4 for expert in row} for row in route(tensors, x)[1].tolist()]
    assert chosen == [{group(row, 2)} for row in rows]
    assert all(any(group(row, 2) != group(row, other) for row in rows) for other in (1, 3))
