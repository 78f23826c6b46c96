"""The Python API: the same nouns as the command line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from attnctl.blocks import Progress
from attnctl.config.settings import Settings
from attnctl.prepare import operator
from attnctl.prepare.batch import run_batch
from attnctl.prepare.sentence import prepare as prepare_sentence
from attnctl.rules import Alibi, Causal, Rule, Softcap, Window
from attnctl.trace import Trace

Array = NDArray[Any]


def with_rules(
    settings: Settings,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    positions: Any = None,
) -> Settings:
    """The settings with these rules added; a rule given here replaces its like."""
    rules: list[Rule] = []
    if causal:
        rules.append(Causal())
    if window is not None:
        rules.append(Window(*window))
    if softcap is not None:
        rules.append(Softcap(softcap))
    if positions == "alibi":
        rules.append(Alibi())
        positions = None
    kept = [rule for rule in settings.rules if type(rule) not in set(map(type, rules))]
    changed = settings.with_(rules=(*kept, *rules))
    return changed if positions is None else changed.with_(positions=positions)


def run(
    sentence: str | None = None,
    settings: Settings | None = None,
    *,
    keep: Collection[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Trace:
    """Tokenize, attend, and record every step, or just those to `keep`.

    Options are those of Settings (heads, d_model, seed, …) and of `with_rules` (causal, window,
    softcap). Raises AttnError with every problem found.
    """
    return prepare_sentence(chosen(settings, options), sentence).run(keep, progress)


def run_many(
    sentences: Sequence[str],
    settings: Settings | None = None,
    *,
    keep: Collection[str] | None = None,
    **options: Any,
) -> list[Trace]:
    """A trace for each sentence, from one padded batch; no sentence means the settings' own."""
    if len(sentences) < 2:
        return [run(sentences[0] if sentences else None, settings, keep=keep, **options)]
    return run_batch(chosen(settings, options), sentences, keep)


def attend(
    arrays: Mapping[str, Array],
    settings: Settings | None = None,
    *,
    keep: Collection[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Trace:
    """The operator itself on arrays: Q K V, or X and weights, as `operator.prepare` reads them.

    Only the steps to `keep` are held; where none of them is n × n, memory stays bounded. Raises
    AttnError with every array that is missing, not finite or does not fit.
    """
    header = arrays.header if isinstance(arrays, Trace) else {}
    return operator.prepare(arrays, chosen(settings, options), header).run(keep, progress)


def chosen(settings: Settings | None, options: dict[str, Any]) -> Settings:
    """Settings with options laid over them."""
    ruled = ("causal", "window", "softcap", "positions")
    rules = {name: options.pop(name) for name in ruled if name in options}
    return with_rules((settings or Settings()).with_(**options), **rules)
