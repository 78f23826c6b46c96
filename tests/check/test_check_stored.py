"""Keys and values that are stored in few bits, and multiplied by a scale when they are read."""

import numpy as np
import pytest
from plainly import attend, draw

import attnctl

GROUPS = 2
"""Query heads that share a head of K and V."""


def stored(x, *, by_head):
    """Whole numbers of eight bits, and what they are multiplied by: one number, or one for each head."""
    most = np.abs(x).max(axis=(-2, -1)) if by_head else np.abs(x).max()
    scale = np.asarray(most / 127, np.float32)
    return np.rint(x / scale[..., None, None] if by_head else x / scale).astype(np.int8), scale


def read(x, scale):
    return (x * (scale[:, None, None] if scale.ndim else scale)).astype(np.float32)


def a_program(*, by_head=True, multiply=(read, read), exchanged=False):
    """What a kernel makes of a cache in eight bits."""
    q, k, v = draw((4, 6, 8), (2, 6, 8), (2, 6, 8))
    v = 3 * v  # so that the two scales differ
    (k8, k_scale), (v8, v_scale) = (stored(x, by_head=by_head) for x in (k, v))
    of_keys, of_values = (v_scale, k_scale) if exchanged else (k_scale, v_scale)
    keys, values = (
        np.repeat(way(x, scale), GROUPS, axis=0)
        for way, x, scale in zip(multiply, (k8, v8), (of_keys, of_values), strict=True)
    )
    weights, out = attend(q, keys, values)
    arrays = {"Q": q, "K": k8, "V": v8, "k_scale": k_scale, "v_scale": v_scale}
    return {**arrays, "attention_weights": weights, "head_outputs": out}


def as_stored(x, scale):
    del scale
    return x.astype(np.float32)


def divided(x, scale):
    return read(x, 1 / scale)


@pytest.mark.parametrize("by_head", [False, True], ids=["one scale", "a scale for each head"])
def test_what_is_read_by_its_scale_agrees(by_head):
    report = attnctl.check(a_program(by_head=by_head), layout="hnd")
    assert (report.agrees, report.findings, report.cannot_tell) == (True, (), ()), str(report)


def test_a_scale_has_the_names_that_kernels_give_it():
    theirs = {"k_scale": "k_descale", "v_scale": "v_descale"}
    arrays = {theirs.get(name, name): x for name, x in a_program().items()}
    assert attnctl.check(arrays, layout="hnd").agrees is True


MADE = {
    "of keys left out": (
        {"multiply": (as_stored, read)}, "kv-scale-missing", "K is not multiplied by its scale",
    ),
    "of values left out": (
        {"multiply": (read, as_stored)}, "kv-scale-missing", "V is not multiplied by its scale",
    ),
    "left out": (
        {"multiply": (as_stored, as_stored)}, "kv-scale-missing",
        "neither K nor V is multiplied by its scale",
    ),
    "exchanged": (
        {"exchanged": True}, "kv-scales-exchanged",
        "keys are multiplied by the scale of values, and values by that of keys",
    ),
    "divided by": (
        {"multiply": (read, divided)}, "kv-scale-divided",
        "V is divided by its scale, which it should be multiplied by",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("how", "mistake", "words"), MADE.values(), ids=MADE)
def test_mistakes_with_scales_are_named(how, mistake, words):
    report = attnctl.check(a_program(**how), layout="hnd")
    assert (report.agrees, report.mistake) == (False, mistake), str(report)
    assert words in report.findings[0].words


def test_attend_reads_a_cache_by_its_scale_and_explains_it(tmp_path):
    arrays = {
        name: x for name, x in a_program().items() if name not in {"attention_weights", "head_outputs"}
    }
    trace = attnctl.attend(arrays, layout="hnd")
    np.testing.assert_allclose(trace["K_dequantised"], read(arrays["K"], arrays["k_scale"]), rtol=1e-6)
    path = tmp_path / "run.json"
    trace.save(path)
    assert attnctl.check(attnctl.load(path)).agrees is True
    said = str(attnctl.explain(trace, "V_dequantised[1,2,3]"))
    assert "v_scale" in said


def test_a_cache_and_new_keys_are_both_read_by_it():
    q, k, v, past_k, past_v = draw((2, 1, 8), (2, 1, 8), (2, 1, 8), (2, 5, 8), (2, 5, 8))
    scale = np.array([0.5, 2.0], np.float32)
    keys = read(np.concatenate([past_k, k], axis=1), scale)
    weights, _ = attend(q, keys, np.concatenate([past_v, v], axis=1))
    arrays = {"Q": q, "K": k, "V": v, "past_key": past_k, "past_value": past_v, "k_scale": scale}
    assert attnctl.check({**arrays, "attention_weights": weights}).agrees is True


def test_gradients_go_through_a_scale():
    """By K they are those by what was read, times the scale; by the scale, the sum over each head."""
    q, k, v, d = draw((2, 5, 4), (2, 5, 4), (2, 5, 4), (2, 5, 4), dtype=np.float64)
    arrays = {"Q": q, "K": k, "V": v, "k_scale": np.array([0.5, 2.0]), "d_head_outputs": d}
    trace = attnctl.attend(arrays, backward=True)
    by_read = trace["d_K_dequantised"]
    np.testing.assert_allclose(trace["d_K"], by_read * arrays["k_scale"][:, None, None])
    np.testing.assert_allclose(trace["d_k_scale"], (by_read * k).sum(axis=(-2, -1)))


def test_a_scale_of_other_heads_is_refused():
    arrays = a_program() | {"k_scale": np.ones(3)}
    with pytest.raises(attnctl.AttnError, match=r"k_scale: 3, expected 2 \(one for each head\)"):
        attnctl.attend(arrays, layout="hnd")
