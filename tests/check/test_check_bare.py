"""Programs of queries, keys and values alone, of which no setting says what was meant."""

import json

import numpy as np
import pytest

import attnctl

N, D = 32, 8
Q, K, V = np.random.RandomState(0).standard_normal((3, N, D))
SCORES = Q @ K.T / np.sqrt(D)


def softmax(s):
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def seen(least, most):
    """Weights on keys that are at least and at most so many ahead of their query."""
    ahead = np.arange(N) - np.arange(N)[:, None]
    return softmax(np.where((least <= ahead) & (ahead <= most), SCORES, -np.inf))


WEIGHTS = {
    "blocks averaged": (
        np.concatenate([softmax(SCORES[:, :16]), softmax(SCORES[:, 16:])], axis=-1) / 2,
        "online-not-rescaled",
        "the outputs of the blocks (of 16) are averaged, whatever each of them sums to",
    ),
    "causal": (
        seen(-N, 0),
        "mask-unasked",
        "the scores are masked as --causal would mask them, which was not asked for",
    ),
    "a window": (
        seen(-2, 1),
        "mask-unasked",
        "the scores are masked as --window 2,1 would mask them, which was not asked for",
    ),
}


@pytest.mark.parametrize(("weights", "mistake", "words"), WEIGHTS.values(), ids=WEIGHTS)
def test_what_is_done_unasked_is_named(weights, mistake, words):
    report = attnctl.check({"Q": Q, "K": K, "V": V, "attention_weights": weights})
    assert [(each.mistake, each.words) for each in report.findings] == [(mistake, words)]


def test_of_one_number_no_share_is_said():
    report = attnctl.check({"Q": [[1.0, 2.0]], "K": [[0.5, 1.0]], "V": [[1.0, 1.0]], "scores": [[9.125]]})
    assert "No known mistake gives these numbers: it differs; there it is 9.125 and should be 2.5." in str(
        report
    )


def test_logits_of_as_many_queries_and_keys_are_scores():
    q, k, v = Q[:6], K[:7], V[:7]
    report = attnctl.check({"q": q, "k": k, "v": v, "logits": q @ k.T})
    assert (report.agrees, report.unknown, [*report.steps]) == (True, (), ["Q", "K", "V", "scores"])


MOST = 2**31 - 1
NO_OFFSETS = [MOST + 1, -MOST - 1, [0, MOST + 1], "0", True, 0.0]


def recorded(offset, path):
    """A causal run whose dump says that the mask begins so many keys ahead."""
    attnctl.attend({"Q": Q[:4], "K": K[:4], "V": V[:4]}, causal=True).save(path)
    dump = json.loads(path.read_text())
    dump["config"]["causal_offset"] = offset
    path.write_text(json.dumps(dump))
    return attnctl.load(path)


@pytest.mark.parametrize(("offset", "agrees"), [(0, True), (MOST, False), (-MOST, False)])
def test_where_a_dump_says_that_causal_begins_is_held_to_it(offset, agrees, tmp_path):
    assert attnctl.check(recorded(offset, tmp_path / "dump.json"), heads=1).agrees is agrees


@pytest.mark.parametrize("offset", NO_OFFSETS, ids=str)
def test_where_causal_begins_is_a_number_of_keys(offset, tmp_path):
    with pytest.raises(attnctl.AttnError, match=r"^\$\.config\.causal_offset: .* is not a number of keys"):
        attnctl.check(recorded(offset, tmp_path / "dump.json"), heads=1)


@pytest.mark.parametrize("shape", [(D,), (1, D), (4, D)])
def test_weights_of_a_norm_are_of_each_head_or_of_all(shape):
    heads = np.stack([Q, K, V, SCORES[:, :D]])
    weights = dict.fromkeys(("Q_norm_weight", "K_norm_weight"), np.full(shape, 2.0))
    trace = attnctl.attend({"Q": heads, "K": heads, "V": heads, **weights}, qk_norm="rms")
    rms = np.sqrt((heads**2).mean(axis=-1, keepdims=True))
    np.testing.assert_allclose(trace["Q_normed"], 2 * heads / rms, rtol=1e-4)
    flat = heads.swapaxes(0, 1).reshape(N, 4 * D)
    beside = attnctl.attend({"Q": flat, "K": flat, "V": flat, **weights}, qk_norm="rms", heads=4)
    np.testing.assert_array_equal(beside["Q_normed"], trace["Q_normed"])
