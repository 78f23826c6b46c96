"""What is right is not accused, and is told so; what could not be judged is named."""

import re

import numpy as np
import pytest
from plainly import attend, causal, draw, turned

import attnctl
from attnctl.math.derivation import Rotary

SLOPES = 2.0 ** -np.arange(1.0, 9.0)  # of eight heads, as the paper has them


def alibi_of_eight_heads():
    q, k, v = draw((8, 7, 4), (8, 7, 4), (8, 7, 4))
    away = np.arange(7)[:, None] - np.arange(7)
    weights, out = attend(q, k, v, seen=causal(7), bias=-SLOPES[:, None, None] * away)
    return {"Q": q, "K": k, "V": v, "attention_weights": weights, "output": out}


def shared_kv_heads():
    q, k, v = draw((8, 5, 4), (2, 5, 4), (2, 5, 4))
    _, out = attend(q, np.repeat(k, 4, axis=0), np.repeat(v, 4, axis=0))
    return {"Q": q, "K": k, "V": v, "output": out}


def nan_in_free_slots():
    q, k, v = draw((1, 2, 1, 8), (1, 2, 8, 8), (1, 2, 8, 8))
    weights, out = attend(q, k[..., :6, :], v[..., :6, :])
    k[..., 6:, :] = v[..., 6:, :] = np.nan
    weights = np.pad(weights, [(0, 0), (0, 0), (0, 0), (0, 2)])
    return {
        "Q": q,
        "K": k,
        "V": v,
        "key_lengths": np.array([6]),
        "attention_weights": weights,
        "output": out,
    }


RIGHT = {
    "three axes are those of heads": (alibi_of_eight_heads, {"positions": "alibi", "causal": True}),
    "heads of K and V are shared": (shared_kv_heads, {}),
    "free slots of a cache hold NaN": (nan_in_free_slots, {}),
}


@pytest.mark.parametrize(("make", "asked"), RIGHT.values(), ids=RIGHT)
def test_what_is_right_agrees(make, asked):
    report = attnctl.check(make(), **asked)
    assert (report.agrees, report.findings, report.cannot_tell) == (True, (), ()), str(report)


def test_a_row_of_values_that_someone_sees_may_not_be_nan():
    arrays = nan_in_free_slots()
    arrays["key_lengths"] = np.array([7])
    report = attnctl.check(arrays)
    assert report.agrees is not True


@pytest.mark.parametrize("name", ["masked_scores", "biased_scores", "Q_normed"])
def test_what_was_recorded_and_could_not_be_judged_is_named(name):
    q, k, v, other = draw((2, 6, 8), (2, 6, 8), (2, 6, 8), (2, 6, 8 if name == "Q_normed" else 6))
    weights, out = attend(q, k, v)
    arrays = {"Q": q, "K": k, "V": v, name: other, "attention_weights": weights, "head_outputs": out}
    report = attnctl.check(arrays)
    assert (report.agrees, [unjudged.step for unjudged in report.cannot_tell]) == (None, [name])
    assert "what follows does not come of it" in report.cannot_tell[0].words


def test_a_step_that_nothing_asks_for_and_what_follows_comes_of_is_fine():
    q, k, v = draw((2, 6, 8), (2, 6, 8), (2, 6, 8))
    weights, out = attend(q, k, v)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(8))
    arrays = {"Q": q, "K": k, "V": v, "masked_scores": scores, "attention_weights": weights}
    report = attnctl.check({**arrays, "head_outputs": out})
    assert report.agrees is True


@pytest.mark.sample(6, "fill")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fill", [-15.0, -20.0, -40.0])
@pytest.mark.parametrize("size", [6, 48])
def test_an_exact_zero_is_exact(size, fill, dtype):
    """A hidden key that gets 2e-9 of a row is seen, however little that is."""
    q, k, v = draw(*[(2, size, 8)] * 3, dtype=dtype)
    weights, out = attend(q, k, v, bias=np.where(causal(size), 0.0, fill))
    scores = np.where(causal(size), q @ k.swapaxes(-1, -2) / np.sqrt(8), fill)
    grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = (grown / grown.sum(axis=-1, keepdims=True)).astype(dtype)
    arrays = {"Q": q, "K": k, "V": v, "attention_weights": weights, "head_outputs": out}
    report = attnctl.check(arrays, causal=True)
    assert (report.agrees, report.first) == (False, "attention_weights")


def cached():
    """Keys of a cache that were rotated when they were new; the new one stands behind them."""
    q, k, v, past_k, past_v = draw((2, 1, 8), (2, 1, 8), (2, 1, 8), (2, 5, 8), (2, 5, 8))
    keys = np.concatenate([past_k, turned(k, 5)], axis=1)
    weights, _ = attend(turned(q, 5), keys, np.concatenate([past_v, v], axis=1))
    return {"Q": q, "K": k, "V": v, "past_key": past_k, "past_value": past_v, "attention_weights": weights}


@pytest.mark.slow
def test_an_option_without_which_all_agrees_is_named():
    report = attnctl.check(cached(), positions="rope", cache_unrotated=True)
    assert (report.agrees, report.mistake) == (False, "option-unmeant"), str(report)
    assert "--cache-unrotated is not what was done: without it everything agrees" in str(report)
    assert attnctl.check(cached(), positions="rope").agrees is True


