"""Lessons as text: the list, a lesson with what it shows, a verdict, a graded file of answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from attnctl.base.errors import AttnError
from attnctl.base.words import plural
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.text import fold_text
from attnctl.drawing.show import View, count_heads
from attnctl.drawing.show.frames import step_lines
from attnctl.drawing.show.headline import headline
from attnctl.record import Trace
from attnctl.record.cells import parse_address
from attnctl.verbs.explain import Explainer
from attnctl.verbs.explain.view import Page
from attnctl.verbs.learn import CELL, DUMP, MATRIX, NUMBER, STEP, Lesson
from attnctl.verbs.learn.expression import as_numbers, evaluate

if TYPE_CHECKING:
    from attnctl.verbs.learn.grade import AnswerVerdict

WIDEST = 80

WANTED = {
    NUMBER: "a number, like 2 or 0.623; three digits are enough",
    CELL: "a cell, like attention_weights[0,love,AI]",
    MATRIX: "numbers, like 0.39 0.61, or rows of them, like 1 0; 0 1 (or in brackets); three digits are "
    "enough",
    STEP: "the name of a step",
    DUMP: "the file of a dump",
}

MARKS = {True: "right", False: "not right yet", None: "cannot tell"}


def paragraphs(text: str, screen: Screen, style: str = "") -> Iterator[Line]:
    """A text at most 80 columns wide; lines that begin with spaces stay as they are."""
    width = min(WIDEST, screen.width)
    for is_prose, lines in groupby(text.rstrip().split("\n"), is_prose_line):
        if is_prose:
            whole = " ".join(line.strip() for line in lines)
            for line in fold_text(whole, width):
                yield [(screen.printable(line), style)]
            continue

        for line in lines:
            if line.strip():
                yield [(screen.printable(line), "")]
            else:
                yield []


def is_prose_line(line: str) -> bool:
    return bool(line.strip()) and not line.startswith(" ")


def list_lines(lessons: Sequence[Lesson], done: Mapping[str, int], screen: Screen) -> Iterator[Element]:
    rows = []
    for number, lesson in enumerate(lessons, start=1):
        state = "done" if lesson.name in done else ""
        name = screen.printable(lesson.name)
        title = screen.printable(lesson.title)
        rows.append([(str(number), ""), (state, ""), (name, "name"), (title, "")])
    titles = [["", "", "lesson", "about"]]
    yield from Listing(screen, titles, rows, left=frozenset({1, 2, 3})).fit(3).lines()
    yield []
    finished = sum(lesson.name in done for lesson in lessons)
    yield [(f"{finished} of {plural(len(lessons), 'lesson')} done.", "")]


def lesson_lines(lesson: Lesson, number: int, of: int, trace: Trace, screen: Screen) -> Iterator[Element]:
    yield [(f"Lesson {number} of {of}: ", ""), (screen.printable(lesson.title), "name")]
    yield []
    yield from paragraphs(lesson.text, screen)
    yield []
    if trace.sentence is not None:
        yield from headline(trace, screen._replace(fits=True, width=min(WIDEST, screen.width)))
        yield []
    heads = count_heads(trace, None)
    for name in lesson.show:
        yield from step_lines(trace, trace.select([name]).steps[name], screen, View(), heads)
        yield []
    for text in lesson.see:
        value = as_numbers(evaluate(text, trace))
        yield [(screen.printable(f"{text} = {value:.4g}"), "")]
    if lesson.see:
        yield []
    yield from paragraphs(lesson.ask, screen, "name")
    yield from paragraphs(f"(Answer with {WANTED[lesson.kind]}.)", screen, "aside")


def verdict_lines(verdict: AnswerVerdict, screen: Screen) -> Iterator[Element]:
    if verdict.right:
        yield [("Right.", "name")]
        return

    sentence = f"{verdict.says}."
    if verdict.right is False:  # None is what cannot be judged
        sentence = f"Not right yet: {sentence}"
    first_word = sentence.partition(" ")[0]
    if first_word.isalpha():  # not the name of a file
        sentence = sentence[:1].upper() + sentence[1:]
    yield from paragraphs(sentence, screen)
    if verdict.mistake:
        also = f"; also fits: {', '.join(verdict.also[:3])}" if verdict.also else ""
        yield [(screen.printable(f"({verdict.mistake}{also})"), "aside")]


def reveal_lines(lesson: Lesson, trace: Trace, screen: Screen) -> Iterator[Element]:
    from attnctl.verbs.learn.grade import answers_for

    arithmetic = arithmetic_lines(lesson, trace, screen)
    yield from arithmetic
    for answer in () if arithmetic else answers_for(lesson, trace):
        yield from paragraphs(f"{lesson.answer} is {answer}.", screen)
    if lesson.reveal:
        yield []
        yield from paragraphs(lesson.reveal, screen)


def arithmetic_lines(lesson: Lesson, trace: Trace, screen: Screen) -> list[Element]:
    """The arithmetic of the one cell that is asked for, as `explain` prints it; or nothing."""
    try:
        explainer = Explainer(trace)
        root = explainer.root(parse_address(lesson.answer).spell_out(explainer.trace), 1)
        lines = list(Page(explainer, screen).lines(root))
    except AttnError:  # not a cell
        return []
    return [*lines] if len(lines) < 12 else []


def graded_lines(verdicts: Mapping[str, AnswerVerdict | None], screen: Screen) -> Iterator[Element]:
    rows = []
    for name, verdict in verdicts.items():
        mark = "not answered"
        says = ""
        if verdict is not None:
            mark = MARKS[verdict.right]
            says = "" if verdict.right else verdict.mistake or verdict.says
        rows.append([(screen.printable(name), "name"), (mark, ""), (screen.printable(says), "")])

    titles = [["lesson", "answer", "what it shows"]]
    yield from Listing(screen, titles, rows, left=frozenset({0, 1, 2})).fit(2).lines()

    right = sum(verdict is not None and verdict.right is True for verdict in verdicts.values())
    yield []
    yield [(f"{right} of {plural(len(verdicts), 'lesson')} right.", "")]
