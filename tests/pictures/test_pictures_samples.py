"""The pictures in the documents are what their commands make."""

import re
import shlex
from pathlib import Path

import pytest

from attnctl.cli.program import program

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "samples" / "pictures"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
OF_SCREENS = sorted((*FOLDER.glob("check-*.svg"), *FOLDER.glob("first-*.svg"), FOLDER / "explore.svg"))
PICTURES = sorted({*FOLDER.glob("*.svg")}.difference(OF_SCREENS))


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


@pytest.mark.parametrize("picture", ["check.svg", "first.svg", "page.png"])
def test_the_readme_shows_it_on_dark_paper_and_on_light(picture):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    name, suffix = picture.split(".")
    dark, light = f"samples/pictures/{name}-dark.{suffix}", f"samples/pictures/{name}-light.{suffix}"
    of_dark = rf'<source media="\(prefers-color-scheme: dark\)" srcset="{dark}">'
    of_light = rf'<img src="{light}" alt="[^"]{{40,}}">'
    assert re.search(rf"{of_dark}\s*{of_light}", readme)
    for path in (dark, light):
        drawn = (ROOT / path).read_bytes()
        assert len(drawn) < (400_000 if suffix == "png" else 60_000)
        assert b"url(http" not in drawn
