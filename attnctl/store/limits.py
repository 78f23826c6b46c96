"""How much a file may ask of this machine."""

from __future__ import annotations

from pathlib import Path

from attnctl.errors import AttnError

FALLBACK = 4 << 30


def budget() -> int:
    """The bytes that may be allocated: what the machine has available, or what the process is allowed."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        free = FALLBACK
    try:
        import resource
    except ImportError:  # not on every platform
        return free
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return free if soft == resource.RLIM_INFINITY else min(free, soft)


def hold(need: int, what: str, limit: int | None = None) -> None:
    """Raise AttnError if `what` needs more bytes than there are."""
    limit = budget() if limit is None else limit
    if need > limit:
        raise AttnError(f"{what} needs {size(need)}; there are {size(limit)}")


def size(count: int) -> str:
    """1536 -> '1.5 KiB'."""
    amount = float(min(count, 1 << 90))
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.4g} {unit}"
