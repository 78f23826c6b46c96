"""What diff, check and stats find, written to files by suffix."""

import json

import pytest

from attnctl.formats import FINDINGS


@pytest.fixture
def dumps(workplace):
    workplace.shell(
        'attnctl run "I love AI" --heads 2 -o a.json && attnctl run "I love AI" --seed 1 -o b.json'
    )
    return workplace


VERBS = {"check": "check a.json", "diff": "diff a.json b.json", "stats": "stats a.json"}


def test_a_file_holds_what_stdout_would(dumps):
    for verb, command in VERBS.items():
        printed = dumps.shell(f"attnctl {command} --json").stdout
        done = dumps.shell(f"attnctl {command} -o found-{verb}.json")
        assert (done.stdout, done.stderr, done.returncode) == (b"", b"", verb == "diff"), verb
        assert json.loads((dumps.folder / f"found-{verb}.json").read_text()) == json.loads(printed), verb


def test_a_suffix_without_a_writer_is_refused_with_all_that_there_are(dumps):
    for verb, command in VERBS.items():
        done = dumps.shell(f"attnctl {command} -o found.json -o found.xyz")
        assert done.returncode == 2
        message = done.stderr.decode()
        assert "found.xyz" in message
        assert all(each.suffix in message for each in FINDINGS[verb])
        assert not (dumps.folder / "found.json").exists(), "nothing is half-written"


def test_what_is_read_is_not_overwritten(dumps):
    for command in VERBS.values():
        before = (dumps.folder / "a.json").read_bytes()
        assert dumps.shell(f"attnctl {command} -o a.json").returncode == 2
        assert (dumps.folder / "a.json").read_bytes() == before
