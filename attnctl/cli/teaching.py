"""Terminal sessions, a step at a time: lessons, whose answers are typed, and stories by chapter."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from shutil import get_terminal_size
from tempfile import TemporaryDirectory
from time import strftime
from typing import TYPE_CHECKING, Any

from attnctl.base.errors import AttnError, Exit
from attnctl.drawing.screen.output import say

if TYPE_CHECKING:
    from attnctl.drawing.screen.output import Element
    from attnctl.drawing.screen.screen import Screen
    from attnctl.record.trace import Trace
    from attnctl.verbs.learn import AnswerVerdict, Lesson
    from attnctl.verbs.learn.progress import Progress

END, NEXT, DONE = "q", "skip", "done"
"""How a lesson ends: the person leaves, goes on without, or has answered."""

HELP = "Type an answer; or hint, show (the answer), again (the lesson), skip (to the next) or q (to end)."

PROMPT = 3
"""Lines that are needed below and between the text and the question."""

ROWS = 24
"""Lines of a terminal that does not say how many it has."""

LONGEST = 12
"""Lines of arithmetic that are shown when an answer was right."""


def teach(lessons: list[Lesson], first: int, progress: Progress, name: str) -> Exit:
    """Lesson after lesson, until the person ends."""
    for at in range(first, len(lessons)):
        ended = Lecture(lessons, at).hold(progress, name)
        if ended == END:
            return Exit.OK
        if ended == DONE and at + 1 < len(lessons):
            say("")
            if ask_line("Enter: next lesson, q: end > ") in {END, None}:
                return Exit.OK
            say("")
    finished = sum(lesson.name in progress.of(name) for lesson in lessons)
    say(f"That was the last lesson. {finished} of {len(lessons)} are done.")
    return Exit.OK


def ask_line(prompt: str) -> str | None:
    """The line that a person types; None at the end of the input.

    Ctrl-C and Ctrl-D, which end no line, leave the cursor at the beginning of one.
    """
    say(prompt, end="")
    line = ""
    try:
        line = sys.stdin.readline()
    finally:
        if not line.endswith("\n"):
            say("")
    return line.strip() if line else None


class Lecture:
    """One lesson with its run."""

    def __init__(self, lessons: list[Lesson], at: int) -> None:
        from attnctl.drawing.screen.output import output_for, screen_of

        self.lesson, self.number, self.of = lessons[at], at + 1, len(lessons)
        self.trace: Trace = self.lesson.run()
        self.output = output_for(sys.stdout, os.environ)
        self.screen: Screen = screen_of(self.output)
        self.hints = iter(self.lesson.hints)

    def print(self, lines: Iterator[Element]) -> None:
        """Lines and tables on the terminal."""
        from attnctl.drawing.screen.output import print_lines

        print_lines(lines, self.output)

    def show(self) -> None:
        """The lesson itself; where the terminal is too low for all of it, its text first."""
        from attnctl.drawing.screen.output import plain_text
        from attnctl.verbs.learn.view import question_lines, text_lines

        text = list(text_lines(self.lesson, self.number, self.of, self.screen))

        def question() -> Iterator[Element]:
            return question_lines(self.lesson, self.trace, self.screen)

        self.print(iter(text))
        height = sum(1 for _ in plain_text([*text, *question()])) + PROMPT
        if height > (get_terminal_size().lines or ROWS):
            say("")
            ask_line("Enter: the numbers > ")
        say("")
        self.print(question())

    def hold(self, progress: Progress, name: str) -> str:
        """Show it, and hear answers until one is right; how it ended."""
        from attnctl.verbs.learn import grade
        from attnctl.verbs.learn.view import space_paragraphs, verdict_lines

        self.show()
        tries = 0
        while True:
            say("")
            typed = ask_line("> ")
            match typed:
                case None | "q" | "quit" | "exit":
                    return END
                case "skip":
                    say("")
                    return NEXT
                case "" | "?" | "help":
                    self.print(space_paragraphs(HELP, self.screen))
                case "again":
                    self.show()
                case "hint":
                    hint = next(self.hints, "There is no other hint; show tells the answer.")
                    self.print(space_paragraphs(hint, self.screen))
                case "show":
                    self.reveal()
                    return DONE
                case _:
                    tries += 1
                    verdict = grade(self.lesson, typed, self.trace)
                    self.print(verdict_lines(verdict, self.screen))
                    if verdict.right:
                        note(progress, name, self.lesson.name, tries)
                        self.reveal()
                        return DONE

    def reveal(self) -> None:
        """The answer, its arithmetic, and what is to be said of it."""
        from attnctl.verbs.learn.grade import answers_for
        from attnctl.verbs.learn.view import space_paragraphs

        arithmetic = self.arithmetic()
        if arithmetic:
            self.print(iter(arithmetic))
        else:
            for each in answers_for(self.lesson, self.trace):
                self.print(space_paragraphs(f"{self.lesson.answer.text} is {each}.", self.screen))
        if self.lesson.reveal:
            say("")
            self.print(space_paragraphs(self.lesson.reveal, self.screen))

    def arithmetic(self) -> list[Element]:
        """The arithmetic of the one cell that is asked for, as `explain` prints it; or nothing."""
        from attnctl.record.cells import parse
        from attnctl.verbs.explain import Explainer
        from attnctl.verbs.explain.view import Page

        try:
            explainer = Explainer(self.trace)
            root = explainer.root(parse(self.lesson.answer.text).spell_out(explainer.trace), 1)
            lines = list(Page(explainer, self.screen).lines(root))
        except AttnError:  # not a cell
            return []
        return [*lines] if len(lines) < LONGEST else []


def watch(lesson: Lesson, path: str, progress: Progress, name: str) -> Exit:
    """A learner's program, graded whenever it is saved, until it is right; once where nobody watches."""
    from attnctl.drawing.screen.output import output_for, print_lines, screen_of
    from attnctl.formats import write_text
    from attnctl.verbs.learn.program import begin_program, look_again
    from attnctl.verbs.learn.view import space_paragraphs, verdict_lines

    output, trace, watched = output_for(sys.stdout, os.environ), lesson.run(), sys.stdout.isatty()
    screen = screen_of(output)
    if path.endswith(".py") and not Path(path).exists():
        write_text(begin_program(lesson, trace), path)
        say(f"{path} has what the lesson gives.")
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
        print_lines(verdict_lines(verdict, screen), output)
        if verdict.right:
            note(progress, name, lesson.name, tries)
            print_lines(space_paragraphs(lesson.reveal, screen), output)
            break
        if not watched:
            return Exit.DIFFERS
    return Exit.OK


