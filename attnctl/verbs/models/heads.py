"""Name each head of a model by what it does on one text, by a stated rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array
from attnctl.math.names import WEIGHTS
from attnctl.record.trace import Trace

ENOUGH = 0.4
"""The share of attention that names a head."""

KINDS = {
    "sink": "special tokens but the first ([SEP], </s>), and the sink that a model has learned",
    "previous": "the token before",
    "first": "the first token",
    "self": "the token itself",
    "same word": "other places with the same token",
    "induction": "what came after an earlier place with the same token",
}
"""What a head may attend to, in the order that names it where two have the same share."""

SPREAD = "spread"

RULE = (
    f"A head is called after what takes most of its attention, a mean over the queries from the third "
    f"on, where that is {ENOUGH:.0%} or more; else spread."
)


@dataclass(frozen=True)
class HeadProfile:
    """The share of its attention that a head gives to each kind of key, and the name that follows."""

    layer: int
    head: int
    shares: Mapping[str, float]

    @property
    def name(self) -> str:
        best = max(KINDS, key=lambda kind: self.shares[kind])
        return best if self.shares[best] >= ENOUGH else SPREAD


def heads_of(trace: Trace) -> list[HeadProfile]:
    """The heads of one layer."""
    weights = trace[WEIGHTS]
    special = [place for place in trace.header.get("special", ()) if place]
    masks = places(trace.ids or list(range(weights.shape[-1])), special)
    sinks = np.maximum(1 - weights.sum(axis=-1), 0)  # what the keys leave over
    start = 2 if weights.shape[-2] > 3 else 0
    layer = int(trace.header.get("layer", 0))
    found = []
    for number, head in enumerate(weights):
        shares = {
            kind: float((head * mask).sum(axis=-1)[start:].mean(dtype=np.float64))
            for kind, mask in masks.items()
        }
        shares["sink"] += float(sinks[number][start:].mean(dtype=np.float64))
        found.append(HeadProfile(layer, number, shares))
    return found


def places(ids: Sequence[int], special: Sequence[int]) -> dict[str, Array]:
    """For each kind which keys count for each query, (query, key) of true and false."""
    tokens = np.asarray(ids)
    count = len(tokens)
    query, key = np.arange(count)[:, None], np.arange(count)[None, :]
    same = tokens[:, None] == tokens[None, :]
    before = np.zeros((count, count), bool)
    before[:, 1:] = same[:, :-1] & (key[:, 1:] - 1 < query)
    return {
        "sink": np.isin(key, special) & (query >= 0),
        "previous": key == query - 1,
        "first": np.broadcast_to(key == 0, (count, count)),
        "self": key == query,
        "same word": same & (key != query),
        "induction": before,
    }


def as_data(heads: Iterable[HeadProfile], trace: Trace) -> dict[str, Any]:
    """The map as JSON data."""
    rows = [
        {
            "layer": head.layer,
            "head": head.head,
            "name": head.name,
            "shares": {kind: round(share, 6) for kind, share in head.shares.items()},
        }
        for head in heads
    ]
    told: dict[str, Any] = {
        name: trace.header[name]
        for name in ("model", "family", "sentence", "tokens", "ids")
        if name in trace.header
    }
    return {**told, "rule": RULE, "kinds": {**KINDS, SPREAD: "nothing of these"}, "heads": rows}
