"""The pictures of the README are what its commands make."""

import shlex
from pathlib import Path

import pytest

from attnctl.cli.program import program

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
PICTURES = sorted((ROOT / "samples" / "pictures").iterdir())


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_the_command_makes_the_picture_again(path, tmp_path, monkeypatch):
    (line,) = (each for each in README.splitlines() if each.endswith(f"-o samples/pictures/{path.name}"))
    args = shlex.split(line.removeprefix("$ attnctl"))
    monkeypatch.chdir(ROOT)
    assert program([*args[:-1], str(tmp_path / path.name)]) in {0, 1}
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_they_are_small_and_shown():
    assert len(PICTURES) == 2
    assert all(path.stat().st_size < 12_000 for path in PICTURES)
    assert all(f"](samples/pictures/{path.name})" in README for path in PICTURES)
