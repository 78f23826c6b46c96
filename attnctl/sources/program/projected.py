"""Q, K or V beside its projection: which columns, which rows, and what was done since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from attnctl.sources.program.changed import (
    Between,
    Changed,
    Stage,
    broken_turn,
    changes,
    lengths_of_pairs,
)
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.origin import Origin, Origins, Projection
from attnctl.sources.program.relations import Array, is_near

CLOSE = 1e-4
"""How far numbers may be apart that are the same column or row, as a share of the largest."""

COMPARED = 16
"""Rows by which columns are told apart."""


class ProjectedRows(NamedTuple):
    """What is projected: X or memory."""

    event: int
    array: Array


class GivenOperand(NamedTuple):
    """An operand that nothing projected, and what was done with it since."""

    event: int
    changed: Changed


class Projected(NamedTuple):
    """An operand as X W + b."""

    input: ProjectedRows
    weight: int
    event: int
    """What the projection gave."""
    matrix: Array
    bias: Array | None
    is_whole: bool
    """True if every column of the projection belongs to this operand."""
    stored: Array | None = None
    """Keys or values as they are kept, before these were repeated for heads: (batch, kv head, rows, d)."""
    change: Changed | None = None


Mark = Callable[[Array], Array]
"""What of (rows, d) tells a row from another."""


def unmarked(rows: Array) -> Array:
    return rows


class Projecting:
    """Lays out the projections of operands."""

    def __init__(self, graph: Graph, origins: Origins) -> None:
        self.graph = graph
        self.origins = origins

    def lay_out(
        self, name: str, origins: Sequence[Origin], array: Array, *, is_packed: bool
    ) -> Projected | None:
        """How an operand, (batch, head, rows, d), comes from its projection; None where nothing tells."""
        flat = side_by_side(array)
        projections = [origin.projection for origin in origins]
        if all(projection is not None for projection in projections):
            found = [projection for projection in projections if projection is not None]
            if len({projection.n for projection in found}) > 1:
                return self.of_heads(found, flat)
            projected = self.of_one(name, found[0], origins[0], array, is_packed=is_packed)
            if projected is not None:
                return projected
        by_rows = self.by_rows(name, flat) or self.by_rows_of_groups(name, array)
        if by_rows is not None:
            return by_rows
        if len(origins) == array.shape[1] > 1:
            of_heads = self.changed_by_heads(name, origins, array)
            if of_heads is not None:
                return of_heads
        return self.changed(name, origins[0], array)

    def by_rows_of_groups(self, name: str, array: Array) -> Projected | None:
        """Keys or values of a cache that are repeated for the heads of a group, each once."""
        kept = array if name == "Q" else distinct_heads(array)
        if kept is array:
            return None
        projected = self.by_rows(name, side_by_side(kept))
        return None if projected is None else projected._replace(stored=kept)

    def split(self, projection: Projection, shape: tuple[int, ...]) -> Array:
        """What a projection gave, as (batch, head, rows, d)."""
        batch, heads, count, _ = shape
        return projection.rows.reshape(batch, count, heads, -1).swapaxes(1, 2)

    # --- one projection, or one for each head ---

    def of_heads(self, projections: Sequence[Projection], flat: Array) -> Projected | None:
        """Each head has its own weight: their columns side by side."""
        first = projections[0]
        matrix = np.concatenate([projection.matrix for projection in projections], axis=1)
        if len({projection.x for projection in projections}) > 1:
            return None
        if matrix.shape[1] != flat.shape[1]:
            return None
        bias = None
        if all(projection.bias is not None for projection in projections):
            bias = np.concatenate(
                [projection.bias for projection in projections if projection.bias is not None]
            )
        return Projected(self.input_of(first), first.weight, first.n, matrix, bias, is_whole=True)

    def input_of(self, projection: Projection) -> ProjectedRows:
        return ProjectedRows(projection.x, self.origins.tokens(projection))

    def of_one(
        self, name: str, projection: Projection, origin: Origin, array: Array, *, is_packed: bool
    ) -> Projected | None:
        """All columns of a projection, some of it, or fewer that are repeated for heads."""
        flat = side_by_side(array)
        rows = projection.rows
        source = self.input_of(projection)
        matrix = projection.matrix
        bias = projection.bias
        whole = Projected(source, projection.weight, projection.n, matrix, bias, is_whole=True)

        turned = self.origins.of_columns(projection) if self.is_turned(projection, flat) else None
        if turned is not None:
            source = self.input_of(turned)
            return Projected(source, turned.weight, turned.n, turned.matrix, turned.bias, is_whole=True)
        if projection.row_bias is not None and projection.bias is None:
            return None
        if rows.shape == flat.shape:
            reordered = self.tokens_before_batch(projection, array)
            if reordered is None:
                return whole
            return whole._replace(input=reordered)

        width = flat.shape[1]
        head_width = array.shape[3]
        sizes = [array.size, *(self.graph.value(n).size for n in origin.path)]
        is_repeated = name != "Q" and any(now > before for now, before in pairwise(sizes))
        if (
            len(rows) == len(flat)
            and is_repeated
            and rows.shape[1] < width
            and rows.shape[1] % head_width == 0
        ):
            if is_packed:
                # The other columns are another operand's: it reads no head of these.
                read = sorted({*(match_columns(rows, flat) or range(rows.shape[1]))})
                rows = rows[:, read]
                whole = columns_of(whole, read)
            stored = rows.reshape(array.shape[0], array.shape[2], -1, head_width).swapaxes(1, 2)
            return whole._replace(stored=stored)

        if len(rows) == len(flat) and rows.shape[1] > width:
            columns = match_columns(rows, flat)
            if columns is None:
                return None
            return columns_of(whole, columns)
        return self.of_some_rows(whole, projection, flat)

    def tokens_before_batch(self, projection: Projection, array: Array) -> ProjectedRows | None:
        """The input as (batch, token, d), where the program has (token, batch, d)."""
        x = self.origins.tokens(projection)
        batch, _, count, _ = array.shape
        if x.ndim != 3:
            return None
        if x.shape[:2] != (count, batch):
            return None
        if batch == 1:
            return None
        width = projection.rows.shape[1]
        flat = side_by_side(array)
        turned = projection.rows.reshape(count, batch, width).swapaxes(0, 1).reshape(-1, width)
        if x.shape[0] == x.shape[1] and (is_near(projection.rows, flat) or not is_near(turned, flat)):
            return None
        return ProjectedRows(projection.x, x.swapaxes(0, 1))

    def is_turned(self, projection: Projection, flat: Array) -> bool:
        rows = projection.rows
        if rows.ndim != 2:
            return False
        if self.graph.value(projection.x).ndim != 2:
            return False
        if projection.is_linear or projection.tokens is not None:
            return False
        if rows.T.shape != flat.shape:
            return False
        if rows.shape != flat.shape:
            return True
        if match_columns(rows.T, flat) is None:
            return False
        return match_columns(rows, flat) is None

    def of_some_rows(self, whole: Projected, projection: Projection, flat: Array) -> Projected | None:
        """Some rows of a projection: those of a slice, or of one query after the other."""
        rows = projection.rows
        if rows.shape[1] != flat.shape[1]:
            return None
        chosen = match_columns(rows.T, flat.T)
        if chosen is None:
            return None
        x = whole.input.array.reshape(-1, whole.input.array.shape[-1])
        return whole._replace(input=ProjectedRows(whole.input.event, x[chosen]))

    # --- rows from anywhere, as of a cache that grows ---

    @cached_property
    def by_weight(self) -> dict[bytes, list[Projection]]:
        """The projections of the program, those of one weight together, however it was come by."""
        groups: dict[bytes, list[Projection]] = {}
        for n in self.graph.events:
            projection = self.origins.projection(n)
            if projection is not None:
                groups.setdefault(np.ascontiguousarray(projection.matrix).tobytes(), []).append(projection)
        return groups

    def by_rows(self, name: str, flat: Array, mark: Mark = unmarked) -> Projected | None:
        """An operand each of whose rows some projection with one weight gave: a cache, a list that grew.

        Rows are known again by a mark of theirs: by all their numbers, or what turning leaves of these.
        """
        for projections in self.by_weight.values():
            for parts in self.parts_of(name, projections, flat.shape[1]):
                projected = self.of_rows_of(parts, flat, mark)
                if projected is not None:
                    return projected
        return None

    def of_rows_of(self, parts: list[Projection], flat: Array, mark: Mark) -> Projected | None:
        """An operand whose rows are among those of projections with one weight."""
        if len(parts) < 2 or sum(len(part.rows) for part in parts) > MOST_ROWS:
            return None

        parts = [part for part in parts if part.bias is not None] or parts
        rows = np.concatenate([part.rows for part in parts])
        inputs = [self.origins.tokens(part) for part in parts]
        x = np.concatenate([each.reshape(-1, each.shape[-1]) for each in inputs])
        is_written = flat.any(axis=1)
        if not is_written.any():
            return None  # all slots are empty: nothing tells by which weight they would be filled
        if parts[-1].bias is None and not is_written.all():
            # A slot of a cache that is empty is what no token at all would give.
            rows = np.concatenate([rows, np.zeros_like(rows[:1])])
            x = np.concatenate([x, np.zeros_like(x[:1])])
        chosen = match_columns(mark(rows).T, mark(flat).T)
        if chosen is None:
            return None
        if len(x) != len(rows):
            return None

        last = parts[-1]
        source = ProjectedRows(last.x, x[chosen])
        is_whole = last.rows.shape[1] == self.origins_width(last)
        return Projected(source, last.weight, last.n, last.matrix, last.bias, is_whole=is_whole)

    def with_unwritten(self, array: Array, of_keys: ProjectedRows) -> Projected | None:
        """Values among which are rows that nothing was written to, though the keys beside them were.

        What was written tells the weight; the rows are to be those of the keys' tokens.
        """
        flat = side_by_side(array)
        is_written = (flat != 0).any(axis=1)
        rows = of_keys.array.reshape(-1, of_keys.array.shape[-1])
        if is_written.all() or not is_written.any() or len(rows) != len(flat):
            return None
        for projections in self.by_weight.values():
            first = projections[0]
            if first.rows.shape[1] != flat.shape[1] or first.matrix.shape[0] != rows.shape[1]:
                continue
            made = np.concatenate([projection.rows for projection in projections])
            if match_columns(made.T, flat[is_written].T) is not None:
                return Projected(of_keys, first.weight, first.n, first.matrix, first.bias, is_whole=True)
        return None

    def origins_width(self, projection: Projection) -> int:
        whole = self.origins.projection(projection.n)
        if whole is None:
            return projection.rows.shape[1]
        return whole.rows.shape[1]

    def parts_of(
        self, name: str, projections: Sequence[Projection], width: int
    ) -> Iterator[list[Projection]]:
        """What projections gave, or the columns of K or V in those of both, or of Q, K, V as a rule."""
        wholes = [projection for projection in projections if projection.rows.shape[1] == width]
        if wholes:
            yield wholes
        packed = [projection for projection in projections if projection.rows.shape[1] >= 2 * width]
        if name == "Q" or not packed:
            return

        all_columns = packed[0].rows.shape[1]
        usual = all_columns - (2 * width if name == "K" else width)
        begins = [usual, *(begin for begin in range(0, all_columns - width + 1, width) if begin != usual)]
        for begin in begins:
            yield [columns_from(projection, begin, width) for projection in packed]

    # --- what was done in between ---

    def changed(self, name: str, origin: Origin, array: Array) -> Projected | None:
        """An operand that is a projection turned by its position, or normalized, or both."""
        kept = array if name == "Q" else distinct_heads(array)
        projected = self.changed_at_once(name, origin, kept) or self.turned_at_times(name, kept)
        if name == "V":
            return without_turn(projected)
        if projected is None or kept is array:
            return projected
        return projected._replace(stored=kept)

    def changed_by_heads(self, name: str, origins: Sequence[Origin], array: Array) -> Projected | None:
        """Heads of a loop, each projected by a weight of its own, and turned or normalized alike."""
        heads: list[Projected] = []
        for number, origin in enumerate(origins):
            head = self.changed_at_once(name, origin, array[:, number : number + 1])
            if head is None or head.change is None:
                return None
            heads.append(head)

        first = heads[0]
        changed = [head.change for head in heads if head.change is not None]
        stages = [
            stages_of_heads(each) for each in zip(*(change.stages for change in changed), strict=False)
        ]
        is_alike = all(len(change.stages) == len(stages) for change in changed)
        if not is_alike or None in stages or len({head.input.event for head in heads}) > 1:
            return None
        biases = [head.bias for head in heads if head.bias is not None]
        together = first._replace(
            matrix=np.concatenate([head.matrix for head in heads], axis=1),
            bias=np.concatenate(biases) if len(biases) == len(heads) else None,
            change=Changed(
                np.concatenate([change.before for change in changed], axis=1),
                [stage for stage in stages if stage is not None],
            ),
        )
        return without_turn(together) if name == "V" else together

    def changed_at_once(self, name: str, origin: Origin, kept: Array) -> Projected | None:
        """All rows come from one projection, with arrays of as many numbers on the way."""
        if self.graph.value(origin.last).size != kept.size:
            return None
        move = move_between(self.graph.value(origin.last), kept)
        if move is None:
            return None

        after = Between(origin.last, kept)
        between: list[Between] = []
        for n in self.graph.ancestors(origin.last, most=MOST_ON_THE_WAY):
            value = self.graph.value(n)
            if value.shape != self.graph.value(origin.last).shape:
                continue
            laid = Between(n, move(value))
            way = self.origins.origin(n)
            if way.projection is None:
                between.append(laid)
                continue
            projected = self.of_one(name, way.projection, way, laid.array, is_packed=False)
            if projected is None:
                continue
            stages = changes(laid.array, after, between, self.vectors_near(origin.last))
            if stages is None and self.reads_angles(origin.last):
                stages = broken_turn(laid.array, after)
            if stages is None:
                return None
            return projected._replace(stored=None, change=Changed(laid.array, stages), event=n)
        return self.changed_by_size(origin, after, between)

    def given_before_turn(self, origin: Origin, array: Array) -> GivenOperand | None:
        """What an operand was before it was turned by sines and cosines, where no weight projected it."""
        if not self.reads_angles(origin.last):
            return None
        size = self.graph.value(origin.last).size
        for n in self.graph.ancestors(origin.last, most=MOST_ON_THE_WAY):
            value = self.graph.value(n)
            is_made = any(self.graph.value(parent).size == size for parent in self.graph.parents(n))
            if value.size != size or value.size != array.size or is_made:
                continue
            move = move_between(self.graph.value(origin.last), array)
            if move is None:
                return None
            before = move(value)
            after = Between(origin.last, array)
            stages = changes(before, after, (), ()) or broken_turn(before, after)
            return None if stages is None else GivenOperand(n, Changed(before, stages))
        return None

    def reads_angles(self, n: int) -> bool:
        """True if sines or cosines went into it."""
        near = self.graph.ancestors(n, most=MOST_ON_THE_WAY)
        return any(self.graph.op(m) in {"cos", "sin", "polar"} for m in near)

    def changed_by_size(
        self, origin: Origin, after: Between, between: Sequence[Between]
    ) -> Projected | None:
        """The nearest projection with as many numbers, where shapes on the way tell nothing."""
        projection = self.origins.nearest_projection(origin.last)
        if projection is None or projection.rows.shape != side_by_side(after.array).shape:
            return None
        before = self.split(projection, after.array.shape)
        stages = changes(before, after, between, self.vectors_near(origin.last))
        if stages is None:
            return None
        return Projected(
            self.input_of(projection),
            projection.weight,
            projection.n,
            projection.matrix,
            projection.bias,
            is_whole=True,
            change=Changed(before, stages),
        )

    def turned_at_times(self, name: str, kept: Array) -> Projected | None:
        """Rows of a cache, or of calls in turn: each comes from some projection, and was turned alone."""
        if kept.shape[-1] % 2:
            return None
        flat = side_by_side(kept)
        heads = kept.shape[1]
        for interleaved in (False, True):

            def lengths(rows: Array, interleaved: bool = interleaved) -> Array:
                return lengths_of_pairs(rows, heads, interleaved=interleaved)

            projected = self.by_rows(name, flat, lengths)
            if projected is None:
                continue
            bias = 0.0 if projected.bias is None else projected.bias
            rows = projected.input.array @ projected.matrix + bias
            before = rows.reshape(kept.shape[0], kept.shape[2], heads, -1).swapaxes(1, 2)
            stages = changes(before, Between(projected.event, kept), (), ())
            if stages is not None:
                return projected._replace(change=Changed(before, stages))
        return None

    def vectors_near(self, n: int) -> list[Array]:
        """Arrays with one axis of which this was made: the weight of a norm is one of these."""
        near = self.graph.ancestors(n, most=30)
        return [self.graph.value(m) for m in near if self.graph.value(m).ndim == 1]


MOST_ON_THE_WAY = 60
"""Arrays between a projection and what is read that are looked at."""

MOST_ROWS = 2**12
"""Rows among which those of a cache are sought."""


def without_turn(projected: Projected | None) -> Projected | None:
    """Values are never turned by their position: what was projected is what they should be."""
    if projected is None or projected.change is None:
        return None
    stages = projected.change.stages
    if any(stage.turn is None or stage.turn.is_broken for stage in stages):
        return None
    return projected._replace(change=None)


def stages_of_heads(stages: Sequence[Stage]) -> Stage | None:
    """One stage of all heads, where each went through the same."""
    first = stages[0]
    if any(stage.name != first.name or stage.options != first.options for stage in stages):
        return None
    array = np.concatenate([stage.array for stage in stages], axis=1)
    return first._replace(array=array)


def columns_from(projection: Projection, begin: int, width: int) -> Projection:
    """Some columns of a projection, as one of its own."""
    columns = slice(begin, begin + width)
    bias = None if projection.bias is None else projection.bias[columns]
    return projection._replace(
        rows=projection.rows[:, columns], matrix=projection.matrix[:, columns], bias=bias
    )


def side_by_side(array: Array) -> Array:
    """(batch · rows, head · d) of (batch, head, rows, d)."""
    return array.swapaxes(1, 2).reshape(array.shape[0] * array.shape[2], array.shape[1] * array.shape[3])


def distinct_heads(array: Array) -> Array:
    """Of (batch, head, rows, d) the heads that differ, in order: those that are repeated once."""
    first_of: list[int] = []
    for head in range(array.shape[1]):
        if not any(np.array_equal(array[:, head], array[:, other]) for other in first_of):
            first_of.append(head)
    if len(first_of) == array.shape[1] or array.shape[1] % len(first_of):
        return array
    return array[:, first_of]


def heads_repeated(keys: Array, values: Array, heads: int) -> int | None:
    """Of how many heads each is repeated in keys and in values, (batch, head, rows, d), for so many."""
    of_k, of_v = (distinct_heads(array).shape[1] for array in (keys, values))
    return of_k if 1 < of_k == of_v < heads else None


def move_between(value: Array, laid: Array) -> Callable[[Array], Array] | None:
    """How arrays of that shape are laid out as (batch, head, rows, d), told by one that is known."""
    batch, heads, count, width = laid.shape
    ways = (
        ((batch, heads, count, width), (0, 1, 2, 3)),
        ((batch, count, heads, width), (0, 2, 1, 3)),
        ((count, batch, heads, width), (1, 2, 0, 3)),
        ((heads, batch, count, width), (1, 0, 2, 3)),
        ((batch, heads, width, count), (0, 1, 3, 2)),
    )
    for shape, order in ways:
        if is_near(value.reshape(shape).transpose(order), laid):
            return lambda array, shape=shape, order=order: array.reshape(shape).transpose(order)  # type: ignore[misc]
    return None


def columns_of(whole: Projected, columns: Sequence[int]) -> Projected:
    """Some columns of a projection, or these in another order."""
    bias = None if whole.bias is None else whole.bias[columns]
    return whole._replace(matrix=whole.matrix[:, columns], bias=bias, is_whole=False)


def match_columns(have: Array, wanted: Array) -> list[int] | None:
    """Of each column the one among those that are there with the same numbers; None where one has none."""
    if len(have) != len(wanted):
        return None
    if not have.size:
        return None
    if not wanted.size:
        return None
    # Enough rows to tell columns apart, and few enough to compare all with all.
    rows = max(1, min(len(have), COMPARED, MOST_COMPARED // (have.shape[1] * wanted.shape[1])))
    a = have[:rows].astype(float)
    b = wanted[:rows].astype(float)
    off = np.zeros((b.shape[1], a.shape[1]))
    for row_a, row_b in zip(a, b, strict=True):
        off = np.maximum(off, np.abs(row_b[:, None] - row_a))
    off[np.isnan(off)] = np.inf
    nearest = off.argmin(1)
    slack = CLOSE * float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-12))
    if (off[np.arange(len(nearest)), nearest] > slack).any():
        return None
    same = np.allclose(have[:, nearest], wanted, atol=slack, rtol=0)
    if same:
        return nearest.tolist()
    return None


MOST_COMPARED = 2**24
"""Numbers that are compared to match columns."""
