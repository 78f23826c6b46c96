"""attnctl: every number in attention, from the shell, and where yours goes wrong.

>>> trace = attnctl.run("I love AI", heads=2, causal=True)
>>> trace["attention_weights"]  # a NumPy array, (head, query, key)
>>> print(trace.explain("attention_weights[0,love,AI]"))
>>> attnctl.check(trace).agrees
"""

from __future__ import annotations

from attnctl.base import __version__ as __version__
from attnctl.base import register_views

# As in typing, which takes longer to import than all else here: an interrupt would hit it.
TYPE_CHECKING = False
if TYPE_CHECKING:  # for type checkers and editors; "as" says that the name is ours to export
    from typing import Any

    from attnctl.api import attend as attend
    from attnctl.api import capture as capture
    from attnctl.api import check as check
    from attnctl.api import conform as conform
    from attnctl.api import corpus as corpus
    from attnctl.api import cost as cost
    from attnctl.api import diff as diff
    from attnctl.api import effect as effect
    from attnctl.api import explain as explain
    from attnctl.api import grade as grade
    from attnctl.api import lens as lens
    from attnctl.api import lessons as lessons
    from attnctl.api import load as load
    from attnctl.api import merge_corpus as merge_corpus
    from attnctl.api import run as run
    from attnctl.api import run_many as run_many
    from attnctl.api import run_model as run_model
    from attnctl.api import stats as stats
    from attnctl.api import story as story
    from attnctl.base.errors import AttnError as AttnError
    from attnctl.testing import check_module as check_module
    from attnctl.traces import Trace as Trace

VERBS = {
    "run": ("Look", "Tokenize a sentence, attend, show every step.", "api"),
    "show": ("Look", "Render a dump again, whole or in part.", ""),
    "explain": ("Look", "Show the arithmetic behind one cell.", "api"),
    "explore": ("Look", "Walk through every step in the terminal.", ""),
    "stats": ("Look", "Measure each head: entropy, distance, what it looks at.", "api"),
    "model": ("Look", "Describe a trained model, layer by layer.", ""),
    "effect": ("Look", "Say what each head does to the next token.", "api"),
    "learn": ("Learn", "Take a lesson: predict a number, then see it revealed.", ""),
    "exercise": ("Learn", "Make exercises, and grade a class.", ""),
    "check": ("Compare", "Recompute a dump or a program; name the first wrong step and why.", "api"),
    "mistakes": ("Compare", "List the known mistakes, or explain one.", ""),
    "diff": ("Compare", "Compare two dumps: where they part, by how much, and why.", "api"),
    "attend": ("Build", "Attend over arrays: Q K V, or X and weights.", "api"),
    "conform": ("Build", "Test an attention function on a suite of cases.", "api"),
    "mutants": ("Build", "Say which wrong kernels a tolerance, or your own test, would miss.", ""),
    "capture": ("Build", "Run a program and record each call of attention in it.", "api"),
    "config": ("Files", "Write, check and describe YAML configs.", ""),
    "examples": ("Files", "List the configs that are installed, or print one.", ""),
}
"""Every command in the order a newcomer meets them: its section of the help, its line there, and the module
of its function in Python, where it has one. `attnctl.cli.NAME` holds its COMMANDS."""

BESIDE_VERBS = "run_many run_model corpus merge_corpus load story lens lessons grade cost"
HOMES = {
    **{name: home for name, (_, _, home) in VERBS.items() if home},
    **dict.fromkeys(BESIDE_VERBS.split(), "api"),
    "check_module": "testing",
    "Trace": "traces",
    "AttnError": "base.errors",
}
"""The module of each name of the Python API."""

register_views(
    {
        "Report": "attnctl.verbs.check.view:report_lines",
        "Difference": "attnctl.verbs.diff.view:difference_lines",
        "Conformance": "attnctl.verbs.conform.report:list_lines",
        "CorpusPart": "attnctl.verbs.stats.view:part_lines",
        "Score": "attnctl.verbs.mutants.view:score_lines",
        "Survey": "attnctl.verbs.mutants.view:survey_lines",
        "Effects": "attnctl.verbs.effect.view:effect_lines",
        "Lens": "attnctl.verbs.models.next:lens_lines",
        "Story": "attnctl.verbs.story.view:story_lines",
    },
    plain_text="attnctl.drawing.screen.output:text_of_view",
    notebook="attnctl.pages.found:bundle",
)

__all__ = [*HOMES, "__version__"]  # noqa: PLE0604  (all are texts)


def __dir__() -> list[str]:
    """Offer the verbs to completion, and no modules."""
    return __all__


def __getattr__(name: str) -> Any:
    """Import what is asked for, and NumPy only then."""
    if name not in HOMES:
        raise AttributeError(f"module 'attnctl' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"attnctl.{HOMES[name]}"), name)
