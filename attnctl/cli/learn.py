"""attnctl learn: lessons; predict, then reveal."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import strftime
from typing import TYPE_CHECKING, Any

from attnctl.base.errors import AttnError, Exit, raise_all
from attnctl.base.files import open_input, refuse_os_errors
from attnctl.base.words import all_of, did_you_mean, quote
from attnctl.cli.options import argument, command, excludes, needs, option
from attnctl.cli.program import complain
from attnctl.drawing.screen.output import print_view, say
from attnctl.formats import print_json, temporary_folder, write_text
from attnctl.inputs.config.fields import is_given
from attnctl.record import Trace
from attnctl.verbs.learn import (
    DUMP,
    OWN,
    Lesson,
    Progress,
    begin_program,
    lessons,
    read_progress,
    run_program,
    view,
)

if TYPE_CHECKING:
    from attnctl.verbs.learn.grade import AnswerVerdict


@command(
    "attnctl learn",
    "attnctl learn --list",
    "attnctl learn softmax",
    "attnctl learn 4 --hint",
    "attnctl learn --answers answers.yaml --json",
    "attnctl learn --watch mine.py",
)
def learn(  # noqa: PLR0913  (its options)
    *,
    which: str | None = argument("A lesson, by number or name.", "LESSON"),
    lesson: str | None = option(
        "The lesson, by number or name; with --answers several, separated by commas.",
        metavar="N",
        terms=[
            excludes("list_them", "means nothing with --list; leave it out"),
            excludes("reset", "means nothing with --reset; leave it out"),
            excludes("which", "a lesson is named already; leave one out"),
        ],
    ),
    list_them: bool = option(
        "List the lessons and which are done.",
        "--list",
        terms=[excludes("which", "lists every lesson; leave out LESSON")],
    ),
    hint: bool = option("Print the hints of the lesson."),
    reset: bool = option("Forget which lessons are done."),
    folder: str | None = option(
        "A folder with your own lessons, one YAML file each.", "--from", metavar="FOLDER"
    ),
    answers: str | None = option(
        "Grade the answers in a YAML file (lesson: answer), or - for stdin.", metavar="FILE"
    ),
    watch: str | None = option(
        "Run your own program whenever it is saved, and check its arrays (a .py, which is created if "
        "there is none; or a dump).",
        metavar="FILE",
    ),
    json: bool = option(
        "Print the list, or the grades, as JSON.",
        terms=[needs("list_them answers", "goes with --list or --answers")],
    ),
) -> Exit:
    """Learn attention: read, predict a number, and see whether it is right, or which mistake it shows.

    On a terminal the next unfinished lesson is shown and you type the answer; hint, show and q are
    commands. In a pipe the lesson is printed.

    Exit codes, with --answers: 0 all are right; 1 some are wrong or missing; 2 some cannot be judged.
    With --watch in a pipe the program is checked once: 0 right, 1 not right yet.
    """
    asked = {"--list": list_them, "--hint": hint, "--reset": reset, "--answers": answers, "--watch": watch}
    given = [flag for flag, value in asked.items() if is_given(value)]
    if len(given) > 1:
        raise AttnError(f"{', '.join(given)}: one of them at a time")

    lesson = lesson or which
    known = lessons(folder)
    name = OWN if folder is None else os.path.realpath(folder)
    if answers is not None:
        return grade_answers(known, answers, lesson, json=json)

    progress = read_progress()
    if reset:
        progress.reset(name)
        return Exit.OK
    if progress.problem:
        complain(progress.problem)
    if watch is not None:
        return watch_program(known, lesson, watch, progress, name=name)
    if list_them:
        return print_lessons(known, progress.of(name), json=json)

    place = one_lesson(lesson, known) if lesson else first_ahead(known, progress.of(name))
    if hint:
        for text in known[place].hints or ("There is no hint for this lesson.",):
            print_text(text)
        return Exit.OK
    if sys.stdin.isatty() and sys.stdout.isatty():
        return teach(known, place, progress, name)
    return print_lesson(known, place)


def one_lesson(text: str, known: list[Lesson]) -> int:
    places = lesson_places(text, known)
    if len(places) != 1:
        raise AttnError("--lesson: several; name one, or grade --answers")
    return places[0]


def first_ahead(known: list[Lesson], done: dict[str, int]) -> int:
    """The place of the first lesson that is not done; the first of all where none is left."""
    for place, lesson in enumerate(known):
        if lesson.name not in done:
            return place
    return 0


def lesson_places(text: str, known: list[Lesson]) -> list[int]:
    """Raises AttnError for each name or number that no lesson has."""
    names = [entry.name for entry in known]
    places: list[int] = []
    problems = []

    words = [part.strip() for part in text.split(",")]
    for word in filter(None, words):
        if word in names:
            places.append(names.index(word))
        elif word.isdecimal() and 1 <= int(word[:9]) <= len(known):
            places.append(int(word) - 1)
        else:
            near = did_you_mean(word, names, f"there are 1 to {len(known)}; attnctl learn --list")
            problems.append(f"--lesson: no lesson {quote(word)}; {near}")

    raise_all(problems)
    if not places:
        raise AttnError("--lesson: no name in it; write a number, like 4")
    return list(dict.fromkeys(places))


def print_lessons(known: list[Lesson], done: dict[str, int], *, json: bool) -> Exit:
    if json:
        rows = [
            {"lesson": entry.name, "title": entry.title, "kind": entry.kind, "done": entry.name in done}
            for entry in known
        ]
        print_json(rows, indent=1)
    else:
        print_view(lambda screen: view.list_lines(known, done, screen))
    return Exit.OK


def print_lesson(known: list[Lesson], place: int) -> Exit:
    lesson = known[place]
    number = place + 1
    print_view(partial(view.lesson_lines, lesson, number, len(known), lesson.run()))
    say("")
    print_text(
        f"To answer without a terminal, write a line like {lesson.name}: … to a file, "
        f"then attnctl learn --lesson {number} --answers FILE."
    )
    return Exit.OK


def print_text(text: str) -> None:
    print_view(partial(view.paragraphs, text))


def grade_answers(known: list[Lesson], path: str, lesson: str | None, *, json: bool) -> Exit:
    from attnctl.verbs.learn.grade import grade

    answers = read_answers(path, known)
    wanted = [known[place] for place in lesson_places(lesson, known)] if lesson else known
    if not any(entry.name in answers for entry in wanted):
        raise AttnError(f"{path}: no answer in it; write lines like {wanted[0].name}: …")

    folder = "" if path == "-" else os.path.dirname(path)  # noqa: PTH120  (pathlib would rewrite ./x)
    verdicts: dict[str, AnswerVerdict | None] = {}
    for entry in wanted:
        is_answered = entry.name in answers
        verdicts[entry.name] = grade(entry, answers[entry.name], folder=folder) if is_answered else None

    if json:
        print_json({name: verdict and asdict(verdict) for name, verdict in verdicts.items()}, indent=1)
    else:
        print_view(lambda screen: view.graded_lines(verdicts, screen))

    # One wrong answer is enough to fail, whatever cannot be judged beside it; a missing one is wrong.
    right = [verdict is not None and verdict.right for verdict in verdicts.values()]
    if None in right and False not in right:
        return Exit.of(None)
    return Exit.of(all(right))


def read_answers(path: str, known: list[Lesson]) -> dict[str, Any]:
    """The answers of a YAML file by the name of their lesson. Raises AttnError with every problem."""
    from attnctl.inputs.config import yaml
    from attnctl.inputs.config.load import read_as

    name = "<stdin>" if path == "-" else path
    with refuse_os_errors(name, "; give a YAML file of answers"), open_input(path) as stream:
        text = yaml.decode(stream.read(yaml.MAX_BYTES + 1), name)
    data = read_as(text, name, lambda data: data)
    if not isinstance(data, dict):
        raise AttnError(f"{name}: no answers; write lines like {known[0].name}: …")

    lines = yaml.line_numbers(text, [(key,) for key in data])
    answers: dict[str, Any] = {}
    unknown = []
    for key, answer in data.items():
        try:
            first, *_ = lesson_places(key, known)
            answers[known[first].name] = answer
        except AttnError as error:
            place = f"{name}:{lines[key,]}"
            unknown += [f"{place} {problem.removeprefix('--lesson: ')}" for problem in error.problems]
    raise_all(unknown)
    return answers


END, NEXT, DONE = "q", "skip", "done"
"""How a lesson ends: the person leaves, goes on without, or has answered."""

HELP = "Type an answer; or hint, show (the answer), again (the lesson), skip (to the next) or q (to end)."


def teach(lessons: list[Lesson], first: int, progress: Progress, name: str) -> Exit:
    for place in range(first, len(lessons)):
        end = hold_lesson(lessons, place, progress, name)
        if end == END:
            return Exit.OK

        is_last = place + 1 == len(lessons)
        if end == DONE and not is_last:
            say("")
            if ask_line("Enter: next lesson, q: end > ") in {END, None}:
                return Exit.OK
            say("")

    finished = sum(lesson.name in progress.of(name) for lesson in lessons)
    say(f"That was the last lesson. {finished} of {len(lessons)} are done.")
    return Exit.OK


def ask_line(prompt: str) -> str | None:
    """The line that a person types, None at the end of the input; the cursor then begins a new line."""
    say(prompt, end="")
    line = ""
    try:
        line = sys.stdin.readline()
    finally:
        if not line.endswith("\n"):
            say("")
    return line.strip() if line else None


def hold_lesson(lessons: list[Lesson], place: int, progress: Progress, name: str) -> str:
    """Hear answers until one is right; returns how it ended."""
    lesson = lessons[place]
    trace = lesson.run()
    hints = iter(lesson.hints)
    shown = partial(view.lesson_lines, lesson, place + 1, len(lessons), trace)
    reveal = partial(view.reveal_lines, lesson, trace)

    print_view(shown)
    tries = 0
    while True:
        say("")
        match ask_line("> "):
            case None | "q" | "quit" | "exit":
                return END
            case "skip":
                say("")
                return NEXT
            case "" | "?" | "help":
                print_text(HELP)
            case "again":
                print_view(shown)
            case "hint":
                print_text(next(hints, "There is no other hint; show tells the answer."))
            case "show":
                print_view(reveal)
                return DONE
            case typed:
                from attnctl.verbs.learn.grade import grade  # and what it grades by: not to read a lesson

                tries += 1
                verdict = grade(lesson, typed, trace)
                print_view(partial(view.verdict_lines, verdict))
                if verdict.right:
                    note(progress, name, lesson.name, tries)
                    print_view(reveal)
                    return DONE


def watch_program(
    known: list[Lesson], named: str | None, path: str, progress: Progress, *, name: str
) -> Exit:
    """A learner's program, graded whenever it is saved, until it is right; once where nobody watches."""
    from attnctl.sources.program.run import look_again

    lesson = lesson_of_program(known, named)
    trace = lesson.run()
    watched = sys.stdout.isatty()
    if path.endswith(".py") and not Path(path).exists():
        write_text(begin_program(lesson, trace), path)
        say(f"Wrote {path}: what the lesson gives, and a line for you to fill in.")
        if not watched:
            return Exit.OK

    if watched:
        say(f"Edit {path} and save it: it is checked again each time. Ctrl-C ends.")
    for tries, _ in enumerate(look_again(path), start=1):
        if watched:
            say("", f"{path}, {strftime('%H:%M:%S')}")
        printed, verdict = grade_file(lesson, path, trace)
        if printed:
            say(*printed.splitlines())
        print_view(partial(view.verdict_lines, verdict))
        if verdict.right:
            note(progress, name, lesson.name, tries)
            print_text(lesson.reveal)
            break
        if not watched:
            return Exit.DIFFERS
    return Exit.OK


