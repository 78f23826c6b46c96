"""How much memory there is, and whether a run fits: told before anything is allocated."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnctl.errors import AttnError
from attnctl.words import quote

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SHARE = 0.8
"""Default share of free memory."""


def size_text(size: int) -> str:
    """1536 -> '1.5 KiB'."""
    value, unit = float(size), "B"
    for following in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, following
    return f"{size} B" if unit == "B" else f"{value:,.1f} {unit}"


def parse_size(text: str) -> int:
    """'512M', '2G', '1.5GiB', '1000000' -> bytes. Raises AttnError for anything else."""
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise AttnError(f"--max-memory: {quote(text)} is not a size; write 512M, 2G or a number of bytes")
    return int(float(match[1]) * UNITS[match[2].upper()])


class Inflated:
    """The arrays that came out of compressed files and are alive, and how many bytes they may come to."""

    def __init__(self) -> None:
        self.bytes = 0
        self.ceilings: list[int] = []

    def add(self, array: Any) -> None:
        """Count an array for as long as it lives."""
        self.bytes += array.nbytes
        weakref.finalize(array, self.drop, array.nbytes)

    def drop(self, size: int) -> None:
        """An array has gone."""
        self.bytes -= size


INFLATED = Inflated()


@contextmanager
def limit_memory(limit: int) -> Iterator[None]:
    """Let no more than this be `available`; what is inflated meanwhile counts against it."""
    INFLATED.ceilings.append(INFLATED.bytes + limit)
    try:
        yield
    finally:
        INFLATED.ceilings.pop()


def available() -> int:
    """The memory that may be taken by default, in bytes: most of what is free, and within every limit."""
    left = [ceiling - INFLATED.bytes for ceiling in INFLATED.ceilings]
    return max(0, min([free_memory(), *left]))


def free_memory() -> int:
    """Most of what the machine has free."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(free * SHARE)


def require(needed: int, what: str, limit: int | None = None) -> None:
    """Raise AttnError when `needed` bytes are over the limit (default: `available`)."""
    budget = available() if limit is None else limit
    if needed > budget:
        raise AttnError(
            f"{what}: {size_text(needed)} of memory, more than the {size_text(budget)} there may be; "
            "make it smaller, keep fewer steps (--step), or raise --max-memory"
        )
