"""Sizes of blocks that the source of a target has: found, taken, and said."""

from textwrap import dedent

import numpy as np
import pytest

import attnctl
from attnctl.verbs.conform.blocks import find_in_files, find_in_function, find_in_python, find_in_text

TILE_OF_MODULE = 24
NUM_BLOCKS = 8

PYTHON = {
    "BLOCK_M = 64": [(64, "BLOCK_M")],
    "BLOCK_M, BLOCK_N = 64, 32": [(64, "BLOCK_M"), (32, "BLOCK_N")],
    "block_size: int = 48": [(48, "block_size")],
    "def f(q, k, v, *, block=16, causal=True): pass": [(16, "block")],
    "kernel[grid](q, k, v, BLOCK_N=32, num_warps=4)": [(32, "BLOCK_N")],
    "triton.Config({'BLOCK_M': 128}, num_stages=3)": [(128, "BLOCK_M")],
    "Br = 8": [(8, "Br")],
    "num_blocks = 16; block_index = 4; BLOCK = n // 2; scale = 64; tile = True; block = 100000": [],
}
OTHERS = {
    "#define TILE_K 32": [(32, "TILE_K")],
    "constexpr int kBlockM = 64;": [(64, "kBlockM")],
    "const BLOCK: usize = 96;": [(96, "BLOCK")],
    "int num_blocks = 12; float scale = 64;": [],
}


@pytest.mark.parametrize(("text", "found"), PYTHON.items())
def test_constants_of_python(text, found):
    assert [(each.size, each.name) for each in find_in_python(text, "kernel.py")] == found


@pytest.mark.parametrize(("text", "found"), OTHERS.items())
def test_constants_of_other_languages(text, found):
    assert [(each.size, each.name) for each in find_in_text(text, "kernel.cu")] == found


def test_places_and_files(tmp_path):
    kernel, broken, data = (tmp_path / name for name in ("kernel.py", "broken.py", "data.bin"))
    kernel.write_text("import numpy\n\nBLOCK = 64\nTILE = 64\n", encoding="utf-8")
    broken.write_text("BLOCK = (", encoding="utf-8")
    data.write_bytes(b"BLOCK = 64")
    found = find_in_files(map(str, [broken, data, kernel, tmp_path / "not there.py"]))
    assert [tuple(each) for each in found] == [(64, "BLOCK", "kernel.py:3")]


def online(q, k, v, block=40):
    """Two blocks at a time; the first key of a block behind two whole ones is lost."""
    keys = np.arange(k.shape[2])
    lost = (keys % block == 0) & (keys > block)
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    scores = np.where(lost, -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def of_module(q, k, v):
    return online(q, k, v, TILE_OF_MODULE) if NUM_BLOCKS else q


def test_constants_of_a_function():
    assert [each.size for each in find_in_function(online)] == [40]
    assert [each.size for each in find_in_function(of_module)] == [24]
    assert find_in_function(np.einsum) == ()
    assert find_in_function(print) == ()


ASKED = {"quick": True, "dtypes": ["float64"], "features": ["attention", "block boundaries"]}


def test_blocks_of_the_source_are_tested_and_said():
    found = attnctl.conform(online, **ASKED)
    assert "block boundaries" in {each.feature for each in found.wrong}
    (note,) = [note for note in found.notes if "blocks of" in note]
    assert note.startswith("Its source has blocks of 40 (block, test_conform_blocks.py:")


@pytest.mark.slow
def test_those_that_are_said_go_before():
    found = attnctl.conform(online, block_sizes=[64], **ASKED)
    assert not any("blocks of" in note for note in found.notes)
    sizes = {
        case.keys for each in found.features if each.feature == "block boundaries" for case in each.ran
    }
    assert 63 in sizes
    assert 41 not in sizes


def test_a_file_says_its_blocks(call, tmp_path):
    text = """
        import numpy as np

        BLOCK_N = 24

        def attention(q, k, v):
            scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            return weights / weights.sum(axis=-1, keepdims=True) @ v
    """
    (tmp_path / "kernel.py").write_text(dedent(text), encoding="utf-8")
    words = ["--quick", "--dtype", "float64", "--feature", "block boundaries"]
    done = call("conform", f"{tmp_path / 'kernel.py'}:attention", *words)
    assert done.code == 0, done.err
    assert "Its source has blocks of 24 (BLOCK_N, kernel.py:4)" in " ".join(done.out.split())
