"""Traces as pictures: a panel for each head, or a grid of thumbnails for the layers of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.drawing.pictures import Plot
from attnctl.drawing.pictures.draw import Picture, draw, writers
from attnctl.drawing.screen.grid import Panel
from attnctl.drawing.screen.text import visible
from attnctl.drawing.show import View, count_heads, formula_of, load_sheet, shape_of, sheet_of
from attnctl.drawing.show.headline import facts
from attnctl.drawing.show.overlay import has_picture, overlay_picture
from attnctl.math.derivation import Step
from attnctl.math.names import WEIGHTS, result_in, shares_in
from attnctl.record import Trace

MOST_PANELS = 144
"""Panels of one plot; of more heads the rest is named."""

MOST_TRACES = 64
"""Sentences in one picture."""

USUAL = View(precision=2)  # attention weights, or what there is instead; `brief` adds the result


def picture_of(traces: Sequence[Trace], view: View = USUAL) -> Picture:
    """The plots of traces, a model's layers in one grid. Raises AttnError for a missing step or head."""
    if has_picture(traces, view):
        return overlay_picture(traces, view)
    if len(traces) > MOST_TRACES and not are_layers(traces):
        instead = "pick one with --trace, or write .html"
        raise AttnError(f"{len(traces)} sentences: a picture holds {MOST_TRACES}; {instead}")
    plots: list[Plot] = []
    for group in groups(traces):
        if len(group) > 1:
            plots += [grid(group, name, view) for name in steps_to_draw(group[0], view)]
        else:
            plots += plots_of_trace(group[0], view, is_titled=len(traces) > 1)

    first = traces[0]
    is_one_sentence = len({trace.sentence for trace in traces}) == 1
    title = (
        visible(first.sentence or "attention", joined=True)
        if is_one_sentence
        else f"{len(traces)} sentences"
    )
    about: tuple[str, ...] = ()
    if len(traces) == 1 or are_layers(traces):
        words = [visible(fact, joined=True) for fact in facts(first)]
        about = (" · ".join(words),) if words else ()
    return draw(plots, title, about)


def plots_of_trace(trace: Trace, view: View, *, is_titled: bool) -> list[Plot]:
    """A plot for each step; the first says its sentence where the picture has several."""
    heads = count_heads(trace, view.heads)
    names = steps_to_draw(trace, view)
    plots = [plot_of(load_sheet(trace, name), name, heads, view) for name in names]
    if is_titled:
        plots[0] = replace(
            plots[0], title=f"{visible(trace.sentence or '', joined=True)}: {plots[0].title}"
        )
    return plots


write_svg, write_png = writers(picture_of)


def are_layers(traces: Sequence[Trace]) -> bool:
    return all("layer" in trace.header for trace in traces)


def groups(traces: Sequence[Trace]) -> list[list[Trace]]:
    """Each trace alone; those that are layers of one sentence, one after the other, together."""
    if not are_layers(traces):
        return [[trace] for trace in traces]

    by_sentence: list[list[Trace]] = []
    for trace in traces:
        last = by_sentence[-1][-1] if by_sentence else trace
        # The same layer again is of the same sentence, given twice.
        if last.sentence == trace.sentence and last.header["layer"] != trace.header["layer"]:
            by_sentence[-1].append(trace)
        else:
            by_sentence.append([trace])
    return by_sentence


def steps_to_draw(trace: Trace, view: View) -> list[str]:
    """The steps to draw. Raises AttnError for one that is not there."""
    if view.steps is not None:
        return list(trace.select(view.steps))
    shares = shares_in(trace)
    if not shares:
        return list(trace)
    return [*shares, *result_in(trace)] if view.brief else list(shares)


def plot_of(trace: Trace, name: str, heads: int, view: View) -> Plot:
    """The matrices of one step; without the first key, if asked."""
    plot = whole_plot(trace, name, heads, view)
    return without_first(plot, trace.steps[name]) if view.without_first else plot


def whole_plot(trace: Trace, name: str, heads: int, view: View) -> Plot:
    step = trace.steps[name]
    sheet = sheet_of(trace, name, heads, view.heads, joined=True)
    notes = (sheet.left_out(MOST_PANELS),) if len(sheet.indices) > MOST_PANELS else ()
    matrices = zip(sheet.captions, sheet.indices, strict=True)
    panels = [Panel(caption, sheet.array[index]) for caption, index in islice(matrices, MOST_PANELS)]

    about = [visible(formula_of(step)), shape_of(trace, step)]
    if len(step.axes) > 1:
        about.append(f"{step.axes[-2]} down, {sheet.column_axis} across")
    elif sheet.column_axis:
        about.append(sheet.column_axis)

    return Plot(
        title=name,
        about=tuple(about),
        panels=panels,
        rows=sheet.rows,
        columns=sheet.columns,
        notes=notes,
        log=view.log,
        precision=view.precision,
    )


def without_first(plot: Plot, step: Step) -> Plot:
    """The plot without its first key. Raises AttnError where columns are no keys, or there is no other."""
    if step.axes[-1:] != ("key",):
        raise AttnError(f"--without-first: {plot.title} has no keys; name a step that has, like {WEIGHTS}")
    if len(plot.columns) < 2:
        raise AttnError("--without-first: there is one key only")

    panels = []
    firsts = []
    for panel in plot.panels:
        panels.append(Panel(panel.caption, panel.values[:, 1:]))
        firsts.append(np.asarray(panel.values[:, 0], dtype=np.float64))

    values = np.concatenate(firsts)
    known = values[np.isfinite(values)]
    first, *columns = plot.columns
    note = f"Without the first key, {first.strip()}"
    if known.size:
        note += f" (its mean is {known.mean():.{plot.precision}f})"
    return replace(plot, panels=panels, columns=columns, notes=(f"{note}.", *plot.notes))


def grid(layers: Sequence[Trace], name: str, view: View) -> Plot:
    """Thumbnails of one step: layers down, heads across. Raises AttnError where a layer lacks it."""
    plots = []
    for trace in layers:
        heads = count_heads(trace, view.heads)
        trace.select([name])
        plots.append(whole_plot(load_sheet(trace, name), name, heads, view))

    across = len(plots[0].panels)
    if any(len(plot.panels) != across for plot in plots):
        raise AttnError(f"{name}: the layers have different numbers of heads; pick a layer with --layer")

    first, *others = plots
    panels = list(first.panels)
    for plot in others:
        panels += [Panel("", panel.values) for panel in plot.panels]  # the heads are named above

    labels = tuple(f"layer {layer.header['layer']}" for layer in layers)
    plot = replace(first, panels=panels, across=across, beside=labels)
    return without_first(plot, layers[0].steps[name]) if view.without_first else plot
