"""A run as an exercise, some steps blank and nothing in it that gives them away; the class it is for."""

from __future__ import annotations

import csv
import hashlib
import io
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import open_input, refuse_os_errors
from attnctl.base.words import all_of, quote
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.config.yaml import MAX_BYTES, decode
from attnctl.inputs.plan.sentence import prepare
from attnctl.math import Array
from attnctl.math.derivation import Step
from attnctl.math.engine import Edit, carry_out
from attnctl.math.ops import Given
from attnctl.record import Trace, names_of_steps

SEEDS = 2**31
DECIMALS = 4


@dataclass(frozen=True)
class Student:
    """A student by name, and by the id where a roster has ids, which lets names repeat."""

    name: str
    id: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.id}".strip()

    @property
    def key(self) -> str:
        """What tells a student from every other."""
        return self.id or self.name

    @property
    def seed(self) -> int:
        """The same on every machine; spaces around a name and its case do not matter."""
        word = " ".join(self.key.split()).casefold()
        return int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big") % SEEDS


@dataclass(frozen=True)
class Exercise:
    """A run without the steps that follow from the blank ones, and NaN in the blank ones."""

    trace: Trace
    blank: tuple[str, ...]
    decimals: int
    steps: tuple[Step, ...]  # every step of the run, in order
    student: Student | None = None

    @property
    def left_out(self) -> tuple[str, ...]:
        """Steps that would give the blank ones away."""
        return tuple(step.name for step in self.steps if step.name not in self.trace)


def make(
    settings: Settings, blank: Sequence[str], student: Student | None = None, decimals: int = DECIMALS
) -> Exercise:
    """The exercise of a run with these steps blank; a `student` has numbers of their own.

    Raises AttnError for a step that is not there or not computed, and for a student whose numbers
    would be those of everybody.
    """
    if student is not None:
        settings = settings.with_(seed=student.seed)
    trace = prepare(settings).run()
    blank = names_of_steps(blank, list(trace))
    raise_all(["--blank: no step in it; name steps that are computed, like scores"] * (not blank))
    given = [name for name in blank if isinstance(trace.steps[name].op, Given)]
    raise_all(
        f"--blank {name}: it is given, not computed; blank a step that follows from it" for name in given
    )
    if student is not None:
        other = prepare(settings.with_(seed=(settings.seed + 1) % SEEDS)).run()
        if all(np.array_equal(trace[name], other[name], equal_nan=True) for name in trace):
            raise AttnError(
                "--seed-from: nothing in this config is drawn from the seed, so all students would have "
                "the same numbers; leave out embeddings or weights, or a seed beside them"
            )
    names = [name for name in trace if name in set(blank)]
    after = following(trace, names)
    numbers = round_given(trace, names, decimals)
    numbers |= {name: np.full_like(trace[name], np.nan) for name in names}
    task = f"Fill in every null, to {decimals} decimals; the last may be off by one."
    told: dict[str, Any] = {"exercise": task, "decimals": decimals, "rounded": decimals, "blank": names}
    kept = {name: step for name, step in trace.steps.items() if name not in after}
    if student is not None:  # the seed follows from who it is, and would give the answers away
        told |= {"student": student.name} | ({"student_id": student.id} if student.id else {})
        told["config"] = {name: value for name, value in trace.config.items() if name != "seed"}
        seed = f", seed {settings.seed}"
        kept = {name: replace(step, formula=step.formula.replace(seed, "")) for name, step in kept.items()}
    handed_out = Trace(kept, {name: numbers[name] for name in kept}, {**trace.header, **told})
    return Exercise(handed_out, tuple(names), decimals, tuple(trace.steps.values()), student)


def round_given(trace: Trace, blank: Sequence[str], decimals: int) -> dict[str, Array]:
    """The numbers of a run in which each that is handed out is rounded before the next step reads it."""
    unseen = {*blank, *following(trace, blank)}
    edited = {edit["step"] for edit in trace.header.get("edits", ())}

    def rounded(name: str, value: Array) -> Array:
        value = trace[name] if name in edited else value
        return np.round(value, decimals) + value.dtype.type(0) if value.dtype.kind == "f" else value

    edits: dict[str, Edit] = {name: partial(rounded, name) for name in trace if name not in unseen}
    return carry_out(trace.derivation, trace, trace.config.get("dtype", "float64"), edits=edits).values


