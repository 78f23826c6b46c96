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
    from attnctl.api import mean_effect as mean_effect
    from attnctl.api import merge_corpus as merge_corpus
    from attnctl.api import path_effect as path_effect
    from attnctl.api import run as run
    from attnctl.api import run_many as run_many
    from attnctl.api import run_model as run_model
    from attnctl.api import stats as stats
    from attnctl.api import story as story
    from attnctl.base.errors import AttnError as AttnError
    from attnctl.testing import check_module as check_module
    from attnctl.traces import Trace as Trace

OF_API = "run_many run_model mean_effect path_effect merge_corpus load story lens lessons grade cost"
BESIDE_VERBS = {
    **dict.fromkeys(OF_API.split(), "attnctl.api"),
    "check_module": "attnctl.testing",
    "Trace": "attnctl.traces",
    "AttnError": "attnctl.base.errors",
}
"""The module of each name of the Python API that is no verb's; a verb says itself what its function is."""

register_views(
    plain_text="attnctl.drawing.screen.output:text_of_view", notebook="attnctl.pages.found:bundle"
)


def __dir__() -> list[str]:
    """Offer the verbs to completion, and no modules."""
    from attnctl.base.rooms import all_verbs

    functions = [verb.name for verb in all_verbs().values() if verb.function]
    return [*functions, *BESIDE_VERBS, "__version__"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, and NumPy only then."""
    if name == "__all__":
        return __dir__()
    from attnctl.base.format import function
    from attnctl.base.rooms import find_verb

    if name in BESIDE_VERBS:
        return function(f"{BESIDE_VERBS[name]}:{name}")
    verb = find_verb(name)
    if verb is None or not verb.function:
        raise AttributeError(f"module 'attnctl' has no attribute {name!r}")
    return function(verb.function)
