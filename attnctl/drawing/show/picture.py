"""Traces as pictures: a panel for each head, or a grid of thumbnails for the layers of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.drawing.pictures import Plot
from attnctl.drawing.pictures.draw import Picture, draw, writers
from attnctl.drawing.screen.grid import Panel
from attnctl.drawing.screen.text import visible
from attnctl.drawing.show import View, count_heads, formula_of, load_sheet, shape_of, sheet_of
from attnctl.drawing.show.headline import facts
from attnctl.math.derivation import Step
from attnctl.math.names import WEIGHTS, result_in, shares_in
from attnctl.record import Trace

MOST_PANELS, MOST_TRACES = 144, 64
"""Panels of one plot (of more heads the rest is named), sentences in one picture."""

USUAL = View(precision=2)  # attention weights, or what there is instead; `brief` adds the result


def picture_of(traces: Sequence[Trace], view: View = USUAL) -> Picture:
    """The plots of traces, a model's layers in one grid. Raises AttnError for a missing step or head."""
    if len(traces) > MOST_TRACES and not are_layers(traces):
        instead = "pick one with --trace, or write .html"
        raise AttnError(f"{len(traces)} sentences: a picture holds {MOST_TRACES}; {instead}")
    first = traces[0]
    alike = len({trace.sentence for trace in traces}) == 1
    title = visible(first.sentence or "attention") if alike else f"{len(traces)} sentences"
    plots = []
    for group in groups(traces):
        if len(group) > 1:
            plots += [grid(group, name, view) for name in steps_to_draw(group[0], view)]
        else:
            trace, heads = group[0], count_heads(group[0], view.heads)
            names = steps_to_draw(trace, view)
            found = [plot_of(load_sheet(trace, name), name, heads, view) for name in names]
            if len(traces) > 1:
                found[0] = replace(found[0], title=f"{visible(trace.sentence or '')}: {found[0].title}")
            plots += found
    said = [visible(fact) for fact in facts(first)] if len(traces) == 1 or are_layers(traces) else []
    return draw(plots, title, (" · ".join(said),) if said else ())


write_svg, write_png = writers(picture_of)


def are_layers(traces: Sequence[Trace]) -> bool:
    return all("layer" in trace.header for trace in traces)


def groups(traces: Sequence[Trace]) -> list[list[Trace]]:
    """Each trace alone; those that are layers of one sentence, one after the other, together."""
    if not are_layers(traces):
        return [[trace] for trace in traces]
    out: list[list[Trace]] = []
    for trace in traces:
        last = out[-1][-1] if out else trace
        if last.sentence == trace.sentence and last.header["layer"] != trace.header["layer"]:
            out[-1].append(trace)
        else:
            out.append([trace])
    return out


def steps_to_draw(trace: Trace, view: View) -> list[str]:
    """The steps to draw. Raises AttnError for one that is not there."""
    if view.steps is not None:
        return list(trace.select(view.steps))
    shares = shares_in(trace)
    return [*shares, *(result_in(trace) if view.brief else ())] if shares else list(trace)


def plot_of(trace: Trace, name: str, heads: int, view: View) -> Plot:
    """The matrices of one step; without the first key, if asked."""
    plot = whole_plot(trace, name, heads, view)
    return without_first(plot, trace.steps[name]) if view.without_first else plot


def whole_plot(trace: Trace, name: str, heads: int, view: View) -> Plot:
    step = trace.steps[name]
    sheet = sheet_of(trace, name, heads, view.heads)
    notes = (sheet.left_out(MOST_PANELS),) if len(sheet.indices) > MOST_PANELS else ()
    chosen = list(zip(sheet.captions, sheet.indices, strict=True))[:MOST_PANELS]
    panels = [Panel(caption, sheet.array[index]) for caption, index in chosen]
    rows = step.axes[-2] if len(step.axes) > 1 else ""
    sides = f"{rows} down, {sheet.column_axis} across" if rows else sheet.column_axis
    return Plot(
        title=name,
        about=(visible(formula_of(step)), shape_of(trace, step), *filter(None, [sides])),
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
    firsts = np.concatenate([np.asarray(panel.values[:, 0], dtype=np.float64) for panel in plot.panels])
    known = firsts[np.isfinite(firsts)]
    mean = f" (its mean is {known.mean():.{plot.precision}f})" if known.size else ""
    return replace(
        plot,
        panels=[Panel(panel.caption, panel.values[:, 1:]) for panel in plot.panels],
        columns=plot.columns[1:],
        notes=(f"Without the first key, {plot.columns[0].strip()}{mean}.", *plot.notes),
    )


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
    labels = tuple(f"layer {layer.header['layer']}" for layer in layers)
    panels = [
        Panel(panel.caption if not number else "", panel.values)
        for number, plot in enumerate(plots)
        for panel in plot.panels
    ]
    plot = replace(plots[0], panels=panels, across=across, beside=labels)
    return without_first(plot, layers[0].steps[name]) if view.without_first else plot