def following(trace: Trace, blank: Sequence[str]) -> list[str]:
    """The steps that are computed from blank ones and are not blank themselves."""
    found: list[str] = []
    for name, step in trace.steps.items():
        if name not in blank and {*blank, *found} & {*step.inputs}:
            found.append(name)
    return found


# --- the students of a class, and the files of their sheets ---

WHOLE_NAME = ("name", "student", "student name", "full name", "participant")
FIRST_NAME = ("first name", "firstname", "given name", "first")
LAST_NAME = ("last name", "lastname", "surname", "family name", "last")
ID = ("id", "student id", "id number", "student number", "sid")
"""What the columns of names and ids are called, in lower case: by Canvas, Gradescope, Moodle and people."""

TAKEN = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
"""Names that no file may have on Windows."""


def read_roster(path: str) -> list[Student]:
    """The students of a class. Raises AttnError where there are none, and for each that is there twice."""
    with refuse_os_errors(path, "; give a CSV of students"), open_input(path) as stream:
        text = decode(stream.read(MAX_BYTES + 1), path)
    students = students_in(text, path)
    raise_all([f"{path}: no student in it; write a name on each line"] * (not students))
    raise_all(twice(students, path))
    return [student for _, student in students]


def students_in(text: str, path: str) -> list[tuple[int, Student]]:
    """Each student with the line; names of several columns as First Last."""
    first_line = text.lstrip().partition("\n")[0]
    sign = max(",;\t", key=first_line.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=sign)
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as error:
        raise AttnError(f"{path}:{reader.line_num}: {error}; give a CSV of students") from None
    rows = [(line, row) for line, row in rows if any(row)]
    titles = [cell.casefold() for cell in rows[0][1]] if rows else []
    columns = first_column(titles, WHOLE_NAME)
    columns = columns or first_column(titles, FIRST_NAME) + first_column(titles, LAST_NAME)
    if not columns and any(len(row) > 1 for _, row in rows):
        raise AttnError(
            f"{path}:{rows[0][0]}: no column of names, only {all_of(map(quote, rows[0][1]))}; "
            "call one name, or two of them first name and last name"
        )
    named = rows[1:] if columns else rows
    ids = first_column(titles, ID) if columns else []

    def words(row: Sequence[str], places: Sequence[int]) -> str:
        return " ".join(" ".join(row[at] for at in places if at < len(row)).split())

    found = [(line, Student(words(row, columns or [0]), words(row, ids))) for line, row in named]
    return [(line, student) for line, student in found if student.name]


def first_column(titles: Sequence[str], names: Sequence[str]) -> list[int]:
    return [at for at, title in enumerate(titles) if title in names][:1]


def twice(students: Sequence[tuple[int, Student]], path: str) -> list[str]:
    first: dict[int, int] = {}
    problems = []
    for line, student in students:
        if (before := first.setdefault(student.seed, line)) != line:
            apart = f"tell them apart, like {student} 2, or by a column id"
            said = f"{student}, as in line {before}, would have the same numbers"
            problems.append(f"{path}:{line}: {said}; {'give each their own id' if student.id else apart}")
    return problems


def place_sheets(target: str, names: Sequence[str]) -> list[str]:
    """A file for each student: FOLDER/ is FOLDER/{name}.html."""
    if "{name}" not in target:
        target = str(Path(target) / "{name}.html")
    taken: set[str] = set()
    files = []
    for name in names:
        own_name = file_name(name)
        stems = chain([own_name], (f"{own_name}-{number}" for number in count(2)))
        stem = next(stem for stem in stems if stem.casefold() not in taken)
        taken.add(stem.casefold())
        files.append(target.replace("{name}", stem))
    return files


def file_name(name: str) -> str:
    """A name as one of a file: letters, digits, spaces, dots and dashes, on every system."""
    text = unicodedata.normalize("NFC", name)
    kept = "".join(char if char.isalnum() or char in " ._-'" else "_" for char in text)
    kept = kept.strip(" .")[:80].strip(" .") or "student"
    return f"{kept}_" if kept.partition(".")[0].casefold() in TAKEN else kept
