"""Traces as Markdown, read back by a Markdown reader."""

from html import unescape
from itertools import pairwise

import numpy as np
import pytest
import render_traces as traces
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from render_golden import markdown

from attnctl.base.errors import AttnError
from attnctl.base.words import number_repeats
from attnctl.drawing.screen.text import token_text
from attnctl.drawing.show.tables import View

UNHURRIED = settings(deadline=None)

READER = MarkdownIt("commonmark").enable("table")


def tables_of(text):
    """The cells of every table, row by row, as plain text."""
    tables = []
    tokens = READER.parse(text)
    for token, inner in pairwise(tokens):
        match token.type:
            case "table_open":
                tables.append([])
            case "tr_open":
                tables[-1].append([])
            case "th_open" | "td_open":
                tables[-1][-1].append("".join(child.content for child in inner.children))
    return tables


def headings_of(text):
    return [inner.content for token, inner in pairwise(READER.parse(text)) if token.type == "heading_open"]


def test_every_step_and_head_has_a_heading():
    trace = traces.small()
    expected = [trace.sentence]
    for name, array in trace.items():
        expected += [name, *(f"head {h}" for h in range(2) if array.ndim == 3)]
    assert headings_of(markdown(trace)) == expected


@pytest.mark.parametrize(("precision", "tolerance"), [(4, 5.1e-5), (1, 0.051), (None, 0.0)])
def test_every_number_is_there(precision, tolerance):
    trace = traces.grouped()
    tables = iter(tables_of(markdown(trace, precision=precision))[1:])
    for array in trace.values():
        for head in [array] if array.ndim == 2 else array:
            numbers = [[float(cell) for cell in row[1:]] for row in next(tables)[1:]]
            np.testing.assert_allclose(numbers, head, rtol=0, atol=tolerance)


def test_hidden_cells_name_their_rule_and_masks_are_words():
    tables = tables_of(markdown(traces.masked(), view=View(steps=("mask", "masked_scores"), heads=(1,))))
    assert tables[1][1] == ["the", "see", "·", "see", "see", "see", "see"]
    assert tables[2][4][1:4] == ["window", "mask", "-0.4279"]


@UNHURRIED
@given(
    st.lists(st.text(st.characters(codec="utf-8")) | st.sampled_from(["|", "`", "``a|", "a`b", "-", "*x*"]))
)
def test_no_token_breaks_out_of_its_cell(tokens):
    tokens = [token for token in tokens if "\\" not in token] or ["x"]
    text = markdown(traces.trace_of(tokens), view=View(steps=()))
    (header, ids), *_ = tables_of(text)
    assert header == ["", *number_repeats(map(token_text, tokens))]
    assert ids == ["id", *map(str, range(len(tokens)))]


@pytest.mark.parametrize("token", ["\\|", "a\\", "\\`|", "|\\||"])
def test_backslashes_before_pipes(token):
    text = markdown(traces.trace_of([token, "x"]), view=View(steps=()))
    ((header, _), *_) = tables_of(text)
    assert len(header) == 3
    assert unescape(header[1].removeprefix("<code>").removesuffix("</code>")) == token


def test_what_is_not_there_is_named():
    with pytest.raises(AttnError, match="no head 9"):
        markdown(traces.small(), view=View(heads=(9,)))
