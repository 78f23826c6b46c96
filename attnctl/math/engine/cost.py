"""Cost of a run before it runs: shapes, bytes, operations, growth, and whether it fits in memory."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

from attnctl.base.errors import AttnError
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.words import quote
from attnctl.math import Keep, Shape
from attnctl.math.derivation import Derivation
from attnctl.math.names import MASK
from attnctl.math.ops import Given

TILE_QUERIES = 480
"""Queries in a tile. More make BLAS quicker: it packs the keys of a tile once for each block of queries."""

TILE_SCORES = TILE_QUERIES * 960
"""Scores in a tile, one tile for each thread: few enough for the cache, enough for a quick product.

Neither side is a power of two, which would map the rows of a tile to the same few cache lines.
There are twice as many keys as queries, so that the keys a causal block sees end with a tile.
"""

SCRATCH_BYTES = 8 * TILE_SCORES  # scratch bytes per thread, float64


class Cost(NamedTuple):
    """The cost of one step: its shape, bytes where it is kept, floating-point operations, and growth."""

    name: str
    shape: Shape
    bytes: int
    flops: int
    growth: str
    kept: bool


def cost(
    derivation: Derivation, given: Mapping[str, Shape], itemsize: int, keep: Keep = None
) -> list[Cost]:
    """The cost of each step, from the shapes of what is given alone."""
    shapes: dict[str, Shape] = {}
    costs = []
    for step in derivation:
        if isinstance(step.op, Given):
            shape = given[step.name]
            flops = 0
        else:
            inputs = [shapes[name] for name in step.inputs]
            shape = step.op.shape(*inputs)
            flops = step.op.cost(shape, *inputs)
        shapes[step.name] = shape

        bytes_of_number = 1 if step.name == MASK else itemsize
        cost = Cost(
            step.name,
            shape,
            bytes=prod(shape) * bytes_of_number,
            flops=flops,
            growth=" · ".join(step.axes),
            kept=keep is None or step.name in keep,
        )
        costs.append(cost)
    return costs


def peak(costs: Collection[Cost]) -> int:
    """Bytes a run holds at most: all that is kept and what is not n × n, or all where it is small.

    Steps whose axes end in (query, key) are n × n; where they are not kept they live in scratch.
    """
    held = sum(line.bytes for line in costs if line.kept or not line.growth.endswith("query · key"))
    return held + min(SCRATCH_BYTES, sum(line.bytes for line in costs if not line.kept))


UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SHARE = 0.8  # default share of free memory


def size_text(size: int) -> str:
    """1536 -> '1.5 KiB'."""
    value = float(size)
    unit = "B"
    for following in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value = value / 1024
        unit = following
    return f"{size} B" if unit == "B" else f"{value:,.1f} {unit}"


def parse_size(text: str) -> int:
    """'512M', '2G', '1.5GiB', '1000000' -> bytes. Raises AttnError for anything else."""
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise AttnError(f"--max-memory: {quote(text)} is not a size; write 512M, 2G or a number of bytes")
    return int(float(match[1]) * UNITS[match[2].upper()])


INFLATED: list[int] = []
"""The bytes of each array that came out of a compressed file and is alive."""
CEILINGS: list[int] = []
"""How many bytes these may come to, the limit within each other limit."""


def count_inflated(array: Any) -> None:
    """Count an array among the inflated ones for as long as it lives."""
    INFLATED.append(array.nbytes)
    weakref.finalize(array, INFLATED.remove, array.nbytes)


@contextmanager
def limit_memory(limit: int) -> Iterator[None]:
    """Let no more than this be `available`; what is inflated meanwhile counts against it."""
    CEILINGS.append(sum(INFLATED) + limit)
    try:
        yield
    finally:
        CEILINGS.pop()


def available() -> int:
    """The memory that may be taken by default, in bytes: most of what is free, and within every limit."""
    left = [ceiling - sum(INFLATED) for ceiling in CEILINGS]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(0, min([int(free * SHARE), *left]))


def require(needed: int, what: str, limit: int | None = None) -> None:
    """Raise AttnError when `needed` bytes are over the limit (default: `available`)."""
    budget = available() if limit is None else limit
    if needed > budget:
        raise AttnError(
            f"{what}: {size_text(needed)} of memory, more than the {size_text(budget)} there may be; "
            "make it smaller, keep fewer steps (--step), or raise --max-memory"
        )
