"""Weights packed by GPTQ, AWQ, bitsandbytes, MLX and compressed-tensors are the numbers that those make."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from checkpoints import ROOT
from test_quantised import write

import attnctl
from attnctl.base.errors import AttnError
from attnctl.models.packing import packing_of
from attnctl.models.source import open_model
from attnctl.models.tensors import Checkpoint, read_tensors

with np.load(Path(__file__).parent / "packed.npz") as found:
    FROZEN = dict(found)

NF4 = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}


def mlx(bits, size):
    return {"quantization": {"group_size": size, "bits": bits}}


def compressed(bits, form="pack-quantized"):
    group = {"weights": {"num_bits": bits, "type": "int", "strategy": "group"}, "targets": ["Linear"]}
    said = {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group}}
    return {"quantization_config": said}


CONFIGS = {
    "mlx 4": mlx(4, 32),
    "mlx 8": mlx(8, 64),
    "mlx 2": mlx(2, 32),
    "nf4": NF4,
    "nf4 nested": NF4,
    "fp4": NF4,
    "compressed 4": compressed(4),
    "compressed 4 zeros": compressed(4),
    "compressed 8": compressed(8),
}
PARTS = (
    ...,
    (slice(3, 17), slice(None)),
    (slice(None), slice(5, 70)),
    np.array([7, 0, 7]),
)


def opened(folder, arrays, config):
    write(folder, arrays)
    return Checkpoint(folder, None, read_tensors(folder, None, packing_of(config, "config.json")))


def held(checkpoint, expected):
    for part in PARTS:
        found = checkpoint.read("w.weight", expected.shape, "float32", part)
        np.testing.assert_allclose(found, expected[part], rtol=1e-6, atol=1e-6)
    assert checkpoint.names == ["w.weight"]


@pytest.mark.parametrize("name", CONFIGS)
def test_numbers_are_those_of_the_program_that_packed_them(name, tmp_path):
    arrays = {key.partition("/")[2]: array for key, array in FROZEN.items() if key.startswith(f"{name}/")}
    expected = arrays.pop("expected")
    held(opened(tmp_path, arrays, CONFIGS[name]), expected)


# --- GPTQ and AWQ, written number by number as their formats say ---

ROWS, COLUMNS, GROUP = 64, 48, 16


def drawn():
    """What a number of (in, out) is made of: q, the zero and the scale of its group."""
    rng = np.random.RandomState(0)
    q = rng.randint(0, 16, (ROWS, COLUMNS))
    zeros = rng.randint(1, 16, (ROWS // GROUP, COLUMNS))
    scales = rng.rand(ROWS // GROUP, COLUMNS).astype(np.float16)
    return q, zeros, scales


def pack(numbers, axis, order):
    """Eight numbers a word along an axis; the one at `order[k]` in the bits 4k to 4k + 3."""
    numbers = np.moveaxis(numbers, axis, -1)
    words = np.zeros((*numbers.shape[:-1], numbers.shape[-1] // 8), np.uint32)
    for word in range(words.shape[-1]):
        for place, column in enumerate(order):
            words[..., word] |= numbers[..., 8 * word + column].astype(np.uint32) << np.uint32(4 * place)
    return np.moveaxis(words.view(np.int32), -1, axis)


def dense(q, zeros, scales, groups):
    return np.array(
        [
            [float(scales[g, j]) * (q[i, j] - zeros[g, j]) for i, g in enumerate(groups)]
            for j in range(COLUMNS)
        ]
    )


@pytest.mark.parametrize("form", ["gptq", "gptq_v2", None])
@pytest.mark.parametrize("shuffled", [False, True])
def test_gptq(tmp_path, form, shuffled):
    q, zeros, scales = drawn()
    groups = np.arange(ROWS) // GROUP
    if shuffled:
        groups = np.random.RandomState(1).permutation(groups)
    order = range(8)
    arrays = {
        "w.qweight": pack(q, 0, order),
        "w.qzeros": pack(zeros - (form != "gptq_v2"), 1, order),
        "w.scales": scales,
        "w.g_idx": groups.astype(np.int32),
    }
    said = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": shuffled}
    if form:
        said["checkpoint_format"] = form
    checkpoint = opened(tmp_path, arrays, {"quantization_config": said})
    held(checkpoint, dense(q, zeros, scales, groups).astype(np.float32))


def test_awq(tmp_path):
    q, zeros, scales = drawn()
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    arrays = {"w.qweight": pack(q, 1, order), "w.qzeros": pack(zeros, 1, order), "w.scales": scales}
    said = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}
    checkpoint = opened(tmp_path, arrays, {"quantization_config": said})
    held(checkpoint, dense(q, zeros, scales, np.arange(ROWS) // GROUP).astype(np.float32))


def test_int8_of_bitsandbytes_has_the_largest_of_each_row(tmp_path):
    rng = np.random.RandomState(0)
    whole = rng.randint(-127, 128, (5, 7)).astype(np.int8)
    largest = rng.rand(5).astype(np.float32)
    said = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    checkpoint = opened(tmp_path, {"w.weight": whole, "w.SCB": largest}, {"quantization_config": said})
    found = checkpoint.read("w.weight", (5, 7), "float32")
    np.testing.assert_allclose(found, whole * largest[:, None] / 127, rtol=1e-6)


@pytest.mark.parametrize("shape", [(5, 1), (1, 1)])
def test_bytes_of_compressed_tensors_have_a_scale_for_a_row_or_a_matrix(tmp_path, shape):
    rng = np.random.RandomState(0)
    whole = rng.randint(-127, 128, (5, 7)).astype(np.int8)
    scale = rng.rand(*shape).astype(np.float32)
    arrays = {"w.weight": whole, "w.weight_scale": scale}
    checkpoint = opened(tmp_path, arrays, compressed(8, "int-quantized"))
    np.testing.assert_allclose(checkpoint.read("w.weight", (5, 7), "float32"), whole * scale, rtol=1e-6)


def test_a_model_whose_projections_are_packed_is_run(tmp_path):
    """A tiny Llama as MLX packs it is the same model with the numbers that it stands for."""
    source, folder, plain = ROOT / "llama", tmp_path / "packed", tmp_path / "plain"
    rng = np.random.RandomState(0)
    arrays, whole = {}, {}
    for name, tensor in Checkpoint(source).tensors.items():
        arrays[name] = whole[name] = np.array(tensor.load())
        if whole[name].ndim < 2:
            continue
        rows, columns = whole[name].shape
        q = rng.randint(0, 16, (rows, columns))
        module = name.removesuffix(".weight")
        scales = np.full((rows, columns // 8), 0.05, np.float32)
        arrays[name] = pack(q, 1, range(8)).view(np.uint32)
        arrays[f"{module}.scales"] = scales
        arrays[f"{module}.biases"] = -7 * scales
        whole[name] = np.float32(0.05) * q.astype(np.float32) - np.float32(0.35)
    config = json.loads((source / "config.json").read_text())
    for place, tensors, said in ((folder, arrays, mlx(4, 8)), (plain, whole, {})):
        shutil.copytree(source, place, copy_function=shutil.copyfile)
        write(place, tensors)
        (place / "config.json").write_text(json.dumps({**config, **said}))
    found, right = (attnctl.run_model(str(place), ids=[3, 5, 9], layer=1) for place in (folder, plain))
    np.testing.assert_allclose(found[0]["residual"], right[0]["residual"], rtol=1e-4, atol=1e-4)
    assert open_model(str(folder)).checkpoint.tensors[name].dtype == np.float32


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({**GPTQ, "bits": 3}, "(GPTQ): 3 bits, of which a word has no whole number; 2, 4 or 8 are read"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "(GPTQ): checkpoint_format marlin; gptq and gptq_v2"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "(AWQ): version gemv; gemm is read"),
        ({"quant_method": "bitsandbytes"}, "neither load_in_4bit nor load_in_8bit"),
        (compressed(3)["quantization_config"], "3 bits, of which a word has no whole number"),
    ],
)
def test_what_is_not_read_is_said(said, why):
    with pytest.raises(AttnError) as caught:
        packing_of({"quantization_config": said}, "config.json")
    assert why in str(caught.value)


def broken_gptq(**changes):
    q, zeros, scales = drawn()
    arrays = {
        "w.qweight": pack(q, 0, range(8)),
        "w.qzeros": pack(zeros - 1, 1, range(8)),
        "w.scales": scales,
        "w.g_idx": (np.arange(ROWS) // GROUP).astype(np.int32),
    }
    arrays |= changes
    return {name: array for name, array in arrays.items() if array is not None}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"w.scales": None}, "no tensor w.scales"),
        ({"w.scales": np.zeros((3, 48), np.float16)}, "w.scales is 3 × 48, expected 4 × 48"),
        ({"w.scales": np.zeros((4, 48), np.int32)}, "w.scales holds I32, expected numbers with a fraction"),
        (
            {"w.qweight": np.zeros((8, 48), np.int64)},
            "w.qweight holds I64, expected whole numbers of 32 bits",
        ),
        ({"w.g_idx": np.full(64, 9, np.int32)}, "w.g_idx: groups from 9 to 9; there are 4"),
        ({"w.qweight": np.zeros(8, np.int32)}, "w.qweight is 8, expected 2 axes"),
        ({"w.qweight": None}, "config.json speaks of GPTQ, but no tensor is packed so"),
    ],
)
def test_parts_that_do_not_fit_are_named(tmp_path, changes, why):
    said = {"quantization_config": {**GPTQ, "group_size": GROUP}}
    with pytest.raises(AttnError) as caught:
        opened(tmp_path, broken_gptq(**changes), said)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "state",
    [
        b"{",
        b"[]",
        b'{"shape": [2, 3], "blocksize": 0}',
        b'{"shape": [1e99, 3], "blocksize": 64}',
        b"x" * 5000,
    ],
)
def test_a_state_that_lies_is_refused(tmp_path, state):
    arrays = {key.partition("/")[2]: array for key, array in FROZEN.items() if key.startswith("nf4/")}
    arrays.pop("expected")
    arrays["w.weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(state, np.uint8)
    with pytest.raises(AttnError, match="quant_state"):
        opened(tmp_path, arrays, NF4)
