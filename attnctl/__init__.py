"""attnctl: every number in attention, from the shell, and where yours goes wrong.

>>> trace = attnctl.run("I love AI", heads=2, causal=True)
>>> trace["attention_weights"]  # a NumPy array, (head, query, key)
>>> print(trace.explain("attention_weights[0,love,AI]"))
>>> attnctl.check(trace).agrees
"""

from __future__ import annotations

from attnctl.base.display import register_views

__version__ = "0.1.0"

TYPE_CHECKING = (
    False  # as in typing, which takes longer to import than all else here: an interrupt would hit it
)
if TYPE_CHECKING:
    from typing import Any

    from attnctl.api import (
        attend,
        check,
        conform,
        cost,
        diff,
        explain,
        grade,
        lessons,
        load,
        run,
        run_many,
        run_model,
        stats,
        story,
    )
    from attnctl.base.errors import AttnError
    from attnctl.testing import check_module
    from attnctl.traces import Trace

HOMES = {
    "run": "api",
    "run_many": "api",
    "run_model": "api",
    "attend": "api",
    "load": "api",
    "explain": "api",
    "check": "api",
    "conform": "api",
    "check_module": "testing",
    "diff": "api",
    "stats": "api",
    "story": "api",
    "lessons": "api",
    "grade": "api",
    "cost": "api",
    "Trace": "traces",
    "AttnError": "base.errors",
}

register_views(
    {
        "Report": "attnctl.verbs.check.view:show_report",
        "Difference": "attnctl.verbs.diff.view:show_difference",
        "Conformance": "attnctl.verbs.conform.view:show_conformance",
        "Story": "attnctl.verbs.story.view:show_story",
    },
    plain_text="attnctl.drawing.screen.output:text_of_view",
    notebook="attnctl.pages.notebook:bundle",
)

__all__ = [
    "AttnError",
    "Trace",
    "__version__",
    "attend",
    "check",
    "check_module",
    "conform",
    "cost",
    "diff",
    "explain",
    "grade",
    "lessons",
    "load",
    "run",
    "run_many",
    "run_model",
    "stats",
    "story",
]


def __dir__() -> list[str]:
    """Offer the verbs to completion, and no modules."""
    return __all__


def __getattr__(name: str) -> Any:
    """Import what is asked for, and NumPy only then."""
    if name not in HOMES:
        raise AttributeError(f"module 'attnctl' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"attnctl.{HOMES[name]}"), name)
