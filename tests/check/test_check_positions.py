"""Positions that are given: of one row, of a batch, of time, height and width."""

import numpy as np
import pytest
from plainly import attend, causal, draw, turned

import attnctl
from attnctl.math.derivation import Rotary
from attnctl.math.ops import Rotate

LEFT_PADDED = np.array([[0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]])


def batch(positions):
    """A batch, each member at its positions."""
    q, k, v = draw((2, 2, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8))
    rows = positions[:, None] if positions.ndim == 2 else positions
    turned_q, turned_k = turned(q, rows), turned(k, rows)
    weights, _ = attend(turned_q, turned_k, v, seen=causal(6))
    rotated = {"Q_rotated": turned_q, "K_rotated": turned_k, "attention_weights": weights}
    return {"Q": q, "K": k, "V": v, **rotated}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["position_ids", "positions"])
@pytest.mark.parametrize("positions", [LEFT_PADDED, np.array([5, 6, 7, 0, 1, 2])], ids=["batch", "one row"])
def test_positions_are_read(positions, name):
    arrays = batch(positions)
    report = attnctl.check({**arrays, name: positions}, positions="rope", causal=True)
    assert report.agrees is True, str(report)
    assert attnctl.check(arrays, positions="rope", causal=True).agrees is False


def by_three(x, places, rows):
    """Each pair turned by the row of positions that it goes by."""
    frequencies = 10_000.0 ** (-np.arange(8) / 8)
    out = x.astype(np.float64).copy()
    for pair, row in enumerate(rows):
        angle = places[row] * frequencies[pair]
        a, b = x[..., pair], x[..., pair + 8]
        out[..., pair] = a * np.cos(angle) - b * np.sin(angle)
        out[..., pair + 8] = a * np.sin(angle) + b * np.cos(angle)
    return out.astype(x.dtype)


PLACES = np.array([[0, 1, 2, 2, 2, 2, 3], [0, 1, 2, 2, 3, 3, 4], [0, 1, 2, 3, 2, 3, 4]])
IN_TURN = [0, 1, 2, 0, 1, 2, 0, 0]
WAYS = {
    "in turn": (IN_TURN, None, ""),
    "in chunks": ([0, 0, 0, 0, 1, 1, 2, 2], "rotary-places", "go by chunks of columns"),
    "time alone": ([0] * 8, "rotary-places", "the row of time is taken for all columns"),
}


@pytest.mark.parametrize(("rows", "mistake", "words"), WAYS.values(), ids=WAYS)
def test_three_rows_are_of_time_height_and_width(rows, mistake, words):
    q, k = draw((2, 7, 16), (2, 7, 16))
    arrays = {
        "Q": q,
        "K": k,
        "Q_rotated": by_three(q, PLACES, rows),
        "K_rotated": by_three(k, PLACES, rows),
    }
    report = attnctl.check({**arrays, "position_ids": PLACES}, positions="rope", heads=2, layout="hnd")
    assert (report.agrees, report.mistake) == (mistake is None, mistake), str(report)
    assert words in str(report)


@pytest.mark.parametrize(
    ("made", "words"),
    [(np.arange(6), "the slot of each token"), (LEFT_PADDED - LEFT_PADDED[:, :1], "")],
    ids=["slots", "right"],
)
def test_the_slot_in_place_of_the_position_is_named(made, words):
    arrays = batch(np.broadcast_to(made, (2, 6)))
    report = attnctl.check({**arrays, "position_ids": LEFT_PADDED}, positions="rope", causal=True)
    assert report.mistake == ("rotary-places" if words else None)
    assert words in str(report)


def decoded_at(position):
    """One new token behind a cache of six, of which two are padding on the left."""
    q, k, v, past_k, past_v = draw((2, 1, 8), (2, 1, 8), (2, 1, 8), (2, 6, 8), (2, 6, 8))
    rotated = {"Q_rotated": turned(q, position), "K_rotated": turned(k, position)}
    mask = np.array([[False, False, True, True, True, True, True]])
    return {"Q": q, "K": k, "V": v, **rotated, "past_key": past_k, "past_value": past_v, "mask": mask}


@pytest.mark.parametrize("position", [4, 6])
def test_padding_on_the_left_may_be_counted_or_not(position):
    """A mask that hides the first keys says that they are padding, or that they may not be seen."""
    report = attnctl.check(decoded_at(position), positions="rope")
    assert report.agrees is True
    counted = "positions as counted over the keys that mask shows"
    assert report.reading == (counted if position == 4 else "")
    assert any("give position_ids" in note for note in report.notes) == (position == 6)


