"""Rows through a matrix of a checkpoint, of which a block of columns is read and widened at a time."""

import json
import struct

import numpy as np
import pytest
from checkpoints import ROOT

from attnctl.base.errors import AttnError
from attnctl.inputs import plan
from attnctl.math.names import HIDDEN, RESIDUAL, WEIGHTS
from attnctl.models import tensors
from attnctl.models.run import ModelInput, run_model
from attnctl.models.tensors import Checkpoint, blocks_of

SHAPE = (210, 32)


def stored(numbers, dtype):
    """The bytes of numbers in a type of safetensors; bfloat16 is the upper half of a float32."""
    if dtype == "BF16":
        return (numbers.view("<u4") >> 16).astype("<u2").tobytes()
    return numbers.astype({"F16": "<f2", "F32": "<f4"}[dtype]).tobytes()


def checkpoint(folder, numbers, dtype):
    """A checkpoint of one matrix, and the matrix as it is read whole."""
    data = stored(numbers, dtype)
    entry = {"dtype": dtype, "shape": list(numbers.shape), "data_offsets": [0, len(data)]}
    header = json.dumps({"w": entry}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    return Checkpoint(folder)


@pytest.fixture(params=["1", "4"])
def small_blocks(request, monkeypatch):
    """Blocks of 64 columns, on one core or on four."""
    monkeypatch.setattr(tensors, "LEAST", 1)
    monkeypatch.setattr(tensors, "cores", lambda: int(request.param))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("into", ["float32", "float64"])
def test_blocks_make_one_product(tmp_path, axis, dtype, into):
    """Each sum is that of the whole product to the rounding of its order, 2 n u Σ|x||w|."""
    draw = np.random.RandomState(0)
    numbers = draw.normal(size=SHAPE).astype("<f4")
    found = checkpoint(tmp_path, numbers if not axis else np.ascontiguousarray(numbers.T), dtype)
    shape = SHAPE[::-1] if axis else SHAPE
    whole = np.frombuffer(stored(numbers, dtype), {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}[dtype])
    if dtype == "BF16":
        whole = (whole.astype("<u4") << 16).view("<f4")
    whole = whole.reshape(SHAPE).astype(np.float64)
    for lead in ((5,), (2, 3)):
        x = draw.normal(size=(*lead, SHAPE[1])).astype(into)
        out = found.multiply(x, "w", shape, into, axis)
        most = 2 * SHAPE[1] * np.finfo(into).eps * (np.abs(x) @ np.abs(whole).T)
        assert out.dtype == into
        assert (np.abs(out - x.astype(np.float64) @ whole.T) <= most).all()
    assert found.used == found.finite == {"w"}


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("at", [(0, 0), (70, 3), (209, 31)])
def test_a_number_in_a_block_is_named_by_its_place(tmp_path, axis, at):
    numbers = np.zeros(SHAPE, "<f4")
    numbers[at] = np.inf
    numbers, at = (numbers.T.copy(), at[::-1]) if axis else (numbers, at)
    found = checkpoint(tmp_path, numbers, "BF16")
    with pytest.raises(AttnError, match=rf"w\[{at[0]}, {at[1]}\] is inf; weights are finite"):
        found.multiply(np.ones((2, SHAPE[1]), "float32"), "w", numbers.shape, "float32", axis)


@pytest.mark.parametrize(
    ("columns", "rows", "cuts"),
    [
        (4096, 1536, [0, 384, 768, 1152, 1536, 1920, 2304, 2688, 3072, 3456, 4096]),
        (1536, 384, [0, 1536]),
        (3072, 768, [0, 704, 1408, 2112, 3072]),
        (5, 10**6, [0, 5]),
        (130, 10**6, [0, 64, 130]),
    ],
)
def test_blocks_are_aligned_and_none_is_small(columns, rows, cuts):
    blocks = blocks_of(columns, rows)
    assert [block.start for block in blocks] == cuts[:-1]
    assert [block.stop for block in blocks] == cuts[1:]


def test_what_is_not_asked_for_is_not_computed(monkeypatch):
    """Of the last layer only the steps to keep and what they need, not its output and its network."""
    computed = []

    def spy(*args, **options):
        outcome = carry_out(*args, **options)
        computed.append(set(outcome.values))
        return outcome

    carry_out = plan.carry_out
    monkeypatch.setattr(plan, "carry_out", spy)
    run_model(str(ROOT / "llama"), ModelInput(ids=(3, 4, 5)), "1", keep=[WEIGHTS])
    before, after = computed
    assert RESIDUAL in before
    assert WEIGHTS not in before
    assert after == {WEIGHTS}


@pytest.mark.parametrize(
    ("name", "fused"), [("llama", []), ("bert", []), ("gpt2", ["h.0.attn.c_attn.weight"])]
)
def test_a_layer_that_is_passed_by_is_multiplied_in_its_file(name, fused, monkeypatch):
    """No matrix of it is read whole but a fused one; what comes out is the same but for rounding."""

    def spy(self, name, shape, dtype, part=..., *room):
        whole.extend([name] * (part is ... and len(shape) == 2 and ".0." in name))
        return read(self, name, shape, dtype, part, *room)

    whole, read = [], Checkpoint.read
    source = ModelInput(ids=(3, 4, 5))
    everything = run_model(str(ROOT / name), source, "0,1")
    monkeypatch.setattr(Checkpoint, "read", spy)
    (shown,) = run_model(str(ROOT / name), source, "1")
    np.testing.assert_allclose(shown[HIDDEN], everything[1][HIDDEN], rtol=1e-5, atol=1e-6)
    assert [name.removeprefix("transformer.") for name in whole] == fused
