"""The page on models lists all that opens, and nothing else."""

import re

from opens import MARKED, PAGE, what_opens

from attnctl.models.families import FAMILIES, TOWERS


def test_the_page_says_what_opens():
    """`python tests/models/opens.py` writes it anew."""
    assert (
        MARKED.search(PAGE.read_text(encoding="utf-8"))[0].splitlines()[1:-1] == what_opens().splitlines()
    )


def test_every_type_is_listed_once():
    first, _, _ = what_opens().partition("\n\n")
    names = re.findall(r"`([^`]+)`", first)[1:]
    assert sorted(names) == sorted([*FAMILIES, *TOWERS])
