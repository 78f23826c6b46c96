"""A trace as tables: what was run, then a frame for each step."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING

from attnctl.base.trace import Trace
from attnctl.drawing.screen.output import Element, PlainOutput, print_lines, screen_of
from attnctl.drawing.screen.screen import Screen
from attnctl.drawing.show.frames import frames, id_frames
from attnctl.drawing.show.headline import headline
from attnctl.drawing.show.sheet import checked_heads, load_sheet
from attnctl.drawing.show.view import View, formula_of, shape_of, steps_of
from attnctl.math.derivation import Step
from attnctl.math.names import WEIGHTS

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["View", "show", "show_all"]

SHORTENED = "Fitted to this terminal: --full leaves nothing out, nor does a pipe or a file."


def show(trace: Trace, output: Console | PlainOutput, view: View | None = None) -> None:
    """Print the trace as tables.

    On a terminal they are fitted to its width, with the count of rows, columns and heads that are
    left out; elsewhere everything is whole. Raises AttnError for a step or head that is not there.
    """
    print_lines(trace_lines(trace, screen_of(output), view or View()), output)


def show_all(traces: Iterable[Trace], output: Console | PlainOutput, view: View | None = None) -> None:
    """Print several traces, one after the other."""
    for number, trace in enumerate(traces):
        if number:
            print_lines([[]], output)
        show(trace, output, view)


def trace_lines(trace: Trace, screen: Screen, view: View) -> Iterator[Element]:
    """The lines of `show`."""
    chosen = steps_of(trace, view)
    heads = checked_heads(trace, view.heads)
    opening = list(headline(trace, screen, full=view.full))
    yield from opening
    whole = yield from id_frames(trace, screen, full=view.full)
    for number, step in enumerate(chosen):
        if number or opening or trace.tokens:
            yield []
        whole &= yield from step_lines(load_sheet(trace, step.name), step, screen, view, heads)
    if not whole:
        yield []
        yield from screen.flow([(SHORTENED, "aside")], " ")


def step_lines(
    trace: Trace, step: Step, screen: Screen, view: View, heads: int
) -> Generator[Element, None, bool]:
    """The title of a step and its matrices; returns whether all of it was shown."""
    if view.heat:
        yield from heat(trace, step, screen, view, heads)
        return True
    framed = frames(trace, step.name, screen, view, heads)
    brief = view.brief and screen.fits and not view.full and step.name == WEIGHTS
    if brief and not (framed.at_a_glance and screen.colours):  # where the numbers themselves are shaded
        yield from heat(trace, step, screen, view, heads)
        if framed.at_a_glance:
            yield from framed.lines()
        return framed.at_a_glance
    title = [(step.name, "name"), (formula_of(step), "formula"), (shape_of(trace, step), "aside")]
    notes = [(note, "aside") for note in framed.notes]
    yield from screen.flow([(screen.ours(text), style) for text, style in title + notes], "   ")
    return (yield from framed.lines())


def heat(trace: Trace, step: Step, screen: Screen, view: View, heads: int) -> Iterator[Element]:
    from attnctl.drawing.screen.heat import heat_lines
    from attnctl.drawing.show.picture import Look, plot_of

    look = Look(heads=view.heads, log=view.log, without_first=view.without_first)
    plot = plot_of(trace, step.name, heads, look)
    title = [(step.name, "name"), *((each, "aside") for each in plot.about)]
    yield from screen.flow([(screen.ours(text), style) for text, style in title], "   ")
    yield from heat_lines(plot, screen)
