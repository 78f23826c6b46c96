"""Statistics of heads as a picture: dumps or layers down, heads across, a panel for each measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.words import number_repeats, plural
from attnctl.drawing.pictures import Plot
from attnctl.drawing.pictures.draw import Picture, draw, writers
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.grid import Panel
from attnctl.drawing.screen.heat import heat_lines
from attnctl.drawing.screen.text import token_text, visible
from attnctl.math import Array
from attnctl.verbs.stats import StatsReport

KINDS = (
    (
        "attention",
        "share of attention on the token before, on the first, on itself, on the same word elsewhere",
        ("previous", "first", "self", "same_token"),
    ),
    ("entropy", "bits of a row of weights", ("entropy",)),
    ("distance", "|query − key| in tokens", ("distance",)),
)
"""What is drawn with one scale: a title, what the numbers are, and the measures."""


def stats_picture(found: Sequence[StatsReport]) -> Picture:
    plots = [plot for head in found for plot in plots_of(head)]
    if not plots:
        raise AttnError("nothing to draw: no text; give some")
    return draw(plots, "What each head attends to")


write_svg, write_png = writers(stats_picture)


def plots_of(found: StatsReport) -> list[Plot]:
    plots = measures(found) if found.dumps else []
    if found.rolled is not None:
        tokens = found.tokens or [str(place) for place in range(len(found.rolled))]
        labels = number_repeats(token_text(token, joined=True) for token in tokens)
        layers = plural(len(found.dumps), "layer")
        about = f"how much of each token (across) has reached each place (down) after {layers}"
        plots.append(Plot("rollout", (about,), [Panel("", found.rolled)], rows=labels, columns=labels))
    return plots


def map_lines(found: StatsReport, screen: Screen) -> Iterator[Line]:
    for plot in plots_of(found):
        yield []
        heading = [(screen.printable(plot.title), "name")]
        heading += [(screen.printable(sentence), "aside") for sentence in plot.about]
        yield from screen.flow(heading, "   ")
        yield from heat_lines(plot, screen)


def measures(report: StatsReport) -> list[Plot]:
    """Dumps down, heads across: a panel for each measure."""
    names = [visible(dump.name) for dump in report.dumps]
    most_heads = max(len(dump.heads) for dump in report.dumps)
    heads = [str(number) for number in range(most_heads)]

    plots = []
    for title, about, measures_of_kind in KINDS:
        panels = []
        for name in measures_of_kind:
            values = measure_values(report, name, most_heads)
            panels.append(Panel(name.replace("_", " "), values))

        plots.append(
            Plot(
                title,
                (f"{about}; means over rows", "heads across"),
                panels,
                rows=names,
                columns=heads,
                hidden="nothing to say",
            )
        )
    return plots


def measure_values(report: StatsReport, name: str, heads: int) -> Array:
    """A measure of each head of each dump, (dump, head); −∞ where it means nothing."""
    out = np.full((len(report.dumps), heads), -np.inf)
    for row, dump in enumerate(report.dumps):
        for column, head in enumerate(dump.heads):
            mean = head.means[name]
            out[row, column] = -np.inf if mean is None else mean
    return out
