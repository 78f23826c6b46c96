"""What diff, check and stats find, written to files by suffix."""

import json
from pathlib import Path

import pytest

from attnctl.base.rooms import all_verbs, formats_of

MODEL = str(Path(__file__).parent.parent / "models" / "checkpoints" / "qwen2")

VERBS = {"check": ["check", "a.json"], "diff": ["diff", "a.json", "b.json"], "stats": ["stats", "a.json"]}
WRITTEN = {**VERBS, "model": ["model", MODEL], "explain": ["explain", "a.json", "A[love,AI]"]}


@pytest.fixture
def dumps(call):
    call("run", "I love AI", "--heads", "2", "-o", "a.json")
    call("run", "I love AI", "--heads", "2", "--seed", "1", "-o", "b.json")
    return call


@pytest.mark.parametrize("verb", WRITTEN)
def test_a_file_holds_what_stdout_would(dumps, verb):
    printed = dumps(*WRITTEN[verb], "--json")
    assert dumps(*WRITTEN[verb], "-o", "found.json") == (printed.code, "", "")
    assert json.loads(Path("found.json").read_text()) == json.loads(printed.out)
    both = dumps(*WRITTEN[verb], "--json", "-o", "again.json", "-o", "-")
    assert both.out == printed.out
    assert Path("again.json").read_bytes() == Path("found.json").read_bytes()


@pytest.mark.parametrize("verb", WRITTEN)
def test_a_suffix_without_a_writer_is_refused_with_all_that_there_are(dumps, verb):
    done = dumps(*WRITTEN[verb], "-o", "found.json", "-o", "found.xyz")
    assert done.code == 2
    assert "found.xyz" in done.err
    assert all(each.suffix in done.err for each in formats_of(verb))
    assert not Path("found.json").exists(), "nothing is half-written"


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_read_is_not_overwritten(dumps, verb):
    before = Path("a.json").read_bytes()
    assert dumps(*VERBS[verb], "-o", "a.json").code == 2
    assert Path("a.json").read_bytes() == before


def test_a_page_opens_at_the_cell_that_is_explained(dumps):
    assert dumps("explain", "a.json", "Q[1,love,0]", "-o", "found.html").code == 0
    found = Path("found.html").read_text()
    assert '"cell": {"step": "Q", "at": [1, 1, 0]}' in found
    assert dumps("show", "found.html", "--json").out == dumps("show", "a.json", "--json").out


def test_statistics_as_csv_are_those_of_stdout(dumps):
    printed = dumps("stats", "a.json", "b.json", "--format", "csv").out
    dumps("stats", "a.json", "b.json", "-o", "found.csv")
    assert Path("found.csv").read_text() == printed
    refused = dumps("stats", "a.json", "b.json", "--rollout", "-o", "rolled.csv")
    assert (refused.code, Path("rolled.csv").exists()) == (2, False)


@pytest.mark.parametrize("verb", all_verbs().values(), ids=all_verbs())
def test_a_verb_has_the_formats_that_it_says_and_may_have_none(verb):
    assert formats_of(verb.name) == verb.formats.get(verb.name, ())
