"""The difference of two traces as a picture: B − A of the first step that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.words import plural
from attnctl.drawing.pictures import Plot
from attnctl.drawing.pictures.draw import Picture, draw, writers
from attnctl.drawing.screen.text import visible
from attnctl.drawing.show import heads_of
from attnctl.drawing.show.picture import USUAL, plot_of
from attnctl.math import Array
from attnctl.math.names import WEIGHTS
from attnctl.record import Trace
from attnctl.verbs.diff import Difference
from attnctl.verbs.diff.align import HEAD, Alignment, Pairing, Sides, sides_of
from attnctl.verbs.models.compare import ModelsDiff
from attnctl.verbs.models.compared import models_picture

MOST_PAIRS = 64


def difference_picture(found: Sequence[Difference | ModelsDiff]) -> Picture:
    """B − A of dumps; of two models how far their parts have moved."""
    models = [each for each in found if isinstance(each, ModelsDiff)]
    if models:
        return models_picture(models)
    return dumps_picture([each for each in found if isinstance(each, Difference)])


def dumps_picture(found: Sequence[Difference]) -> Picture:
    if len(found) > MOST_PAIRS:
        raise AttnError(f"{len(found)} pairs: a picture holds {MOST_PAIRS}; pick one with --trace")

    plots = []
    for number, difference in enumerate(found):
        plot = plot_of_difference(difference)
        plots.append(plot if len(found) == 1 else replace(plot, title=f"pair {number}: {plot.title}"))

    alignment = found[0].alignment
    assert alignment is not None
    sentences = []
    for side, trace in (("A", alignment.a), ("B", alignment.b)):
        if words := visible(trace.sentence or "", joined=True):
            sentences.append(f"{side}: {words}")
    return draw(plots, "B − A", tuple(sentences) if len(found) == 1 else ())


write_svg, write_png = writers(difference_picture)


def plot_of_difference(found: Difference) -> Plot:
    """B − A of the first step that differs; of the weights, or the last step, where none does."""
    alignment = found.alignment
    assert alignment is not None
    name = found.first or (WEIGHTS if WEIGHTS in found.steps else list(found.steps)[-1])
    step = found.steps[name]
    trace = difference_trace(alignment, sides_of(alignment, name))

    if found.first is None:
        facts = ["No number differs"]
    else:
        facts = ["The first step that differs", f"largest {step.measure.max_abs:.3g} at {step.cell}"]
    hidden = step.measure.hidden_in_a + step.measure.hidden_in_b
    if hidden:
        facts.append(f"{plural(hidden, 'cell')} hidden on one side only")

    plot = plot_of(trace, name, heads_of(trace), USUAL)
    return replace(
        plot,
        title=f"{name}, B − A",
        about=plot.about[1:],
        signed=True,
        notes=(visible("; ".join(facts)) + ".", *plot.notes),
    )


def difference_trace(alignment: Alignment, sides: Sides) -> Trace:
    """B − A of one step as a trace of its own, with the tokens that both have."""
    step = alignment.a.steps[sides.name]
    values = subtract(sides.b, sides.a)
    axes = tuple(axis for axis in step.axes if not (sides.merged and axis == HEAD))
    axes = axes[len(axes) - values.ndim :]
    header = {
        "tokens": common_words(alignment.a.tokens, alignment.tokens),
        "key_tokens": common_words(alignment.a.key_tokens, alignment.keys),
    }
    return Trace({step.name: replace(step, axes=axes)}, {step.name: values}, header)


def subtract(b: Array, a: Array) -> Array:
    """B − A; equal infinities are 0 apart."""
    with np.errstate(invalid="ignore", over="ignore"):
        b = np.asarray(b, dtype=np.float64)
        a = np.asarray(a, dtype=np.float64)
        values = b - a
    values[b == a] = 0.0
    values[np.isinf(values)] = np.nan  # hidden on one side only
    return values


def common_words(words: list[str] | None, pairing: Pairing | None) -> list[str] | None:
    if words is None or pairing is None:
        return words
    return [words[place] for place in pairing.a]
