"""Kernels of Triton and Pallas, carried out by their interpreters, as they are and with mistakes."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).parents[2] / "samples" / "conform"

TRITON = {
    "the sum is not rescaled": ("total = total * kept +", "total = total +", "attention"),
    "keys behind the last are seen": ("key[None, :] < keys\n", "key[None, :] < keys + 1\n", "attention"),
    "causal from the first key": ("+ keys - queries", "+ keys - queries + 1", "causal"),
    "heads shared in turn": ("head // share * k_head", "head % share * k_head", "grouped heads"),
}
PALLAS = {
    "the sum is not rescaled": ("total = total * kept +", "total = total +", "attention"),
    "the rest is seen": ("seen = key[None, :] < keys\n", "seen = key[None, :] < keys + 1\n", "attention"),
    "its own key is hidden": ("key[None, :] <= rows", "key[None, :] < rows", "causal"),
    "heads shared in turn": ("(b, h // share, 0, 0)", "(b, h % k.shape[1], 0, 0)", "grouped heads"),
}
FEATURES = ["attention", "causal", "grouped heads"]


@pytest.fixture
def conform(call, tmp_path, monkeypatch):
    """Hold a sample to a few features, perhaps with other text in it."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")

    def hold(sample, framework, old="", new="", features=FEATURES):
        text = (SAMPLES / sample).read_text(encoding="utf-8")
        assert old in text
        (tmp_path / sample).write_text(text.replace(old, new, 1) if old else text, encoding="utf-8")
        words = [word for name in features for word in ("--feature", name)]
        words += [
            "--framework",
            framework,
            "--quick",
            "--dtype",
            "float32",
            "--save",
            str(tmp_path / "saved"),
        ]
        done = call("conform", f"{tmp_path / sample}:attention", *words, "--json")
        assert done.code in {0, 1}, done.err
        return json.loads(done.out)

    return hold


def failed(found):
    return {each["feature"] for each in found["features"] if each["status"] == "failed"}


def test_a_kernel_of_triton(conform):
    pytest.importorskip("triton")
    found = conform("triton_attention.py", "torch")
    assert found["agrees"] is True, found
    assert found["conventions"]["causal corner"] == "bottom-right"


@pytest.mark.parametrize(("old", "new", "feature"), TRITON.values(), ids=TRITON)
def test_a_wrong_kernel_of_triton(conform, old, new, feature):
    pytest.importorskip("triton")
    assert feature in failed(conform("triton_attention.py", "torch", old, new, [feature]))


def test_a_kernel_of_pallas(conform):
    pytest.importorskip("jax")
    found = conform("pallas_attention.py", "jax")
    assert found["agrees"] is True, found


@pytest.mark.parametrize(("old", "new", "feature"), PALLAS.values(), ids=PALLAS)
def test_a_wrong_kernel_of_pallas(conform, old, new, feature):
    pytest.importorskip("jax")
    assert feature in failed(conform("pallas_attention.py", "jax", old, new, [feature]))
