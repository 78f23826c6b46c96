"""People's own merges of chunks of keys, under names of kernels: mistakes are named."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import planted
import pytest

import attnctl
from attnctl.mistakes.chunks import CHUNKS

LN2 = np.log(2)
N, CUTS = 24, (0, 9, 18, 24)


def merges(mistake="", *, dtype="float64", causal=False, sink=False, blind=False, large=1, variant=0):
    """Attention of two heads over three chunks of keys, merged with one mistake; scores times `large`."""
    rng = np.random.RandomState(3)
    near = planted.bfloat16 if dtype == "bfloat16" else lambda x: np.asarray(x, dtype)
    size = "float32" if dtype == "bfloat16" else dtype
    q, k, v = (near((rng.standard_normal((2, N, 8)) * by).astype(size)) for by in (large, 1, 1))
    logit = near(np.array([1.5, -0.5], size))
    wide = [x.astype(np.float64) for x in (q, k, v)]
    seen = np.tri(N, dtype=bool) if causal else np.ones((N, N), dtype=bool)
    if blind:
        seen[5] = False
    s = np.where(seen, wide[0] @ wide[1].swapaxes(-1, -2) / np.sqrt(8), -np.inf)
    parts = [s[..., a:b] for a, b in pairwise(CUTS)]
    tops = np.stack([part.max(axis=-1) for part in parts])
    safe = np.where(np.isinf(tops), 0, tops)
    e = [np.exp(part - top[..., None]) for part, top in zip(parts, safe, strict=True)]
    sums = np.stack([each.sum(axis=-1) for each in e])
    with np.errstate(divide="ignore"):
        lse = safe + np.log(sums)
    out = np.stack([each @ wide[2][:, a:b] for each, a, b in zip(e, CUTS, CUTS[1:], strict=False)])
    out /= np.where(sums == 0, 1, sums)[..., None]
    own = logit.astype(np.float64)[:, None] if sink else -np.inf

    match mistake:
        case "logsumexp-base-2":
            lse = lse / LN2
        case "logsumexp-without-maximum":
            lse = lse - safe
        case "sink-in-logsumexp":
            out *= np.exp(lse - np.logaddexp(lse, own))[..., None]
            lse = np.logaddexp(lse, own)
        case "chunks-merged-in-other-base" if not variant:
            lse = lse / LN2
    known = near(lse.astype(size))
    outs = near(out.astype(size))
    l_c, z_c = known.astype(np.float64), outs.astype(np.float64)
    base = LN2 if mistake == "logsumexp-base-2" else 1.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        top = l_c.max(axis=0)
        top = np.where(np.isinf(top), 0, top)
        total = top + np.log(np.exp((l_c - top) * base).sum(axis=0)) / base
        divisor = np.logaddexp(total, own) if mistake != "chunks-sink-missing" else total
        w = np.where(np.isinf(l_c), 0, np.exp((l_c - divisor) * base))
        if mistake == "chunks-merged-in-other-base" and variant:
            w = np.exp2(l_c - top)
            w /= w.sum(axis=0)
        if mistake == "chunks-averaged":
            w = np.full_like(w, 1 / 3)
        if mistake == "chunks-not-rescaled":
            w = sums / (sums * (np.exp(safe - safe.max(axis=0)) if variant else 1)).sum(axis=0)
        if mistake == "chunks-sink-in-each":
            w = np.exp(l_c) / (np.exp(l_c).sum(axis=0) + 3 * np.exp(own))
        if mistake == "chunks-nan-where-nothing-is-seen":
            w = np.exp(l_c - total)
        if mistake == "merge-without-maximum":
            w = np.exp(l_c.astype(size))
            w /= w.sum(axis=0)
        o = (w[..., None] * z_c).sum(axis=0)
    found = {"q": q, "k": k, "v": v, "chunk_out": outs, "chunk_lse": known, "lse": near(total.astype(size))}
    found |= {"head_outputs": near(o.astype(size))}
    if mistake == "logsumexp-empty-rows":
        found |= {name: np.where(np.isinf(found[name]), 0, found[name]) for name in ("lse", "chunk_lse")}
    return found | ({"sink": logit} if sink else {}) | ({"mask": seen} if blind else {})


ASKED = {"chunks": "0:9,9:18,18:24"}
KINDS = {
    "plain": {},
    "causal": {"causal": True},
    "sink": {"sink": True},
    "blind": {"blind": True, "causal": True},
    "large": {"large": 800},
}
TYPES = ("float64", "float32", "float16", "bfloat16")


def meant(kind):
    return {**ASKED, "causal": kind.get("causal", False)}


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_right_merge_agrees(kind, dtype):
    report = attnctl.check(merges(**kind, dtype=dtype), **meant(kind))
    assert not report.findings
    judged = {name for name, step in report.steps.items() if step.verdict.value == "agrees"}
    rounded_away = "large" in kind and dtype in ("float16", "bfloat16")
    assert judged >= {"chunk_outputs", "head_outputs"} or rounded_away
    assert "chunk_logsumexp" in judged or dtype == "bfloat16"


WHERE = dict.fromkeys(("sink-in-logsumexp", "chunks-sink-missing", "chunks-sink-in-each"), "sink")
WHERE |= dict.fromkeys(("chunks-nan-where-nothing-is-seen", "logsumexp-empty-rows"), "blind")
WHERE["merge-without-maximum"] = "large"


@pytest.mark.sample(22)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mistake", [each.name for each in CHUNKS])
def test_a_planted_mistake_is_named(mistake, dtype):
    kind = KINDS[WHERE.get(mistake, "plain")]
    for variant in (0, 1):
        report = attnctl.check(merges(mistake, **kind, dtype=dtype, variant=variant), **meant(kind))
        assert report.mistake == mistake, report.findings
        assert len(report.findings) == 1


MERGED = [each.name for each in CHUNKS if each.name.startswith("chunks-")]


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MERGED)
def test_the_output_alone_tells(mistake):
    kind = KINDS[WHERE.get(mistake, "plain")]
    arrays = merges(mistake, **kind)
    for name in ("chunk_out", "chunk_lse", "lse"):
        del arrays[name]
    report = attnctl.check(arrays, **meant(kind))
    assert report.mistake == mistake, report.findings


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_base_and_empty_rows_are_declared(dtype, tmp_path, call):
    found = merges("logsumexp-base-2", blind=True, causal=True, dtype=dtype)
    for name in ("lse", "chunk_lse"):
        found[name] = np.where(np.isneginf(found[name]), np.float32(0), found[name])
    np.savez(tmp_path / "f.npz", **found)
    words = ("check", str(tmp_path / "f.npz"), "--causal", "--chunks", ASKED["chunks"])
    done = call(*words, "--lse-base", "2", "--lse-empty", "0")
    assert done.code == 0, done.out
    assert call(*words, "--lse-base", "2").code == 1
    assert "the log-sum-exp of what sees nothing is 0" in call(*words, "--lse-base", "2").out
    assert call(*words, "--lse-empty", "0").code == 1
    assert "in base 2" in call(*words, "--lse-empty", "0").out


SPLITS = ("cbhnd cbhn", "bhcnd bhcn", "bhncd bhnc", "cbnhd cbhn", "cbnhd cbnh", "bnhcd bnhc", "cbhnd cbhn1")


def laid(x, own, axes):
    """In other axes; 1 is one of size 1."""
    x = x.transpose([own.index(axis) for axis in axes.replace("1", "")])
    return x[..., None] if "1" in axes else x


def splits(axes, chunks, make=np.exp):
    """Split keys as kernels give them, in these axes, merged by `make`."""
    rng = np.random.RandomState(4)
    q, k, v = (rng.standard_normal((2, 3, n, 8)) for n in (5, 12, 12))
    scores = np.split(q @ k.swapaxes(-1, -2) / np.sqrt(8), chunks, axis=-1)
    sums = np.stack([np.log(np.exp(each).sum(-1)) for each in scores])
    values = np.split(v, chunks, axis=-2)
    outputs = (
        np.stack([np.exp(s) @ x for s, x in zip(scores, values, strict=True)]) / np.exp(sums)[..., None]
    )
    merged = (make(sums - np.log(np.exp(sums).sum(axis=0)))[..., None] * outputs).sum(axis=0)
    of_output, of_sum = axes.split()
    vectors = {"q": q, "k": k, "v": v, "head_outputs": merged}
    found = {name: laid(x, "bhnd", of_output.replace("c", "")) for name, x in vectors.items()}
    parts = {"o_accum": laid(outputs, "cbhnd", of_output), "lse_accum": laid(sums, "cbhn", of_sum)}
    return found | parts


@pytest.mark.sample(9)
@pytest.mark.parametrize("chunks", [2, 4], ids=["as many as members", "more than members"])
@pytest.mark.parametrize("axes", SPLITS)
def test_what_kernels_give_of_splits_is_read_in_their_axes(axes, chunks):
    """FlashAttention and flash decoding, (batch, head, n, d) and (batch, n, head, d)."""
    report = attnctl.check(splits(axes, chunks))
    assert report.agrees, str(report)
    assert report.steps["chunk_outputs"].gap is not None


@pytest.mark.slow
def test_splits_in_axes_of_others_are_held_to_the_mistakes():
    report = attnctl.check(splits(SPLITS[0], 4, np.exp2))
    assert report.mistake == "chunks-merged-in-other-base"
    assert "exp2 of natural ones is taken" in str(report)
