"""The battery that names heads: a model run on random tokens, twice in a row.

With tokens t_0 … t_{n−1} t_0 … t_{n−1}, a query at position i ≥ n of the second copy has seen its
token before, at i − n. The scores of a head are mean weights over queries and draws:

- induction: on i − n + 1, what came after its token (Olsson et al. 2022, "In-context Learning and
  Induction Heads", "prefix matching").
- duplicate: on i − n, its token's earlier place (Wang et al. 2022, "Interpretability in the Wild",
  section 3.2).
- previous: on i − 1, over all queries but the first (Olsson et al. 2022).
- sink: on the first token, over all queries but the first, and what a learned sink takes (Xiao et
  al. 2023, "Efficient Streaming Language Models with Attention Sinks").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.drawing.screen.screen import Line, Screen
from attnctl.drawing.screen.text import pad_right
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array
from attnctl.math.names import WEIGHTS
from attnctl.models.run import ModelInput, run_model

SCORES = ("induction", "duplicate", "previous", "sink")
MEANINGS = {
    "induction": "attends to what came after its token's earlier place",
    "duplicate": "attends to its token's earlier place",
    "previous": "attends to the token before",
    "sink": "attends to the first token, or its learned sink",
}

LENGTH, DRAWS = 24, 4
"""Tokens in a copy, and how often other tokens are drawn."""

ENOUGH = 0.4
"""The score that names a head."""


@dataclass(frozen=True)
class HeadScores:
    """The scores of one head."""

    layer: int
    head: int
    scores: dict[str, float]

    @property
    def names(self) -> list[str]:
        return [name for name in SCORES if self.scores[name] >= ENOUGH]


def battery(
    name: str, vocab: int, settings: Settings, moved: Callable[[int, int], None] | None = None
) -> list[HeadScores]:
    """The scores of every head of a model."""
    draws = np.random.RandomState(0)
    totals: dict[tuple[int, int], Array] = {}
    for draw in range(DRAWS):
        copy = draws.randint(0, vocab, LENGTH).tolist()
        for trace in run_model(name, ModelInput(ids=(*copy, *copy)), "all", settings, [WEIGHTS]):
            for head, weights in enumerate(trace[WEIGHTS]):
                place = (int(trace.header["layer"]), head)
                totals[place] = totals.get(place, np.zeros(len(SCORES))) + scores(weights)
        if moved:
            moved(draw + 1, DRAWS)
    return [
        HeadScores(layer, head, dict(zip(SCORES, (total / DRAWS).tolist(), strict=True)))
        for (layer, head), total in sorted(totals.items())
    ]


def scores(weights: Array) -> Array:
    """The scores of one head on one draw, in the order of SCORES."""
    second = np.arange(LENGTH, 2 * LENGTH)
    later = np.arange(1, 2 * LENGTH)
    left_over = np.maximum(1 - weights.sum(axis=-1, dtype=np.float64), 0)
    return np.array(
        [
            weights[second, second - LENGTH + 1].mean(dtype=np.float64),
            weights[second, second - LENGTH].mean(dtype=np.float64),
            weights[later, later - 1].mean(dtype=np.float64),
            weights[later, 0].mean(dtype=np.float64) + left_over[later].mean(),
        ]
    )


def battery_data(found: list[HeadScores]) -> dict[str, Any]:
    heads = [{"layer": each.layer, "head": each.head, **each.scores, "names": each.names} for each in found]
    told = {"tokens": LENGTH, "draws": DRAWS, "enough": ENOUGH}
    return {"definitions": MEANINGS, **told, "heads": heads}


def battery_lines(found: list[HeadScores], screen: Screen) -> Iterator[Line]:
    title = f"{LENGTH} random tokens twice in a row, {DRAWS} draws; heads with {ENOUGH:.0%} or more"
    yield [(screen.ours(title), "label")]
    for name in SCORES:
        named = sorted((each for each in found if name in each.names), key=lambda each: -each.scores[name])
        text = ", ".join(f"{each.layer}.{each.head} ({each.scores[name]:.2f})" for each in named) or "none"
        yield [(pad_right(name, 11), "label"), (text, "")]
        yield [(f"{pad_right('', 11)}{screen.ours(MEANINGS[name])}", "dim")]
