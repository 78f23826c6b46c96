"""Layers of a gated delta rule: the rule, cell by cell, and what is said of them."""

import numpy as np
from checkpoints import ROOT, expected_of

import attnctl
from attnctl.cli.program import program
from attnctl.math import ops

MODEL = str(ROOT / "qwen3_next")
IDS = ",".join(map(str, expected_of("qwen3_next")["input_ids"].ravel().tolist()))


def test_the_rule_is_that_of_the_paper():
    """S_t = α S_{t−1} (I − β k kᵀ) + β v kᵀ, as matrices, read by S_t q_t."""
    rng = np.random.RandomState(0)
    q, k, v = (rng.randn(2, 5, size) for size in (3, 3, 4))
    alpha, beta = rng.rand(2, 5), rng.rand(2, 5)
    decay = np.log(alpha).cumsum(axis=-1)[..., None]
    written = ops.Write().apply(k, v, beta[..., None], decay)
    found = ops.Fade().apply(q @ k.swapaxes(-1, -2), decay) @ written
    for head in range(2):
        state = np.zeros((4, 3))
        for at in range(5):
            key, value, by = k[head, at], v[head, at], beta[head, at]
            kept = np.eye(3) - by * np.outer(key, key)
            state = alpha[head, at] * state @ kept + by * np.outer(value, key)
            np.testing.assert_allclose(found[head, at], state @ q[head, at], atol=1e-12)


def test_its_layer_is_a_trace_like_any_other(tmp_path, capsys):
    dump = tmp_path / "run.npz"
    assert program(["run", "--model", MODEL, "--ids", IDS, "--layer", "0", "-o", str(dump)]) == 0
    assert program(["check", str(dump)]) == 0
    assert "written" in capsys.readouterr().out
    assert program(["explain", str(dump), "written[1,3,2]", "--depth", "3"]) == 0
    said = capsys.readouterr().out
    assert "written[head 1, token 0" in said or "written[1," in said
    (trace,) = attnctl.run_model(MODEL, ids=[int(part) for part in IDS.split(",")], layer="0")
    np.testing.assert_allclose(trace["decayed_scores"] @ trace["written"], trace["head_outputs"], atol=1e-6)


def test_brief_shows_what_queries_take_of_keys(capsys):
    assert program(["run", "--model", MODEL, "--ids", IDS, "--layer", "0", "--brief"]) == 0
    out = capsys.readouterr().out
    assert "gated delta rule" in out
    assert all(f"{name}   " in out for name in ("decayed_scores", "output"))
    assert "scaled_scores   " not in out


def test_its_gradients_are_refused(capsys):
    assert program(["run", "--model", MODEL, "--ids", "3,5,9", "--layer", "0", "--backward"]) == 2
    assert "layer 0 has no softmax" in capsys.readouterr().err


def test_a_map_shows_the_layers_that_attend(capsys):
    (trace,) = attnctl.run_model(MODEL, ids=[3, 5, 9])
    assert trace.header["layer"] == 1
    gate = trace["X"] @ trace["W_gate"]
    np.testing.assert_allclose(trace["gated"], trace["concat"] / (1 + np.exp(-gate)), rtol=1e-5, atol=1e-6)


def test_a_gate_of_a_model_is_checked_and_explained(tmp_path, capsys):
    dump = tmp_path / "run.npz"
    run = ["run", "--model", MODEL, "--ids", "3,5,9,4", "--layer", "1", "--backward", "-o", str(dump)]
    assert program(run) == 0
    assert program(["check", str(dump)]) == 0
    assert program(["explain", str(dump), "gated[2,1]"]) == 0
    assert "σ(gate)" in capsys.readouterr().out
