"""Attention over some keys at a time, merged by a running maximum, as flash attention is: read as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from attnctl.sources.program.attention import Attention, ScoreLine
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.join import begins_softmax, is_base_two
from attnctl.sources.program.relations import HIDDEN, Array, is_near, is_same, rows_sum_to_one, softmax

OF_A_TILE = 8
"""Expressions that a tile takes to be merged with those before it, and the last one to come out."""


CLOSE = 1e-3
"""How far a sum may be off that was rescaled again and again, as a share of its largest number."""

SUBTRACTIONS = frozenset({"-", "subtract", "sub", "sub_", "in place -"})


class Tile(NamedTuple):
    """Some keys: their scores, and what was taken off these before the softmax."""

    attention: Attention
    lines: list[Array]
    """The scores, up to those from which a running maximum is taken off."""
    power: int
    """The event in which the softmax begins."""
    maximum: Array
    """(…, query, 1)."""
    base: float


def join_tiles(graph: Graph, found: Sequence[Attention]) -> list[Attention]:
    """The attentions, those that read the same queries and other keys each time as one."""
    by_place: dict[int, list[Attention]] = defaultdict(list)
    out: list[Attention] = []
    for attention in found:
        if is_unnormalized(graph, attention):
            by_place[graph.events[attention.output].site].append(attention)
        else:
            out.append(attention)

    for group in by_place.values():
        for run in runs_of_queries(graph, group):
            whole = join_run(graph, run)
            if whole is None:
                out += run
            else:
                out.append(whole)
    return sorted(out, key=lambda attention: attention.output)


def runs_of_queries(graph: Graph, group: Sequence[Attention]) -> Iterator[list[Attention]]:
    """Those with the same queries and other keys, which are merged; of loops over either the outer one."""
    runs: list[list[Attention]] = []
    # By the numbers of Q: each attention beside each run would take the square of a long loop.
    by_queries: dict[bytes, list[list[Attention]]] = defaultdict(list)
    for attention in group:
        alike = by_queries[np.ascontiguousarray(attention.arrays["Q"]).tobytes()]
        own = next((run for run in reversed(alike) if goes_on(graph, run[-1], attention)), None)
        if own is None:
            own = []
            alike.append(own)
            runs.append(own)
        own.append(attention)
    yield from runs


def goes_on(graph: Graph, before: Attention, attention: Attention) -> bool:
    if not is_same(before.arrays["Q"], attention.arrays["Q"]):
        return False
    if is_same(before.arrays["K"], attention.arrays["K"]):
        return False
    of_before = outputs_of(graph, before, OF_A_TILE)
    return any(n in of_before for n in outputs_of(graph, attention, OF_A_TILE))


def is_unnormalized(graph: Graph, attention: Attention) -> bool:
    """True if powers are the last thing that it makes of scores, or nothing on the way sums to 1."""
    if "Q" not in attention.arrays or len(attention.lines) < 2:
        return False
    if graph.op(attention.lines[-1].n) in {"exp", "exp2"}:
        return True  # of a single key each is 1, and is so by itself
    arrays = [line.array for line in attention.lines]
    return not any(rows_sum_to_one(array) or rows_sum_to_one(array, -2) for array in arrays)


def join_run(graph: Graph, run: Sequence[Attention]) -> Attention | None:
    """One attention over the keys of all tiles; None where these are not merged as one softmax is."""
    tiles = [tile for attention in run if (tile := tile_of(graph, attention)) is not None]
    if len(tiles) < len(run):
        return None
    most_lines = max(tiles, key=lambda tile: len(tile.lines))
    tiles = [with_lines(tile, len(most_lines.lines)) for tile in tiles]

    keys = np.concatenate([attention.arrays["K"] for attention in run], axis=-2)
    values = np.concatenate([attention.arrays["V"] for attention in run], axis=-2)
    scores = side_by_side_keys(tiles, -1).astype(float)
    with np.errstate(all="ignore"):
        weights = softmax(scores * np.log(tiles[0].base))
    right = weights @ values

    merged = merged_outputs(graph, run)
    as_meant = [n for n in merged if is_near(laid_like(graph.value(n), right), right, CLOSE)]
    if not merged or (len(run) == 1 and not as_meant):
        return None
    output = merged[-1]
    if as_meant:
        output = as_meant[0]

    first = run[0]
    whole = Attention(
        product=first.product, output=output, factor=first.factor, batch=list(first.batch), is_tiled=True
    )
    outputs = laid_like(graph.value(output), right)
    whole.arrays = {"Q": first.arrays["Q"], "K": keys, "V": values, "head_outputs": outputs}
    for number in range(len(tiles[0].lines)):
        made = most_lines.attention.lines[number].n
        whole.lines.append(ScoreLine(made, side_by_side_keys(tiles, number)))
    whole.lines.append(ScoreLine(tiles[0].power, weights))
    whole.origins = dict(first.origins)
    if not as_meant:
        whole.suspect = first_wrong(graph, tiles)
    return whole


def with_lines(tile: Tile, count: int) -> Tile:
    """A tile with as many lines as others: a statement that hides none of its keys is none of its lines."""
    missing = count - len(tile.lines)
    return tile._replace(lines=[*tile.lines, *[tile.lines[-1]] * missing])


def side_by_side_keys(tiles: Sequence[Tile], number: int) -> Array:
    """One line of all tiles, over all keys."""
    return np.concatenate([tile.lines[number] for tile in tiles], axis=-1)


def merged_outputs(graph: Graph, run: Sequence[Attention]) -> list[int]:
    """What is made of the first tile and of the last one, in order: the last of it is the output."""
    most = OF_A_TILE * (len(run) + 2)
    of_first = outputs_of(graph, run[0], most)
    return [n for n in outputs_of(graph, run[-1], most) if n in of_first]


def tile_of(graph: Graph, attention: Attention) -> Tile | None:
    """The scores of some keys, and the maximum that is taken off; None where there is no softmax."""
    begins = begins_softmax(graph, attention.lines)
    arrays = [line.array for line in attention.lines]
    if not 0 < begins < len(arrays):
        return None
    base = 2.0 if is_base_two(graph, attention.lines, begins) else float(np.e)

    kept = arrays[:begins]
    maximum = np.zeros((*arrays[0].shape[:-1], 1))
    if begins > 1 and graph.op(attention.lines[begins - 1].n) in SUBTRACTIONS:
        before = arrays[begins - 2]
        now = arrays[begins - 1]
        with np.errstate(all="ignore"):
            taken_off = np.where(before > HIDDEN, before - now, np.nan)
        seen = np.isfinite(taken_off).any(-1, keepdims=True)
        if seen.any():
            # NaN of rows that see none of these keys: their maximum is that of the keys before.
            mean = np.nansum(taken_off, axis=-1, keepdims=True) / np.maximum(
                np.isfinite(taken_off).sum(-1, keepdims=True), 1
            )
            maximum = np.where(seen, mean, np.nan)
            kept = kept[:-1]
    return Tile(attention, kept, attention.lines[begins].n, maximum, base)


def outputs_of(graph: Graph, last: Attention, most: int) -> list[int]:
    """What is made of the last product with V, as many numbers of it, in order."""
    size = graph.value(last.output).size
    made: list[int] = []
    edge = [last.output]
    while edge and len(made) < most:
        n = edge.pop(0)
        for child in graph.made_from(n):
            if graph.value(child).size == size and child not in made and not graph.product(child):
                made.append(child)
                edge.append(child)
    return made


def laid_like(value: Array, laid: Array) -> Array:
    """An array with the shape of another, if it has as many numbers."""
    if value.size == laid.size:
        return value.reshape(laid.shape)
    return value


def first_wrong(graph: Graph, tiles: Sequence[Tile]) -> int | None:
    """The first running sum, of weights or of values, that is not what the keys until then give."""
    maximum = np.zeros_like(tiles[0].maximum)
    for number, tile in enumerate(tiles):
        maximum = np.where(np.isnan(tile.maximum), maximum, tile.maximum)
        until = tiles[: number + 1]
        scores = side_by_side_keys(until, -1).astype(float)
        values = np.concatenate([each.attention.arrays["V"] for each in until], axis=-2)
        with np.errstate(all="ignore"):
            powers = tile.base ** (scores - maximum)
        total = powers.sum(-1)
        mixed = powers @ values

        end = None
        if number + 1 < len(tiles):
            end = tiles[number + 1].attention.product
        for n in sums_between(graph, tile.attention.product, end):
            value = graph.value(n)
            for right in (total, mixed):
                is_same_kind = value.size == right.size and reads_tile(graph, n, tile, right is mixed)
                if is_same_kind and not is_near(value.reshape(right.shape), right, CLOSE):
                    return n
    return None


def sums_between(graph: Graph, begin: int, end: int | None) -> Iterator[int]:
    for n in graph.events:
        if n <= begin or not graph.has_value(n):
            continue
        if end is not None and n >= end:
            return
        if graph.op(n) in {"+", "add", "in place +", "add_"}:
            yield n


def reads_tile(graph: Graph, n: int, tile: Tile, is_mixed: bool) -> bool:
    """True for a sum with the tile's product with V, or with the sums of its weights."""
    parents = graph.parents(n)
    if is_mixed:
        return tile.attention.output in parents
    weights = tile.attention.lines[-1].array
    sums = weights.sum(-1)
    for parent in parents:
        value = graph.value(parent)
        is_later = parent > tile.attention.product
        if is_later and value.size == sums.size and is_near(value.reshape(sums.shape), sums, CLOSE):
            return True
    return False
