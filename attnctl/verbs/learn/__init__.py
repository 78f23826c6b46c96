"""Lessons: a text, a run, a question and what answers it, read from YAML; and which of them are done."""

from __future__ import annotations

import json
import re
from dataclasses import field
from functools import partial
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, collect_problems, raise_all
from attnctl.base.files import open_found, open_own, refuse_os_errors
from attnctl.base.setting import Form, Setting, list_of
from attnctl.base.values import FILE_NAME, WORD, BadValueError, Json, Path, Problem, Reader, refuse, words
from attnctl.base.words import did_you_mean
from attnctl.drawing.screen.text import visible
from attnctl.drawing.show import View, formula_of
from attnctl.inputs.config import yaml
from attnctl.inputs.config.form import settings_of
from attnctl.inputs.config.load import load, read_as
from attnctl.inputs.config.settings import EXAMPLE, Settings
from attnctl.inputs.plan.sentence import prepare
from attnctl.math.derivation import Step
from attnctl.math.names import EMBEDDINGS, X
from attnctl.math.ops import Given
from attnctl.record import Trace
from attnctl.store.files import data_folder, json_text, write_text
from attnctl.store.source import read_one
from attnctl.verbs.learn.expression import Value, evaluate, parse_expression

NUMBER, CELL, MATRIX, STEP, DUMP = KINDS = ("number", "cell", "matrix", "step", "dump")
"""What an answer may be: a number, the address of a cell, a matrix, the name of a step, a dump."""

SHIPPED = FilePath(__file__).parents[2] / "lessons"

NUMBERED = re.compile(r"[0-9]+[-_ ]*")  # what a file's name begins with so that lessons stand in order


@dataclass(frozen=True)
class Wrong:
    """An answer that shows a mistake: one of check's catalogue, or a value and what is said of it."""

    mistake: str = ""
    answer: str = ""  # what the mistake gives, as an expression over the run
    says: str = ""


@dataclass(frozen=True)
class Lesson:
    """One lesson; `name` is that of its file, without number and suffix."""

    name: str
    file: str
    title: str
    text: str
    ask: str
    kind: str
    answer: str  # an expression over the run
    settings: Settings | None = None
    dump: str = ""
    show: tuple[str, ...] = ()
    see: tuple[str, ...] = ()  # expressions that are shown with their values below the steps
    hints: tuple[str, ...] = ()
    wrong: tuple[Wrong, ...] = ()
    reveal: str = ""
    lines: dict[str, int] = field(default_factory=dict, compare=False, repr=False)  # the line of each key

    def run(self) -> Trace:
        """The run that the question is about. Raises AttnError with the lesson's file and line."""
        try:
            if self.dump:
                return read_one(str(FilePath(self.file).parent / self.dump), named=False)
            assert self.settings is not None
            return prepare(self.settings).run()
        except AttnError as error:
            raise self.refusal("dump" if self.dump else "run", error) from None

    def right(self, trace: Trace) -> Value:
        """Return the answer to the question. Raises AttnError with the lesson's file and line."""
        try:
            return evaluate(self.answer, trace)
        except AttnError as error:
            raise self.refusal("answer", error) from None

    def refusal(self, key: str, error: AttnError) -> AttnError:
        place = f"{self.file}:{self.lines.get(key, 1)} $.{key}"
        return AttnError(f"{place}: {problem}" for problem in error.problems)


def read_expression(value: Any) -> str:
    """The text of an expression, which is parsed to see that it is one."""
    text = WORD(value)
    try:
        parse_expression(text)
    except AttnError as error:
        raise BadValueError(*error.problems) from None
    return text


def mistake_names() -> list[str]:
    from attnctl.mistakes import CATALOGUE

    return [mistake.name for mistake in CATALOGUE]


def read_wrong(given: Json, *, shipped: bool = False) -> Wrong:
    """A wrong answer: the name of a mistake, or an answer with what is said of it.

    Those of lessons that are `shipped` are known by the tests, and the catalogue is not loaded for them.
    """
    if "answer" in given:
        if not given.get("says"):
            raise BadValueError("an answer, but nothing that is said of it; add says: …")
    elif "mistake" not in given:
        raise BadValueError("no answer and no mistake; write one of them")
    elif not shipped and given["mistake"] not in mistake_names():
        near = did_you_mean(given["mistake"], mistake_names(), "add an answer: … that shows it")
        raise BadValueError((("mistake",), f"{given['mistake']!r} is no mistake of the catalogue; {near}"))
    return Wrong(**given)


