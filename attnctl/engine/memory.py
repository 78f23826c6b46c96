"""How much memory there is, and whether a run fits: told before anything is allocated."""

from __future__ import annotations

import os
import re
from pathlib import Path

from attnctl.errors import AttnError
from attnctl.words import quoted

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
        raise AttnError(f"--max-memory: {quoted(text)} is not a size; write 512M, 2G or a number of bytes")
    return int(float(match[1]) * UNITS[match[2].upper()])


def available() -> int:
    """The memory a run may take by default, in bytes: most of what the machine has free."""
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
