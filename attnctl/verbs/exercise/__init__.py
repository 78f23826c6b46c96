"""A run as an exercise, some steps blank and nothing in it that gives them away; the class it is for."""

from __future__ import annotations

import csv
import hashlib
import io
import unicodedata
from collections.abc import Container, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

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
    points: Mapping[str, int] = field(default_factory=dict)
    """How many each blank step is worth, where that is said."""
    is_key: bool = False
    """Whether the answers stand in its blanks."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Steps that would give the blank ones away."""
        return tuple(step.name for step in self.steps if step.name not in self.trace)


def make(
    settings: Settings,
    blank: Sequence[str],
    student: Student | None = None,
    decimals: int = DECIMALS,
    points: Mapping[str, int] | None = None,
    *,
    key: bool = False,
) -> Exercise:
    """The exercise of a run with these steps blank; a `student` has numbers of their own.

    `points` say what each is worth. A `key` has the answers in its blanks.

    Raises AttnError for a step that is not there or not computed, and for a student whose numbers
    would be those of everybody.
    """
    if student is not None:
        settings = settings.with_(seed=student.seed)
    trace = prepare(settings).run()
    names = names_to_blank(trace, blank)
    if student is not None:
        refuse_same_numbers(trace, settings)

    numbers = round_given(trace, names, decimals)
    for name in names:
        answers = np.round(numbers[name], decimals) + 0.0  # + 0 makes 0 of -0
        numbers[name] = answers.astype(trace[name].dtype) if key else np.full_like(trace[name], np.nan)

    left_out = following(trace, names)
    steps = {name: step for name, step in trace.steps.items() if name not in left_out}
    header = {
        **trace.header,
        "exercise": f"Fill in every null, to {decimals} decimals; the last may be off by one.",
        "decimals": decimals,
        "rounded": decimals,
        "blank": names,
    }
    worth = points_of_steps(points or {}, names, list(trace))
    if worth:
        header["points"] = worth
    if student is not None:
        header |= header_of_student(student, trace.config)
        steps = {name: without_seed(step, settings.seed) for name, step in steps.items()}

    handed_out = Trace(steps, {name: numbers[name] for name in steps}, header)
    return Exercise(
        handed_out,
        tuple(names),
        decimals,
        steps=tuple(trace.steps.values()),
        student=student,
        points=worth,
        is_key=key,
    )


MOST_POINTS = 1000


def read_points(text: str) -> dict[str, int]:
    """scores=2,output=3 -> what each step is worth. Raises AttnError for what is no number of points."""
    points: dict[str, int] = {}
    problems = []
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, number = part.partition("=")
        is_number = number.strip().isascii() and number.strip().isdigit()
        if not is_number or int(number[:9]) > MOST_POINTS:
            problems.append(f"--points: {quote(part)} is not STEP=N, N up to {MOST_POINTS}; write scores=2")
        else:
            points[name.strip()] = int(number)
    raise_all(problems)
    if not points:
        raise AttnError("--points: no step in it; write what steps are worth, like scores=2,output=3")
    return points


def points_of_steps(
    points: Mapping[str, int], blank: Sequence[str], known: Sequence[str]
) -> dict[str, int]:
    """What each blank step is worth, 1 if nothing is said. Raises AttnError for steps not blank."""
    if not points:
        return {}
    worth = dict.fromkeys(blank, 1)
    problems = []
    for word, number in points.items():
        (name,) = names_of_steps([word], known)
        if name not in worth:
            problems.append(
                f"--points {word}: it is not to be filled in; add it to --blank, or leave it out"
            )
        worth[name] = number
    raise_all(problems)
    return worth


def names_to_blank(trace: Trace, blank: Sequence[str]) -> list[str]:
    """The steps to blank, in the order of the run. Raises AttnError for none, and for one that is given."""
    wanted = names_of_steps(blank, list(trace))
    if not wanted:
        raise AttnError("--blank: no step in it; name steps that are computed, like scores")

    given = [name for name in wanted if isinstance(trace.steps[name].op, Given)]
    raise_all(
        f"--blank {name}: it is given, not computed; blank a step that follows from it" for name in given
    )
    return [name for name in trace if name in wanted]


def refuse_same_numbers(trace: Trace, settings: Settings) -> None:
    """Raise AttnError where another seed changes nothing, as then every student has the same numbers."""
    other = prepare(settings.with_(seed=(settings.seed + 1) % SEEDS)).run()
    if all(np.array_equal(trace[name], other[name], equal_nan=True) for name in trace):
        raise AttnError(
            "--seed-from: nothing in this config is drawn from the seed, so all students would have "
            "the same numbers; leave out embeddings or weights, or a seed beside them"
        )


def header_of_student(student: Student, config: Mapping[str, Any]) -> dict[str, Any]:
    """Who a sheet is for, and its config without the seed.

    The seed follows from who it is, and would give the answers away.
    """
    header: dict[str, Any] = {"student": student.name}
    if student.id:
        header["student_id"] = student.id
    header["config"] = {name: value for name, value in config.items() if name != "seed"}
    return header


def without_seed(step: Step, seed: int) -> Step:
    return replace(step, formula=step.formula.replace(f", seed {seed}", ""))


