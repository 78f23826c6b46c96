"""Q, K and V in eight bits, with their scales, and caches of another type than Q."""

from __future__ import annotations

from shutil import copy

import numpy as np
import pytest
from stored_kernels import RIGHT_STORED, WRONG_STORED, scaled

import attnctl
from attnctl.evidence.precision import round_in

TYPES = {"float8_e4m3": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}


def draw_numbers():
    draw = np.random.RandomState(0)
    sizes = 2.0 ** draw.randint(-20, 9, 4000)
    every = np.arange(1, 256) * 2.0**-10
    return np.concatenate([draw.standard_normal(4000) * sizes, every, -every, [0.0, 447.9, 440.0, 1e-9]])


@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_are_rounded_as_torch_rounds_them(dtype):
    torch = pytest.importorskip("torch")
    numbers = draw_numbers().astype(np.float32)
    numbers = numbers[np.abs(numbers) <= 448]
    theirs = torch.from_numpy(numbers).to(getattr(torch, TYPES[dtype])).float().numpy()
    np.testing.assert_array_equal(round_in(dtype, numbers), theirs)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="ml_dtypes needs NumPy 2")
@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_are_rounded_as_ml_dtypes_rounds_them(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    numbers = draw_numbers().astype(np.float32)
    numbers = numbers[np.abs(numbers) <= 448]
    theirs = numbers.astype(getattr(ml_dtypes, TYPES[dtype])).astype(np.float32)
    np.testing.assert_array_equal(round_in(dtype, numbers), theirs)


@pytest.mark.sample(8)
@pytest.mark.parametrize(("kernel", "dtype", "conventions"), RIGHT_STORED)
def test_right_ones_are_not_accused(kernel, dtype, conventions):
    found = attnctl.conform(kernel, quick=True, dtypes=[dtype])
    assert found.agrees is True, str(found)
    assert conventions.items() <= found.conventions.items()


@pytest.mark.sample(5)
@pytest.mark.parametrize(("kernel", "mistake"), WRONG_STORED)
def test_wrong_scales_are_found(kernel, mistake):
    found = attnctl.conform(
        kernel, quick=True, dtypes=["float32/float8_e4m3"], features=["attention", "cache", "causal"]
    )
    assert found.agrees is False, str(found)
    assert mistake in str(found)
    assert "no softmax" not in str(found)


def test_scales_are_held_in_any_type():
    found = attnctl.conform(scaled, quick=True, dtypes=["float32"], features=["attention", "scales"])
    assert [feature.status for feature in found.features] == ["passed", "passed"], str(found)


def test_the_verdict_says_what_is_stored():
    found = attnctl.conform(scaled, quick=True, dtypes=["bfloat16/int8"], features=["attention"])
    assert "K, V and caches are stored in int8, beside Q in bfloat16." in found.notes


@pytest.mark.slow
def test_weights_may_be_rounded_to_eight_bits_and_scores_may_not():
    torch = pytest.importorskip("torch")

    def begin(q, k, v, q_descale, k_descale, v_descale):
        scales = (q_descale, k_descale, v_descale)
        q, k, v = (x.float() * s.float()[:, :, None, None] for x, s in zip((q, k, v), scales, strict=True))
        return q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, v

    def eight_bits(x):
        return x.to(torch.float8_e4m3fn).float()

    def of_weights(q, k, v, q_descale, k_descale, v_descale):
        s, v = begin(q, k, v, q_descale, k_descale, v_descale)
        e = torch.exp(s - s.amax(-1, keepdim=True))
        weights = eight_bits(e * 256) / 256
        return (weights @ v / e.sum(-1, keepdim=True)).to(torch.bfloat16)

    def of_scores(q, k, v, q_descale, k_descale, v_descale):
        s, v = begin(q, k, v, q_descale, k_descale, v_descale)
        return (torch.softmax(eight_bits(s), -1) @ v).to(torch.bfloat16)

    how = {
        "quick": True,
        "dtypes": ["float8_e4m3"],
        "framework": "torch",
        "features": ["attention", "lengths"],
    }
    right = attnctl.conform(of_weights, **how)
    assert right.agrees is True, str(right)
    assert attnctl.conform(of_scores, **how).agrees is False


@pytest.mark.slow
def test_jax_is_handed_its_own_types():
    jnp = pytest.importorskip("jax.numpy")
    types = set()

    def attention(q, k, v, k_scale, v_scale):
        types.add((str(q.dtype), str(k.dtype)))
        k, v = (x.astype(jnp.float32) * s[:, None, None] for x, s in ((k, k_scale), (v, v_scale)))
        s = q.astype(jnp.float32) @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
        e = jnp.exp(s - s.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True) @ v).astype(q.dtype)

    found = attnctl.conform(
        attention,
        quick=True,
        dtypes=["bfloat16/float8_e4m3"],
        framework="jax",
        features=["attention", "scales"],
    )
    assert found.agrees is True, str(found)
    assert types == {("bfloat16", "float8_e4m3fn")}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dtype", "float8_e4m"], "float8_e4m3"),
        (["--dtype", "float32/int4"], "did you mean int8"),
        (["--dtype", "int8"], "none of this name"),
        (["--dtype", "float8_e4m3", "--backward"], "nothing goes back through eight bits"),
    ],
)
def test_what_is_not_stored_so_is_refused(call, words, said):
    done = call("conform", "samples/conform/kernel_with_bug.py:attention", *words)
    assert done.code == 2
    assert said in done.err


@pytest.mark.slow
def test_a_saved_case_is_run_again(call, tmp_path):
    copy(__file__.replace("test_conform_stored", "stored_kernels"), tmp_path / "stored_kernels.py")
    words = ["--quick", "--dtype", "bfloat16/float8_e4m3", "--feature", "attention"]
    call("conform", "stored_kernels.py:left_out", *words, "--save", "saved")
    (saved,) = (tmp_path / "saved").iterdir()
    again = call("conform", "stored_kernels.py:left_out", "--replay", f"saved/{saved.name}")
    assert again.code == 1, again.err
    assert "kv-scale-missing" in again.out
