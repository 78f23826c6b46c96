"""What is only written down in another way, or lacks an option, is read so before anyone is accused."""

import numpy as np
import planted as own
import pytest
from check_foreign import foreign, meant

import attnctl


@pytest.mark.parametrize("what", own.RECORDED)
@pytest.mark.parametrize("kind", [own.SQUARE, own.SQUARE.but(causal=True), own.SQUARE.but(dtype=own.F32)])
def test_square_matrices_as_nn_linear_keeps_them_agree(kind, what):
    arrays = own.recorded(own.attend(kind, "weight-transposed"), what)
    report = attnctl.check(foreign(arrays), meant(kind))
    assert (report.agrees, report.reading) == (True, "W_Q W_K W_V W_O as (out, in)")
    assert str(report).startswith("agrees, reading W_Q W_K W_V W_O as (out, in): ")
    assert report.to_dict()["reading"] == report.reading


def test_a_single_transposed_matrix_is_a_mistake():
    arrays = own.attend(own.SQUARE, "weight-transposed/Q")
    report = attnctl.check(foreign(arrays), meant(own.SQUARE))
    assert (report.agrees, report.mistake, report.reading) == (False, "weight-transposed", "")


def test_as_many_tokens_as_heads():
    kind = own.CAUSAL.but(heads=6)
    arrays = own.attend(kind)
    for name in ("Q", "K", "V"):
        arrays[name] = arrays[name].swapaxes(-3, -2)
    kept = {name: arrays[name] for name in ("Q", "K", "V", "attention_weights", "output", "W_O")}
    report = attnctl.check(foreign(kept), meant(kind))
    assert (report.agrees, report.reading) == (True, "Q K V as (token, head, d_k)")


def test_packed_matrices_may_be_packed_in_either_way():
    arrays = own.attend(own.SQUARE)
    by_head = np.stack([arrays[name].reshape(8, 2, 4) for name in ("W_Q", "W_K", "W_V")], axis=2)
    thirds = np.concatenate([arrays[name] for name in ("W_Q", "W_K", "W_V")], axis=1)
    recorded = {"x": arrays["X"], "attn_weights": arrays["attention_weights"]}
    for name, matrix, read in (
        ("qkv.weight", by_head.reshape(8, 24).T, "qkv.weight as Q, K, V by head"),
        ("query_key_value.weight", thirds.T, "query_key_value.weight as Q, K, V in thirds"),
    ):
        report = attnctl.check({**recorded, name: matrix}, heads=2)
        assert (report.agrees, report.reading) == (True, read)


@pytest.mark.parametrize("step", ["scaled_scores", "masked_scores"])
def test_scores_of_others_may_be_scaled_or_masked(step):
    arrays = own.attend(own.CAUSAL)
    theirs = {"q": arrays["Q"], "k": arrays["K"], "attn_scores": arrays[step]}
    report = attnctl.check({**theirs, "attn_probs": arrays["attention_weights"]}, heads=2, causal=True)
    assert (report.agrees, report.reading) == (True, f"attn_scores as {step}")


UNASKED = {
    "--causal": (own.CAUSAL, {"heads": 2}),
    "--positions rope": (own.ROTARY.but(causal=False), {"heads": own.ROTARY.heads}),
    "--positions rope --causal": (own.ROTARY.but(causal=True), {"heads": own.ROTARY.heads}),
    "--positions alibi": (own.ALIBI.but(causal=False), {"heads": own.ALIBI.heads}),
    "--heads 2": (own.SQUARE, {}),
}


@pytest.mark.parametrize("option", UNASKED)
def test_an_option_that_was_not_asked_for_is_said_first(option):
    kind, asked = UNASKED[option]
    arrays = own.recorded(own.attend(kind), "inputs and output")
    report = attnctl.check(arrays, kv_heads=kind.kv_heads, **asked)
    assert (report.agrees, report.unasked) == (False, option)
    assert str(report).startswith(f"agrees with {option}, which was not asked for.\n")
    assert report.to_dict()["unasked"] == option


def test_an_option_with_a_number_is_said_too():
    arrays = own.recorded(own.attend(own.CAPPED.but(causal=False)), "weights and outputs")
    report = attnctl.check(arrays, heads=own.CAPPED.heads)
    assert report.mistake == "softcap-unasked"
    assert report.unasked.startswith("--softcap ")


def test_a_mistake_beside_an_option_is_still_a_mistake():
    arrays = own.attend(own.CAUSAL, "no-scale")
    kept = {name: arrays[name] for name in ("Q", "K", "scaled_scores", "attention_weights")}
    report = attnctl.check(kept, heads=2)
    assert (report.mistake, report.unasked) == ("no-scale", None)
