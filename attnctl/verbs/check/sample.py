"""A part of a large record in which to look for a mistake; what is found there is verified in all of it.

Attention is local to a row and to a head: the first queries of all heads show most mistakes, and
one head shows those that mix up its queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from attnctl.base.errors import AttnError
from attnctl.base.trace import Trace
from attnctl.evidence.blocks import MANY
from attnctl.evidence.recompute import stretch
from attnctl.evidence.record import Record
from attnctl.evidence.walk import Walk, Walker
from attnctl.math import Array
from attnctl.math.derivation import Derivation

FEW = 2**19
"""Numbers of a step in a sample, where so many show what is wrong."""

TELLING = 1000
"""Wrong numbers that a sample must show; a tenth of them, where there are fewer."""

ALSO = {"head": "heads·d_v", "query": "token"}
"""Axes that hold others: heads side by side, and tokens that are queries and keys at once."""


@dataclass(frozen=True)
class Sample:
    """Part of a record, checked."""

    record: Record
    walk: Walk
    words: str = ""
    """Which part it is; nothing where it is all there is."""
    quick: bool = False
    """Whether another part was searched before: it shows but mistakes that mix up queries."""


def samples(record: Record, walk: Walk, first: str) -> Iterator[Sample]:
    """Where to look for what explains a wrong step: parts of a large one, all of a small one."""
    parts = parts_of(record, walk, first) if is_large(record, walk, first) else iter(())
    yield next(parts, Sample(record, walk))
    yield from parts


def is_large(record: Record, walk: Walk, first: str) -> bool:
    """Whether a step, or what it is computed from, is too large to try hundreds of times."""
    names = {first, *(name for step in stretch(walk.derivation, record, first) for name in step.inputs)}
    return not record.blanks and any(record.trace[name].size >= MANY for name in names if name in record)


def parts_of(record: Record, walk: Walk, first: str) -> Iterator[Sample]:
    """The first queries of all heads or, where these show nothing, more of one head; then one head."""
    axes, shape = record.intended[first].axes, record.trace[first].shape
    if len(axes) != len(shape) or axes[-2:-1] != ("query",):
        return
    rows = max(1, FEW * shape[-2] // max(record.trace[name].size for name in record.trace))
    one = {axis: 1 for axis, size in zip(axes[:-2], shape[:-2], strict=True) if size > 1}
    lead: dict[str, int] = {}
    told = False
    while rows < shape[-2] and not told:
        part = checked_part(record, walk, first, {"query": rows, **lead})
        if part:
            yield replace(part, words=f"the first {rows} queries{' of the first head' if lead else ''}")
        told, rows, lead = part is not None, rows * 2, one
    part = checked_part(record, walk, first, one) if one else None
    if part:
        yield replace(part, words=f"the first {' and '.join(one)}", quick=told)


def checked_part(record: Record, walk: Walk, first: str, sizes: Mapping[str, int]) -> Sample | None:
    """So much of a record along these axes; None where it does not show the same mistake."""
    part = cut(record, sizes)
    try:
        alone = Walker(part).walk(Derivation(tuple(stretch(walk.derivation, part, first))))
        enough = min(TELLING, walk.gap(first).differing / 10)
        if first not in alone.wrong or alone.gap(first).differing < enough:
            return None
        found = Walker(part).walk(walk.derivation)
    except AttnError:  # steps of which this part does not tell
        return None
    return Sample(part, found) if set(found.wrong) <= set(walk.wrong) else None


def cut(record: Record, sizes: Mapping[str, int]) -> Record:
    """The record with only the first of some axes; without what has them under another name."""
    others = {other for axis, other in ALSO.items() if axis in sizes}
    arrays: dict[str, Array] = {}
    for name in record.trace:
        axes, array = axes_of(record, name), record.trace[name]
        if others.isdisjoint(axes):
            own = axes[len(axes) - array.ndim :] if len(axes) >= array.ndim else ("",) * array.ndim
            arrays[name] = array[tuple(slice(sizes.get(axis)) for axis in own)]
    steps = {name: record.trace.steps[name] for name in arrays}
    return replace(record, trace=Trace(steps, arrays, record.trace.header))


def axes_of(record: Record, name: str) -> tuple[str, ...]:
    step = record.intended[name] if name in record.intended else record.trace.steps[name]
    return tuple(step.axes)
