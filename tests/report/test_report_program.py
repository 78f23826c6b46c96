"""The page of a checked program: its lines, what is wrong among them, what was put there instead."""

import html
import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from command_line import call

import attnctl
from attnctl.drawing.pictures.png import MONO
from attnctl.pages.code_picture import check_picture
from attnctl.pages.program import code_lines, compare, shown_blocks
from attnctl.verbs.check.places import say_pattern
from attnctl.verbs.check.report import ProgramListing

WRONG = """import numpy as np

rng = np.random.RandomState(0)
x = rng.randn(4, 6)
q, k, v = (x @ rng.randn(6, 6) for _ in range(3))
scores = q @ k.T
weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
out = weights @ v
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    (folder / "wrong.py").write_text(WRONG)
    return folder


def lines_of(page):
    """Each line of the program on a page: its class, and what stands in it."""
    found = re.findall(r"<li(?: class=\"(\w+)\")?><span class=\"no\">(.*?)</li>", page)
    return [(kind, html.unescape(re.sub("<.*?>", " ", row))) for kind, row in found]


def test_the_program_stands_beside_its_mistakes(folder):
    code, printed, _ = call("check", folder / "wrong.py", "-o", folder / "c.html", "-o", "-")
    assert code == 1
    page = (folder / "c.html").read_text()
    assert "<h1>1 mistake in wrong.py</h1>" in page
    assert str(folder) not in page.partition("<noscript>")[0]
    assert str(folder) in printed

    lines = lines_of(page)
    assert len(lines) == WRONG.count("\n")
    (wrong,) = [row for kind, row in lines if kind == "wrong"]
    assert wrong.split()[:6] == ["6", "✗", "wrong:", "scores", "=", "q"]
    assert "✗ attention_weights" in wrong
    assert any("✓ head_outputs" in row for kind, row in lines if not kind)
    cards = re.findall(r'<li value="(\d+)">(.*?)</li>', page)
    assert [number for number, _ in cards] == ["1"]
    assert "Instead" in cards[0][1]
    assert "attnctl check wrong.py --diff" in page


@pytest.mark.slow
def test_the_right_line_stands_beneath_the_wrong_one(folder):
    code, printed, _ = call("check", folder / "wrong.py", "--diff", "-o", folder / "d.html")
    assert code == 1
    kinds = [kind for kind, _ in lines_of((folder / "d.html").read_text())]
    at = kinds.index("gone")
    assert kinds[at + 1] == "new"
    page = (folder / "d.html").read_text()
    put = "".join(re.findall("<ins>(.*?)</ins>", page))
    assert put.strip() == "/ q.shape[-1] ** 0.5"
    assert f"-{WRONG.splitlines()[5]}" in printed
    assert "attnctl check wrong.py --fix" in page
    assert (folder / "wrong.py").read_text() == WRONG


def test_what_two_lines_have_in_common_is_not_marked():
    gone, put = compare("s = q @ k.T", "s = q @ k.T / 2")
    assert gone == [("s = q @ k.T", False)]
    assert put == [("s = q @ k.T", False), (" / 2", True)]


def test_a_long_program_is_shown_where_it_says_something():
    text = "\n".join(f"line_{number} = 0" for number in range(200))
    mended = text.replace("line_100 = 0", "line_100 = 1")
    listing = ProgramListing(files={"a.py": text}, made={}, mended={"a.py": mended})
    blocks = [*shown_blocks(code_lines("a.py", listing, []))]
    assert [is_shown for is_shown, _ in blocks] == [False, True, False]
    assert sum(len(lines) for _, lines in blocks) == 201
    assert [line.kind for line in blocks[1][1]] == ["", "", "", "gone", "new", "", "", ""]


def test_rows_in_other_places_are_told():
    right = np.arange(24.0).reshape(2, 4, 3) ** 2
    found = right.copy()
    found[1, 2], found[1, 3] = right[1, 3], right[1, 2]
    assert say_pattern(found, right, ("head", "query", "d_k")) == (
        "The right rows stand in other places: in head 1 query 2 holds query 3, query 3 holds query 2."
    )
    assert say_pattern(0.25 * right, right, ("head", "query", "d_k")) == (
        "Every number is 0.25 times what it should be."
    )
    found[0, 0] += 1
    assert say_pattern(found, right, ("head", "query", "d_k")) == ""


def test_a_picture_for_a_pull_request_has_the_line_and_its_mistake(folder):
    assert call("check", folder / "wrong.py", "-o", folder / "found.svg")[0] == 1
    drawn = ET.parse(folder / "found.svg")
    words = [text for text in drawn.getroot().itertext() if text.strip()]
    assert words[0] == "1 mistake in wrong.py"
    assert "The scores are not scaled." in words
    assert any(line.startswith("scores = ") for line in words)
    assert str(folder) not in "".join(words)


def test_a_picture_of_what_agrees_says_so(folder):
    right = attnctl.run("I love AI", heads=2)
    picture = check_picture([attnctl.check(right)])
    assert "agrees: " in picture.svg
    assert "mistake" not in picture.svg


def test_letters_of_programs_are_shipped(folder):
    pytest.importorskip("resvg_py")
    assert call("check", folder / "wrong.py", "-o", folder / "found.png")[0] == 1
    assert (folder / "found.png").read_bytes().startswith(b"\x89PNG")
    assert MONO.stat().st_size < 60_000
