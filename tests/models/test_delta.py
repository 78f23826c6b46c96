"""Layers that carry a state: their rule, cell by cell, and what is said of them."""

import numpy as np
from checkpoints import ROOT

import attnctl
from attnctl.cli.program import program
from attnctl.models.delta import recur

MODEL = str(ROOT / "qwen3_next")


def test_the_rule_is_that_of_the_paper():
    """S_t = α S_{t−1} (I − β k kᵀ) + β v kᵀ, as matrices."""
    rng = np.random.RandomState(0)
    q, k, v = (rng.randn(5, 2, size) for size in (3, 3, 4))
    alpha, beta = rng.rand(5, 2), rng.rand(5, 2)
    found = recur(q, k, v, alpha, beta)
    for head in range(2):
        state = np.zeros((4, 3))
        for at in range(5):
            key, value, by = k[at, head], v[at, head], beta[at, head]
            state = alpha[at, head] * state @ (np.eye(3) - by * np.outer(key, key)) + by * np.outer(
                value, key
            )
            np.testing.assert_allclose(found[at, head], state @ q[at, head], atol=1e-12)


def test_a_run_shows_the_layers_that_attend(capsys):
    (trace,) = attnctl.run_model(MODEL, ids=[3, 5, 9])
    assert trace.header["layer"] == 1
    gate = trace["X"] @ trace["W_gate"]
    np.testing.assert_allclose(trace["gated"], trace["concat"] / (1 + np.exp(-gate)), rtol=1e-5, atol=1e-6)
    assert program(["run", "--model", MODEL, "--ids", "3,5,9", "--layer", "0"]) == 2
    assert "layer 0 carries a state instead of attending; those that attend: 1" in capsys.readouterr().err


def test_a_gate_of_a_model_is_checked_and_explained(tmp_path, capsys):
    dump = tmp_path / "run.npz"
    run = ["run", "--model", MODEL, "--ids", "3,5,9,4", "--layer", "1", "--backward", "-o", str(dump)]
    assert program(run) == 0
    assert program(["check", str(dump)]) == 0
    assert program(["explain", str(dump), "gated[2,1]"]) == 0
    assert "σ(gate)" in capsys.readouterr().out
