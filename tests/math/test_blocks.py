"""Tiles of queries and keys of any size give what the whole gives, whatever is kept."""

import sys

import numpy as np
import pytest

import attnctl
from attnctl.api import choose_settings
from attnctl.inputs.plan.intended import plan_arrays
from attnctl.math.engine import carry_out
from attnctl.math.engine.tiles import blas_alone

pytestmark = pytest.mark.sample(7)

QUERIES, KEYS = 11, 13

KINDS = {
    "plain": {},
    "causal": {"causal": True},
    "sliding window": {"causal": True, "window": (3, 0)},
    "window, soft cap": {"window": (2, 5), "softcap": 3.0},
    "ALiBi": {"positions": "alibi", "causal": True, "causal_offset": 2},
    "rows that see nothing": {"causal": True, "causal_offset": -3},
}
EXTRAS = {
    "nothing": lambda rng, batch: {},
    "mask": lambda rng, batch: {"mask": rng.rand(QUERIES, KEYS) > 0.3},
    "short mask": lambda rng, batch: {"mask": rng.rand(QUERIES, 9) > 0.5},
    "bias": lambda rng, batch: {"bias": rng.randn(4, QUERIES, KEYS)},
    "padding": lambda rng, batch: {"key_lengths": np.array([9, 0] if batch else 9)},
}
KEPT = [
    ["head_outputs"],
    ["concat"],
    ["attention_weights"],
    ["masked_scores", "head_outputs"],
    ["scores", "attention_weights", "concat"],
]


@pytest.mark.sample(12)
@pytest.mark.parametrize(
    ("kv_heads", "batch"),
    [
        (1, ()),
        (4, (2,)),
        pytest.param(1, (2,), marks=pytest.mark.slow),
        pytest.param(4, (), marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_give_what_the_whole_gives(kind, kv_heads, batch):
    rng = np.random.RandomState(0)
    q = rng.randn(*batch, 4, QUERIES, 6)
    k, v = rng.randn(*batch, kv_heads, KEYS, 6), rng.randn(*batch, kv_heads, KEYS, 5)
    for extra in EXTRAS.values():
        arrays = {"Q": q, "K": k, "V": v, **extra(rng, batch)}
        ready = plan_arrays(arrays, choose_settings(None, dict(KINDS[kind])), {})
        whole = carry_out(ready.derivation, ready.given)
        for kept in KEPT:
            keep = [name for name in kept if name in whole.values]
            for tile in ((1, 1), (2, 5), (7, 2), (QUERIES, KEYS), (50, 50)):
                part = carry_out(ready.derivation, ready.given, keep=keep, tile=tile)
                assert sorted(part.values) == sorted(keep)
                assert part.empty_rows == whole.empty_rows
                for name in keep:
                    np.testing.assert_allclose(part.values[name], whole.values[name], atol=1e-14)


def test_half_precision_counts_more_keys_than_it_has_numbers():
    keys = 70_000
    arrays = {"Q": np.zeros((1, 20, 2)), "K": np.zeros((1, keys, 2)), "V": np.ones((1, keys, 1))}
    trace = attnctl.attend(arrays, dtype="float16", keep=["head_outputs"])
    assert (trace["head_outputs"] == 1).all()


def blas_threads():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    return {each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}


@pytest.mark.parametrize("env", ["1", "2", None])
def test_blas_is_alone_while_tiles_run_and_as_it_was_afterwards(env, monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if env:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", env)
    before = blas_threads()
    with blas_alone() as alone:
        assert alone
        assert env == "1" or blas_threads() == {1}
    assert blas_threads() == before
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "threadpoolctl", None)
        with blas_alone() as alone:
            assert alone == (env == "1")
