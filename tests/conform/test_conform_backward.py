"""Backward passes: right ones are never accused, wrong ones are found by name."""

import pytest
from conform_table import KERNELS

import attnctl

TYPES = ("float64", "float32", "float16", "bfloat16")


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    monkeypatch.syspath_prepend(KERNELS)


def rounding(dtype):
    import backward

    return backward.bfloat16 if dtype == "bfloat16" else lambda x: x.astype(dtype).astype(x.dtype)


def kernel(name, dtype):
    import backward

    if hasattr(backward, name):
        return getattr(backward, name)
    return backward.make(**{"near": rounding(dtype)} if name.startswith("rounded") else {}, **WAYS[name])


WAYS = {
    "of log-sum-exp": {},
    "softmax again": {"way": "softmax again"},
    "delta of weights": {"way": "delta over keys of a row"},
    "base 2": {"way": "base 2"},
    "in blocks": {"block": 8},
    "rounded factors": {},
    "rounded factors, in blocks": {"block": 16},
    "rounded in every step": {"way": "every step"},
}
NAMES = [*WAYS, "two_loops", "by_einsum", "of_delta"]


def conform(back, *features, dtype="float32", **more):
    import backward

    given = {"dtypes": [dtype], "features": features, "quick": True, **more}
    return attnctl.conform(backward.forward, backward=back, **given)


@pytest.mark.sample(22)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", NAMES)
def test_a_right_backward_pass_is_not_accused(name, dtype):
    found = conform(kernel(name, dtype), "attention", "causal", "scale", "random", dtype=dtype)
    assert found.agrees, str(found)
    attention = found.features[0]
    assert set(attention.ratios) == {"head_outputs", "d_Q", "d_K", "d_V"}


MISTAKES = {
    "no delta": "backward-no-delta",
    "delta over keys": "backward-delta-over-keys",
    "not masked": "backward-not-masked",
    "not scaled": "backward-not-scaled",
    "scaled twice": "backward-scaled-twice",
    "groups not summed": "backward-groups-not-summed",
    "scores not transposed": "backward-scores-not-transposed",
    "weights not transposed": "backward-weights-not-transposed",
    "no slope": "backward-softcap-slope",
    "no sum": "backward-no-logsumexp",
    "base 2 read as e": "backward-logsumexp-base-2",
    "last block dropped": "backward-last-block-dropped",
    "only dV wrong": "gradient-factor",
    "dQ five times": "gradient-factor",
    "dV of rolled rows": None,
    "dK and dV exchanged": None,
}
WHERE = {"not masked": "causal", "groups not summed": "grouped heads", "no slope": "softcap"}


@pytest.mark.sample(32)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_backward_pass_is_found_by_name(mistake, dtype):
    import backward

    found = conform(backward.make(mistake=mistake), WHERE.get(mistake, "attention"), dtype=dtype)
    assert found.agrees is False
    assert {each.failure.mistake for each in found.wrong} == {MISTAKES[mistake]}, str(found)
