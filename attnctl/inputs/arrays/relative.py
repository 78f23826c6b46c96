"""Relative biases that a file keeps as a table, and which of its numbers each query and key read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.words import dims
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.config.sizes import key_count
from attnctl.math import Array, Sizes
from attnctl.math.names import BIAS_INDEX, BIAS_TABLE, gradient_of
from attnctl.math.rules import Causal, PerBatch

if TYPE_CHECKING:
    from attnctl.math.ops.lookups import LookUp

FURTHEST = 128
"""From which distance on T5's keys share a bucket."""


class RelativeBias(NamedTuple):
    """A table of (head, number), and how it is read."""

    arrays: dict[str, Array]
    """The table, and the gradient by it if that is recorded."""
    lookup: LookUp
    note: str


def read_relative(
    found: Mapping[str, Array], sizes: Sizes, settings: Settings, offset: PerBatch
) -> RelativeBias | None:
    """The relative bias of these arrays, if they have one; `offset` keys are before query 0.

    Without an index the numbers are those of T5's buckets, keys ahead of a causal query having none.
    Raises AttnError for a table or an index that does not fit.
    """
    if BIAS_TABLE not in found:
        return None

    index = found.get(BIAS_INDEX)
    largest = None if index is None else int(np.max(index))
    tables = [name for name in (BIAS_TABLE, gradient_of(BIAS_TABLE)) if name in found]
    arrays = {name: heads_first(name, found[name], sizes["head"], largest) for name in tables}
    table = arrays[BIAS_TABLE]
    if index is not None:
        return RelativeBias(arrays, read_index(index, sizes, table.shape[-1]), "")

    both_ways = not any(isinstance(rule, Causal) for rule in settings.rules)
    lookup = by_buckets(sizes, offset, table.shape[-1], both_ways=both_ways)
    direction = "both ways" if both_ways else "of keys behind"
    said = f"by T5's buckets of key − query, {direction}, up to a distance of {FURTHEST}"
    return RelativeBias(arrays, lookup, f"Read {BIAS_TABLE} {said}; {BIAS_INDEX} says otherwise.")


def heads_first(name: str, table: Array, heads: int, largest: int | None) -> Array:
    """The table as (head, number): others keep it as (number, head)."""
    if table.ndim == 2:
        for turned in (table, table.T):
            fits = largest is None or largest < turned.shape[1]
            if len(turned) == heads and fits:
                return turned
    least = "" if largest is None else f", and more than {largest} numbers for each"
    raise AttnError(f"{name}: {dims(table.shape)}, expected (head, number) for {heads} heads{least}")


def read_index(index: Array, sizes: Sizes, count: int) -> LookUp:
    """How an index, (query, key) or all in one row, reads so many numbers."""
    from attnctl.math.ops.lookups import LookUp

    queries = sizes["query"]
    keys = key_count(sizes)
    is_whole = np.array_equal(index, np.rint(index)) and ((index >= 0) & (index < count)).all()
    if index.size != queries * keys or not is_whole:
        wanted = f"({queries}, {keys}) whole numbers from 0 to {count - 1}"
        raise AttnError(f"{BIAS_INDEX}: {dims(index.shape)}, expected {wanted}, one for each query and key")
    return LookUp(as_index(index.reshape(queries, keys)))


def by_buckets(sizes: Sizes, offset: PerBatch, count: int, *, both_ways: bool) -> LookUp:
    """T5's index of so many buckets."""
    from attnctl.math.ops.lookups import LookUp
    from attnctl.math.ops.models import Buckets

    if not isinstance(offset, int):
        raise AttnError(f"{BIAS_TABLE}: queries stand elsewhere in each member of the batch; give bias")
    ahead = np.arange(key_count(sizes)) - (np.arange(sizes["query"])[:, None] + offset)
    buckets = Buckets(furthest=FURTHEST, both_ways=both_ways).buckets(ahead, count)
    return LookUp(as_index(buckets), furthest=FURTHEST, both_ways=both_ways)


def as_index(rows: Array) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, row)) for row in rows.tolist())
