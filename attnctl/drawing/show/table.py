"""One step of a trace as Rich tables, for anyone's console or layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.jupyter import JupyterMixin
from rich.measure import Measurement

from attnctl.drawing.screen.output import Element, plain_text, screen_of
from attnctl.drawing.screen.screen import Screen
from attnctl.drawing.screen.terminal import renderable, styles_of
from attnctl.drawing.screen.text import cells
from attnctl.drawing.show.frames import step_lines
from attnctl.drawing.show.sheet import View, count_heads, load_sheet
from attnctl.record.trace import Trace


class StepTable(JupyterMixin):
    """The title of a step and its matrices.

    Rich prints it as tables that are fitted to the console, or to the place in a layout; as a
    string it is the text that a pipe gets, where nothing is left out.
    """

    def __init__(self, trace: Trace, step: str, view: View) -> None:
        (self.step,) = trace.select([step]).steps.values()
        self.heads = count_heads(trace, view.heads)
        self.trace, self.view = load_sheet(trace, step), view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        styles = styles_of(console)
        for element in self.elements(screen_in(console, options)):
            yield renderable(element, styles)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = max(map(cells, plain_text(self.elements(screen_in(console, options)))))
        return Measurement(width, width)

    def __str__(self) -> str:
        return "\n".join(plain_text(self.elements(Screen())))

    __repr__ = __str__

    def elements(self, screen: Screen) -> Iterator[Element]:
        return step_lines(self.trace, self.step, screen, self.view, self.heads)


def screen_in(console: Console, options: ConsoleOptions) -> Screen:
    return screen_of(console)._replace(width=options.max_width, fits=True)


def table(
    trace: Trace, step: str, *, heads: Sequence[int] | None = None, precision: int = 4, full: bool = False
) -> StepTable:
    """A step as Rich tables: `rich.print(table(trace, "scores"))`.

    `full` leaves out no rows, columns or heads, however many there are. Raises AttnError for a
    step or head that is not there.
    """
    chosen = None if heads is None else tuple(heads)
    return StepTable(trace, step, View(heads=chosen, precision=precision, full=full))
