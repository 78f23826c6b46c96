"""Rules of every kind that the registry holds, drawn by the types of their fields."""

from dataclasses import fields
from typing import get_type_hints

from hypothesis import strategies as st

from attnctl.errors import AttnError
from attnctl.rules import PerBatch

VALUES = {
    int: st.integers(1, 6),
    int | None: st.none() | st.integers(0, 6),
    float: st.floats(0.1, 50),
    PerBatch | None: st.integers(0, 9),
    tuple[int, ...]: st.lists(st.integers(0, 9), max_size=3).map(tuple),
}
"""What a field of each type may hold; a rule with a field of another type adds a line here."""


@st.composite
def rules_of(draw, kind):
    """A rule of this class with any parameters that it takes."""
    hints = get_type_hints(kind)
    values = {each.name: draw(VALUES[hints[each.name]]) for each in fields(kind)}
    try:
        return kind(**values)
    except AttnError:  # the rule's own bounds
        return draw(st.nothing())
