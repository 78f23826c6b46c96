"""Layers that do not attend, and distances as vectors: by their recurrence or definition, and as traces."""

import numpy as np
import pytest
from checkpoints import ROOT, expected_of
from test_next import with_head

import attnctl
from attnctl.base.errors import AttnError
from attnctl.cli.program import program
from attnctl.math import ops


def test_a_state_space_is_that_of_the_paper():
    """h_t = exp(Δ_t A) h_{t−1} + Δ_t x_t B_tᵀ, read by h_t C_t, plus D x_t."""
    rng = np.random.RandomState(0)
    heads, tokens, d_v, d_state = 2, 6, 4, 3
    b, c = rng.randn(2, heads, tokens, d_state)
    x = rng.randn(heads, tokens, d_v)
    raw = rng.randn(heads, tokens, 1)
    rate, step, skip = rng.randn(3, heads)

    delta = ops.StepSize().apply(raw, step)
    decay = ops.LogDecay().apply(raw, rate, step)
    faded = ops.Fade().apply(c @ b.swapaxes(-1, -2), decay)
    found = ops.AddSkipped().apply(faded @ ops.ScaleTokens().apply(x, delta), x, skip)

    for head in range(heads):
        state = np.zeros((d_v, d_state))
        for at in range(tokens):
            size = np.log1p(np.exp(raw[head, at, 0] + step[head]))
            kept = np.exp(-np.exp(rate[head]) * size)
            state = kept * state + size * np.outer(x[head, at], b[head, at])
            read = state @ c[head, at] + skip[head] * x[head, at]
            np.testing.assert_allclose(found[head, at], read, atol=1e-12)


def test_tokens_are_mixed_with_those_before_them_alone():
    rng = np.random.RandomState(0)
    x, weight, bias = rng.randn(1, 5, 2), rng.randn(1, 2, 3), rng.randn(1, 2)
    found = ops.MixTokens().apply(x, weight, bias)
    for token in range(5):
        for column in range(2):
            summed = bias[0, column]
            for back in range(min(3, token + 1)):
                summed += weight[0, column, 2 - back] * x[0, token - back, column]
            np.testing.assert_allclose(found[0, token, column], summed)


@pytest.mark.parametrize(("span", "furthest"), [(4, 32), (5, 0)])
def test_a_distance_has_the_row_that_deberta_gives_it(span, furthest):
    """`make_log_bucket_position` of He et al.'s program: half of the rows exact, then by the logarithm."""
    op = ops.AddByDistance(span=span, furthest=furthest)
    behind = np.arange(-40, 41)
    half = span // 2
    for distance, row in zip(behind, op.rows(behind, 2 * span), strict=True):
        bucket = distance
        if furthest and abs(distance) > half:
            far = np.log(abs(distance) / half) / np.log((furthest - 1) / half)
            bucket = np.sign(distance) * (half + np.ceil(np.float32(far * (half - 1))))
        assert row == min(max(bucket + span, 0), 2 * span - 1), distance


MIXED = {"granitemoehybrid": "state space", "bamba": "state space", "lfm2": "short convolution"}


def ids_of(name):
    return ",".join(map(str, expected_of(name)["input_ids"].ravel().tolist()))


@pytest.mark.parametrize("name", MIXED)
def test_a_layer_that_does_not_attend_is_a_trace_like_any_other(name, tmp_path, capsys):
    dump = tmp_path / "run.npz"
    run = ["run", "--model", str(ROOT / name), "--ids", ids_of(name), "--layer", "0"]
    assert program([*run, "-o", str(dump)]) == 0
    assert program(["check", str(dump)]) == 0
    assert program(["explain", str(dump), "gated[2,1]", "--depth", "3"]) == 0
    capsys.readouterr()
    assert program([*run, "--brief"]) == 0
    assert MIXED[name] in capsys.readouterr().out
    assert program([*run, "--backward"]) == 2
    assert "layer 0 has no softmax" in capsys.readouterr().err


def test_scores_of_deberta_are_three_products(tmp_path):
    """Content with content, content with position, position with content (He et al. 2021, section 3.1)."""
    ids = [3, 5, 9, 4, 7]
    (trace,) = attnctl.run_model(str(ROOT / "deberta-own"), ids=ids, layer="1")
    q, k = trace["Q"], trace["K"]
    for head in range(len(q)):
        for query in range(5):
            for key in range(5):
                row = min(max(query - key + 4, 0), 7)
                score = q[head, query] @ k[head, key]
                score += q[head, query] @ trace["K_distances"][head, row]
                score += k[head, key] @ trace["Q_distances"][head, row]
                np.testing.assert_allclose(
                    trace["p2c_scores"][head, query, key], score, rtol=1e-4, atol=1e-4
                )


def test_gradients_through_distances_are_refused(capsys):
    run = ["run", "--model", str(ROOT / "deberta-v2"), "--ids", "3,5,9", "--layer", "0"]
    assert program([*run, "--backward"]) == 2
    assert "read vectors of distances" in capsys.readouterr().err


@pytest.mark.parametrize("layer", [1, 3])
def test_a_layer_that_is_a_network_alone_adds_what_transformers_adds(layer):
    """Nemotron-H: experts, and a network of two matrices."""
    expected = expected_of("nemotron_h")
    steps = ["hidden", "X", "residual", "mlp_output"]
    asked = {"ids": expected["input_ids"].tolist(), "layer": layer, "keep": steps}
    (trace,) = attnctl.run_model(str(ROOT / "nemotron_h"), **asked)
    assert set(trace) == set(steps)
    np.testing.assert_array_equal(trace["residual"], trace["hidden"])
    if layer < 3:  # what leaves the last one transformers norms
        after = trace["residual"] + trace["mlp_output"]
        np.testing.assert_allclose(after, expected[f"hidden_{layer + 1}"], rtol=1e-5, atol=1e-5)


def test_what_a_layer_of_one_part_has_not_is_refused(tmp_path):
    folder = with_head("nemotron_h", tmp_path)
    with pytest.raises(AttnError, match="mlp_output: layer 0 of nemotron_h has no network"):
        attnctl.run_model(folder, ids=[3, 5], layer=2, edits=["0:mlp_output=0"])
    with pytest.raises(AttnError, match="mlp_output: layer 2 of nemotron_h has no network"):
        attnctl.run_model(folder, ids=[3, 5], layer=2, keep=["mlp_output"])
    for by in ("layer", "network"):
        with pytest.raises(AttnError, match="ask --by position"):
            attnctl.effect(model=folder, ids=[3, 5], between=(4, 9), by=by)


def test_a_network_alone_is_edited():
    """Without it what came into its layer comes into the next one."""
    folder, ids = str(ROOT / "nemotron_h"), [3, 5, 9]
    (before,) = attnctl.run_model(folder, ids=ids, layer=1, keep=["hidden"])
    (after,) = attnctl.run_model(folder, ids=ids, layer=2, keep=["hidden"], edits=["1:mlp_output=0"])
    np.testing.assert_array_equal(after["hidden"], before["hidden"])
