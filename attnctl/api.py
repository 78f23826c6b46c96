"""The Python API: the same nouns as the command line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from attnctl.array import Array
from attnctl.config.settings import DTYPES, NONE, SINUSOIDAL, PositionSetting, Settings
from attnctl.derivation import Rotary
from attnctl.engine.tiles import Progress
from attnctl.errors import AttnError
from attnctl.plan.sentence import prepare as prepare_sentence
from attnctl.rules import Alibi, Causal, Rule, Softcap, Window
from attnctl.trace import Trace

if TYPE_CHECKING:
    from attnctl.verbs.check.report import Report
    from attnctl.verbs.diff import Difference


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
    kept = [rule for rule in settings.rules if type(rule) not in set(map(type, rules))]
    changed = settings.with_(rules=(*kept, *rules))
    return changed if positions in (None, "alibi") else changed.with_(positions=position_of(positions))


def position_of(positions: Any) -> PositionSetting:
    """Positions by name, as Rotary(…), or as the rows of a learned table."""
    if positions == "rope":
        return Rotary()
    if isinstance(positions, (Rotary, list)) or positions in (NONE, SINUSOIDAL):
        return positions
    raise AttnError(f"positions: {positions!r}; give none, sinusoidal, rope, alibi, Rotary(…) or rows")


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
    progress: Progress | None = None,
    **options: Any,
) -> list[Trace]:
    """A trace for each sentence, from one padded batch; no sentence means the settings' own."""
    if len(sentences) < 2:
        return [run(sentences[0] if sentences else None, settings, keep=keep, progress=progress, **options)]
    from attnctl.plan.batch import run_batch

    return run_batch(chosen(settings, options), sentences, keep, progress)


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
    from attnctl.plan import operator

    header = arrays.header if isinstance(arrays, Trace) else {}
    return operator.prepare(arrays, chosen(settings, options), header).run(keep, progress)


def load(path: str | PathLike[str]) -> Trace:
    """A dump, or anyone's arrays, as a trace. Raises AttnError for what is neither."""
    from attnctl.store import read_one

    return read_one(fspath(path))


def diff(
    a: Trace,
    b: Trace,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    steps: Sequence[str] | None = None,
    by_position: bool = False,
) -> Difference:
    """Compare two traces step by step: where they part, by how much, and why.

    Numbers differ when |a − b| > atol + rtol·|b|; what is None follows from the coarser type of
    the two, as in `torch.testing.assert_close`. `steps` names the ones to compare. Sentences that
    differ are laid side by side by the tokens they share, unless `by_position`. Raises AttnError
    where there is nothing to compare.
    """
    from attnctl.verbs import diff as compare

    tolerance = compare.Tolerance(rtol, atol, equal_nan)
    return compare.diff(a, b, tolerance, steps=steps, by_position=by_position)


def check(
    trace: Trace | Mapping[str, Array],
    settings: Settings | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    decimals: int | None = None,
    **options: Any,
) -> Report:
    """Recompute every step of a trace; name the first wrong one and the mistake that explains it.

    What was intended is what a trace of ours says itself; for anyone else's arrays (under our
    names: Q, K, V, scores, …), and to overrule it, `settings` and options (heads, causal, …) say
    it. Numbers may be as far off as rounding puts them, or as `rtol` and `atol` or a number of
    `decimals` say. Raises AttnError where there is nothing to compare.
    """
    from attnctl.plan.intended import anyones
    from attnctl.verbs.check.check import check as check_steps
    from attnctl.verbs.check.check import configured
    from attnctl.verbs.check.record import Strictness

    trace = trace if isinstance(trace, Trace) else anyones(trace)
    asked = chosen(settings or configured(trace), options) if options else settings
    return check_steps(trace, asked, Strictness(rtol, atol, decimals))


def chosen(settings: Settings | None, options: dict[str, Any]) -> Settings:
    """Settings with options laid over them."""
    ruled = ("causal", "window", "softcap", "positions")
    rules = {name: options.pop(name) for name in ruled if name in options}
    changed = with_rules((settings or Settings()).with_(**options), **rules)
    if changed.dtype not in DTYPES:
        raise AttnError(f"dtype: {changed.dtype!r}; give {', '.join(DTYPES)}")
    return changed
