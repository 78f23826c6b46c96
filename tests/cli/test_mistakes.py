"""The catalogue on the command line, and as pages."""

import json
import re

import pytest

from attnctl.mistakes import CATALOGUE

NAMES = list(dict.fromkeys(mistake.name for mistake in CATALOGUE))


def test_every_mistake_is_listed_with_what_is_wrong(call):
    lines = call("mistakes").out.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert all(len(line.split()) > 3 for line in lines)
    assert "no-scale                          the scores are not scaled" in lines
    assert list(json.loads(call("mistakes", "--json").out)) == NAMES


def test_one_is_explained_as_check_does_it(call):
    assert call("mistakes", "no-scale") == call("check", "--about", "no-scale")
    assert call("mistakes", "no-scale", "--json") == call("check", "--about", "no-scale", "--json")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["no-scal"], 'no mistake "no-scal"; did you mean no-scale?'),
        (["no-scale", "-o", "d"], "-o: the pages are of all mistakes; leave it out"),
    ],
)
def test_what_is_refused(call, args, message):
    assert call("mistakes", *args) == (2, "", f"attnctl: {message}\n")


@pytest.mark.slow
def test_a_page_for_each_with_the_same_words(call, tmp_path):
    assert call("mistakes", "-o", str(tmp_path)).code == 0
    index = (tmp_path / "index.html").read_text()
    assert re.findall(r'<a href="([^"]+)\.html"', index) == NAMES
    for name in NAMES:
        page = (tmp_path / f"{name}.html").read_text()
        assert "<script" not in page
        assert f"<h1>{name}</h1>" in page
        assert "Why people make it" in page
        assert page.count("<td>") > 1


def test_a_file_is_no_folder(call, tmp_path):
    file = tmp_path / "a.json"
    file.write_text("{}")
    done = call("mistakes", "-o", str(file))
    assert done.code == 2
    assert f"{file}: File exists" in done.err