def test_attend_goes_by_them_and_its_dump_says_so(tmp_path):
    q, k, v = draw((2, 6, 8), (2, 6, 8), (2, 6, 8), dtype=np.float64)
    places = np.array([3, 1, 4, 1, 5, 9])
    trace = attnctl.attend({"Q": q, "K": k, "V": v, "position_ids": places}, positions=Rotary())
    np.testing.assert_allclose(trace["Q_rotated"], turned(q, places), atol=1e-12)
    trace.save(tmp_path / "dump.json")
    again = attnctl.load(tmp_path / "dump.json")
    assert attnctl.check(again).agrees is True
    assert attnctl.check(again, positions=Rotary()).agrees is True


def test_positions_that_fit_no_token_are_refused():
    q, k, v = draw((2, 6, 8), (2, 6, 8), (2, 6, 8))
    for wrong in (np.arange(5), np.ones((4, 6), int), np.full(6, 0.5)):
        with pytest.raises(attnctl.AttnError, match="position_ids"):
            attnctl.attend({"Q": q, "K": k, "V": v, "position_ids": wrong}, positions=Rotary())


REAL = np.array([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
"""A key padding mask: two slots on the left of the first sequence are padding."""


def padded_on_the_left(places):
    """What a model of Hugging Face computes of a padded batch, its tokens at these positions."""
    q, k, v = draw((2, 2, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8))
    turned_q, turned_k = turned(q, places[:, None]), turned(k, places[:, None])
    seen = causal(6) & REAL.astype(bool)[:, None, None]
    with np.errstate(invalid="ignore"):
        weights, out = attend(turned_q, turned_k, v, seen=seen)
    weights, out = (np.nan_to_num(x) for x in (weights, out))  # of padding, which sees nothing
    rotated = {"Q_rotated": turned_q, "K_rotated": turned_k}
    return {"Q": q, "K": k, "V": v, "mask": REAL, **rotated, "attention_weights": weights, "output": out}


COUNTED = np.cumsum(REAL, axis=1) - 1
ASKED = {"positions": "rope", "causal": True, "layout": "bhnd"}


@pytest.mark.parametrize("of_padding", [0, 1], ids=["padding at 0", "padding at 1"])
def test_positions_are_counted_over_a_mask_where_that_is_asked(of_padding):
    arrays = padded_on_the_left(np.where(REAL == 1, COUNTED, of_padding))
    report = attnctl.check(arrays, positions_from_mask=True, **ASKED)
    assert report.agrees is True, str(report)
    assert ("padding at position 1" in report.reading) == (of_padding == 1)


def test_slots_in_place_of_counted_positions_are_named():
    arrays = padded_on_the_left(np.broadcast_to(np.arange(6), (2, 6)))
    report = attnctl.check(arrays, positions_from_mask=True, **ASKED)
    assert (report.agrees, report.first, report.mistake) == (False, "Q_rotated", "rotary-places")
    assert "the slot of each token" in str(report)


def test_attend_counts_over_the_mask_and_its_dump_says_the_positions():
    arrays = {name: x for name, x in padded_on_the_left(COUNTED).items() if name in {"Q", "K", "V", "mask"}}
    rope = {**ASKED, "positions": Rotary(), "causal": True}
    trace = attnctl.attend(arrays, positions_from_mask=True, **rope)
    places = np.maximum(COUNTED, 0)
    np.testing.assert_allclose(trace["Q_rotated"], turned(arrays["Q"], places[:, None]), atol=1e-5)
    assert trace.header["config"]["position_ids"] == [places.tolist()]
    assert attnctl.check(trace).agrees is True


def test_new_tokens_behind_a_cache_are_counted_on():
    mask = np.array([[0, 0, 1, 1, 1, 1, 1]])
    arrays = {name: x for name, x in decoded_at(4).items() if name != "mask"}
    report = attnctl.check({**arrays, "mask": mask}, positions="rope", positions_from_mask=True)
    assert (report.agrees, report.reading) == (True, "")


def test_lengths_show_which_keys_are_real():
    q, k, v = draw((2, 2, 4, 8), (2, 2, 4, 8), (2, 2, 4, 8))
    arrays = {"Q": q, "K": k, "V": v, "key_lengths": np.array([2, 4])}
    trace = attnctl.attend(arrays, positions=Rotary(), positions_from_mask=True)
    assert trace.header["config"]["position_ids"] == [[[0, 1, 1, 1], [0, 1, 2, 3]]]


REFUSED = {
    "nothing shows which keys are padding": {},
    "position_ids says the positions": {"mask": REAL, "position_ids": COUNTED},
    "6 queries for 7 keys": {"mask": np.ones((2, 7)), "memory": 1},
}


@pytest.mark.parametrize(("words", "beside"), REFUSED.items(), ids=REFUSED)
def test_positions_that_nothing_tells_are_refused(words, beside):
    keys = 7 if beside.pop("memory", 0) else 6
    q, k, v = draw((2, 2, 6, 8), (2, 2, keys, 8), (2, 2, keys, 8))
    with pytest.raises(attnctl.AttnError, match=words):
        attnctl.attend({"Q": q, "K": k, "V": v, **beside}, positions=Rotary(), positions_from_mask=True)


def test_positions_that_nothing_goes_by_are_refused():
    q, k, v = draw((2, 6, 8), (2, 6, 8), (2, 6, 8))
    with pytest.raises(attnctl.AttnError, match="nothing here goes by positions"):
        attnctl.attend({"Q": q, "K": k, "V": v, "mask": causal(6)}, positions_from_mask=True)


def test_pairs_of_64_go_by_24_20_and_20():
    rows = Rotate(places=(((0,),),) * 3).rows_of_pairs(64)
    assert [int((rows == row).sum()) for row in range(3)] == [24, 20, 20]
    assert rows[:7].tolist() == [0, 1, 2, 0, 1, 2, 0]


BEHIND = [0, 0, 1, 1, 1, 2, 2, 2]
TWO_THREE_THREE = {"rope": {"sections": [2, 3, 3]}}
IN_TURN_AGAIN = {"rope": {"sections": [2, 3, 3], "sections_in_turn": True}}


def by_sections(rows):
    q, k = draw((2, 7, 16), (2, 7, 16))
    turned_by = {f"{name}_rotated": by_three(x, PLACES, rows) for name, x in (("Q", q), ("K", k))}
    return {"Q": q, "K": k, **turned_by, "position_ids": PLACES}


@pytest.mark.parametrize(
    ("rows", "asked"), [(BEHIND, TWO_THREE_THREE), ([0, 1, 2, 0, 1, 2, 0, 1], IN_TURN_AGAIN)]
)
def test_sections_are_said(rows, asked):
    report = attnctl.check(by_sections(rows), positions=asked, layout="hnd")
    assert (report.agrees, report.reading) == (True, ""), str(report)


def test_sections_of_qwen2_vl_that_nobody_says_are_read():
    report = attnctl.check(by_sections(BEHIND), positions="rope", layout="hnd")
    assert report.agrees is True
    assert "sections of 2, 3 and 3 pairs, one behind the other" in report.reading


def test_sections_in_turn_where_they_are_one_behind_the_other_are_named():
    report = attnctl.check(by_sections([0, 1, 2, 0, 1, 2, 0, 1]), positions=TWO_THREE_THREE, layout="hnd")
    assert report.mistake == "rotary-places"
    assert "go in turn (T H W), not by chunks" in str(report)


@pytest.mark.parametrize(
    ("sections", "places", "words"),
    [
        ([2, 3, 2], PLACES, "7 pairs, expected 8"),
        ([2, 3, 3], PLACES[0], "of three rows"),
        ([8], PLACES, "three"),
    ],
)
def test_sections_that_do_not_fit_are_refused(sections, places, words):
    arrays = {**by_sections(BEHIND), "position_ids": places}
    with pytest.raises(attnctl.AttnError, match=words):
        attnctl.check(arrays, positions={"rope": {"sections": sections}}, layout="hnd")


def test_a_dump_says_its_sections(tmp_path):
    q, k, v = draw((2, 7, 16), (2, 7, 16), (2, 7, 16), dtype=np.float64)
    arrays = {"Q": q, "K": k, "V": v, "position_ids": PLACES}
    trace = attnctl.attend(arrays, positions=TWO_THREE_THREE)
    np.testing.assert_allclose(trace["Q_rotated"], by_three(q, PLACES, BEHIND))
    trace.save(tmp_path / "dump.json")
    again = attnctl.load(tmp_path / "dump.json")
    assert again.config["positions"]["rope"]["sections"] == [2, 3, 3]
    assert attnctl.check(again).agrees is True
