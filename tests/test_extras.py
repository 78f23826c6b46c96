"""The extras that messages and documents name are those that the package has."""

import re
from importlib.metadata import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAMED = re.compile(r"attnctl\[([a-z]+)\]")


def test_each_extra_that_is_named_exists():
    extras = {*(metadata("attnctl").get_all("Provides-Extra") or ())}
    texts = [*ROOT.glob("*.md"), *ROOT.glob("samples/**/*.md"), *ROOT.glob("attnctl/**/*.py")]
    named = {extra: path.name for path in texts for extra in NAMED.findall(path.read_text("utf-8"))}
    assert named
    assert {extra: place for extra, place in named.items() if extra not in extras} == {}
