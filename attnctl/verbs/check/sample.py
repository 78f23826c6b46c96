"""A part of a large record in which to look for a mistake; what is found there is verified in all of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from attnctl.base.errors import AttnError
from attnctl.evidence.blocks import MANY
from attnctl.evidence.part import Part, first_rows, one_head
from attnctl.evidence.recompute import stretch
from attnctl.evidence.record import Record
from attnctl.evidence.walk import Walk, Walker
from attnctl.math.derivation import Derivation

FEW = 2**16
"""Numbers of scores in a sample, where so many show what is wrong."""

LEAST_ROWS = 16

TELLING = 200
"""Wrong numbers that a sample must show; a tenth of them, where there are fewer."""


@dataclass(frozen=True)
class Sample:
    """Part of a record, checked."""

    part: Part
    walk: Walk
    words: str = ""
    """Which part it is; nothing where it is all there is."""

    @property
    def record(self) -> Record:
        return self.part.record


def whole_sample(record: Record, walk: Walk) -> Sample:
    return Sample(Part(record, walk.derivation), walk)


def samples(record: Record, walk: Walk, first: str) -> Iterator[Sample]:
    """Parts in which to look for what explains a step: few rows of a large one, then more, at last all."""
    axes, shape = record.intended[first].axes, record.trace[first].shape
    if is_large(record, walk, first) and axes[-2:-1] == ("query",) and len(axes) == len(shape):
        rows = max(LEAST_ROWS, FEW // (largest_step(record, walk, first) // shape[-2]))
        while rows < shape[-2]:
            sample = checked(first_rows(record, walk.derivation, rows), walk, first)
            if sample:
                yield Sample(sample.part, sample.walk, f"the first {rows} queries")
            rows *= 4 if sample else 2
    yield whole_sample(record, walk)


def one_head_of(record: Record, walk: Walk, first: str) -> Sample:
    """All queries of one head, where that shows what is wrong; else all there is."""
    sample = (
        checked(one_head(record, walk.derivation), walk, first) if is_large(record, walk, first) else None
    )
    return Sample(sample.part, sample.walk, "the first head") if sample else whole_sample(record, walk)


def is_large(record: Record, walk: Walk, first: str) -> bool:
    """True where a step, or what it is computed from, has too many numbers to try hundreds of times."""
    return not record.blanks and largest_step(record, walk, first) >= MANY


def largest_step(record: Record, walk: Walk, first: str) -> int:
    """The most numbers that a step has which is computed, or read, on the way to this one."""
    steps = stretch(walk.derivation, record, first)
    names = {first, *(name for step in steps for name in (step.name, *step.inputs))}
    sizes = [record.trace[name].size for name in names if name in record]
    known = [walk.values.get(name) for name in names]
    return max([*sizes, *(each.value.size for each in known if each)], default=0)


def checked(part: Part, walk: Walk, first: str) -> Sample | None:
    """A part, walked; None where it does not show the same mistake."""
    walker, told = Walker(part.record), walk.gap(first).differing
    try:
        alone = walker.walk(Derivation(tuple(stretch(part.derivation, part.record, first))))
        if first not in alone.wrong or alone.gap(first).differing < min(TELLING, told / 10):
            return None
        found = walker.walk(part.derivation, alone)
    except AttnError:  # steps of which this part does not tell
        return None
    return Sample(part, found) if set(found.wrong) <= set(walk.wrong) else None
