"""A trace as tables: what was run, then a frame for each step."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from attnctl.drawing.screen.output import Element, PlainOutput, print_lines, screen_of
from attnctl.drawing.screen.screen import Screen
from attnctl.drawing.show.frames import id_frames, step_lines
from attnctl.drawing.show.headline import headline
from attnctl.drawing.show.sheet import View, count_heads, load_sheet, steps_of
from attnctl.math.derivation import Step
from attnctl.math.names import TABLE, WEIGHTS, result_in
from attnctl.math.ops.base import AddAll
from attnctl.record.trace import Trace

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["View", "lines_of_all", "show"]

SHORTENED = "Fitted to this terminal: --full leaves nothing out, nor does a pipe or a file."


def show(trace: Trace, output: Console | PlainOutput, view: View | None = None) -> None:
    """Print the trace as tables.

    On a terminal they stand side by side, fitted to its width, with the count of rows, columns and
    heads that are left out; elsewhere, and with `full`, each stands alone and is whole. Raises
    AttnError for a step or head that is not there.
    """
    print_lines(trace_lines(trace, screen_of(output), view or View()), output)


def lines_of_all(traces: Iterable[Trace], screen: Screen, view: View) -> Iterator[Element]:
    for number, trace in enumerate(traces):
        if number:
            yield []
        yield from trace_lines(trace, screen, view)


def trace_lines(trace: Trace, screen: Screen, view: View) -> Iterator[Element]:
    """The lines of `show`."""
    chosen = steps_of(trace, view)
    heads = count_heads(trace, view.heads)
    asked = view.steps is not None or view.full or view.heat or view.brief
    draw = first_screen if screen.fits and len(chosen) > 1 and not asked else column
    whole = yield from draw(trace, chosen, screen, view, heads)
    if not whole:
        yield []
        yield from screen.flow([(SHORTENED, "aside")], " ")


def first_screen(
    trace: Trace, chosen: Sequence[Step], screen: Screen, view: View, heads: int
) -> Generator[Element, None, bool]:
    """Print the headline, steps side by side, a sentence a head; returns whether all is shown."""
    from attnctl.drawing.show.glance import glance, opening
    from attnctl.drawing.show.looks import look_lines

    whole = yield from opening(trace, screen)
    first = of_gradients(trace, chosen)
    whole &= len(first) == len(chosen)
    whole &= yield from glance(trace, first, screen, view, heads)
    if any(step.name == WEIGHTS for step in chosen):
        yield from look_lines(trace, screen, view.heads)
    return whole


def of_gradients(trace: Trace, chosen: Sequence[Step]) -> Sequence[Step]:
    """The steps that a run with gradients is first looked at for; all of one without.

    They are weights, result and gradients, each as the sum of the ways that lead to it: the other
    steps of the forward pass are those of the run without `--backward`.
    """
    back = [step for step in chosen if step.name in TABLE and TABLE[step.name].gradient]
    if not back:
        return chosen
    ways = {name for step in back if isinstance(step.op, AddAll) for name in step.inputs}
    named = {WEIGHTS, *result_in(trace), *(step.name for step in back)} - ways
    return [step for step in chosen if step.name in named]


def column(
    trace: Trace, chosen: Sequence[Step], screen: Screen, view: View, heads: int
) -> Generator[Element, None, bool]:
    """Print the headline and one step below the other; returns whether all is shown."""
    lines = list(headline(trace, screen, full=view.full))
    yield from lines
    whole = yield from id_frames(trace, screen, full=view.full)
    for number, step in enumerate(chosen):
        if number or lines or trace.tokens:
            yield []
        whole &= yield from step_lines(load_sheet(trace, step.name), step, screen, view, heads)
    return whole
