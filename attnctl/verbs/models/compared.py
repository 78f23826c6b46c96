"""Two models as a picture: how far each head's matrices and each layer's rows have moved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.drawing.pictures import Plot
from attnctl.drawing.pictures.draw import Picture, draw
from attnctl.drawing.screen.grid import Panel
from attnctl.drawing.screen.text import visible
from attnctl.verbs.models.compare import ModelsDiff


def models_picture(found: Sequence[ModelsDiff]) -> Picture:
    """Layers down: heads across by the change of their weights, then what leaves each layer."""
    plots = []
    for pair in found:
        if heads := plot_of_heads(pair):
            plots.append(heads)
        plots.append(plot_of_rows(pair))
    if not plots:
        raise AttnError("no models to draw")
    names = (f"A: {visible(found[0].a)}", f"B: {visible(found[0].b)}")
    return draw(plots, "B beside A", names)


def plot_of_heads(pair: ModelsDiff) -> Plot | None:
    """The change of each head's matrices; None where heads have none of their own."""
    most = max(len(layer.heads) for layer in pair.layers)
    if not most:
        return None
    table = np.full((len(pair.layers), most), np.nan)
    for row, layer in enumerate(pair.layers):
        table[row, : len(layer.heads)] = layer.heads
    return Plot(
        "change of a head's weights",
        ("‖B − A‖ / ‖A‖ of its Q, K, V and O", "layers down, heads across"),
        [Panel("", table)],
        rows=[f"layer {layer.layer}" for layer in pair.layers],
        columns=list(map(str, range(most))),
    )


def plot_of_rows(pair: ModelsDiff) -> Plot:
    """How far rows and next tokens are apart after each layer."""
    columns = ["1 − cosine", "at the last", "nats"]
    rows = [[1 - layer.cosine, 1 - layer.last_cosine, layer.next_divergence] for layer in pair.layers]
    return Plot(
        "what leaves a layer",
        ("1 − cosine of its rows, and Kullback–Leibler of the next token", "layers down"),
        [Panel("", np.array(rows, np.float64))],
        rows=[f"layer {layer.layer}" for layer in pair.layers],
        columns=columns,
    )
