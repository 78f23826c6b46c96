"""attnctl: every number in attention, from the shell, and where yours goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from attnctl.api import attend, check, diff, load, run
    from attnctl.errors import AttnError
    from attnctl.testing import check_module
    from attnctl.trace import Trace

HOMES = {
    "run": "api",
    "attend": "api",
    "check": "api",
    "check_module": "testing",
    "diff": "api",
    "load": "api",
    "Trace": "trace",
    "AttnError": "errors",
}

__all__ = ["AttnError", "Trace", "__version__", "attend", "check", "check_module", "diff", "load", "run"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, and NumPy only then."""
    if name not in HOMES:
        raise AttributeError(f"module 'attnctl' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"attnctl.{HOMES[name]}"), name)
