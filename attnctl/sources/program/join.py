"""Attentions of a loop that belong together: the heads of one, or its queries one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from attnctl.sources.program.attention import Attention, ScoreLine
from attnctl.sources.program.graph import MOST_SEARCHED, SOFT, Graph
from attnctl.sources.program.origin import Origin
from attnctl.sources.program.relations import Array, has_same_numbers, is_near, is_same, rows_sum_to_one

MERGES = frozenset(
    {
        "concatenate",
        "cat",
        "hstack",
        "stack",
        "concat",
        "in",  # place
        "list",
        "name",
        "part",
        "array",
        "dstack",
        "vstack",
        "tensor",
    }
)
"""What brings the parts of a loop together."""

MOST_MOVES = 4
"""Expressions between an output and where it comes together with the others."""


def join(graph: Graph, found: Sequence[Attention]) -> list[Attention]:
    """The attentions, those of a loop as one; a row of a matrix that is itself one is not counted again."""
    whole_outputs = [parent for attention in found for parent in graph.events[attention.output].parents]
    found = [attention for attention in found if attention.output not in whole_outputs]
    found = [attention for attention in found if not is_row_of_another(attention, found)]
    found = without_copies(graph, found)
    found = [attention for attention in found if not is_gradient(attention, found)]
    groups: dict[tuple[int, ...], list[Attention]] = defaultdict(list)
    for attention in found:
        together = None
        if len(attention.batch) < 2 and attention.arrays:
            together = where_merged(graph, attention.output)
        if together is None:
            groups[(-attention.output,)].append(attention)
        else:
            sites = (graph.events[attention.product].site, graph.events[attention.output].site)
            groups[together, sites[0], sites[1]].append(attention)

    joined: list[Attention] = []
    for key, group in groups.items():
        whole = None
        if len(group) > 1:
            whole = join_queries(graph, group) or join_heads(graph, group, key[0])
        if whole is None:
            joined += group
        else:
            whole.parts, whole.joined = group, key[0]
            joined.append(whole)
    return joined


def without_copies(graph: Graph, found: Sequence[Attention]) -> list[Attention]:
    """Of what loops made, a list and then an array of it, say, is one attention."""
    kept: dict[object, Attention] = {}
    for attention in found:
        key: object = attention.output
        if attention.arrays and graph.is_searched(attention.output):
            key = tuple(attention.arrays[name].tobytes() for name in ("Q", "K", "V", "head_outputs"))
        kept[key] = attention
    return list(kept.values())


def is_gradient(attention: Attention, found: Sequence[Attention]) -> bool:
    """True for a product of the backward pass: it goes on from the weights of another, below 0 too."""
    if not attention.lines:
        return False
    if not attention.lines[-1].array.min(initial=0.0) < 0:
        return False
    weights = {line.n for line in attention.lines[:-1] if rows_sum_to_one(line.array)}
    others = [other for other in found if other is not attention]
    return any(line.n in weights for other in others for line in other.lines)


def is_row_of_another(attention: Attention, found: Sequence[Attention]) -> bool:
    """True for a query or a head by itself that is a part of another attention with these keys."""
    if "K" not in attention.arrays:
        return False
    part = attention.arrays["head_outputs"]
    keys = attention.arrays["K"]
    for other in found:
        if "K" not in other.arrays:
            continue
        if other.arrays["head_outputs"].size <= part.size:
            continue
        whole = other.arrays["head_outputs"]
        if (
            whole.size < MOST_SEARCHED
            and np.isin(part, whole).all()
            and np.isin(keys, other.arrays["K"]).all()
        ):
            return True
    return False


def where_merged(graph: Graph, n: int) -> int | None:
    """Where an output comes together with others."""
    for _ in range(MOST_MOVES):
        value = graph.value(n)
        for child in graph.made_from(n):
            op = graph.op(child).partition("[")[0].partition(" ")[0]
            bigger = graph.value(child).size
            if (
                op in MERGES
                and child not in graph.superseded
                and bigger > value.size
                and bigger % value.size == 0
            ):
                return child

        moved = [
            child
            for child in graph.made_from(n)
            if graph.value(child).size == value.size and has_same_numbers(graph.value(child), value)
        ]
        if not moved:
            return None
        n = moved[0]
    return None


def join_heads(graph: Graph, group: Sequence[Attention], together: int) -> Attention | None:
    """Heads side by side; None where these differ in shape, or read different rows."""

    def form(attention: Attention) -> tuple[object, ...]:
        shapes = tuple(array.shape for array in attention.arrays.values())
        return (shapes, tuple(graph.op(line.n) for line in attention.lines))

    if len({form(attention) for attention in group}) > 1:
        return None
    if graph.value(together).size != sum(attention.arrays["head_outputs"].size for attention in group):
        return None
    first = group[0]
    if len({x_of(attention.origins["Q"][0]) for attention in group}) > 1:
        return None

    def stack(arrays: Sequence[Array]) -> Array:
        return np.stack(arrays, axis=-3)

    whole = Attention(product=first.product, output=group[-1].output, factor=first.factor)
    whole.batch = [*first.batch, len(group)]
    for name in first.arrays:
        whole.arrays[name] = stack([attention.arrays[name] for attention in group])
    for number, line in enumerate(first.lines):
        whole.lines.append(ScoreLine(line.n, stack([attention.lines[number].array for attention in group])))
    whole.origins = {name: [attention.origins[name][0] for attention in group] for name in "QKV"}
    return whole


def x_of(origin: Origin) -> int | None:
    if origin.projection is None:
        return None
    return origin.projection.x


def join_queries(graph: Graph, group: Sequence[Attention]) -> Attention | None:
    """Queries that were computed one by one, each with all keys or with those so far."""
    if any(attention.arrays["Q"].shape[-2] != 1 and not attention.is_tiled for attention in group):
        return None
    if len({len(attention.lines) for attention in group}) > 1:
        return None
    longest = max(group, key=lambda attention: attention.arrays["K"].shape[-2])
    keys = longest.arrays["K"].shape[-2]
    for attention in group:
        for name in "KV":
            part = attention.arrays[name]
            all_of_it = longest.arrays[name]
            if part.shape[:-2] != all_of_it.shape[:-2]:
                return None
            if not is_same(part, all_of_it[..., : part.shape[-2], :]):
                return None

    whole = Attention(
        product=longest.product,
        output=longest.output,
        factor=longest.factor,
        batch=longest.batch,
        is_tiled=longest.is_tiled,
        suspect=next((attention.suspect for attention in group if attention.suspect is not None), None),
    )
    for name in ("Q", "head_outputs"):
        whole.arrays[name] = np.concatenate([attention.arrays[name] for attention in group], axis=-2)
    whole.arrays |= {name: longest.arrays[name] for name in "KV"}
    softmax_begins = begins_softmax(graph, longest.lines)
    for number, line in enumerate(longest.lines):
        is_weights = number >= softmax_begins
        rows = [
            with_keys(attention.lines[number].array, keys, is_weights=is_weights) for attention in group
        ]
        whole.lines.append(ScoreLine(line.n, np.concatenate(rows, axis=-2)))
    whole.origins = dict(longest.origins)
    return whole


def with_keys(rows: Array, keys: int, *, is_weights: bool) -> Array:
    """Rows over the first keys, over all of them: those that they leave out are hidden."""
    missing = keys - rows.shape[-1]
    if not missing:
        return rows
    fill = 0.0
    if not is_weights:
        fill = -np.inf
    return np.concatenate([rows, np.full((*rows.shape[:-1], missing), fill)], axis=-1)


def begins_softmax(graph: Graph, lines: Sequence[ScoreLine]) -> int:
    """The first line that the softmax made; without one all but the last are scores."""
    for number, line in enumerate(lines):
        if graph.op(line.n) in SOFT:
            return number
        if number and is_power(lines[number - 1].array, line.array):
            return number
    return len(lines) - (len(lines) > 1)


def is_power(before: Array, now: Array) -> bool:
    """True if one is exp or exp2 of the other, less a number of each row perhaps, written in its place."""
    if before.shape != now.shape:
        return False
    if not now.size:
        return False
    if not now.min() >= 0:
        return False
    scores = before.astype(float)
    with np.errstate(all="ignore"):
        if any(is_near(power(scores), now) for power in (np.exp, np.exp2)):
            return True
        taken_off = scores - np.log(now.astype(float))
        is_shifted = np.isfinite(taken_off).all() and now.max() <= 1 and now.shape[-1] > 1
    return bool(is_shifted and np.ptp(taken_off, axis=-1).max() <= 1e-9 * max(1.0, np.abs(scores).max()))


def is_base_two(graph: Graph, lines: Sequence[ScoreLine], begins: int) -> bool:
    """True if the softmax takes powers of 2, of scores that were multiplied by log2(e)."""
    if not 0 < begins < len(lines):
        return False
    if graph.op(lines[begins].n) == "exp2":
        return True
    scores = lines[begins - 1].array.astype(float)
    with np.errstate(all="ignore"):
        if is_near(np.exp(scores), lines[begins].array):  # of 0 both are 1
            return False
        return is_near(np.exp2(scores), lines[begins].array)
