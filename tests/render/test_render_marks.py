"""What cells say beyond their number: the rule that hid them, who may attend, how large a weight is."""

import re

import numpy as np
import pytest
import render_traces as traces
from hypothesis import given, settings
from hypothesis import strategies as st
from render_golden import piped, terminal

from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.palette import STEPS
from attnctl.drawing.show import marks
from attnctl.drawing.show.tables import View
from attnctl.math.derivation import Step
from attnctl.math.ops import Hide
from attnctl.math.rules import Causal, Padding, Window
from attnctl.record import Trace

UNHURRIED = settings(deadline=None)

PLAIN, COLOURED = Screen(), Screen(colours=True)


def words_of(trace, name, index, rows, columns):
    """The word, or None for a number, that each cell of a block shows."""
    found = marks(trace, name, trace[name], PLAIN)
    return [[found.kinds[code][0] for code in row] for row in found.codes(index)(rows, columns)]


def hidden_trace(op, scores, mask=None, *, kept=True):
    """Masked scores of this op, its mask kept beside them or not."""
    inputs = ("scores",) if mask is None else ("scores", "mask")
    masks = () if mask is None else (mask,)
    axes = ("batch", "head", "query", "key")[4 - scores.ndim :]
    step = Step("masked_scores", op, inputs, axes, "S where allowed", "S")
    arrays = {"masked_scores": op.apply(scores, *masks)} | ({"mask": mask} if masks and kept else {})
    return Trace({"masked_scores": step}, arrays)


def block(rows, columns):
    return range(*rows), range(*columns)


@pytest.mark.parametrize("where", [((0, 9), (0, 9)), ((5, 9), (2, 7)), ((0, 1), (8, 9)), ((3, 3), (0, 9))])
def test_the_first_rule_that_hides_a_cell_is_named(where):
    trace = hidden_trace(Hide(rules=(Causal(), Window(2, None))), np.zeros((2, 9, 9)))
    rows, columns = block(*where)
    expected = [["causal" if k > q else "window" if k < q - 2 else None for k in columns] for q in rows]
    assert words_of(trace, "masked_scores", (1,), rows, columns) == expected


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_mask_is_named_after_the_rules(axes, kept):
    mask = np.ones((3, 6, 6)[3 - axes :], dtype=bool)
    mask[..., 1] = False
    trace = hidden_trace(Hide(rules=(Causal(),)), np.zeros((3, 6, 6)), mask, kept=kept)
    expected = [["causal" if k > q else "mask" if k == 1 else None for k in range(6)] for q in range(2, 6)]
    assert words_of(trace, "masked_scores", (2,), range(2, 6), range(6)) == expected


def test_a_mask_of_each_head():
    mask = np.stack([np.eye(4, dtype=bool), np.ones((4, 4), dtype=bool)])
    trace = hidden_trace(Hide(), np.zeros((2, 4, 4)), mask)
    assert words_of(trace, "masked_scores", (0,), range(1), range(4)) == [[None, "mask", "mask", "mask"]]
    assert words_of(trace, "masked_scores", (1,), range(1), range(4)) == [[None] * 4]


@pytest.mark.parametrize("member", [0, 1])
def test_padding_and_offset_of_each_member_of_a_batch(member):
    lengths, offset = (5, 3), (2, 0)
    trace = hidden_trace(Hide(offset, rules=(Causal(), Padding(lengths))), np.zeros((2, 2, 3, 5)))
    expected = [
        [
            "causal" if k > q + offset[member] else "padding" if k >= lengths[member] else None
            for k in range(5)
        ]
        for q in range(1, 3)
    ]
    assert words_of(trace, "masked_scores", (member, 1), range(1, 3), range(5)) == expected


def test_a_hidden_cell_that_holds_a_number_shows_it():
    trace = hidden_trace(Hide(rules=(Causal(),)), np.zeros((1, 2, 2)))
    trace.arrays["masked_scores"][0, 0, 1] = 7.0
    assert words_of(trace, "masked_scores", (0,), range(1), range(2)) == [[None, None]]


def test_an_op_that_is_not_stated_shows_infinity():
    scores = np.array([[0.5, -np.inf]])
    assert "│ 0.5000      -∞ │" in piped(traces.foreign("masked_scores", scores, "query", "key"))


def test_a_boolean_mask_is_words_and_says_what_they_mean():
    text = piped(traces.foreign("mask", np.array([[True, False]]), "query", "key"))
    assert "see = may attend, · = hidden" in text
    assert "│ see    · │" in text


# --- weights ---

NUMBERS = st.floats(0, 1) | st.just(0.0)


def levels_of(weights):
    """The level of each weight: 0 is unshaded."""
    trace = traces.foreign("attention_weights", weights, "query", "key")
    found = marks(trace, "attention_weights", trace["attention_weights"], COLOURED)
    codes = found.codes(())(*map(range, weights.shape))
    styles = [found.kinds[code][1] for code in codes.ravel()]
    return [int(style.removeprefix("heat")) if style.startswith("heat") else 0 for style in styles]


@UNHURRIED
@given(st.lists(NUMBERS, min_size=1, max_size=8))
def test_larger_weights_are_never_paler(weights):
    levels = levels_of(np.array([weights]))
    for a, level_a in zip(weights, levels, strict=True):
        for b, level_b in zip(weights, levels, strict=True):
            assert a < b or level_a >= level_b
    assert max(weights) == 0 or levels[weights.index(max(weights))] == STEPS


@pytest.mark.parametrize(
    ("weights", "levels"),
    [
        ([1.0, 0.5, 0.04, 0.0], [8, 5, 0, 0]),
        ([0.002, 0.001, 0.0, 0.0], [8, 5, 0, 0]),
        ([0.0, 0.0], [0, 0]),
        ([np.nan, np.inf, 1.0, -1.0], [0, 8, 8, 0]),
    ],
)
def test_shades_follow_the_largest_weight_shown(weights, levels):
    assert levels_of(np.array([weights])) == levels


@pytest.mark.parametrize(
    ("system", "codes"),
    [("truecolor", r"38;2;\d+;\d+;\d+;48;2;"), ("256", r"48;5;\d+m"), ("standard", r"\x1b\[1m 0.")],
)
def test_shades_are_in_the_colours_the_terminal_has(system, codes):
    text = terminal(traces.small(), 80, system, View(steps=("attention_weights",)))
    assert re.search(codes, text)
    assert set(re.findall(r"\x1b\[[^a-zA-Z]*([a-zA-Z])", text)) == {"m"}


@pytest.mark.parametrize("system", ["truecolor", "256", "standard"])
def test_colours_change_nothing_but_colours(system):
    coloured = terminal(traces.causal(), 100, system)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == terminal(traces.causal(), 100)
