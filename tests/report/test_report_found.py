"""Pages of what check, conform and diff found: their words, and the cells that they mean."""

import html
import json
import re

import numpy as np
import pytest

import attnctl
from attnctl.pages.found import check_pieces, conform_pieces, diff_pieces, difference_marks
from attnctl.record import Trace
from attnctl.store.source import read


def text(pieces):
    return b"".join(pieces).decode()


def finding(page):
    return html.unescape(re.search('<pre tabindex="0">(.*?)</pre>', page, re.DOTALL)[1])


def opening_of(page):
    """What stands above the rest of a finding, without its tags."""
    opening = re.search('<section id="finding"[^>]*>(.*?)<details', page, re.DOTALL)[1]
    return html.unescape(re.sub("<.*?>", "", opening))


def changed(trace, step, cell, value):
    """The trace with another number in one cell."""
    array = trace[step].copy()
    array[cell] = value
    return Trace(trace.steps, {**trace, step: array}, trace.header)


@pytest.fixture(scope="module")
def right():
    return attnctl.run("I love AI", heads=2, causal=True)


def test_a_wrong_number_is_marked_with_what_it_should_be(right):
    report = attnctl.check(changed(right, "attention_weights", (1, 2, 0), 0.9))
    marks = report.wrong_cells()
    assert list(marks) == ["attention_weights", "head_outputs"]
    wrong, other = marks["attention_weights"]
    assert np.argwhere(wrong).tolist() == [[1, 2, 0]]
    assert np.isclose(other[1, 2, 0], right["attention_weights"][1, 2, 0], atol=1e-12)


def test_a_right_trace_has_no_marks(right):
    assert attnctl.check(right).wrong_cells() == {}


def test_the_words_of_a_check_stand_above(right):
    report = attnctl.check(changed(right, "scores", (0, 1, 1), 7.0))
    page = text(check_pieces([report]))
    assert finding(page) == str(report)
    assert f"<title>{str(report).splitlines()[0]}" in html.unescape(page)


def test_the_mistake_is_read_before_the_rest_is_opened(right):
    unmasked = attnctl.run("I love AI", heads=2)["attention_weights"]
    kept = right.select(["Q", "K", "V", "attention_weights"])
    wrong = Trace(kept.steps, {**kept, "attention_weights": unmasked}, kept.header)
    page = text(check_pieces([attnctl.check(wrong)]))
    opening = opening_of(page)
    assert opening.startswith("Why: attention_weights")
    assert "Instead " in opening
    assert opening_of(text(check_pieces([attnctl.check(right)]))) == ""


def test_every_mistake_is_read_before_the_rest_is_opened():
    right = attnctl.run("I love AI and you", heads=2, causal=True)
    kept = right.select(["Q", "K", "V", "scores", "scaled_scores", "attention_weights"])
    scores = right["scores"]
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    wrong = {**kept, "scaled_scores": scores, "attention_weights": weights}
    report = attnctl.check(Trace(kept.steps, wrong, kept.header))
    assert [finding.mistake for finding in report.findings] == ["no-scale", "mask-ignored"]
    opening = opening_of(text(check_pieces([report])))
    for finding in report.findings:
        assert finding.words.casefold() in opening.casefold()
        assert finding.fix in opening


def test_a_difference_is_marked_on_both_sides(right):
    found = attnctl.diff(right, changed(right, "V", (0, 1, 1), 4.0))
    for side, value in (("A", 4.0), ("B", right["V"][0, 1, 1])):
        wrong, numbers = dict(difference_marks(found, side))["V"]
        assert np.argwhere(wrong).tolist() == [[0, 1, 1]]
        assert numbers[0, 1, 1] == value


def test_sentences_that_differ_are_marked_where_they_stand_side_by_side():
    found = attnctl.diff(attnctl.run("I love AI"), attnctl.run("I really love AI"))
    (first, _), (second, other) = (dict(difference_marks(found, side))["scores"] for side in "AB")
    assert (first.shape, second.shape) == ((1, 3, 3), (1, 4, 4))
    assert not second[0, 1].any()
    assert np.isnan(other[0, 1]).all()
    assert not first.any()


def test_the_page_of_a_difference_holds_both_traces(right, tmp_path):
    found = attnctl.diff(right, attnctl.run("I love AI", heads=2))
    path = tmp_path / "d.html"
    path.write_bytes(text(diff_pieces([found])).encode())
    assert [each.config["rules"] for each in read(path)] == [["causal"], []]
    assert finding(path.read_text()).startswith("differ: attention_weights is the first of ")


def test_a_finding_is_written_beside_what_is_printed(workplace):
    script = """
        attnctl run "I love AI" --heads 2 --json > a.json
        attnctl run "I love AI" --heads 2 --causal --json > b.json
        attnctl diff a.json b.json -o d.html; echo "diff $?"
        attnctl check a.json -o c.html -o - > said; echo "check $?"
        head -c 15 c.html d.html
    """
    done = workplace.shell(script)
    assert done.stderr == b""
    assert b"diff 1\ncheck 0\n" in done.stdout
    assert done.stdout.count(b"<!doctype html>") == 2
    assert (workplace.folder / "said").stat().st_size > 100


def test_what_several_pairs_differ_in_is_one_page(right):
    found = [attnctl.diff(right, right), attnctl.diff(right, changed(right, "V", (0, 1, 1), 4.0))]
    page = text(diff_pieces(found))
    data = json.loads(re.search('id="attnctl-report">([^<]*)<', page)[1])
    assert [each["view"]["name"] for each in data["traces"]] == [
        f"{side} {pair}: I love AI" for pair in (0, 1) for side in "AB"
    ]


def without_scale(q, k, v):
    """A kernel that does not divide the scores."""
    scores = q @ k.swapaxes(-1, -2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def with_scale(q, k, v):
    return without_scale(q / np.sqrt(q.shape[-1]), k, v)


def held(function, folder):
    return attnctl.conform(
        function, quick=True, features=["attention"], dtypes=["float64", "float32"], save=folder
    )


def test_a_page_of_conform_shows_one_case_of_each_cause_with_what_it_should_be(tmp_path):
    found = held(without_scale, tmp_path / "cases")
    page = text(conform_pieces([found]))
    assert finding(page) == str(found)
    assert "no-scale" in finding(page)
    assert "without_scale does not conform</h1>" in page
    data = json.loads(re.search('id="attnctl-report">([^<]*)<', page)[1])
    (shown,) = data["traces"]
    assert shown["view"]["name"] == "1 no-scale"
    assert "head_outputs" in shown["marks"]

    report = attnctl.check(attnctl.load(found.features[0].failure.saved))
    gap = report.findings[0].gap
    told = f"is {gap.found:.4g} at "
    assert told in opening_of(page)
    assert f"and should be {gap.expected:.4g}." in opening_of(page)


def test_a_page_of_a_target_that_conforms_has_words_alone(tmp_path):
    found = held(with_scale, tmp_path / "cases")
    page = text(conform_pieces([found]))
    assert finding(page) == str(found)
    assert "with_scale conforms</h1>" in page
    assert json.loads(re.search('id="attnctl-report">([^<]*)<', page)[1])["traces"] == []
