"""Attention over chunks of keys: any partition gives the whole."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from attention_cases import cases
from hypothesis import given, settings
from hypothesis import strategies as st

import attnctl
from attnctl.api import OF_ARRAYS, choose_settings
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan.intended import plan_arrays
from attnctl.math.engine import carry_out
from attnctl.math.kind import spans

JOINED = ("logsumexp", "head_outputs")


@st.composite
def partitions(draw, keys):
    """A number of chunks, more than there are keys among them, or ranges."""
    if not keys or draw(st.booleans()):
        return draw(st.integers(1, keys + 2))
    cuts = sorted({0, keys, *draw(st.lists(st.integers(0, keys), max_size=4))})
    return [list(each) for each in pairwise(cuts)]


@settings(max_examples=150, deadline=None)
@given(case=cases(), data=st.data())
def test_any_partition_of_any_variant_gives_the_whole(case, data):
    whole = attnctl.attend(case.arrays, **case.options, logsumexp=True)
    keys = whole["attention_weights"].shape[-1]
    chunks = data.draw(partitions(keys))
    found = attnctl.attend(case.arrays, **case.options, chunks=chunks)
    assert found.header.get("empty_rows") == whole.header.get("empty_rows")
    assert "overflow" not in found.header
    for name in whole:
        np.testing.assert_allclose(found[name], whole[name], rtol=1e-12, atol=1e-13, err_msg=name)
    parts, shares = found["chunk_logsumexp"], found["chunk_shares"]
    assert not np.isnan(parts).any()
    unseen = np.isneginf(parts)
    assert (shares[unseen] == 0).all()
    assert (found["chunk_outputs"][unseen] == 0).all()
    assert (shares[~unseen] > 0).all()
    sink = found.get("sink_weights", 0)
    lacking = 1 - sink - shares.sum(axis=-3)
    assert (np.abs(lacking)[~np.isneginf(whole["logsumexp"])] < 1e-12).all()


@settings(max_examples=100, deadline=None)
@given(case=cases(), data=st.data())
def test_tiles_of_chunks_are_the_whole(case, data):
    found = choose_settings(None, {**case.options, "chunks": data.draw(st.integers(1, 4))}, OF_ARRAYS)
    run = plan_arrays(case.arrays, found, {})
    whole = carry_out(run.derivation, run.given)
    keep = ["chunk_outputs", "chunk_shares", *JOINED]
    tiled = carry_out(run.derivation, run.given, keep=keep, tile=(2, 3))
    assert tiled.empty_rows == whole.empty_rows
    for name in keep:
        np.testing.assert_allclose(tiled.values[name], whole.values[name], rtol=1e-12, atol=1e-14)


def test_chunks_by_hand():
    """Two keys with scores 0 and ln 3, and one that the first query does not see."""
    scores = np.log([[1.0, 3.0, 4.0]])
    arrays = {"Q": np.array([[1.0]]), "K": scores.T, "V": np.array([[1.0], [5.0], [8.0]])}
    trace = attnctl.attend(arrays, chunks="0:2,2:3")
    np.testing.assert_allclose(np.exp(trace["chunk_logsumexp"][:, 0, 0]), [4, 4], rtol=1e-15)
    np.testing.assert_allclose(trace["chunk_outputs"][:, 0, 0, 0], [4, 8], rtol=1e-15)
    np.testing.assert_allclose(trace["chunk_shares"][:, 0, 0], [0.5, 0.5], rtol=1e-15)
    assert trace["head_outputs"].item() == pytest.approx(6, rel=1e-15)
    arrays["sink"] = np.log([8.0])
    trace = attnctl.attend(arrays, chunks=3)
    np.testing.assert_allclose(trace["chunk_shares"][:, 0, 0], [1 / 16, 3 / 16, 1 / 4], rtol=1e-15)
    arrays["mask"] = np.zeros((1, 3), bool)
    trace = attnctl.attend(arrays, chunks=3)
    assert (trace["chunk_logsumexp"] == -np.inf).all()
    assert (trace["chunk_shares"] == 0).all()
    assert trace["head_outputs"].item() == 0


def test_chunks_are_as_equal_as_can_be():
    assert spans(4, 10) == ((0, 3), (3, 6), (6, 8), (8, 10))
    assert spans(3, 2) == ((0, 1), (1, 2), (2, 2))


@pytest.mark.parametrize("options", [{"causal": True, "softcap": 2.0}, {"positions": "alibi"}], ids=str)
def test_gradients_are_those_of_the_whole(options):
    rng = np.random.RandomState(0)
    arrays = {name: rng.standard_normal((2, 7, 4)) for name in "QKV"}
    arrays["sink"] = rng.standard_normal(2)
    whole, found = (
        attnctl.attend(arrays, backward=True, **options, **more) for more in ({}, {"chunks": 3})
    )
    gradients = [name for name in whole if name.startswith("d_")]
    assert gradients == [name for name in found if name.startswith("d_")]
    for name in gradients:
        np.testing.assert_allclose(found[name], whole[name], rtol=0, atol=1e-14)
    assert attnctl.check(found).agrees


def test_nothing_n_by_n_is_kept():
    rng = np.random.RandomState(0)
    arrays = {name: rng.standard_normal((1, 1100, 4)) for name in "QKV"}
    whole = attnctl.attend(arrays, causal=True, backward=True)
    keep = ["head_outputs", "chunk_outputs", "d_Q"]
    lean = attnctl.attend(arrays, causal=True, backward=True, chunks=[[0, 70], [70, 1100]], keep=keep)
    assert lean["chunk_outputs"].shape == (2, 1, 1100, 4)
    for name in ("head_outputs", "d_Q"):
        np.testing.assert_allclose(lean[name], whole[name], rtol=0, atol=1e-12)
    settings_of = Settings(chunks=8)
    large = {name: np.broadcast_to(np.zeros(1, "f4"), (8, 8192, 64)) for name in "QKV"}
    costs = plan_arrays(large, settings_of, {}).costs(["head_outputs"])
    assert not any(each.kept and each.growth.endswith("query · key") for each in costs)