def round_given(trace: Trace, blank: Sequence[str], decimals: int) -> dict[str, Array]:
    """The numbers of a run in which each that is handed out is rounded before the next step reads it."""
    not_handed_out = {*blank, *following(trace, blank)}
    edited = {edit["step"] for edit in trace.header.get("edits", ())}

    def rounded(name: str, value: Array) -> Array:
        if name in edited:
            value = trace[name]
        if value.dtype.kind != "f":
            return value
        return np.round(value, decimals) + value.dtype.type(0)  # + 0 makes 0 of -0

    edits: dict[str, Edit] = {name: partial(rounded, name) for name in trace if name not in not_handed_out}
    dtype = trace.config.get("dtype", "float64")
    return carry_out(trace.derivation, trace, dtype, edits=edits).values


def following(trace: Trace, blank: Sequence[str]) -> list[str]:
    """The steps that are computed from blank ones and are not blank themselves."""
    unknown = set(blank)
    names: list[str] = []
    for name, step in trace.steps.items():
        if name not in blank and not unknown.isdisjoint(step.inputs):
            unknown.add(name)
            names.append(name)
    return names


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
    entries = students_in(text, path)
    if not entries:
        raise AttnError(f"{path}: no student in it; write a name on each line")
    raise_all(twice(entries, path))
    return [entry.student for entry in entries]


class Entry(NamedTuple):
    """A student of a roster, with the line."""

    line: int
    student: Student


class RosterRow(NamedTuple):
    """The cells of a row of a roster, with the line where it ends."""

    line: int
    cells: list[str]

    def words(self, columns: Sequence[int]) -> str:
        """What stands in these columns, a blank between any two words."""
        present = [self.cells[column] for column in columns if column < len(self.cells)]
        return " ".join(" ".join(present).split())


def students_in(text: str, path: str) -> list[Entry]:
    """Each student with the line; names of several columns as First Last."""
    rows = roster_rows(text, path)
    titles = [cell.casefold() for cell in rows[0].cells] if rows else []
    name_columns = first_column(titles, WHOLE_NAME)
    if not name_columns:
        name_columns = first_column(titles, FIRST_NAME) + first_column(titles, LAST_NAME)

    if not name_columns and any(len(row.cells) > 1 for row in rows):
        raise AttnError(
            f"{path}:{rows[0].line}: no column of names, only {all_of(map(quote, rows[0].cells))}; "
            "call one name, or two of them first name and last name"
        )

    id_columns: list[int] = []
    if name_columns:
        id_columns = first_column(titles, ID)
        rows = rows[1:]  # the first row holds the titles
    else:
        name_columns = [0]

    entries = []
    for row in rows:
        student = Student(row.words(name_columns), row.words(id_columns))
        if student.name:
            entries.append(Entry(row.line, student))
    return entries


def roster_rows(text: str, path: str) -> list[RosterRow]:
    """The rows that are not empty, their cells told apart by the sign that the first line has most of."""
    first_line = text.lstrip().partition("\n")[0]
    sign = max(",;\t", key=first_line.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=sign)
    try:
        rows = [RosterRow(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as error:
        raise AttnError(f"{path}:{reader.line_num}: {error}; give a CSV of students") from None
    return [row for row in rows if any(row.cells)]


def first_column(titles: Sequence[str], names: Sequence[str]) -> list[int]:
    """The first column with one of these titles, as a list; empty where there is none."""
    return [column for column, title in enumerate(titles) if title in names][:1]


def twice(entries: Sequence[Entry], path: str) -> list[str]:
    """A problem for each student whose numbers would be those of a student before."""
    first_lines: dict[int, int] = {}
    problems = []
    for line, student in entries:
        first_line = first_lines.setdefault(student.seed, line)
        if first_line == line:
            continue
        problem = f"{student}, as in line {first_line}, would have the same numbers"
        apart = f"tell them apart, like {student} 2, or by a column id"
        advice = "give each their own id" if student.id else apart
        problems.append(f"{path}:{line}: {problem}; {advice}")
    return problems


def place_sheets(target: str, names: Sequence[str]) -> list[str]:
    """A file for each student: FOLDER/ is FOLDER/{name}.html."""
    if "{name}" not in target:
        target = str(Path(target) / "{name}.html")
    taken: set[str] = set()
    files = []
    for name in names:
        stem = free_stem(file_name(name), taken)
        taken.add(stem.casefold())  # some systems do not tell cases apart
        files.append(target.replace("{name}", stem))
    return files


def free_stem(name: str, taken: Container[str]) -> str:
    """The name of a file, with a number behind it where it is taken."""
    stem = name
    for number in count(2):
        if stem.casefold() not in taken:
            break
        stem = f"{name}-{number}"
    return stem


def file_name(name: str) -> str:
    """A name as one of a file: letters, digits, spaces, dots and dashes, on every system."""
    text = unicodedata.normalize("NFC", name)
    kept = "".join(char if char.isalnum() or char in " ._-'" else "_" for char in text)
    kept = kept.strip(" .")[:80].strip(" .") or "student"
    return f"{kept}_" if kept.partition(".")[0].casefold() in TAKEN else kept