def lesson_of_program(known: list[Lesson], named: str | None) -> Lesson:
    """The lesson of this name, or else the first, that asks for a program. Raises AttnError for others."""
    programs = [entry for entry in known if entry.kind == DUMP]
    chosen = [known[place] for place in lesson_places(named, known)] if named else programs[:1]
    if len(chosen) != 1 or chosen[0] not in programs:
        names = all_of(program.name for program in programs) or "none"
        raise AttnError(
            f"--watch: of lessons that ask for a program there is {names}; name it with --lesson"
        )
    return chosen[0]


def grade_file(lesson: Lesson, path: str, trace: Trace) -> tuple[str, AnswerVerdict]:
    """Grade a dump, or the arrays of a program that is run; returns what the program printed, too."""
    from attnctl.verbs.learn.grade import AnswerVerdict, grade

    if not path.endswith(".py"):
        return "", grade(lesson, path, trace)
    with temporary_folder() as folder:
        try:
            printed = run_program(path, Path(folder) / "arrays.npz")
        except AttnError as error:
            return "", AnswerVerdict(None, "; ".join(error.problems))
        return printed, grade(lesson, "arrays.npz", trace, folder)


def note(progress: Progress, name: str, lesson: str, tries: int) -> None:
    try:
        progress.add(name, lesson, tries)
    except AttnError as error:
        complain(*error.problems)
