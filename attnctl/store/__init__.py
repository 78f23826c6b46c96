"""Reading and writing dumps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnctl.store.files import write_text
    from attnctl.store.source import arrays, read, read_one

HOMES = {"arrays": "source", "read": "source", "read_one": "source", "write_text": "files"}

__all__ = ["arrays", "read", "read_one", "write_text"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, and NumPy only then: the command line reads the table of formats."""
    if name not in HOMES:
        raise AttributeError(f"module 'attnctl.store' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"attnctl.store.{HOMES[name]}"), name)
