"""The explorer: a walk, the keys that lead on, and what is drawn of it."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from attnctl.base.errors import AttnError
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.palette import background
from attnctl.drawing.screen.text import fold_text
from attnctl.math import Cell
from attnctl.verbs.explore import remake, view
from attnctl.verbs.explore import walk as go
from attnctl.verbs.explore.matrix import Matrix
from attnctl.verbs.explore.view import KEYS, Parts, TextSpan
from attnctl.verbs.explore.walk import ExplorerState, TracedLayer
from attnctl.verbs.explore.widgets import Lines, MatrixGrid, Steps, TextDialog

SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))

LOW, TALL = 20, 34
"""Lines of a terminal below which the arithmetic has fewer of them, and from which on more."""

ARITHMETIC, ARITHMETIC_OF_TALL = 9, 14
OTHERS = 5  # lines of the title, the heading, the message and the keys

NARROW, WIDE = 60, 100
"""Columns of a terminal below which the steps have none, and from which on they have more, and heads stand
beside each other."""

MOST_BESIDE, BETWEEN = 3, 3  # heads beside the one that is looked at, and the blanks between two

Step = Callable[[ExplorerState], ExplorerState]

MOST_SAID = 4  # lines of what is said above the keys


class Explorer(App[None]):
    """Left the steps, in the middle the matrix, below the arithmetic of the cell under the cursor."""

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(name, f"nth({name})" if key.action == "nth" else key.action, show=False)
            for key in KEYS
            for name in key.keys.split(",")
        ),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+q", "quit", show=False, priority=True),
        Binding("escape", "dismiss", show=False),
    ]

    def __init__(self, walk: ExplorerState, precision: int = 4, encoding: str = "utf-8") -> None:
        super().__init__(ansi_color=True)
        self.walk, self.precision, self.encoding = walk, precision, encoding
        self.message = ""
        self.asked = ""
        self.written: list[str] = []
        self.error: Exception | None = None
        self.signal = 0
        self.matrix = lru_cache(maxsize=64)(self.matrix_of)

    # --- what is drawn ---

    def compose(self) -> ComposeResult:
        yield Lines(id="title")
        with Horizontal(id="middle"):
            yield Steps(id="steps")
            with Vertical():
                yield Lines(id="heading")
                with Horizontal():
                    yield MatrixGrid(id="grid")
                    for number in range(1, MOST_BESIDE + 1):
                        yield MatrixGrid(number, id=f"grid{number}")
        yield Lines(id="arithmetic")
        yield Lines(id="message")
        with Horizontal(id="ask"):
            yield Lines(id="question")
            yield Input(compact=True)
        yield Lines(id="foot")

    def on_mount(self) -> None:
        """Leave out what a terminal without Unicode cannot show."""
        if self.marks.ascii_only:
            for widget in (*self.query(Lines), *self.query(MatrixGrid), self.query_one(Steps)):
                widget.add_class("ascii")
        if sys.__stdin__ is not None and sys.__stdin__.isatty() and hasattr(select, "poll"):
            self.set_interval(1.0, self.leave_where_nobody_is)

    def leave_where_nobody_is(self) -> None:
        """Leave when the terminal was closed without a signal: Textual would read on without a pause."""
        assert sys.__stdin__ is not None
        terminal = select.poll()
        terminal.register(sys.__stdin__.fileno(), 0)
        if any(events & select.POLLHUP for _, events in terminal.poll(0)):
            self.stop_at_signal(signal.SIGHUP)

    @property
    def marks(self) -> Screen:
        colours = not self.no_color and self.console.color_system is not None
        shades = colours and self.console.color_system in {"truecolor", "256"}
        return Screen(self.size.width, True, self.encoding, colours, shades)

    def matrix_of(self, layer: TracedLayer, step: str, lead: Cell, corner: str = "") -> Matrix:
        return Matrix(layer.trace, step, lead, self.marks, self.precision, layer.difference(step), corner)

    def on_load(self) -> None:
        """Before anything is drawn: a signal leaves the terminal as it was."""
        for number in SIGNALS:
            try:
                asyncio.get_running_loop().add_signal_handler(number, self.stop_at_signal, number)
            except (NotImplementedError, ValueError, RuntimeError):  # not on Windows, nor in a thread
                break

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        walk, screen = self.walk, self.marks
        steps = self.query_one(Steps)
        high = ARITHMETIC_OF_TALL if self.size.height >= TALL else ARITHMETIC
        if self.size.height < LOW:  # the matrix comes first
            rows = self.matrix(walk.layer, walk.step, walk.lead).rows
            high = max(3, min(high, self.size.height - OTHERS - rows - 1))
        self.lines("arithmetic").styles.height = high
        steps.display = self.size.width >= NARROW
        steps.set_class(self.size.width >= WIDE, "wide")
        steps.set_class(walk.layer.before is not None, "edited")
        self.lines("title").show([view.title(walk, screen)])
        self.lines("heading").show(view.heading(walk, screen))
        steps.show(walk, screen, 2 if 2 * len(walk.layer.steps) <= steps.size.height else 1)
        self.draw_heads()
        self.lines("foot").show([view.foot(self.size.width)])
        beside_scrollbar = screen._replace(width=max(30, self.size.width - 1))  # columns at least
        self.lines("arithmetic").show(view.arithmetic_lines(walk, beside_scrollbar, self.precision))
        self.say("")

    def draw_heads(self) -> None:
        """Draw the matrix, and on a wide terminal those of the next heads beside it."""
        walk = self.walk
        alone = self.matrix(walk.layer, walk.step, walk.lead)
        matrices = [alone]
        axis = walk.axes.index("head") if "head" in walk.axes[:-2] else None
        if axis is not None and (size := walk.array.shape[axis]) > 1:
            heads = [(walk.lead[axis] + by) % size for by in range(min(size, MOST_BESIDE + 1))]
            leads = {f"head {head}": (*walk.lead[:axis], head, *walk.lead[axis + 1 :]) for head in heads}
            matrices = [self.matrix(walk.layer, walk.step, lead, corner) for corner, lead in leads.items()]
        needed = matrices[0].label_width + matrices[0].columns * matrices[0].cell_width(walk.mode) + BETWEEN
        room = self.size.width - self.query_one(Steps).outer_size.width
        shown = min(len(matrices), room // needed) if self.size.width >= WIDE else 1
        for number, grid in enumerate(self.query(MatrixGrid)):
            grid.display = number < max(1, shown)
            grid.styles.width = needed if shown > 1 else "1fr"
            if grid.display:
                grid.show(matrices[number] if shown > 1 else alone, walk.mode, walk.row, walk.column)

    def lines(self, name: str) -> Lines:
        return self.query_one(f"#{name}", Lines)

    def say(self, text: str, style: str = "aside") -> None:
        self.message = text
        line = self.marks.printable(text.replace("\n", "; "))
        shown = fold_text(line, max(1, self.size.width))[:MOST_SAID]
        message = self.lines("message")
        message.styles.height = len(shown)
        message.show([[TextSpan(words, style)] for words in shown])

    # --- going on ---

    def attempt(self, step: Step) -> None:
        try:
            self.walk = step(self.walk)
        except AttnError as error:
            self.say("; ".join(error.problems), "name")
        else:
            self.draw()

    def action_go(self, function: str, given: tuple[Any, ...] = ()) -> None:
        """Take a step that the walk knows under this name. (Textual passes on no *args.)"""
        self.attempt(lambda walk: getattr(go, function)(walk, *given))

    def action_undo(self) -> None:
        self.attempt(remake.undo_edit)

    def action_page(self, by: int) -> None:
        self.attempt(lambda walk: go.move(walk, by * self.query_one(MatrixGrid).page, 0))

    def action_follow(self, number: int | None = None) -> None:
        self.attempt(lambda walk: go.follow(walk if number is None else go.choose_operand(walk, number)))

    def action_operand(self, by: int) -> None:
        self.attempt(lambda walk: go.choose_operand(walk, walk.operand + by))

    def action_focus_next(self) -> None:
        """Tab, which a screen of Textual's binds before its app can."""
        self.action_operand(1)

    def action_focus_previous(self) -> None:
        self.action_operand(-1)

    def action_nth(self, number: int) -> None:
        if number > len(self.walk.operands) > 0:
            self.say(f"there are {len(self.walk.operands)} operands")
        else:
            self.attempt(lambda walk: go.choose_operand(walk, number - 1))

    def action_to_step(self, number: int) -> None:
        self.attempt(lambda walk: go.to_step(walk, walk.layer.steps[number]))

    def action_scroll(self, by: int) -> None:
        self.lines("arithmetic").scroll_relative(y=by, animate=False)

    # --- asking ---

    def action_ask(self, what: str) -> None:
        walk = self.walk
        value = ""
        try:
            if what == "edit":
                remake.origin_of(walk.layer)
            if what == "seed":
                value = str(remake.seed_of(walk) + 1)
        except AttnError as error:
            self.say("; ".join(error.problems), "name")
            return
        self.asked = what
        label = self.lines("question")
        question = f"{self.marks.printable(remake.cell_here(walk))} = " if what == "edit" else f"{what}: "
        label.styles.width = min(len(question), self.size.width // 2)
        label.show([[TextSpan(question, "name")]])
        self.query_one("#ask").display = True
        self.query_one("#message").display = False
        entry = self.query_one(Input)
        entry.value = value
        entry.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        text, asked = event.value, self.asked
        self.action_dismiss()
        answer: dict[str, Step] = {
            "find": lambda walk: go.find_token(walk, text.strip()),
            "edit": lambda walk: remake.add_edit(walk, text),
            "seed": lambda walk: remake.with_seed(walk, text),
        }
        if text.strip() or asked == "find":
            self.attempt(answer[asked])

    def action_dismiss(self) -> None:
        self.asked = ""
        self.query_one("#ask").display = False
        self.query_one("#message").display = True
        self.set_focus(None)
        self.say("")

    # --- what lies over it ---

    def lay_over(
        self, title: str, lines: Callable[[int], Iterable[Parts]], actions: Mapping[str, str] | None = None
    ) -> None:
        """Show these lines until a key closes them that has no action of its own."""
        self.push_screen(TextDialog(title, lines, actions or {}, ascii_only=self.marks.ascii_only))

    def action_help(self) -> None:
        self.lay_over("attnctl explore", view.help_lines)

    def action_rules(self) -> None:
        try:
            rules = remake.switchable_rules(self.walk)
        except AttnError as error:
            self.say("; ".join(error.problems), "name")
            return
        actions = {str(number): f"switch('{rule.name}')" for number, rule in enumerate(rules, start=1)}
        self.lay_over("Rules: a number switches one on or off, any other key closes", self.rules, actions)

    def rules(self, width: int) -> Iterator[Parts]:
        for number, (rule, on) in enumerate(remake.switchable_rules(self.walk).items(), start=1):
            action = f"switch('{rule.name}')"
            said = f"{'on ' if on else 'off'}  {remake.rule_text(rule)}"
            yield [TextSpan(f" {number}  ", "key", action), TextSpan(said, "", action)]
        yield []
        yield [TextSpan(f" {self.message}", "name")]

    def action_switch(self, name: str) -> None:
        self.attempt(lambda walk: remake.switch_rule(walk, name))
        if isinstance(self.screen, TextDialog):
            self.screen.fill()

    def action_write(self) -> None:
        found = remake.commands(self.walk)
        self.written += [command for command in found if command not in self.written]

        def lines(width: int) -> Iterator[Parts]:
            for command in found:
                for line in command.split("\n"):
                    for text in fold_text(self.marks.printable(line), max(12, width)):
                        yield [TextSpan(f" {text}")]
                yield []

        self.lay_over("These give what is seen (printed when you leave, too)", lines)

    # --- the end ---

    def action_interrupt(self) -> None:
        self.stop_at_signal(signal.SIGINT)

    def stop_at_signal(self, number: int) -> None:
        self.signal = number
        self.exit()

    def _handle_exception(self, error: Exception) -> None:
        """Leave on a bug: it is reported when the terminal is as it was. (Textual would print it.)"""
        self.error = self.error or error
        self._exception = self._exception or error  # what a test's pilot raises
        self.exit()


def explore(walk: ExplorerState, precision: int = 4, encoding: str = "utf-8") -> list[str]:
    """Walk until one leaves, or a bug or a signal ends it; the commands that were asked for."""
    background(os.environ, ask=True)  # while nobody else reads what the terminal answers
    app = Explorer(walk, precision, encoding)
    app.run()
    if app.error is not None:
        raise app.error
    if app.signal == signal.SIGINT:
        raise KeyboardInterrupt
    if app.signal:
        signal.signal(app.signal, signal.SIG_DFL)
        os.kill(os.getpid(), app.signal)
    return app.written
