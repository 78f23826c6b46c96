"""Lines of a corpus that are no sentences: refused with their numbers, or left out and counted."""

from __future__ import annotations

import json

import numpy as np
import pytest
from corpora import model_in

import attnctl
from attnctl.verbs.corpus import Shard
from attnctl.verbs.corpus import run as room
from attnctl.verbs.corpus.run import measure_into, open_work
from attnctl.verbs.corpus.sources import DrawnAttention
from attnctl.verbs.stats.tally import SkippedLines
from attnctl.verbs.stats.view import skipped_lines

HOSTILE = {
    "empty": (b"", ["c.txt: no sentence in it; write one a line"]),
    "blank lines": (b"\n \n\t\r\n", ["c.txt: no sentence in it; write one a line"]),
    "a mark alone": (b"\xef\xbb\xbf\n", ["c.txt: no sentence in it; write one a line"]),
    "NUL": (b"a b\nc\0d\n", ["c.txt:2: a NUL byte; save it as UTF-8 text"]),
    "UTF-16": ("a b".encode("utf-16"), ["c.txt:1: a NUL byte; save it as UTF-8 text"]),
    "invalid": (
        b"a b\n\nc \xff d\nfine\n\xc3\n",
        [
            "c.txt:3: not UTF-8 at byte 2 of the line; save it as UTF-8",
            "c.txt:5: not UTF-8 at byte 0 of the line; save it as UTF-8",
        ],
    ),
    "a long line": (
        b"a b\n" + b"x" * (2**20 + 1) + b"\nc\n",
        ["c.txt:2: longer than 1 MiB; write a sentence a line"],
    ),
}


EMPTY = ("empty", "blank lines", "a mark alone")
HINT = "--skip-bad leaves bad lines out, and counts them by reason"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_lines_are_refused_with_their_numbers(run, tmp_path, name):
    data, said = HOSTILE[name]
    (tmp_path / "c.txt").write_bytes(data)
    code, out, err = run("run", "c.txt", "-o", "part.json")
    assert (code, out) == (2, "")
    hint = [] if name in EMPTY else [HINT]
    assert err.splitlines() == [f"attnctl: {each}" for each in [*said, *hint]]
    assert not (tmp_path / "part.json").exists()


def test_unknown_tokens_are_named_with_their_lines(run, tmp_path):
    (tmp_path / "c.txt").write_text("a b\na z\nb\nq a\n")
    (tmp_path / "x.yaml").write_text("vocab: [a, b]\n")
    code, out, err = run("run", "c.txt", "-c", "x.yaml")
    assert (code, out) == (2, "")
    first, second, hint = err.splitlines()
    assert hint == f"attnctl: {HINT}"
    assert first.startswith("attnctl: c.txt:2: ")
    assert "unknown token 'z'" in first
    assert second.startswith("attnctl: c.txt:4: ")


LINES = {
    b"a b\n": None,
    b"\xff\n": "not UTF-8",
    b"a z\n": "unknown tokens",
    b"\n": None,
    b"b a b\n": None,
    b"a\0b\n": "a NUL byte",
    b"a " * 2**20 + b"\n": "longer than 1 MiB",
    b"a a a a a\n": "cannot be measured",
    b"b\n": None,
    b"\xfe\n": "not UTF-8",
}
"""Lines, and why each is left out by attention that knows two tokens and four places."""

REASONS = [
    {"reason": "a NUL byte", "count": 1, "lines": [6]},
    {"reason": "cannot be measured", "count": 1, "lines": [8]},
    {"reason": "longer than 1 MiB", "count": 1, "lines": [7]},
    {"reason": "not UTF-8", "count": 2, "lines": [2, 10]},
    {"reason": "unknown tokens", "count": 1, "lines": [3]},
]


@pytest.fixture
def mixed(tmp_path):
    """Good lines and bad ones; and what is left without the bad ones, each line in its place."""
    (tmp_path / "c.txt").write_bytes(b"".join(LINES))
    (tmp_path / "x.yaml").write_text(
        "vocab: [a, b]\nd_model: 2\npositions: {learned: [[1, 0], [0, 1], [1, 1], [0, 0]]}\n"
    )


