"""Weights in FP8 and MXFP4 are the numbers that transformers makes of them, whole and in parts."""

import json
import shutil

import numpy as np
import pytest
from checkpoints import ROOT

from attnctl.base.errors import AttnError
from attnctl.models.description import scale_blocks
from attnctl.models.run import ModelInput, run_model
from attnctl.models.tensors import Checkpoint, e4m3
from attnctl.store.safetensors import write_tensors

NUMBERS = {0: 0, 1: 2**-9, 7: 7 * 2**-9, 8: 2**-6, 56: 1, 57: 1.125, 64: 2, 126: 448, 184: -1, 254: -448}
"""Of the table of FP8 (Micikevicius et al. 2022): the smallest ones, 1 and those beside it, the largest."""


def test_the_numbers_of_fp8():
    found = e4m3()
    assert {byte: found[byte] for byte in NUMBERS} == NUMBERS
    assert np.isnan(found[[127, 255]]).all()
    assert np.isfinite(found).sum() == 254


def write(folder, arrays, types=None):
    """A folder with these tensors."""
    with (folder / "model.safetensors").open("wb") as stream:
        write_tensors(arrays, stream, {}, types or {})
    return folder


def test_blocks_of_fp8_have_a_scale_each(tmp_path):
    rng = np.random.RandomState(0)
    weight, scales = rng.randint(0, 126, (5, 7)).astype(np.uint8), np.float32(rng.rand(3, 2))
    arrays = {"w.weight": weight, "w.weight_scale_inv": scales}
    checkpoint = Checkpoint(write(tmp_path, arrays, {"w.weight": "F8_E4M3"}), (2, 4))
    right = np.array([[e4m3()[weight[i, j]] * scales[i // 2, j // 4] for j in range(7)] for i in range(5)])
    found = checkpoint.read("w.weight", (5, 7), "float32")
    np.testing.assert_allclose(found, right, rtol=2**-8)
    assert not (found.view(np.uint32) & 0xFFFF).any()  # bfloat16
    for part in ((slice(1, 4), slice(None)), (slice(None), slice(3, 6)), np.array([4, 0, 4])):
        np.testing.assert_array_equal(checkpoint.read("w.weight", (5, 7), "float32", part), found[part])
    with pytest.raises(AttnError, match=r"w\.weight_scale_inv is 3 × 2 of F32, expected 5 × 7, a scale"):
        Checkpoint(tmp_path, (1, 1))
    with pytest.raises(AttnError, match="holds F8_E4M3, and no scales that its config"):
        Checkpoint(tmp_path).read("w.weight", (5, 7), "float32")


def test_mxfp4_has_two_numbers_a_byte_and_a_power_of_two_for_32(tmp_path):
    blocks = np.random.RandomState(0).randint(0, 256, (2, 3, 2, 16)).astype(np.uint8)
    scales = np.arange(120, 132).reshape(2, 3, 2).astype(np.uint8)
    checkpoint = Checkpoint(write(tmp_path, {"e_blocks": blocks, "e_scales": scales}))
    size = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
    for expert, row, column in ((0, 0, 0), (1, 33, 2), (1, 63, 0), (0, 31, 1)):
        byte = int(blocks[expert, column, row // 32, row % 32 // 2])
        half = byte >> 4 if row % 2 else byte & 15
        right = (-1) ** (half // 8) * size[half % 8] * 2.0 ** (int(scales[expert, column, row // 32]) - 127)
        assert checkpoint.read("e", (2, 64, 3), "float32")[expert, row, column] == right
        assert checkpoint.read("e", (2, 64, 3), "float32", expert)[row, column] == right


def test_a_model_in_fp8_is_run(tmp_path):
    """Projections whose numbers FP8 has are those of the model in float32."""
    source, folder = ROOT / "llama", tmp_path / "fp8"
    shutil.copytree(source, folder, copy_function=shutil.copyfile)
    whole = Checkpoint(source)
    arrays, types, plain = {}, {}, {}
    for name, tensor in whole.tensors.items():
        arrays[name] = plain[name] = np.array(tensor.load())
        if "proj.weight" in name:
            near = np.abs(e4m3()[:127] - np.abs(arrays[name])[..., None]).argmin(axis=-1)
            arrays[name] = (near + 128 * (plain[name] < 0)).astype(np.uint8)
            types[name], plain[name] = "F8_E4M3", np.float32(e4m3()[arrays[name]])
            arrays[f"{name}_scale_inv"] = np.ones([-(-size // 4) for size in plain[name].shape], np.float32)
    write(folder, arrays, types)
    config = json.loads((folder / "config.json").read_text())
    said = {"quant_method": "fp8", "weight_block_size": [4, 4], "activation_scheme": "dynamic"}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": said}))
    other = tmp_path / "plain"
    shutil.copytree(source, other, copy_function=shutil.copyfile)
    write(other, plain)
    found, right = (run_model(str(name), ModelInput(ids=(3, 5, 9)), "1")[0] for name in (folder, other))
    np.testing.assert_array_equal(found["attention_weights"], right["attention_weights"])


@pytest.mark.parametrize(
    ("block", "ending", "shape"),
    [
        ((2**40, 2**40), "_scale_inv", ()),
        ((2**40, 2**40), "_scale_inv", (1,)),
        ((1, 2**40), "_scale", (5, 1)),
    ],
)
def test_a_matrix_or_a_row_may_have_one_scale(tmp_path, block, ending, shape):
    rng = np.random.RandomState(0)
    weight, scales = rng.randint(0, 126, (5, 7)).astype(np.uint8), np.float32(rng.rand(*shape))
    arrays = {"w.weight": weight, f"w.weight{ending}": np.asarray(scales), "w.activation_scale": scales + 1}
    checkpoint = Checkpoint(write(tmp_path, arrays, {"w.weight": "F8_E4M3"}), block)
    right = e4m3()[weight] * scales
    np.testing.assert_allclose(checkpoint.read("w.weight", (5, 7), "float32"), right, rtol=2**-8)
    assert checkpoint.names == ["w.weight"]


PER_TENSOR = {"quant_method": "fp8", "weight_block_size": None, "activation_scheme": "static"}
CHANNELS = {"num_bits": 8, "type": "float", "strategy": "channel"}
COMPRESSED = {"quant_method": "compressed-tensors", "format": "float-quantized"}


@pytest.mark.parametrize(
    ("said", "block"),
    [
        (PER_TENSOR, (2**40, 2**40)),
        ({**COMPRESSED, "config_groups": {"group_0": {"weights": CHANNELS}}}, (1, 2**40)),
    ],
)
def test_what_config_json_says_of_scales(said, block):
    assert scale_blocks({"quantization_config": said}, "config.json") == block


@pytest.mark.parametrize(
    "groups",
    [
        None,
        {},
        {"a": 1},
        {"a": {"weights": {**CHANNELS, "num_bits": 4}}},
        {"a": {"weights": {**CHANNELS, "strategy": "group"}}},
    ],
)
def test_other_groups_are_refused(groups):
    with pytest.raises(AttnError, match="of these only FP8 with a scale for each matrix or each row"):
        scale_blocks({"quantization_config": {**COMPRESSED, "config_groups": groups}}, "config.json")
