"""Changes of a program's text that may mend it: each is one that people make when they are told.

They are made from the syntax tree, at the accused expression and where what it reads was made. None is
believed: whoever tries them runs the changed program, and judges it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from attnctl.verbs.check.changes import FITTING, ONLY_UNASKED, RULES, leave_out_mask
from attnctl.verbs.check.text import FARTHEST, ProgramText, TextEdit

MOST = 80
"""Changes that are tried of a program."""

MOST_LIKES = 4
"""Places at which the same is changed at once: of queries, keys and values."""


class Candidate(NamedTuple):
    rule: str
    edits: tuple[TextEdit, ...]

    def applied(self, text: str) -> str:
        for edit in sorted(self.edits, reverse=True):
            text = text[: edit.begin] + edit.text + text[edit.end :]
        return text


class RankedCandidate(NamedTuple):
    """A candidate; the smaller its rank, the likelier it is."""

    rank: tuple[int, int]
    candidate: Candidate


def candidates(
    text: ProgramText, lines: Sequence[int], mistakes: Sequence[str], *, most: int = MOST
) -> list[Candidate]:
    """Changes that may mend what is wrong at these lines, the likeliest first."""
    # Of a mistake that is known, a change of another kind that agrees would only hide it.
    kinds = fitting_kinds(mistakes)
    found = sorted(ranked(text, lines, mistakes), key=lambda one: one.rank)
    if len(kinds) > 1:
        found = [one for one in found if one.candidate.rule.partition(" ")[0] in kinds]
    seen = {text.text}
    out: list[Candidate] = []
    for one in found:
        changed = one.candidate.applied(text.text)
        if changed not in seen and is_python(changed):
            seen.add(changed)
            out.append(one.candidate)
        if len(out) == most:
            break
    return out


def fitting_kinds(mistakes: Iterable[str]) -> set[str]:
    kinds = {"unmasked"}
    for mistake in mistakes:
        for words, fitting in FITTING.items():
            if words in mistake:
                kinds |= set(fitting.split())
    return kinds


def ranked(text: ProgramText, lines: Sequence[int], mistakes: Sequence[str]) -> Iterator[RankedCandidate]:
    """All changes near these lines, and those of a kind made everywhere at once."""
    fitting = fitting_kinds(mistakes)
    distance = text.distances(lines)
    rules = [*RULES, *[leave_out_mask] * (ONLY_UNASKED in mistakes)]
    near = [node for node in ast.walk(text.tree) if getattr(node, "lineno", None) in distance]
    likes: dict[str, list[TextEdit]] = defaultdict(list)
    for number, rule in enumerate(rules):
        for node in near:
            for kind, changed, new in rule(text, node):
                fits = kind.partition(" ")[0] in fitting
                edit = TextEdit(*text.span(changed), new)
                likes[kind].append(edit)
                rank = distance.get(changed.lineno, FARTHEST)
                yield RankedCandidate((rank + 2 * (not fits), number), Candidate(kind, (edit,)))

    for kind, edits in likes.items():
        apart = without_overlap(edits)
        if 1 < len(apart) <= MOST_LIKES:
            fits = kind.partition(" ")[0] in fitting
            yield RankedCandidate((1 + 2 * (not fits), 0), Candidate(kind, tuple(apart)))


def without_overlap(edits: Iterable[TextEdit]) -> list[TextEdit]:
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
