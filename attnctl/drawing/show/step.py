"""One step of a trace: its title and its matrices, or a heat map of them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attnctl.base.trace import Trace
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.screen import Screen
from attnctl.drawing.show.frames import frames
from attnctl.drawing.show.view import View, formula_of, shape_of
from attnctl.math.derivation import Step
from attnctl.math.names import WEIGHTS

if TYPE_CHECKING:
    from attnctl.drawing.pictures.plot import Plot


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


def hide_zeros(plot: Plot) -> Plot:
    """Weights of exactly 0 as what they are: keys that are not seen."""
    from attnctl.drawing.pictures.plot import Panel

    panels = [Panel(each.caption, np.where(each.values == 0, -np.inf, each.values)) for each in plot.panels]
    return replace(plot, panels=panels, hidden="0: hidden")


def heat(trace: Trace, step: Step, screen: Screen, view: View, heads: int) -> Iterator[Element]:
    from attnctl.drawing.screen.heat import heat_lines
    from attnctl.drawing.show.picture import Look, plot_of

    look = Look(heads=view.heads, log=view.log, without_first=view.without_first)
    plot = plot_of(trace, step.name, heads, look)
    if step.name == WEIGHTS and not look.log:
        plot = hide_zeros(plot)
    title = [(step.name, "name"), *((each, "aside") for each in plot.about)]
    yield from screen.flow([(screen.ours(text), style) for text, style in title], "   ")
    yield from heat_lines(plot, screen)
