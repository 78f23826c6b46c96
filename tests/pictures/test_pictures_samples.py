"""The pictures in the documents are what their commands make."""

import shlex
from pathlib import Path

import pytest

from attnctl.cli.program import program

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "samples" / "pictures"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
PICTURES = sorted(path for path in FOLDER.glob("*.svg") if path.stem not in {"explore", "first"})


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_the_command_makes_the_picture_again(path, tmp_path, monkeypatch):
    (line,) = (each for each in PAGE.splitlines() if each.endswith(f"-o samples/pictures/{path.name}"))
    args = shlex.split(line.removeprefix("$ attnctl"))
    monkeypatch.chdir(ROOT)
    assert program([*args[:-1], str(tmp_path / path.name)]) in {0, 1}
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_they_are_small_and_shown():
    assert len(PICTURES) == 2
    assert all(path.stat().st_size < 12_000 for path in PICTURES)
    assert all(f"]({path.name})" in PAGE for path in PICTURES)


def test_the_picture_of_the_explorer_is_shown_and_asks_for_nothing():
    drawn = (FOLDER / "explore.svg").read_text(encoding="utf-8")
    assert "](samples/pictures/explore.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "url(http" not in drawn
    assert len(drawn) < 30_000


def test_the_picture_of_a_page_is_shown():
    assert "](samples/pictures/page.png)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert (FOLDER / "page.png").stat().st_size < 200_000
