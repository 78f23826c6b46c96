"""position_ids in a config or as a keyword: what goes by positions goes by these."""

import numpy as np
import pytest

import attnctl
from attnctl.inputs.config.load import load

PLACES = [3, 1, 4, 1, 5]
WORDS = "a b c d e"
ROTARY, SLOPES, ADDED = "positions: rope", "rules: [alibi]", "positions: sinusoidal"


def run(written, places=PLACES, tmp=None):
    path = tmp / "run.yaml"
    path.write_text(f"sentence: {WORDS}\nd_model: 8\nheads: 2\nposition_ids: {places}\n{written}\n")
    return attnctl.run(settings=load(path))


@pytest.mark.parametrize("written", [ROTARY, SLOPES, ADDED], ids=["rotary", "alibi", "sinusoidal"])
def test_a_run_and_its_dump_go_by_them(written, tmp_path):
    trace = run(written, tmp=tmp_path)
    assert trace.config["position_ids"] == PLACES
    trace.save(tmp_path / "dump.json")
    assert attnctl.check(attnctl.load(tmp_path / "dump.json")).agrees is True
    if written == SLOPES:
        distance = np.abs(np.subtract.outer(PLACES, PLACES))
        slopes = 2.0 ** (-8 * np.arange(1, 3) / 2)
        expected = trace["scaled_scores"] - slopes[:, None, None] * distance
        np.testing.assert_allclose(trace["biased_scores"], expected)
    elif written == ADDED:
        np.testing.assert_array_equal(trace["positions"][1], trace["positions"][3])
        np.testing.assert_allclose(trace["positions"][:, 0], np.sin(PLACES))
    else:
        moved = run(written, [place + 7 for place in PLACES], tmp=tmp_path)
        assert not np.allclose(moved["Q_rotated"], trace["Q_rotated"])
        np.testing.assert_allclose(moved["scores"], trace["scores"])  # only distances show


def test_a_learned_table_is_read_at_them(tmp_path):
    table = np.arange(48.0).reshape(6, 8)
    trace = run(f"positions: {{learned: {table.tolist()}}}", tmp=tmp_path)
    np.testing.assert_array_equal(trace["positions"], table[PLACES])


def test_a_config_says_the_positions_of_arrays(tmp_path):
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 5, 8))
    arrays = {"Q": q, "K": k, "V": v}
    by_keyword = attnctl.attend(arrays, positions="rope", position_ids=PLACES)
    by_array = attnctl.attend({**arrays, "position_ids": np.array(PLACES)}, positions="rope")
    np.testing.assert_array_equal(by_keyword["Q_rotated"], by_array["Q_rotated"])
    recorded = {name: by_array[name] for name in by_array if name != "position_ids"}
    assert attnctl.check(recorded, positions="rope", position_ids=PLACES).agrees is True
    assert attnctl.check(recorded, positions="rope").agrees is False


@pytest.mark.parametrize("rules", ["causal", "window: [1, 0]", "block_local: 2", "documents: [0, 3]"])
def test_rules_go_by_them_where_that_is_asked(rules, tmp_path):
    settings = f"rules: [{rules if ':' not in rules else '{' + rules + '}'}]\nrules_by_positions: true"
    trace = run(settings, tmp=tmp_path)
    query, key = np.array(PLACES)[:, None], np.array(PLACES)
    ways = {
        "causal": key <= query,
        "window: [1, 0]": (key <= query) & (key >= query - 1),
        "block_local: 2": query // 2 == key // 2,
        "documents: [0, 3]": (query < 3) == (key < 3),
    }
    np.testing.assert_array_equal(trace["attention_weights"][0] > 0, ways[rules])
    assert attnctl.check(trace).agrees is True


WRONG = {
    "[0, 1]": "2, expected .5.",
    "[[0, 1], [2]]": "rows of 1 and of 2",
    "[0, 1, 2, 3, x]": r"position_ids\[4\]: x is not a whole number",
    "[]": "is not a position for each token",
    "[[[[0]]]]": "more than three axes",
    "[[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]": "three rows are for rotary positions",
}


@pytest.mark.parametrize(("places", "words"), WRONG.items(), ids=WRONG)
def test_positions_that_do_not_fit_are_refused_at_their_line(places, words, tmp_path):
    with pytest.raises(attnctl.AttnError, match=words) as refused:
        run(SLOPES, places, tmp=tmp_path)
    assert "run.yaml:4" in str(refused.value)


REFUSED = {
    "nothing here goes by positions": {"position_ids": PLACES},
    "no positions are given": {"rules_by_positions": True},
    "the context's tokens": {"position_ids": PLACES, "positions": "rope", "context": "x y"},
}


@pytest.mark.parametrize(("words", "asked"), REFUSED.items(), ids=REFUSED)
def test_what_nothing_goes_by_is_refused(words, asked):
    with pytest.raises(attnctl.AttnError, match=words):
        attnctl.run(WORDS, **asked)


def test_alibi_behind_a_cache_is_refused():
    q, k, v, past = np.random.default_rng(0).standard_normal((4, 2, 1, 8))
    arrays = {"Q": q, "K": k, "V": v, "past_key": past, "past_value": past}
    with pytest.raises(attnctl.AttnError, match="give ALiBi's numbers as bias"):
        attnctl.attend(arrays, positions="alibi", position_ids=[1])


def test_slots_in_place_of_positions_are_named_for_alibi():
    places = np.array([[0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]])
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 2, 6, 8))
    made = attnctl.attend({"Q": q, "K": k, "V": v}, positions="alibi", causal=True)
    recorded = {name: made[name] for name in ("Q", "K", "V", "attention_weights")}
    report = attnctl.check(
        {**recorded, "position_ids": places}, positions="alibi", causal=True, layout="bhnd"
    )
    assert report.mistake == "alibi-distance"
    assert "that of their slots" in str(report)