@pytest.mark.usefixtures("mixed")
def test_bad_lines_are_left_out_and_counted_by_reason(run, tmp_path):
    args = ("run", "c.txt", "-c", "x.yaml", "--skip-bad")
    code, out, err = run(*args, "--json")
    assert code == 0
    assert json.loads(out)["skipped"] == REASONS
    assert err.splitlines() == [
        f"attnctl: {each['count']} line{'s' * (each['count'] > 1)} skipped: {each['reason']} "
        f"(line{'s' * (each['count'] > 1)} {', '.join(map(str, each['lines']))})"
        for each in REASONS
    ]
    assert run(*args)[1].startswith("3 sentences, 6 tokens; 6 lines skipped\n")
    good = tmp_path / "good.txt"
    good.write_bytes(b"".join(b"\n" if LINES[line] else line for line in LINES))
    plain = json.loads(run("run", "good.txt", *args[2:], "--json")[1])
    assert "skipped" not in plain
    assert plain["layers"] == json.loads(out)["layers"]
    for number in (1, 2, 3):
        assert run(*args, "--shard", f"{number}/3", "-o", f"{number}.json")[0] == 0
    assert run("merge", "3.json", "1.json", "2.json", "--json") == (0, out, err)


@pytest.mark.usefixtures("mixed")
def test_without_skip_bad_each_line_is_named_with_its_reason(run):
    code, out, err = run("run", "c.txt", "-c", "x.yaml")
    assert (code, out) == (2, "")
    said = err.splitlines()
    assert [each.split(":")[2] for each in said[:-1]] == ["2", "3", "6", "7", "10"]
    assert said[-1].endswith(HINT)


def test_a_sentence_that_cannot_be_run_is_named(run, tmp_path):
    """Beside others of its length, too: they are measured again without it."""
    (tmp_path / "c.txt").write_text("a b\na b c\n")
    (tmp_path / "x.yaml").write_text("d_model: 2\npositions: {learned: [[1, 0], [0, 1]]}\n")
    code, _, err = run("run", "c.txt", "-c", "x.yaml")
    assert code == 2
    assert err.startswith("attnctl: c.txt:2: ")


def test_where_nothing_can_be_run_it_is_no_matter_of_lines(run, tmp_path):
    (tmp_path / "c.txt").write_text("a b c\na c b\n")
    (tmp_path / "x.yaml").write_text("d_model: 2\npositions: {learned: [[1, 0], [0, 1]]}\n")
    code, _, err = run("run", "c.txt", "-c", "x.yaml", "--skip-bad", "-o", "p.json")
    assert code == 2
    assert err.startswith("attnctl: c.txt:1: ")
    assert not (tmp_path / "p.json").exists()


@pytest.mark.parametrize(("family", "places"), {"bert": 32, "roberta": 30}.items())
@pytest.mark.usefixtures("word_ids")
def test_a_model_says_what_it_cannot_take(run, tmp_path, family, places):
    """The checkpoints have 32 places, of which RoBERTa's first two are for padding."""
    model = model_in(tmp_path / family, family)
    (tmp_path / "c.txt").write_text(f"a b\n{'a ' * 40}\nb a\n")
    code, out, err = run("run", "--model", model, "c.txt")
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == f"attnctl: c.txt:2: 41 tokens; {family} takes {places}"
    args = ("run", "--model", model, "c.txt", "--skip-bad", "--json")
    skipped = json.loads(run(*args)[1])["skipped"]
    assert skipped == [{"reason": "too long for the model", "count": 1, "lines": [2]}]


def test_weights_that_are_none_are_left_out_alone(tmp_path, monkeypatch):
    """One sentence of three that go together has NaN in its second layer."""
    path = tmp_path / "c.txt"
    path.write_text("a b\nb b\nb a\n")

    class Broken(DrawnAttention):
        def layers(self, batch):
            for weights, sentences in super().layers(batch):
                wrong = weights.copy()
                wrong[[line == 2 for line in batch]] = np.nan
                yield weights, sentences
                yield wrong, sentences

    monkeypatch.setattr(room, "DrawnAttention", Broken)
    part = measure_into(open_work(str(path), skip_bad=True), [])
    assert (part.sentences, len(part.layers)) == (2, 2)
    assert part.skipped["cannot be measured"].first == [2]
    assert part.layers[0].heads[0].sums["entropy"].rows == 4
    with pytest.raises(attnctl.AttnError, match=r"c\.txt:2: attention_weights: nan at"):
        measure_into(open_work(str(path)), [])


def test_of_many_bad_lines_the_first_are_kept(tmp_path):
    path = tmp_path / "c.txt"
    path.write_bytes(b"\xff\n" * 9 + b"a\n" + b"\xff\n" * 9)
    parts = [
        measure_into(open_work(str(path), shard=Shard(number, 4), skip_bad=True), [])
        for number in (4, 2, 3, 1)
    ]
    whole = attnctl.merge_corpus(parts)
    assert whole.skipped["not UTF-8"] == SkippedLines(18, [1, 2, 3, 4, 5])
    assert list(skipped_lines(whole)) == ["18 lines skipped: not UTF-8 (lines 1, 2, 3, 4, 5, …)"]
