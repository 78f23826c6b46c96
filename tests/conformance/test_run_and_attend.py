"""`attend` on the arrays of a run gives the numbers of the run."""

from __future__ import annotations

import pytest

import attnctl
from attnctl.inputs.config.settings import Random, Settings, Weights
from attnctl.math.derivation import Rotary

BIASES = Weights({name: Random() for name in ("b_Q", "b_K", "b_V", "b_O")})
TABLE = [[0.1 * row + column for column in range(4)] for row in range(5)]
OPTIONS = {
    "plain": {},
    "two heads": {"heads": 2},
    "grouped heads": {"heads": 4, "kv_heads": 2, "d_k": 2, "d_v": 3},
    "rules": {"heads": 2, "causal": True, "window": (1, 0), "softcap": 2.0, "scale": 0.7},
    "masks": {"mask": [[1, 0, 1, 1]], "bias": [[0.5, 0.0, -1.0, 0.0]]},
    "biases": {"heads": 2, "weights": BIASES},
    "alibi": {"heads": 3, "d_k": 2, "positions": "alibi"},
    "rope": {"heads": 2, "d_k": 4, "positions": Rotary(dims=2)},
    "sinusoidal": {"positions": "sinusoidal"},
    "learned": {"positions": TABLE},
    "context": {"heads": 2, "context": "we are here now"},
    "context, sinusoidal": {"context": "we are here now", "positions": "sinusoidal"},
    "context, learned": {"context": "we are here now", "positions": TABLE},
    "float32": {"heads": 2, "dtype": "float32", "positions": "sinusoidal"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("as_trace", [True, False], ids=["the trace", "a dict"])
def test_attend_gives_the_numbers_of_run(options, as_trace):
    trace = attnctl.run("I love AI too", **options)
    again = attnctl.attend(trace if as_trace else dict(trace), **options)
    assert set(again) <= set(trace)
    assert set(trace) - set(again) <= {"embeddings", "positions"}
    for name in again:
        assert (again[name] == trace[name]).all(), name
    assert again.tokens == (trace.tokens if as_trace else None)


def test_from_q_k_v_alone():
    trace = attnctl.run("I love AI", heads=2, causal=True)
    again = attnctl.attend({name: trace[name] for name in ("Q", "K", "V", "W_O")}, causal=True)
    assert (again["output"] == trace["output"]).all()


def test_positions_are_added_to_what_has_none_yet():
    options = {"heads": 2, "positions": "sinusoidal", "context": "we are here now"}
    trace = attnctl.run("I love AI", **options)
    bare = {**trace, "X": trace["embeddings"], "memory": trace["memory"]}
    plain = attnctl.run("I love AI", heads=2, context="we are here now")
    bare["memory"] = plain["memory"]
    del bare["embeddings"]
    again = attnctl.attend(bare, settings=Settings(heads=2), positions="sinusoidal")
    assert (again["output"] == trace["output"]).all()