EXPRESSION = Reader(read_expression, {"type": "string"})
TEXTS = list_of(WORD)
WRONG_KEYS = [
    Setting("mistake", WORD, "A mistake of the catalogue of check, or a name for it."),
    Setting("answer", EXPRESSION, "What it gives, as an expression."),
    Setting("says", WORD, "What is said of it."),
]


def lesson_form(folder: FilePath) -> Form:
    wrong = partial(read_wrong, shipped=folder == SHIPPED)
    wrong_form = Form("wrong answer", "An answer that shows a mistake.", WRONG_KEYS, wrong)
    run = Reader(lambda value: read_run(value, str(folder)), {})
    keys = [
        Setting("title", WORD, "What it is about."),
        Setting("text", WORD, "What is to be read."),
        Setting("run", run, "A config, or example:NAME."),
        Setting("dump", FILE_NAME, "A dump beside this file, in place of a run."),
        Setting("show", TEXTS, "The steps that are shown."),
        Setting("see", list_of(EXPRESSION), "Expressions that are shown with their values."),
        Setting("ask", WORD, "The question."),
        Setting("kind", words(*KINDS), "What the answer is."),
        Setting("answer", EXPRESSION, "The answer, as an expression over the run."),
        Setting("hints", TEXTS, "Hints, one after the other."),
        Setting("wrong", list_of(wrong_form), "Answers that show a mistake."),
        Setting("reveal", WORD, "What is said when the answer was right."),
    ]
    return Form("lesson", "A lesson.", keys, require_keys)


def require_keys(given: Json) -> Json:
    lacking = [key for key in ("title", "text", "ask", "kind", "answer") if key not in given]
    problems: list[Problem] = [((), f"no {key}; a lesson needs it") for key in lacking]
    if ("run" in given) == ("dump" in given):
        problems.append(((), "a lesson has a run: … or a dump: …, one of them"))
    refuse(problems)
    return given


def read_run(value: Any, folder: str) -> Settings:
    """The settings of a run: a config as a mapping, or the name of an example."""
    if not isinstance(value, str):
        return settings_of(value, folder)
    if not value.startswith(EXAMPLE):
        raise BadValueError(f"{value!r} is no config; write keys and values, or example:NAME")
    try:
        return load(value)
    except AttnError as error:
        raise BadValueError(*error.problems) from None


def read_lesson(path: FilePath) -> Lesson:
    """Raises AttnError with every problem, each with its line."""
    with refuse_os_errors(path, "; give a folder of lessons"), open_found(path) as stream:
        text = yaml.decode(stream.read(), str(path))
    given = read_as(text, str(path), lesson_form(path.parent))
    keys: list[Path] = [(key,) for key in given]
    if "run" in given:
        given["settings"] = given.pop("run")
    lines = {str(key): line for (key,), line in yaml.line_numbers(text, keys).items()}
    name = NUMBERED.sub("", path.stem, count=1) or path.stem
    return Lesson(name=name, file=str(path), lines=lines, **given)


def lessons(folder: str | FilePath | None = None) -> list[Lesson]:
    """Every lesson of a folder in the order of its file names; None for those that are shipped.

    Raises AttnError with every problem of every file, and where there is no lesson.
    """
    place = SHIPPED if folder is None else FilePath(folder)
    with refuse_os_errors(place, "; give a folder of lessons"):
        files = sorted(path for path in place.iterdir() if path.suffix in {".yaml", ".yml"})
    if not files:
        raise AttnError(f"{place}: no lesson in it; a lesson is a .yaml file")

    read: list[Lesson] = []
    problems: list[str] = []
    for path in files:
        with collect_problems(problems):
            read.append(read_lesson(path))

    first_of_name: dict[str, str] = {}
    for lesson in read:
        namesake = first_of_name.setdefault(lesson.name, lesson.file)
        if namesake != lesson.file:
            problems.append(f"{lesson.file}: called {lesson.name}, as is {namesake}; rename one")
    raise_all(problems)
    return read


PROGRESS = "attnctl/progress/1"
OWN = "attnctl"  # what the lessons that are shipped are called; others by their folder


