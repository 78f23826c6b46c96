"""Backward passes of people's own, under names of torch and of kernels: mistakes are named."""

from __future__ import annotations

import numpy as np
import planted
import pytest

import attnctl
from attnctl.mistakes.backward import BACKWARD

KINDS = {
    "plain": {},
    "causal": {"causal": True},
    "moved": {"causal": True, "offset": 5},
    "grouped": {"kv_heads": 2},
    "softcap": {"softcap": 1.5},
    "rotary": {"rope": True},
    "bias": {"bias": True},
    "blind": {"blind": True},
}


def spread(x, heads):
    return np.repeat(x, heads // x.shape[1], axis=1)


def turned(x, sign):
    n, d = x.shape[-2:]
    angle = np.arange(n)[:, None] * 10000.0 ** (-2 * np.arange(d // 2) / d)
    cos, sin = np.cos(angle), sign * np.sin(angle)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def transposed(x):
    return x.swapaxes(-1, -2)


def passes(
    mistake="",
    *,
    kv_heads=4,
    causal=False,
    softcap=None,
    rope=False,
    bias=False,
    blind=False,
    offset=0,
    n=24,
    dtype="float64",
):
    """Attention of two sentences with four heads, forth and back as a kernel does it, with one mistake."""
    rng = np.random.RandomState(7)
    near = planted.bfloat16 if dtype == "bfloat16" else lambda x: np.asarray(x, dtype)
    size = "float32" if dtype == "bfloat16" else dtype

    def drawn(*shape):
        return near(rng.standard_normal(shape).astype(size))

    q, k, v = drawn(2, 4, n, 8), drawn(2, kv_heads, n, 8), drawn(2, kv_heads, n, 6)
    added = drawn(n, n) if bias else None
    d_o = drawn(2, 4, n, 6)
    wide = [x.astype(np.float64) for x in (q, k, v, d_o)]
    turn_q, turn_k = (turned(x, 1) if rope else x for x in wide[:2])
    keys, values, d = spread(turn_k, 4), spread(wide[2], 4), wide[3]
    scale = 8**-0.5
    s0 = turn_q @ transposed(keys) * scale
    s1 = s0 if softcap is None else softcap * np.tanh(s0 / softcap)
    s = s1 if added is None else s1 + added
    seen = np.tri(n, k=offset, dtype=bool) if causal else np.ones((n, n), dtype=bool)
    if blind:
        seen[3] = False
    hidden = np.where(seen, s, -np.inf)
    with np.errstate(divide="ignore"):
        lse = np.log(np.exp(hidden).sum(axis=-1, keepdims=True))
    a = np.exp(hidden - np.where(np.isinf(lse), 0, lse))
    o = near((a @ values).astype(size))

    p = a
    match mistake:
        case "backward-not-masked":
            p = np.exp(s - lse)
        case "backward-mask-unasked":
            p = np.tril(a)
        case "backward-aligned-wrong":
            p = np.where(np.tri(n, k=0), a, 0)
        case "backward-no-logsumexp":
            p = np.exp(hidden)
        case "backward-logsumexp-base-2":
            p = np.exp(hidden - lse / np.log(2))
        case "backward-scale-other":
            p = np.exp(hidden / 3 / scale - lse)
    d_p = d @ transposed(values)
    delta = (d * (a @ values)).sum(axis=-1, keepdims=True)
    match mistake:
        case "backward-no-delta":
            delta = 0
        case "backward-delta-over-keys":
            delta = (p * d_p).sum(axis=-2, keepdims=True)
        case "backward-delta-of-rounded-output":
            delta = (d * planted.bfloat16((a @ values).astype("float32"))).sum(axis=-1, keepdims=True)
    d_s = p * (d_p - delta)
    out = {}
    if added is not None:
        d_bias = d_s.sum(axis=1)
        out["grad_bias"] = d_bias[0] if mistake == "backward-bias-not-summed" else d_bias.sum(axis=0)
    if softcap is not None and mistake != "backward-softcap-slope":
        d_s = d_s * (1 - (s1 / softcap) ** 2)
    other = {"backward-not-scaled": 1, "backward-scaled-twice": scale**2, "backward-scale-other": 1 / 3}
    d_s = d_s * other.get(mistake, scale)
    rows = 16 if mistake == "backward-last-block-dropped" else n
    d_q = d_s @ keys
    back = d_s if mistake == "backward-scores-not-transposed" else transposed(d_s)
    d_k = back[..., :rows] @ turn_q[..., :rows, :]
    back = p if mistake == "backward-weights-not-transposed" else transposed(p)
    d_v = back[..., :rows] @ d[..., :rows, :]
    share = 4 // kv_heads
    if mistake == "backward-groups-not-summed":
        d_k, d_v = d_k[:, share - 1 :: share], d_v[:, share - 1 :: share]
    else:
        d_k, d_v = (x.reshape(2, kv_heads, share, n, -1).sum(axis=2) for x in (d_k, d_v))
    if rope and mistake != "backward-not-turned-back":
        d_q, d_k = turned(d_q, -1), turned(d_k, -1)
    out |= {"dq": d_q, "dk": d_k, "dv": d_v}
    beside = {} if added is None else {"bias": added}
    beside |= {"mask": seen} if blind else {}
    grown = {name: near(x.astype(size)) for name, x in out.items()}
    if mistake == "logsumexp-base-2":
        lse = lse / np.log(2)
    if mistake == "logsumexp-without-maximum":
        lse = lse - hidden.max(axis=-1, keepdims=True)
    grown["lse"] = near(lse[..., 0].astype(size))
    return {"q": q, "k": k, "v": v, "o": o, "do": d_o, **beside, **grown}


def meant(kind):
    """What is asked for besides arrays."""
    options = {"positions": "rope"} if kind.get("rope") else {}
    options |= {"causal_offset": kind["offset"]} if "offset" in kind else {}
    return options | {name: kind[name] for name in ("causal", "softcap") if name in kind}


TYPES = ("float64", "float32", "float16", "bfloat16")


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_right_backward_pass_agrees(kind, dtype):
    report = attnctl.check(passes(**kind, dtype=dtype), **meant(kind))
    assert not report.findings
    judged = {name for name, step in report.steps.items() if step.verdict.value == "agrees"}
    assert judged >= {"d_Q", "d_K", "d_V", "head_outputs"}  # of sums in bfloat16 nobody can tell
    assert "logsumexp" in judged or dtype == "bfloat16"


WHERE = {
    "backward-not-masked": "causal",
    "backward-aligned-wrong": "moved",
    "backward-groups-not-summed": "grouped",
    "backward-softcap-slope": "softcap",
    "backward-not-turned-back": "rotary",
    "backward-bias-not-summed": "bias",
}
ONLY_IN = {"backward-delta-of-rounded-output": ("float64", "float32")}
"""What rounding hides in the other types."""


@pytest.mark.sample(32)
@pytest.mark.thinned(2, "dtype")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mistake", [each.name for each in BACKWARD])
def test_a_planted_mistake_is_named(mistake, dtype):
    if dtype not in ONLY_IN.get(mistake, TYPES):
        pytest.skip("rounding hides it")
    kind = KINDS[WHERE.get(mistake, "plain")]
    report = attnctl.check(passes(mistake, **kind, dtype=dtype), **meant(kind))
    assert report.mistake == mistake, report.findings
    assert len(report.findings) == 1


def test_names_of_torch(tmp_path):
    arrays = passes(causal=True)
    theirs = {"do": "grad_output", "dq": "q.grad", "dk": "grad_k", "dv": "dV"}
    np.savez(tmp_path / "theirs.npz", **{theirs.get(name, name): x for name, x in arrays.items()})
    report = attnctl.check(attnctl.load(tmp_path / "theirs.npz"), causal=True)
    assert report.agrees
    assert {"d_Q", "d_K", "d_V"} <= {n for n, s in report.steps.items() if s.verdict.value == "agrees"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["dq", "dk"])
def test_the_scale_of_one_gradient_alone(name):
    arrays = passes()
    report = attnctl.check({**arrays, name: arrays[name] * 8**0.5})
    assert report.mistake == "backward-not-scaled", report.findings
