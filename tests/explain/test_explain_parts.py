"""A score split by what it came from: the parts add up, and are what they are called."""

from __future__ import annotations

from math import fsum

import numpy as np
import pytest

import attnctl
from attnctl.inputs.config.settings import Settings
from attnctl.math.derivation import Rotary
from attnctl.store.source import read_one
from attnctl.verbs.explain import Explainer, parts_of

FOUR = ["token×token", "token×position", "position×token", "position×position"]

VARIANTS = {
    "sinusoidal": {"positions": "sinusoidal"},
    "heads": {"positions": "sinusoidal", "heads": 2, "scale": 0.7},
    "learned": {"positions": [[1.0, 0, -1, 2], [0.5, 1, 1, 0], [0, 0, 3, -2]], "causal": True},
    "grouped heads": {"positions": "sinusoidal", "heads": 4, "kv_heads": 2, "d_model": 8},
    "cross": {"positions": "sinusoidal", "context": "you love cats too"},
}


def check(trace):
    for step in ("scores", "scaled_scores"):
        for cell in np.ndindex(trace[step].shape):
            parts = parts_of(trace, step, cell)
            value = float(trace[step][cell])
            assert list(parts)[:4] == FOUR
            assert abs(fsum(parts.values()) - value) <= 1e-12 * abs(value)
            assert abs(parts.get("rest", 0)) <= 1e-12 * sum(map(abs, parts.values()))


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_the_parts_add_up(options):
    check(attnctl.run("I love AI", **options))


def biased(positions, batch=(), **more):
    rng = np.random.RandomState(1)
    arrays = {"X": rng.uniform(-1, 1, (*batch, 3, 4)), **more}
    for name in "QKV":
        arrays |= {f"W_{name}": rng.uniform(-1, 1, (2, 4, 4)), f"b_{name}": rng.uniform(-1, 1, (2, 4))}
    return attnctl.attend(arrays, positions=positions)


def test_the_parts_of_a_batch_with_biases_and_a_cache_add_up():
    past = np.random.RandomState(2).uniform(-1, 1, (2, 2, 5, 4))
    trace = biased("sinusoidal", (2,), past_key=past, past_value=past)
    check(trace)
    assert parts_of(trace, "scores", (0, 1, 2, 3))["token×position"] == 0, "a cached key counts as token"
    assert parts_of(trace, "scores", (0, 1, 2, 6))["token×position"] != 0


def test_rotary_positions_on_top_keep_the_parts_apart(tmp_path):
    rng = np.random.RandomState(4)
    arrays = {"embeddings": rng.uniform(-1, 1, (3, 4))}
    arrays |= {f"W_{name}": rng.uniform(-1, 1, (2, 4, 4)) for name in "QKV"}
    rotary = Settings(positions=Rotary())

    def scores(**more):
        np.savez(tmp_path / "theirs.npz", **arrays, **more)
        return Explainer(read_one(tmp_path / "theirs.npz"), rotary).trace

    whole, tokens = scores(positions=rng.uniform(-1, 1, (3, 4))), scores()
    check(whole)
    assert parts_of(whole, "scores", (1, 2, 0))["token×token"] == pytest.approx(tokens["scores"][1, 2, 0])


def oracle(trace, head, i, j):
    """The four parts by scalar loops, biases in a fifth."""
    e, p = trace["embeddings"], trace["positions"]
    d_model, d_k = trace["W_Q"].shape[1:]

    def row(x, kind, token):
        return [
            sum(x[token][c] * trace[f"W_{kind}"][head][c][k] for c in range(d_model)) for k in range(d_k)
        ]

    def dot(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True))

    parts = [dot(row(a, "Q", i), row(b, "K", j)) for a in (e, p) for b in (e, p)]
    whole = [dot(trace["Q"][head][i], trace["K"][head][j])]
    return parts + ([whole[0] - sum(parts)] if "b_Q" in trace else [])


@pytest.mark.parametrize(
    "trace", [attnctl.run("I love AI", positions="sinusoidal", heads=2), biased("sinusoidal")]
)
def test_the_parts_are_what_they_are_called(trace):
    for cell in np.ndindex(trace["scores"].shape):
        assert list(parts_of(trace, "scores", cell).values())[:5] == pytest.approx(
            oracle(trace, *cell), abs=1e-12
        )


def test_numbers_typed_in():
    """X = [1 2] + [10 0], W_Q = [1 0; 0 1], W_K = [0 1; 1 0]: q = (1 2) + (10 0), k = (2 1) + (0 10)."""
    eye, swap = np.eye(2)[None], np.eye(2)[None, ::-1]
    trace = attnctl.attend(
        {"X": np.array([[1.0, 2.0]]), "W_Q": eye, "W_K": swap, "W_V": eye}, positions=[[10.0, 0.0]]
    )
    assert trace["scores"].item() == 44
    assert parts_of(trace, "scores", (0, 0, 0)) == dict(zip(FOUR, [4, 20, 20, 0], strict=True))


@pytest.mark.parametrize(
    ("options", "step"),
    [
        ({}, "scores"),
        ({"positions": "rope"}, "scores"),
        ({"positions": "alibi"}, "scores"),
        ({"positions": "sinusoidal", "softcap": 2.0}, "softcapped_scores"),
        ({"positions": "sinusoidal"}, "attention_weights"),
        ({"positions": "sinusoidal"}, "Q"),
    ],
)
def test_there_are_no_parts_where_no_position_was_added(options, step):
    assert parts_of(attnctl.run("I love AI", **options), step, (0, 1, 1)) is None


def test_what_was_not_kept_is_taken_whole():
    trace = attnctl.run("I love AI", positions="sinusoidal")
    assert parts_of(trace.select(["Q", "K", "scores"]), "scores", (0, 0, 1)) is None
    assert parts_of(trace.select(["scores", "scaled_scores"]), "scores", (0, 0, 1)) is None


def test_low_precision_leaves_a_rest():
    trace = attnctl.run("I love AI", positions="sinusoidal", dtype="float16")
    parts = parts_of(trace, "scores", (0, 1, 2))
    assert 0 < abs(parts["rest"]) < 1e-2
    assert fsum(parts.values()) == pytest.approx(float(trace["scores"][0, 1, 2]), rel=1e-12)
