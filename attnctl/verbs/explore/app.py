"""The explorer: a walk, the keys that lead on, and what is drawn of it."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import DataTable, Footer, HelpPanel, Input, OptionList, Static
from textual.widgets._footer import FooterKey

from attnctl.base.errors import AttnError
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.palette import background, styles_for
from attnctl.drawing.screen.text import cells
from attnctl.math.rules import Rule
from attnctl.verbs import explore as go
from attnctl.verbs.explore import ExplorerState, remake, view

FAR = 10**9  # more rows and columns than a matrix has: a move of so many ends at its edge

Step = Callable[[ExplorerState], ExplorerState]

known_styles = lru_cache(maxsize=4)(styles_for)


class MatrixTable(DataTable[Text], can_focus=False):
    """A click on a cell goes there, one on a label to its row or column."""

    async def on_click(self, event: events.Click) -> None:
        place = event.style.meta
        if "row" in place and "column" in place and not place.get("out_of_bounds"):
            event.stop()
            await self.app.run_action(f"cell({place['row']},{place['column']})")


class KeyLine(Footer):
    """As many keys as there is room for, none of them cut: the help has the rest."""

    def compose(self) -> ComposeResult:
        room = self.app.size.width
        for key in super().compose():
            if isinstance(key, FooterKey):
                room -= cells(f"{key.key_display} {key.description} ")
                if room < 0:
                    return
            yield key

    def on_resize(self) -> None:
        self.refresh(recompose=True)


def bind(
    keys: str, action: str, what: str, more: str = "", sign: str = "", *, show: bool = False
) -> Binding:
    """A key for the help, which says `more`, and where it is shown for the line at the foot."""
    return Binding(keys, action, what, tooltip=more, key_display=sign or None, show=show)


def rules_in_words(rules: Mapping[Rule, bool]) -> str:
    """The rules that may be switched, and which of them are on: causal (on), window 3,0."""
    words = []
    for rule, is_on in rules.items():
        text = remake.rule_text(rule)
        words.append(f"{text} (on)" if is_on else text)
    return ", ".join(words)


class Explorer(App[int]):
    """Left the steps and what the cell reads, right the matrix, and the arithmetic of the cell below it."""

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    CSS_PATH = "app.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (60, "-wide")]  # noqa: RUF012  (Textual's own is no class variable)
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-usual"), (34, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("enter", "follow", "follow", "an operand to its own cell", "Enter", show=True),
        bind("backspace", "go('back')", "back", "to where you were", "Backspace", show=True),
        bind("question_mark", "help", "help", "all keys", "?", show=True),
        bind("q", "quit", "quit", show=True),
        Binding("tab", "operand(1)", "operand", tooltip="the next", key_display="Tab", priority=True),
        Binding("shift+tab", "operand(-1)", "the operand before", show=False, priority=True),
        bind("h", "go('along',('head',1))", "head", "the next", show=True),
        bind("H", "go('along',('head',-1))", "the head before"),
        bind("e", "ask('edit')", "edit", "the number: 0.5, +=1, *=2", show=True),
        bind("u", "undo", "take the last edit back"),
        bind("t", "go('switch_heat')", "heat", "for numbers, and back", show=True),
        bind("m", "ask('rule')", "rule", "on or off: causal, window, …", show=True),
        bind("s", "ask('seed')", "seed", "of all that is drawn", show=True),
        bind("slash", "ask('find')", "find", "love, or love,AI, or a whole cell", "/", show=True),
        bind("w", "write", "shell", "the commands that give what is seen", show=True),
        bind("left_square_bracket", "go('go_step',(-1,))", "the step before", sign="["),
        bind("right_square_bracket", "go('go_step',(1,))", "the next step", sign="]"),
        bind("b", "go('along',('batch',1))", "the next member of a batch"),
        bind("B", "go('along',('batch',-1))", "the member before"),
        bind("l", "go('to_layer',(1,))", "the next layer or trace"),
        bind("L", "go('to_layer',(-1,))", "the layer before"),
        bind("up", "go('move',(-1,0))", "the row above"),
        bind("down", "go('move',(1,0))", "the row below"),
        bind("left", "go('move',(0,-1))", "the column before"),
        bind("right", "go('move',(0,1))", "the next column"),
        bind("pageup", "page(-1)", "a page of rows up"),
        bind("pagedown", "page(1)", "a page of rows down"),
        bind("home", f"go('move',(0,-{FAR}))", "the first column"),
        bind("end", f"go('move',(0,{FAR}))", "the last column"),
        bind("ctrl+home", f"go('move',(-{FAR},-{FAR}))", "the first cell"),
        bind("ctrl+end", f"go('move',({FAR},{FAR}))", "the last cell"),
        bind("shift+up", "scroll(-1)", "scroll the arithmetic up"),
        bind("shift+down", "scroll(1)", "scroll the arithmetic down"),
        bind("escape", "dismiss", "ask nothing"),
        Binding("ctrl+c", "interrupt", "leave, interrupted", show=False, priority=True),
    ]

    def __init__(self, walk: ExplorerState, precision: int = 4, encoding: str = "utf-8") -> None:
        super().__init__(ansi_color=True)
        self.walk = walk
        self.precision = precision
        self.encoding = encoding
        self.asked = ""
        self.written: list[str] = []
        self.error: Exception | None = None
        self.rows = self.columns = range(0)
        self.drawn: object = None

    # --- what is drawn ---

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        with Horizontal():
            with Vertical(id="left"):
                for name in ("steps", "operands"):
                    choices = OptionList(id=name)
                    choices.can_focus = False
                    yield choices
            with Vertical():
                yield Static(id="heading")
                yield MatrixTable(cursor_background_priority="css")
                with VerticalScroll(id="below", can_focus=False):
                    yield Static(id="arithmetic")
        with Horizontal(id="ask"):
            yield Static(id="question")
            yield Input(compact=True)
        yield KeyLine(compact=True)

    def on_mount(self) -> None:
        if sys.__stdin__ is not None and sys.__stdin__.isatty() and hasattr(select, "poll"):
            self.set_interval(1.0, self.leave_where_nobody_is)

    def leave_where_nobody_is(self) -> None:
        """Leave when the terminal was closed without a signal: Textual would read on without a pause."""
        terminal = select.poll()
        terminal.register(0, 0)
        if any(events & select.POLLHUP for _, events in terminal.poll(0)):
            self.exit(signal.SIGHUP)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    @property
    def system(self) -> str:
        """Rich's name for the colours there are; "" for none."""
        return "" if self.no_color else (self.console.color_system or "")

    @property
    def marks(self) -> Screen:
        shades = self.system in {"truecolor", "256"}
        width = max(30, self.query_one("#arithmetic").size.width)
        return Screen(width, True, self.encoding, bool(self.system), shades)

    def style(self, words: str) -> Style:
        """The style of names joined by +; without colours words keep bold, italic and underline."""
        styles = known_styles(self.system or "standard", ask=True)
        names = [name for name in words.split("+") if self.system or not name.startswith("heat")]
        return Style.combine([Style(), *filter(None, map(styles, names))])

    def text(self, *lines: Line) -> Text:
        """Lines as Textual takes them: no markup is read."""
        parts = [[(text, self.style(words)) for text, words in line] for line in lines]
        return Text("\n").join(Text.assemble(*line) for line in parts)

    def draw(self) -> None:
        walk = self.walk
        screen = self.marks
        title = self.text(view.title(walk, screen))
        heading = self.text(*view.heading(walk, screen))
        result = view.result_lines(walk, screen, self.precision)
        arithmetic = view.arithmetic_lines(walk, screen, self.precision)

        self.query_one("#title", Static).update(title)
        self.query_one("#heading", Static).update(heading)
        self.query_one("#arithmetic", Static).update(self.text(*result, *arithmetic))
        self.query_one("#below").scroll_home(animate=False)
        self.show_choices("#steps", view.step_lines(walk, screen), walk.layer.steps.index(walk.step))
        self.show_choices("#operands", view.operand_lines(walk, screen), walk.operand)
        self.draw_matrix(screen)

    def show_choices(self, name: str, lines: Iterable[Line], at: int) -> None:
        """Texts of which one is marked; a click on one chooses it."""
        choices = self.query_one(name, OptionList)
        choices.set_options(map(self.text, lines))
        choices.highlighted = at if choices.option_count else None

    def draw_matrix(self, screen: Screen) -> None:
        """Draw the matrix, of a large one what is around the cursor."""
        walk = self.walk
        table = self.query_one(MatrixTable)
        rows, columns = view.matrix_at(walk.array, walk.lead).shape
        self.rows = view.window(walk.row, rows, self.rows)
        self.columns = view.window(walk.column, columns, self.columns)
        drawn = (walk.layer, walk.step, walk.lead, walk.heat, self.rows, self.columns, screen)
        if drawn != self.drawn:
            self.drawn = drawn
            self.fill(table, screen)
        table.move_cursor(row=walk.row - self.rows.start, column=walk.column - self.columns.start)

    def fill(self, table: MatrixTable, screen: Screen) -> None:
        walk = self.walk
        table.clear(columns=True)
        table.show_header = not walk.heat
        table.cell_padding = 0 if walk.heat else 1

        rows = view.table_cells(walk, self.rows, self.columns, screen, self.precision)
        row_names = view.labels(walk, -2, self.rows, screen)
        column_names = view.labels(walk, -1, self.columns, screen)

        width = 2  # a shade
        if not walk.heat:
            texts = [*column_names, *(text for row in rows for text, _ in row)]
            width = max(map(cells, texts), default=1)
        for name in column_names:
            table.add_column(Text(name, justify="right"), width=width)
        for name, row in zip(row_names, rows, strict=True):
            shown = [Text(text, self.style(words), justify="right") for text, words in row]
            table.add_row(*shown, label=Text(name))

    def say(self, problems: Iterable[str]) -> None:
        self.notify("\n".join(map(self.marks.printable, problems)), markup=False)

    # --- going on ---

    def attempt(self, step: Step) -> None:
        self.clear_notifications()
        try:
            self.walk = step(self.walk)
        except AttnError as error:
            self.say(error.problems)
        else:
            self.draw()

    def action_go(self, function: str, given: tuple[Any, ...] = ()) -> None:
        """Take a step that the walk knows under this name. (Textual passes on no *args.)"""
        self.attempt(lambda walk: getattr(go, function)(walk, *given))

    def action_undo(self) -> None:
        self.attempt(remake.undo_edit)

    def action_page(self, by: int) -> None:
        page = max(1, self.query_one(MatrixTable).scrollable_content_region.height - 1)
        self.attempt(lambda walk: go.move(walk, by * page, 0))

    def action_cell(self, row: int, column: int) -> None:
        """A cell of the table that is shown, -1 for where one stands."""
        row_there = self.walk.row if row < 0 else self.rows[row]
        column_there = self.walk.column if column < 0 else self.columns[column]
        self.attempt(lambda walk: go.at_cell(walk, row_there, column_there))

    def action_follow(self) -> None:
        self.attempt(go.follow)

    def action_operand(self, by: int) -> None:
        self.attempt(lambda walk: go.choose_operand(walk, walk.operand + by))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        at = event.option_index
        if event.option_list.id == "steps":
            self.attempt(lambda walk: go.to_step(walk, walk.layer.steps[at]))
        else:
            self.attempt(lambda walk: go.follow(go.choose_operand(walk, at)))

    def action_scroll(self, by: int) -> None:
        self.query_one("#below").scroll_relative(y=by, animate=False)

    # --- asking ---

    def action_ask(self, what: str) -> None:
        walk = self.walk
        value = ""
        hint = ""
        try:
            match what:
                case "find":
                    hint = "love, or love,AI, or a whole cell"
                case "edit":
                    remake.origin_of(walk)  # refuses what cannot be edited before anything is typed
                    hint = "0.5, +=1, *=2"
                case "seed":
                    value = str(remake.seed_of(walk) + 1)
                case "rule":
                    hint = rules_in_words(remake.switchable_rules(walk))
        except AttnError as error:
            self.say(error.problems)
            return

        self.asked = what
        label = f"{remake.cell_here(walk)} =" if what == "edit" else f"{what}:"
        question = Text(self.marks.printable(f"{label} "))
        self.query_one("#question", Static).update(question)
        self.query_one("#ask").display = True

        entry = self.query_one(Input)
        entry.value = value
        entry.placeholder = hint
        entry.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        asked = self.asked
        answers: dict[str, Callable[[ExplorerState, str], ExplorerState]] = {
            "find": go.find_token,
            "edit": remake.add_edit,
            "seed": remake.with_seed,
            "rule": remake.switch_rule,
        }
        self.action_dismiss()
        if text:
            self.attempt(lambda walk: answers[asked](walk, text))

    def action_dismiss(self) -> None:
        self.query_one("#ask").display = False
        self.set_focus(None)

    def action_help(self) -> None:
        if self.screen.query(HelpPanel):
            self.action_hide_help_panel()
        else:
            self.action_show_help_panel()

    def action_write(self) -> None:
        """Show the commands in place of the arithmetic, until the next key."""
        found = remake.commands(self.walk)
        self.written += [command for command in found if command not in self.written]
        lines = [line for command in found for line in command.split("\n")]
        said: list[Line] = [[(self.marks.printable(line), "")] for line in lines]
        title: Line = [("These give what is seen (printed when you leave, too)", "name")]
        self.query_one("#arithmetic", Static).update(self.text(title, *said))

    # --- the end ---

    def on_load(self) -> None:
        """Before anything is drawn: a signal leaves the terminal as it was."""
        for name in ("SIGTERM", "SIGHUP"):
            with suppress(NotImplementedError, ValueError, RuntimeError, AttributeError):
                # not on Windows, nor in a thread
                number = getattr(signal, name)
                asyncio.get_running_loop().add_signal_handler(number, self.exit, number)

    def action_interrupt(self) -> None:
        self.exit(signal.SIGINT)

    def _handle_exception(self, error: Exception) -> None:
        """Leave on a bug: it is reported when the terminal is as it was. (Textual would print it.)"""
        self.error = self.error or error
        self._exception = self._exception or error  # what a test's pilot raises
        self.exit()


def explore(walk: ExplorerState, precision: int = 4, encoding: str = "utf-8") -> list[str]:
    """Walk until one leaves, or a bug or a signal ends it; the commands that were asked for."""
    background(os.environ, ask=True)  # while nobody else reads what the terminal answers
    app = Explorer(walk, precision, encoding)
    ended = app.run()
    if app.error is not None:
        raise app.error
    if ended == signal.SIGINT:
        raise KeyboardInterrupt
    if ended:
        signal.signal(ended, signal.SIG_DFL)
        signal.raise_signal(ended)
    return app.written
