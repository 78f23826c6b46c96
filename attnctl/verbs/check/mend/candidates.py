"""Changes of a program's text that may mend it, the likeliest first.

They are made from the syntax tree, at the accused expression and where what it reads was made. None is
believed: whoever tries them runs the changed program, and judges it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from attnctl.verbs.check.mend.change import TextChange, in_text
from attnctl.verbs.check.mend.rules import rules_of
from attnctl.verbs.check.mend.text import ProgramText, TextEdit

MOST = 80
"""Changes that are tried of what is wrong."""

MOST_ALIKE = 4
"""Places at which the same is changed at once: of queries, keys and values."""

ALIKE = 1
"""The rank of the first rule where it changes the same at once."""


class WrongPlace(NamedTuple):
    """Lines of a file that make a step wrong."""

    lines: tuple[int, ...]
    step: str
    mistake: str | None


class RankedChange(NamedTuple):
    """A change; the smaller its rank, the likelier it is."""

    rank: int
    change: TextChange


def candidates(text: ProgramText, places: Iterable[WrongPlace]) -> list[TextChange]:
    """Changes that may mend what is wrong at these places."""
    found: list[RankedChange] = []
    for place in places:
        found += ranked(text, place)

    seen = {text.text}
    out: list[TextChange] = []
    for _, change in sorted(found, key=lambda ranked_change: ranked_change.rank):
        changed = change.applied(text.text)
        if changed not in seen and is_python(changed):
            seen.add(changed)
            out.append(change)
        if len(out) == MOST:
            break
    return out


def ranked(text: ProgramText, place: WrongPlace) -> Iterator[RankedChange]:
    """All changes near a place, and those of a kind made everywhere at once."""
    distance = text.distances(place.lines)
    near = [node for node in text.nodes if node.lineno in distance]
    for number, rule in enumerate(rules_of(place.step, place.mistake)):
        found_of_kind: dict[str, list[RankedChange]] = defaultdict(list)
        for node in near:
            for found in rule(text, node):
                far = 2 * distance[node.lineno]
                change = RankedChange(far + number, in_text(text, found))
                found_of_kind[found.kind].append(change)
                yield change

        for alike in found_of_kind.values():
            for together in made_at_once(alike):
                yield RankedChange(ALIKE + number, together)


def made_at_once(alike: Sequence[RankedChange]) -> Iterator[TextChange]:
    """The changes of a kind together: the nearest of them, and more of them the farther they are."""
    for rank in sorted({one.rank for one in alike}):
        near = [one.change for one in alike if one.rank <= rank]
        apart = without_overlap([edit for change in near for edit in change.edits])
        if 1 < len(apart) <= MOST_ALIKE:
            yield TextChange(near[0].kind, tuple(apart))


def without_overlap(edits: Sequence[TextEdit]) -> list[TextEdit]:
    """One change a place, in order."""
    out: list[TextEdit] = []
    for edit in sorted(edits):
        if not out or edit.begin >= out[-1].end:
            out.append(edit)
    return out


def is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
