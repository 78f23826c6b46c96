"""The pages of samples/reference are what the code says now."""

import pytest
import reference

from attnctl.base.rooms import all_verbs
from attnctl.math import ops
from attnctl.math.rules import RULES
from attnctl.models.families import FAMILIES


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_is_fresh(name):
    written = (reference.FOLDER / name).read_text()
    assert written == reference.page(name), "python tests/reference.py writes it anew"


def test_every_entry_has_its_place():
    pages = {name: (reference.FOLDER / name).read_text() for name in reference.PAGES}
    assert all(f"| `{name}` |" in pages["ops.md"] for name in ops.OPS)
    assert all(f"\n## {name}\n" in pages["rules.md"] for name in RULES)
    assert all(f"\n## {name}\n" in pages["verbs.md"] for name in all_verbs())
    assert all(f"`{name}`" in pages["families.md"] for name in FAMILIES)
