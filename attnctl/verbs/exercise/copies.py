"""Hand-ins that show whose numbers they are: copies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnctl.base.words import all_of
from attnctl.verbs.exercise.grade import HandIn
from attnctl.verbs.exercise.make import seed_from

ANOTHER = "another exercise than most of these"


def with_copies(sheets: Sequence[HandIn]) -> list[HandIn]:
    """The hand-ins, each with a note where its numbers, or the sheet itself, are somebody else's."""
    alike, usual = same_numbers(sheets), usual_task(sheets)
    return [
        replace(
            sheet,
            notes=(*sheet.notes, *whose_sheet(sheet, sheets), *alike.get(at, ())),
            asides=(ANOTHER,) if usual and sheet.task not in {usual, ""} else (),
        )
        for at, sheet in enumerate(sheets)
    ]


def usual_task(sheets: Sequence[HandIn]) -> str | None:
    """Return the task that more than half of the sheets were given; None where there is none."""
    told = [sheet.task for sheet in sheets if sheet.task]
    task, count = Counter(told).most_common(1)[0] if told else ("", 0)
    return task if 2 * count > len(told) else None


def whose_sheet(sheet: HandIn, sheets: Sequence[HandIn]) -> list[str]:
    """That a sheet was handed out to another student, or that two files are of the same one."""
    if not sheet.own:
        return []
    said = []
    if sheet.seed != seed_from(sheet.student):
        owners = {each.student for each in sheets if seed_from(each.student) == sheet.seed}
        said.append(f"the sheet of {all_of(sorted(owners))}" if owners else "not the sheet of this name")
    twice = [
        each.file
        for each in sheets
        if each is not sheet and each.own and seed_from(each.student) == seed_from(sheet.student)
    ]
    return [*said, f"the same student as in {all_of(twice)}"] if twice else said


def same_numbers(sheets: Sequence[HandIn]) -> dict[int, list[str]]:
    """For each hand-in the others that have the same numbers in a step, though theirs should differ."""
    groups: defaultdict[tuple[str, bytes], list[int]] = defaultdict(list)
    for at, sheet in enumerate(sheets):
        for name, array in sheet.filled.items():
            if sheet.seed is not None and np.unique(array[np.isfinite(array)]).size > 1:
                groups[name, array.astype(np.float64).tobytes()].append(at)
    steps: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for (name, _), members in groups.items():
        for one in members:
            for other in members:
                if one != other and differ(sheets[one], sheets[other], name):
                    steps[one, other].append(name)
    notes: defaultdict[int, list[str]] = defaultdict(list)
    for (one, other), names in steps.items():
        notes[one].append(f"the same {all_of(names)} as {sheets[other].student}, whose task was another")
    return notes


def differ(one: HandIn, other: HandIn, step: str) -> bool:
    """True where two students were asked for different numbers at a step."""
    if one.seed == other.seed or step not in one.expected or step not in other.expected:
        return False
    return not np.array_equal(one.expected[step], other.expected[step])
