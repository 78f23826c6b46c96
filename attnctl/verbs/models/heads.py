"""Name each head of a model by what it does, by a stated rule: on one text, or on the battery.

The battery is random tokens, twice in a row. With tokens t_0 … t_{n−1} t_0 … t_{n−1}, a query at position
i ≥ n of the second copy has seen its token before, at i − n. The scores of a head are mean weights over
queries and draws:

- induction: on i − n + 1, what came after its token (Olsson et al. 2022, "In-context Learning and
  Induction Heads", "prefix matching").
- duplicate: on i − n, its token's earlier place (Wang et al. 2022, "Interpretability in the Wild",
  section 3.2).
- previous: on i − 1, over all queries but the first (Olsson et al. 2022).
- sink: on the first token, over all queries but the first, and what a learned sink takes (Xiao et
  al. 2023, "Efficient Streaming Language Models with Attention Sinks").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.text import cells, pad_left, pad_right
from attnctl.inputs.plan.sentence import text_queries
from attnctl.math import Array
from attnctl.math.names import WEIGHTS
from attnctl.record import Trace

if TYPE_CHECKING:
    from attnctl.inputs.config.settings import Settings

ENOUGH = 0.4
"""The share of attention, or the score, that names a head."""

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
    """The share of its attention that a head gives to each kind of key, and the names that follow."""

    layer: int
    head: int
    shares: Mapping[str, float]

    @property
    def names(self) -> list[str]:
        return [kind for kind, share in self.shares.items() if share >= ENOUGH]

    @property
    def name(self) -> str:
        return max(self.names, key=lambda kind: self.shares[kind], default=SPREAD)


def head_profiles(trace: Trace) -> list[HeadProfile]:
    weights = trace[WEIGHTS]
    special = [place for place in trace.header.get("special", ()) if place]
    masks = key_masks(trace.ids or list(range(weights.shape[-1])), special)
    left_over = np.maximum(1 - weights.sum(axis=-1), 0)  # what a learned sink takes
    queries = np.flatnonzero(text_queries(trace.tokens, weights.shape[-2]))
    if len(queries) > 3:  # the first two have hardly a choice
        queries = queries[2:]

    layer = int(trace.header.get("layer", 0))
    profiles = []
    for number, head in enumerate(weights):
        shares = {}
        for kind, mask in masks.items():
            by_query = (head * mask).sum(axis=-1)
            shares[kind] = mean_of(by_query[queries])
        shares["sink"] += mean_of(left_over[number][queries])
        profiles.append(HeadProfile(layer, number, shares))
    return profiles


def mean_of(shares: Array) -> float:
    return float(shares.mean(dtype=np.float64))


def key_masks(ids: Sequence[int], special: Sequence[int]) -> dict[str, Array]:
    """For each kind which keys count, (query, key) of true and false."""
    tokens = np.asarray(ids)
    count = len(tokens)
    query = np.arange(count)[:, None]
    key = np.arange(count)[None, :]
    same = tokens[:, None] == tokens[None, :]

    # The token before the key is an earlier place of the query's own token.
    follows_same = np.zeros((count, count), bool)
    follows_same[:, 1:] = same[:, :-1] & (key[:, 1:] - 1 < query)
    return {
        "sink": np.isin(key, special) & (query >= 0),
        "previous": key == query - 1,
        "first": np.broadcast_to(key == 0, (count, count)),
        "self": key == query,
        "same word": same & (key != query),
        "induction": follows_same,
    }


def profile_data(heads: Iterable[HeadProfile], trace: Trace) -> dict[str, Any]:
    rows = []
    for head in heads:
        shares = {kind: round(share, 6) for kind, share in head.shares.items()}
        rows.append({"layer": head.layer, "head": head.head, "name": head.name, "shares": shares})

    names = ("model", "family", "sentence", "tokens", "ids")
    prompt = {name: trace.header[name] for name in names if name in trace.header}
    kinds = {**KINDS, SPREAD: "nothing of these"}
    return {**prompt, "rule": RULE, "kinds": kinds, "heads": rows}


# --- the battery ---

SCORES = {
    "induction": "attends to what came after its token's earlier place",
    "duplicate": "attends to its token's earlier place",
    "previous": "attends to the token before",
    "sink": "attends to the first token, or its learned sink",
}

LENGTH = 24
"""Tokens in a copy."""

DRAWS = 4
"""How often other tokens are drawn."""


def battery(
    name: str, vocab: int, settings: Settings, moved: Callable[[int, int], None] | None = None
) -> list[HeadProfile]:
    from attnctl.models.run import ModelInput, run_model

    draws = np.random.RandomState(0)
    totals: dict[tuple[int, int], Array] = {}
    for draw in range(DRAWS):
        copy = draws.randint(0, vocab, LENGTH).tolist()
        twice = ModelInput(ids=(*copy, *copy))
        for trace in run_model(name, twice, "all", settings, keep=[WEIGHTS]):
            for head, weights in enumerate(trace[WEIGHTS]):
                place = (int(trace.header["layer"]), head)
                before = totals.get(place, np.zeros(len(SCORES)))
                totals[place] = before + battery_scores(weights)
        if moved:
            moved(draw + 1, DRAWS)

    profiles = []
    for (layer, head), total in sorted(totals.items()):
        means = (total / DRAWS).tolist()
        profiles.append(HeadProfile(layer, head, dict(zip(SCORES, means, strict=True))))
    return profiles


def battery_scores(weights: Array) -> Array:
    """The scores of one head on one draw, in the order of SCORES."""
    in_second = np.arange(LENGTH, 2 * LENGTH)
    but_first = np.arange(1, 2 * LENGTH)
    earlier = in_second - LENGTH  # the place of the same token in the first copy
    left_over = np.maximum(1 - weights.sum(axis=-1, dtype=np.float64), 0)

    induction = mean_of(weights[in_second, earlier + 1])
    duplicate = mean_of(weights[in_second, earlier])
    previous = mean_of(weights[but_first, but_first - 1])
    first = mean_of(weights[but_first, 0])
    sink = first + mean_of(left_over[but_first])
    return np.array([induction, duplicate, previous, sink])


def battery_data(found: list[HeadProfile]) -> dict[str, Any]:
    heads = [{"layer": head.layer, "head": head.head, **head.shares, "names": head.names} for head in found]
    return {
        "definitions": SCORES,
        "tokens": LENGTH,
        "draws": DRAWS,
        "enough": ENOUGH,
        "heads": heads,
    }


SHORT = {"previous": "prev", "same word": "same", "induction": "induc"}
DOT = "·"


def map_lines(heads: list[HeadProfile], tokens: list[str], model: str, screen: Screen) -> Iterator[Line]:
    """Layers down, heads across, what each head does; then the rule and how to go on."""
    yield from screen.flow([(screen.token(token), "token") for token in tokens], "  ")
    yield []
    yield from grid_lines(heads, screen)
    yield from legend_lines(heads, screen)
    busy = max(heads, key=largest_share_of_text)
    yield []
    yield [(f"One layer, number by number: add --layer {busy.layer} --head {busy.head}", "")]


def first_width(heads: list[HeadProfile]) -> int:
    """The width of the column with the names of layers, which the legend keeps to."""
    last = max(head.layer for head in heads)
    return max(cells(f"layer {last}"), 8)


def grid_lines(heads: list[HeadProfile], screen: Screen) -> Iterator[Line]:
    """Layers down, as many heads side by side as there is room for."""
    layers = sorted({head.layer for head in heads})
    count = 1 + max(head.head for head in heads)
    first = first_width(heads)
    width = 6
    side_by_side = count
    if screen.fits:
        side_by_side = max(1, (screen.width - first) // width)

    for start in range(0, count, side_by_side):
        numbers = range(start, min(start + side_by_side, count))
        heading = "".join(pad_left(str(number), width) for number in numbers)
        yield [(pad_right("", first), ""), (heading, "label")]
        in_block = [head for head in heads if head.head in numbers]
        for layer in layers:
            name = pad_right(f"layer {layer}", first)
            names = [profile_cell(head, width, screen) for head in in_block if head.layer == layer]
            yield [(name, "label"), *names]
        yield []


def legend_lines(heads: list[HeadProfile], screen: Screen) -> Iterator[Line]:
    first = first_width(heads)
    for kind, meaning in KINDS.items():
        name = pad_right(SHORT.get(kind, kind), first)
        yield [(f"{name}{screen.printable(meaning)}", "dim")]

    dot = pad_right(screen.printable(DOT), first)
    yield [(f"{dot}{SPREAD}: nothing of these", "dim")]
    yield [(RULE, "dim")]


def largest_share_of_text(head: HeadProfile) -> float:
    """How much a head is worth a look: those that rest on the first token or a sink are not."""
    return 0 if head.name in {"first", "sink"} else max(head.shares.values())


def profile_cell(head: HeadProfile, width: int, screen: Screen) -> tuple[str, str]:
    if head.name == SPREAD:
        return pad_left(screen.printable(DOT), width), "dim"
    name = SHORT.get(head.name, head.name)
    style = "strong" if head.name == "induction" else ""
    return pad_left(name, width), style


def battery_lines(found: list[HeadProfile], screen: Screen) -> Iterator[Line]:
    title = f"{LENGTH} random tokens twice in a row, {DRAWS} draws; heads with {ENOUGH:.0%} or more"
    yield [(screen.printable(title), "label")]
    for name, meaning in SCORES.items():
        scored = [(head.shares[name], head) for head in found if name in head.names]
        scored.sort(key=lambda item: -item[0])
        heads = ", ".join(f"{head.layer}.{head.head} ({score:.2f})" for score, head in scored)
        yield [(pad_right(name, 11), "label"), (heads or "none", "")]

        margin = pad_right("", 11)
        yield [(f"{margin}{screen.printable(meaning)}", "dim")]