MEANT_NOT = {
    "a scale": {"scale": 0.3},
    "a mask": {"causal": True},
    "a window": {"window": (2, 0)},
    "blocks": {"block_local": 2},
    "documents": {"documents": (0, 3)},
    "a soft cap": {"softcap": 3.0},
    "rotary positions": {"positions": "rope"},
    "ALiBi": {"positions": "alibi"},
    "norms": {"qk_norm": "rms"},
    "a temperature": {"temperature": (0.5, 2)},
    "two": {"causal": True, "softcap": 3.0},
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("asked", MEANT_NOT.values(), ids=MEANT_NOT)
def test_an_option_without_which_all_agrees_is_said_beside_the_mistake(asked):
    q, k, v = draw((2, 6, 4), (2, 6, 4), (2, 6, 4))
    weights, out = attend(q, k, v)
    arrays = {"Q": q, "K": k, "V": v, "attention_weights": weights, "head_outputs": out}
    assert attnctl.check(arrays).agrees is True
    report = attnctl.check(arrays, **asked)
    assert report.agrees is False
    assert any(re.fullmatch(r"Without --.* everything agrees\.", note) for note in report.notes), str(
        report
    )


PARTS = {"--theta": {"theta": 5e5}, "--rotary-dims": {"dims": 2}, "--interleaved": {"interleaved": True}}


@pytest.mark.parametrize(("option", "part"), PARTS.items(), ids=PARTS)
def test_of_rotary_positions_the_part_is_said(option, part):
    q, k, v = draw((2, 6, 4), (2, 6, 4), (2, 6, 4))
    q_rotated, k_rotated = (turned(x, np.arange(6)) for x in (q, k))
    weights, _ = attend(q_rotated, k_rotated, v)
    arrays = {"Q": q, "K": k, "V": v, "attention_weights": weights}
    report = attnctl.check(arrays, positions=Rotary(**part))
    assert any(note.startswith(f"Without {option}") for note in report.notes), str(report)


def test_what_is_wrong_with_any_options_is_not_said_to_agree_without():
    q, k, v = draw((2, 6, 4), (2, 6, 4), (2, 6, 4))
    weights, _ = attend(q, k, v, scale=1)
    report = attnctl.check({"Q": q, "K": k, "attention_weights": weights}, causal=True)
    assert report.agrees is False
    assert not any("everything agrees" in note for note in report.notes)


# --- what is named is told apart from what fits as well ---


def test_nan_in_what_is_read_tells_no_mistake_but_its_own():
    arrays = nan_in_free_slots()
    arrays["attention_weights"] = np.full_like(arrays["attention_weights"], np.nan)
    report = attnctl.check(arrays)
    assert (report.mistake, report.findings[0].also) == ("nan-added-to-mask", ())


@pytest.mark.slow
def test_nan_that_nothing_told_apart_is_not_named():
    q, k, v = draw((2, 6, 8), (2, 6, 8), (2, 6, 8))
    k[0, 2] = np.nan
    weights = np.full((2, 6, 6), np.nan, np.float32)
    report = attnctl.check({"Q": q, "K": k, "V": v, "attention_weights": weights, "mask": causal(6)})
    assert report.mistake is None


def test_a_length_one_too_small_is_no_missing_diagonal():
    """Of one query nobody can say whether it is itself that it does not see, or the last key."""
    q, k, v = draw((2, 2, 1, 8), (2, 2, 12, 8), (2, 2, 12, 8))
    lengths = np.array([7, 11])
    seen = np.arange(12) < (lengths - 1)[:, None, None, None]
    _, out = attend(q, k, v, seen=seen)
    report = attnctl.check({"Q": q, "K": k, "V": v, "key_lengths": lengths, "head_outputs": out})
    (finding,) = report.findings
    assert finding.mistake == "padding-lengths"
    assert "6, 10" in finding.words
    assert "7, 11" in finding.fix


def test_what_fits_as_well_is_said_with_its_own_fix():
    q, k, v = draw((1, 2, 1, 8), (1, 2, 9, 8), (1, 2, 9, 8))
    k[..., 6:, :] = v[..., 6:, :] = 0
    _, out = attend(q, k, v)
    report = attnctl.check({"Q": q, "K": k, "V": v, "key_lengths": np.array([6]), "head_outputs": out})
    (finding,) = report.findings
    assert finding.mistake == "padding-ignored"
    assert len(finding.otherwise) == len(finding.also) > 0
    assert "It may as well be that the mask is applied after" in str(report)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fill", [-15.0, -20.0, -30.0])
def test_the_number_in_place_of_infinity_is_read_off_the_weights(fill, dtype):
    q, k, v = draw(*[(2, 12, 8)] * 3, dtype=dtype)
    scores = np.where(causal(12), q @ k.swapaxes(-1, -2) / np.sqrt(8), fill)
    grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = (grown / grown.sum(axis=-1, keepdims=True)).astype(dtype)
    report = attnctl.check({"Q": q, "K": k, "V": v, "attention_weights": weights}, causal=True)
    (finding,) = report.findings
    assert (finding.mistake, f"−{-fill:g} instead of −∞" in finding.words) == ("mask-finite", True)