@dataclass
class Progress:
    """The lessons of each set that are done, with how many answers each took."""

    path: FilePath
    done: dict[str, dict[str, int]] = field(default_factory=dict)
    problem: str = ""  # why the file could not be read: it is then left as it is

    def of(self, lessons: str) -> dict[str, int]:
        return self.done.get(lessons, {})

    def add(self, lessons: str, name: str, tries: int) -> None:
        """Note that a lesson is done, and write it down. Raises AttnError where that cannot be."""
        self.done.setdefault(lessons, {})[name] = tries
        self.save()

    def reset(self, lessons: str) -> None:
        """Forget one set of lessons; a broken file is written anew."""
        self.done.pop(lessons, None)
        self.problem = ""
        if self.done or self.path.exists():
            self.save()

    def save(self) -> None:
        """Write the file, whole or not at all; a broken one stays until it is reset."""
        if self.problem:
            return
        with refuse_os_errors(f"{self.path.parent}: cannot be made"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(json_text({"schema": PROGRESS, "done": self.done}, indent=1) + "\n", self.path)


def read_progress(path: FilePath | None = None) -> Progress:
    """The progress of this user; a `problem` in it where the file is broken."""
    path = data_folder() / "progress.json" if path is None else path
    try:
        with open_own(path) as stream:
            data = json.loads(stream.read(2**20))
        return Progress(path, done_in(data))
    except FileNotFoundError:
        return Progress(path)
    except (OSError, ValueError, RecursionError) as error:
        why = (isinstance(error, OSError) and error.strerror) or "it is broken"
        problem = f"{path}: cannot be read: {why}; nothing is noted until attnctl learn --reset"
        return Progress(path, problem=problem)


def done_in(data: Any) -> dict[str, dict[str, int]]:
    """Read the lessons done from a file. Raises ValueError where it is not ours."""
    sets = data.get("done") if isinstance(data, dict) and data.get("schema") == PROGRESS else None
    if not isinstance(sets, dict):
        raise ValueError(PROGRESS)  # noqa: TRY004  (what is read, not what was passed)
    for done in sets.values():
        if not isinstance(done, dict) or not all(type(tries) is int for tries in done.values()):
            raise ValueError(PROGRESS)
    return sets


# --- a learner's own program: begun with what a lesson gives, carried out when it is saved ---


SECONDS = 20  # what a program of a few lines may take


def begin_program(lesson: Lesson, trace: Trace) -> str:
    """The file that a learner goes on from: what the lesson gives, and what is to be written."""
    from attnctl.drawing.show.program.libraries import LIBRARIES
    from attnctl.drawing.show.program.text import LectureProgram

    library = LIBRARIES["numpy"]
    program = LectureProgram(trace, library, View())
    for step in trace.steps.values():
        is_given = isinstance(step.op, Given) or step.name == X
        if is_given and step.name != EMBEDDINGS and step.name.isidentifier():
            program.write_given(step)

    lines = [comment(f"{lesson.title}: {trace.sentence or ''}"), *library.imports, "", *program.lines]
    lines += ["", "# Write these, a line each, and save: every line that is there is checked."]
    for step in steps_to_write(lesson, trace):
        lines.append(comment(f"{step.name}: {formula_of(step)}  {axes_text(step)}"))
    return "\n".join(lines) + "\n"


def comment(text: str) -> str:
    """A line that is not carried out, whatever a lesson or its dump says."""
    return f"# {visible(text)}"


def axes_text(step: Step) -> str:
    return f"({', '.join(step.axes)})"


def steps_to_write(lesson: Lesson, trace: Trace) -> list[Step]:
    """The computed steps of a lesson up to the one that it asks for."""
    wanted = trace.steps[lesson.answer.strip()]
    steps = list(trace.steps.values())
    until = steps[: steps.index(wanted) + 1]
    return [step for step in until if not isinstance(step.op, Given) and step.name != X]


def run_program(path: str, into: FilePath) -> str:
    """Carry a program out, its arrays into an .npz; what it printed. Raises AttnError where it fails."""
    from attnctl.sources.program.run import ending_of, record_program

    recording = record_program(path, SECONDS)
    if recording.ending:
        raise AttnError(ending_of(recording))
    arrays: dict[str, Any] = {
        name: recording.events[number].value
        for name, number in recording.variables.items()
        if recording.events[number].value is not None
    }
    np.savez(into, **arrays)
    return "\n".join(recording.printed.splitlines()[-20:])
