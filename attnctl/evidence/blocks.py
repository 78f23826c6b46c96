"""Large steps beside what they should be, a tile of rows at a time, so that memory stays bounded.

Every recorded number is compared with the one its inputs give. How far a decent program is off is
drawn for a few rows of each tile: where all rows of the tile are off by clearly less, beside their
size, nothing more is to be found there. Any other tile is judged like a small step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from attnctl.base.trace import Trace
from attnctl.evidence.judge import Gap, blur_of, gap_of, judge_step
from attnctl.evidence.record import Record, Strictness, with_shapes
from attnctl.evidence.rounding import FACTOR, LEAST_RUNS, Known, typical
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Step
from attnctl.math.engine import blas
from attnctl.math.engine.tiles import cores, in_order
from attnctl.math.ops import Block, Hide, RowWise

MANY = 2**21
"""Numbers of a step, or of what it is computed from, above which it is compared tile by tile."""

TILE = 2**18
"""Numbers of a tile: few enough for the processor's cache."""

SAMPLED = 8
"""Rows of a tile whose scatter is drawn."""

CLEARLY = 0.5
"""The part of what may be allowed that a tile may use up and still needs no judging."""

Expect = Callable[[Record, Step], Known]
"""What a step of a record should be, by its inputs there."""


@dataclass(frozen=True)
class Tile:
    """Some rows of one head, of one member of a batch."""

    lead: tuple[int, ...]
    rows: slice

    def cut(self, array: Array, axes: Sequence[str]) -> Array:
        """The part of an array that belongs to the tile: all of it along axes that it broadcasts."""
        own = array.shape[:-2]
        lead = self.lead[len(self.lead) - len(own) :]
        part = array[tuple(0 if size == 1 else at for size, at in zip(own, lead, strict=True))]
        return part[self.rows] if axes[-2] == "query" and part.shape[0] > 1 else part

    def middle(self) -> Tile:
        """A few of its rows."""
        first = max(self.rows.start, (self.rows.start + self.rows.stop - SAMPLED) // 2)
        return Tile(self.lead, slice(first, min(first + SAMPLED, self.rows.stop)))


@dataclass(frozen=True)
class RowSample:
    """Numbers of a few rows, and how far off a decent program would be there."""

    values: Array
    scatter: Array
    ratio: float
    """The least scatter of a row, as a part of the root mean square of the row."""


@dataclass(frozen=True)
class TileFindings:
    """The findings of one tile."""

    tile: Tile
    gap: Gap
    beyond: float
    """How many times their scatter its numbers are off, as a root mean square."""
    sample: RowSample
    compared: bool = True
    """Whether not just any numbers would do."""

    @property
    def rank(self) -> tuple[bool, bool, float]:
        return self.gap.differing > 0, not np.isnan(self.gap.largest), self.gap.largest


def fits_in_tiles(record: Record, step: Step) -> bool:
    """True for a large recorded step each row of which follows from recorded rows."""
    names = (step.name, *step.inputs)
    if not isinstance(step.op, RowWise) or any(
        name not in record or name in record.blanks for name in names
    ):
        return False
    found, *inputs = (record.trace[name] for name in names)
    axes = record.intended[step.name].axes
    if max(each.size for each in (found, *inputs)) < MANY or axes[-2:-1] != ("query",) or "chunk" in axes:
        return False
    return len(axes) == found.ndim and all(
        goes_along(found, each, record.intended[name].axes)
        for name, each in zip(step.inputs, inputs, strict=True)
    )


def goes_along(found: Array, given: Array, axes: Sequence[str]) -> bool:
    """True for an input with the members, heads and queries of the step, or with one for all of them."""
    if given.ndim < 2 or given.ndim > found.ndim or given.ndim != len(axes):
        return False
    along = zip(found.shape[:-2][::-1], given.shape[:-2][::-1], strict=False)
    rows = axes[-2] != "query" or given.shape[-2] in (1, found.shape[-2])
    return rows and all(theirs in (1, ours) for ours, theirs in along)


@dataclass(frozen=True)
class Tiled:
    """Compares one large step of a record with what it should be."""

    record: Record
    step: Step
    expect: Expect

    def compared(self) -> tuple[Gap, float]:
        """Its largest difference, and what all its numbers may be off by as a part of their spread."""
        tiles = list(self.tiles())
        parts = self.over_all(self.part, tiles)
        rows = self.record.trace[self.step.name][..., 0].size
        beyond = sqrt(float(np.mean([np.square(part.beyond) for part in parts])))
        if not self.record.strictness.told and typical(rows) < beyond < FACTOR:
            parts = self.over_all(lambda tile: self.part(tile, rows), tiles)
        first = max(parts, key=lambda part: part.rank)
        shown = self.whole_gap(first.tile, first if first.gap.differing else self.judged(first.tile))
        gap = replace(
            shown,
            differing=sum(part.gap.differing for part in parts),
            nan=sum(part.gap.nan for part in parts),
            of=sum(part.gap.of for part in parts),
            filled=sum(part.gap.filled for part in parts),
        )
        if not any(part.compared for part in parts):
            return gap, np.inf
        values = np.concatenate([part.sample.values for part in parts])
        scatter = np.concatenate([part.sample.scatter for part in parts])
        return gap, blur_of(self.record.strictness, values, scatter, rows)

    def tiles(self) -> Iterator[Tile]:
        *lead, queries, _ = self.record.trace[self.step.name].shape
        largest = max(self.record.trace[name].shape[-1] for name in (self.step.name, *self.step.inputs))
        rows = max(SAMPLED, TILE // largest)
        for at in np.ndindex(*lead):
            for start in range(0, queries, rows):
                yield Tile(at, slice(start, min(start + rows, queries)))

    def over_all(self, work: Callable[[Tile], TileFindings], tiles: Sequence[Tile]) -> list[TileFindings]:
        def quietly(tile: Tile) -> TileFindings:
            with np.errstate(all="ignore"):
                return work(tile)

        with blas.alone() if len(tiles) > 1 else nullcontext(False) as alone:
            return list(in_order(quietly, tiles, cores() if alone else 1))

    def of(self, tile: Tile) -> tuple[Record, Step]:
        """The record and the step of a tile alone."""
        *lead, _, _ = self.record.trace[self.step.name].shape
        member, head = (tile.lead[0] if len(tile.lead) > 1 else 0), (tile.lead[-1] if tile.lead else 0)
        at = Block(member, head, lead[-1] if lead else 1, tile.rows.start)
        hide = [each for each in self.record.intended if isinstance(each.op, Hide)]
        masks = [name for each in hide for name in each.inputs[1:] if name in self.record]
        names = {self.step.name, *self.step.inputs, *masks}
        arrays = {
            name: tile.cut(self.record.trace[name], self.record.intended[name].axes) for name in names
        }
        steps = {name: self.record.trace.steps[name] for name in arrays}
        intended = [each for each in self.record.intended if each.name in names or each in hide]
        record = replace(
            self.record,
            trace=Trace(steps, arrays, {}),
            intended=Derivation(tuple(place_step(each, at) for each in intended)),
        )
        return record, place_step(self.step, at)

    def part(self, tile: Tile, rows: int | None = None) -> TileFindings:
        """Judge a tile; `rows` are those of the whole step, where all of it is off too far."""
        sample = self.sample(tile)
        near = self.clearly_right(tile, sample) if rows is None else None
        return near or self.judged(tile, sample, rows)

    def sample(self, tile: Tile) -> RowSample:
        """The scatter of a few rows."""
        record, step = self.of(tile.middle())
        expected = self.expect(record, step)
        scatter = expected.scatter_in(LEAST_RUNS)
        told = np.isfinite(expected.value) & np.isfinite(scatter) & (scatter > 0)
        value, off = (
            np.square(np.where(told, each, 0.0)).sum(axis=-1) for each in (expected.value, scatter)
        )
        seen = value > 0
        ratio = sqrt(float((off[seen] / value[seen]).min(initial=np.inf)))
        return RowSample(expected.value[told], scatter[told], ratio if np.isfinite(ratio) else 0.0)

    def clearly_right(self, tile: Tile, sample: RowSample) -> TileFindings | None:
        """The findings of a tile that is all clearly within rounding; None where that is not clear.

        A number may be off by its own rounding and by a part of what its row may be off by.
        """
        if self.record.strictness != Strictness():
            return None
        record, step = self.of(tile)
        expected, found = self.expect(record, step).value, record.trace[step.name]
        with_shapes(step.name, found, expected)
        gap = np.abs(found - expected)
        np.copyto(gap, 0.0, where=found == expected)
        largest = int(gap.argmax())
        at = tuple(int(i) for i in np.unravel_index(largest, gap.shape))
        shown = Gap(
            float(gap[at]), 0.0, at, float(found[at]), float(expected[at]), 0, 0, gap.size, gap.size
        )
        squares = np.einsum("ij,ij->i", gap, gap)
        size = np.abs(expected)
        if not np.isfinite(size.max(initial=0.0)):
            size[~np.isfinite(size)] = 0.0
        told = np.maximum(np.count_nonzero(size, axis=-1), 1)
        row = sample.ratio * np.sqrt(np.einsum("ij,ij->i", size, size) / told)
        size *= record.precision(step.name).unit
        gap -= size
        if not (gap.max(axis=-1) <= CLEARLY * FACTOR * row).all():
            return None
        off = squares / told / np.where(row > 0, np.square(row), 1.0)
        beyond = sqrt(float(off[row > 0].mean())) if (row > 0).any() else 0.0
        return TileFindings(tile, shown, beyond, sample) if beyond < CLEARLY else None

    def judged(self, tile: Tile, sample: RowSample | None = None, rows: int | None = None) -> TileFindings:
        record, step = self.of(tile)
        expected = self.expect(record, step)
        with_shapes(step.name, record.trace[step.name], expected.value)
        judgement = judge_step(record, step.name, expected, rows)
        gap = gap_of(judgement, record.value(step.name), expected.value, None)
        compared = bool(np.isfinite(judgement.blurred))
        return TileFindings(tile, gap, judgement.beyond, sample or self.sample(tile), compared)

    @staticmethod
    def whole_gap(tile: Tile, part: TileFindings) -> Gap:
        query, column = part.gap.at
        return replace(part.gap, at=(*tile.lead, tile.rows.start + query, column))


def place_step(step: Step, at: Block) -> Step:
    return replace(step, op=step.op.block(at)) if isinstance(step.op, RowWise) else step
