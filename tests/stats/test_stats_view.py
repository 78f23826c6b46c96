"""Statistics on the screen and as CSV."""

from __future__ import annotations

import csv
from io import StringIO

import numpy as np
import pytest
from stats_golden import CASES, FOLDER, PIPE, TERMINAL, report, table
from stats_golden import csv as written
from test_stats_measure import a_trace

import attnctl
from attnctl.verbs.stats.picture import measures


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith(".txt")])
def test_golden(name):
    assert CASES[name]() == (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith(".csv")])
def test_csv(name):
    """Text as it stands, numbers to the last few digits that a machine may give otherwise."""
    actual, expected = (
        list(csv.reader(StringIO(text)))
        for text in (CASES[name](), (FOLDER / name).read_text(encoding="utf-8"))
    )
    assert [row[:2] for row in actual] == [row[:2] for row in expected]
    for ours, theirs in zip(actual[1:], expected[1:], strict=True):
        for value, golden in zip(ours[2:], theirs[2:], strict=True):
            assert value == golden or float(value) == pytest.approx(float(golden), abs=1e-12)


def test_every_golden_file_is_of_a_case():
    assert {path.name for path in FOLDER.iterdir()} == set(CASES)


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith("80.txt")])
def test_nothing_is_wider_than_the_terminal(name):
    assert all(len(line) <= 80 for line in CASES[name]().splitlines())


def test_words_that_a_spreadsheet_would_run_are_guarded():
    rows = list(csv.DictReader(StringIO(written(attnctl.run("=1+1")))))
    assert rows[0]["query_token"] == "'=1+1"


def test_hundreds_of_keys_still_fit():
    weights = np.full((12, 1, 1000), 1 / 1000)
    text = table(TERMINAL, a_trace(weights))
    assert "1000.00" in text
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("screen", [TERMINAL, PIPE])
def test_a_long_sentence_is_shortened_and_says_so(screen):
    text = table(screen, attnctl.run("word " * 400))
    assert "… 1761 more characters" in text
    assert max(map(len, text.splitlines())) < 300


def test_heads_are_taken_together_where_the_dumps_have_as_many():
    said = "no aggregate: the dumps have different numbers of heads"
    one, two = a_trace(np.eye(3)[None]), a_trace(np.stack([np.eye(3)] * 2))
    assert said in table(PIPE, one, two)
    assert "all together" in table(PIPE, two, two)
    assert not any(said in table(PIPE, *traces) for traces in ([two, two], [one]))


def test_a_map_of_measures_has_dumps_down_and_heads_across():
    sees_first, sees_itself = np.array([[1.0, 0], [1, 0]]), np.eye(2)
    plots = measures(report(a_trace(sees_first[None]), a_trace(np.stack([sees_first, sees_itself]))))
    panels = {panel.caption: panel.values.tolist() for plot in plots for panel in plot.panels}
    assert panels["first"] == [[1.0, -np.inf], [1.0, 0.5]]
    assert panels["self"] == [[0.5, -np.inf], [0.5, 1.0]]
    assert panels["entropy"] == [[0.0, -np.inf], [0.0, 0.0]]
    assert panels["same token"] == [[-np.inf] * 2] * 2
    assert {(*plot.rows, *plot.columns) for plot in plots} == {("dump-0.json", "dump-1.json", "0", "1")}