def grade_file(lesson: Lesson, path: str, trace: Trace) -> tuple[str, AnswerVerdict]:
    """Grade a dump, or the arrays of a program that is run; returns what the program printed, too."""
    from attnctl.verbs.learn import AnswerVerdict, grade
    from attnctl.verbs.learn.program import run_program

    if not path.endswith(".py"):
        return "", grade(lesson, path, trace)
    with TemporaryDirectory() as folder:
        try:
            printed = run_program(path, Path(folder) / "arrays.npz")
        except AttnError as error:
            return "", AnswerVerdict(None, "; ".join(error.problems))
        return printed, grade(lesson, "arrays.npz", trace, folder)


def note(progress: Progress, name: str, lesson: str, tries: int) -> None:
    """Note that a lesson is done; say it where that cannot be written."""
    from attnctl.cli.program import complain

    try:
        progress.add(name, lesson, tries)
    except AttnError as error:
        for problem in error.problems:
            complain(problem)


# --- stories ---

ENDS = {"q", "Q", "\x1b", "\x04", ""}
"""The keys that end a story: q, Escape, and the end of the input."""


def tell(traces: Sequence[Trace], steps: Sequence[Sequence[str] | None]) -> None:
    """Print the story of each trace, of these `steps` of it if named; on a terminal a key goes on."""
    from attnctl.drawing.screen.output import output_for, print_lines, screen_of
    from attnctl.verbs.story import story
    from attnctl.verbs.story.view import chapter_lines, opening

    output = output_for(sys.stdout, os.environ)
    screen = screen_of(output)
    stepwise = sys.stdin.isatty() and sys.stdout.isatty()
    for number, trace in enumerate(traces):
        told = story(trace, steps[number])
        print_lines([[]] * bool(number), output)
        print_lines(opening(told, screen), output)
        for at in range(len(told.chapters)):
            if stepwise and at and ask_key("Enter: next step, q: end") in ENDS:
                return
            print_lines([[], *chapter_lines(told, at, screen)], output)


def ask_key(prompt: str) -> str:
    """The key that a person presses after this prompt, which is gone then; "" at the end of the input."""
    say("", prompt, end=" ")
    try:
        return read_key()
    finally:
        sys.stdout.write("\r\x1b[K\x1b[A")
        sys.stdout.flush()


def read_key() -> str:
    """A key, without waiting for Enter; the first letter of a line where that cannot be had."""
    try:
        termios: Any = import_module("termios")  # Windows has none
        tty: Any = import_module("tty")
        stream = sys.stdin.fileno()
        before = termios.tcgetattr(stream)
    except (ImportError, OSError, ValueError):
        line = sys.stdin.readline()
        return line[:1] if line else ""
    try:
        tty.setcbreak(stream, termios.TCSANOW)  # a key that was pressed already counts
        return sys.stdin.read(1)
    finally:
        termios.tcsetattr(stream, termios.TCSADRAIN, before)
