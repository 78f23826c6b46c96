"""Tables of words: nothing of them is dropped, however narrow the terminal."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import plain_text

TITLES = ["step", "off by", "at", "found", "should be"]
ROWS = [["scores", "0.25", "[head 0, love, AI]", "1.5", "1.75"], ["output", "", "", "", ""]]


def drawn(width, titles=TITLES, rows=ROWS, column=2, fits=True):
    spans = [[(text, "") for text in row] for row in rows]
    listing = Listing(Screen(width, fits=fits), [titles], spans, frozenset({0, 2}))
    return list(plain_text(listing.fit(column).lines()))


def test_columns_stand_side_by_side_where_there_is_room():
    assert drawn(80)[1:5] == [
        "│ step   │ off by │ at                 │ found │ should be │",
        "├────────┼────────┼────────────────────┼───────┼───────────┤",
        "│ scores │   0.25 │ [head 0, love, AI] │   1.5 │      1.75 │",
        "│ output │        │                    │       │           │",
    ]


def test_columns_that_do_not_fit_are_stacked_below_another():
    assert drawn(50)[1:6] == [
        "│ step   │ off by │ at                 │",
        "│        │        │ found · should be  │",
        "├────────┼────────┼────────────────────┤",
        "│ scores │   0.25 │ [head 0, love, AI] │",
        "│        │        │ 1.5 · 1.75         │",
    ]


def test_a_column_that_is_too_wide_is_folded():
    assert drawn(37)[4:8] == [
        "├────────┼────────┼────────────────┤",
        "│ scores │   0.25 │ [head 0, love, │",
        "│        │        │ AI]            │",
        "│        │        │ 1.5 · 1.75     │",
    ]


def test_where_no_table_fits_each_row_is_a_paragraph():
    assert drawn(24) == [
        "scores · off by: 0.25",
        "  at found · should be:",
        "  [head 0, love, AI] 1.5",
        "  · 1.75",
        "output",
    ]


def test_a_pipe_gets_columns_side_by_side_whatever_its_width():
    assert drawn(20, fits=False) == drawn(80)


WORDS = st.text("abcdefgh", min_size=1, max_size=9)


@settings(deadline=None)
@given(
    rows=st.lists(st.lists(WORDS, min_size=5, max_size=5), min_size=1, max_size=4),
    width=st.integers(12, 60),
    column=st.integers(0, 4),
)
def test_every_word_is_there_and_every_line_fits(rows, width, column):
    lines = drawn(width, rows=rows, column=column)
    assert max(map(cell_len, lines)) <= width
    found = re.findall(r"[a-h]+", " ".join(lines))
    assert all(word in found for row in rows for word in row)
