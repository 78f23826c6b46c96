"""Of a fault of a mask it is said who sees whom; of right numbers in another place, where they stand."""

import numpy as np
import pytest
from plainly import attend, causal, draw

import attnctl

N = 6


def changed(*cells):
    """The causal mask with these cells the other way round."""
    mask = causal(N).copy()
    for cell in cells:
        mask[cell] = ~mask[cell]
    return mask


def image_in_window():
    """Tokens 2 to 4 are an image that sees itself beyond the window."""
    place = np.arange(N)
    window = causal(N) & (place >= place[:, None] - 1)
    image = (place >= 1) & (place <= 4)
    return window, window | (image & image[:, None])


SIGHTS = {
    "a tree's parent": (causal(N), changed((4, 5), (4, 3)), "query 4 sees key 5 and not key 3."),
    "two queries": (causal(N), changed((2, 4), (5, 0)), "query 2 sees key 4; query 5 does not see key 0."),
    "an image": (*image_in_window(), "query 1 sees keys 2 to 4; query 2 sees keys 3 to 4; query 3 sees"),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize(("meant", "made", "said"), SIGHTS.values(), ids=SIGHTS)
def test_the_difference_of_who_sees_whom_is_said(meant, made, said):
    q, k, v = draw((2, N, 8), (2, N, 8), (2, N, 8))
    weights, out = attend(q, k, v, seen=made)
    arrays = {"Q": q, "K": k, "V": v, "mask": meant, "attention_weights": weights, "head_outputs": out}
    (finding,) = attnctl.check(arrays).findings
    assert said in finding.hint
    rows = finding.hint.split("\n")[1 : N + 1]
    for query in range(N):
        for key in range(N):
            sign = {(True, True): "■", (False, False): "·", (True, False): "+", (False, True): "−"}
            assert rows[query][key] == sign[bool(made[query, key]), bool(meant[query, key])]


@pytest.mark.slow
def test_one_change_of_all_rows_is_said_once():
    q, k, v = draw((1, 8, 8), (1, 8, 8), (1, 8, 8))
    place = np.arange(8)
    meant = np.abs(place[:, None] - place) % 3 == 0
    made = meant | (place[:, None] - place == 4)
    weights, _ = attend(q, k, v, seen=made)
    report = attnctl.check({"Q": q, "K": k, "mask": meant, "attention_weights": weights})
    assert "in 4 rows the key 4 before the query is seen that should not be." in report.findings[0].hint


PLACES = {
    "head i holds another": (lambda s: s[[1, 2, 0, 3]], "head 0 holds 1, head 1 holds 2, head 2 holds 0."),
    "a factor by head": (
        lambda s: s * np.array([1, 2, 3, 5.0], np.float32)[:, None, None],
        "right but for a factor by head: 1, 2, 3, 5.",
    ),
    "a factor by query": (
        lambda s: s * np.arange(1, 7, dtype=np.float32)[:, None],
        "right but for a factor by query: 1, 2, 3, 4, 5, 6.",
    ),
    "all hold one": (lambda s: s[[2, 2, 2, 2]], "All heads hold the right numbers of head 2."),
}


@pytest.mark.parametrize(("change", "said"), PLACES.values(), ids=PLACES)
def test_where_the_right_numbers_are_is_said(change, said):
    q, k = draw((4, 6, 8), (4, 6, 8))
    report = attnctl.check({"Q": q, "K": k, "scores": change(q @ k.swapaxes(-1, -2))})
    assert said in report.findings[0].hint


def test_a_cache_that_was_rolled_is_described():
    q, k, v, past_k, past_v = draw((2, 1, 8), (2, 1, 8), (2, 1, 8), (2, 5, 8), (2, 5, 8))
    rolled = np.concatenate([past_k[:, 2:], 0 * k, 0 * k, k], axis=1)
    arrays = {"Q": q, "K": k, "V": v, "past_key": past_k, "past_value": past_v, "present_key": rolled}
    hint = attnctl.check(arrays).findings[0].hint
    assert "Key i holds the right numbers of key i + 2, 3 times." in hint
    assert "is 0" in hint


def test_heads_of_a_packed_matrix_that_was_cut_in_thirds():
    x, w = draw((5, 8), (8, 24))
    right = {name: w[:, at : at + 8] for at, name in zip((0, 8, 16), ("W_Q", "W_K", "W_V"), strict=True)}
    made = np.concatenate([x @ right["W_K"][:, :4], x @ right["W_Q"][:, 4:]], axis=1)
    q = made.reshape(5, 2, 4).swapaxes(0, 1)
    report = attnctl.check({"X": x, **right, "Q": q}, heads=2)
    assert "head 0 holds head 0 of K" in report.findings[0].hint


@pytest.mark.slow
def test_what_no_relation_was_found_of_is_not_said_to_have_none():
    q, k = draw((2, 6, 8), (2, 6, 8))
    report = attnctl.check({"Q": q, "K": k, "scores": np.sin(3 * (q @ k.swapaxes(-1, -2)))})
    assert "No relation that was tried" in report.findings[0].hint
    assert "Nothing relates" not in str(report)


def test_a_mask_of_ones_that_is_added_is_told():
    q, k, v = draw((2, 6, 8), (2, 6, 8), (2, 6, 8))
    mask = np.where(causal(6), np.eye(6), -np.inf).astype(np.float32)
    weights, _ = attend(q, k, v, bias=mask)
    report = attnctl.check({"Q": q, "K": k, "mask": mask, "attention_weights": weights})
    assert report.agrees is True
    assert any("1 is added to the scores" in note for note in report.notes)


def test_a_factor_of_given_values_may_be_a_scale_that_was_left_out():
    q, k, v = draw((2, 6, 8), (2, 6, 8), (2, 6, 8))
    _, out = attend(q, k, v)
    (finding,) = attnctl.check({"Q": q, "K": k, "V": v, "head_outputs": 20 * out}).findings
    assert finding.mistake == "constant-factor"
    assert "not multiplied by v_scale, 0.05" in finding.fix


@pytest.mark.slow
def test_heads_that_see_otherwise_are_named():
    """A fault of one head is no fault of the others."""
    q, k, v = draw((2, 3, 6, 8), (2, 3, 6, 8), (2, 3, 6, 8))
    right = np.broadcast_to(causal(6), (2, 3, 6, 6))
    in_one, in_each = right.copy(), right.copy()
    in_one[1, 2, 4, 1] = in_each[:, 2, 4, 1] = False
    said = {
        "query 4 does not see key 1 in head 2 of member 1.": in_one,
        "query 4 does not see key 1 in head 2.": in_each,
    }
    for words, seen in said.items():
        weights, _ = attend(q, k, v, seen=seen)
        report = attnctl.check({"Q": q, "K": k, "attention_weights": weights}, causal=True)
        assert words in report.findings[0].hint
