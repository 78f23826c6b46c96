"""Check a trace: recompute every step, name the first wrong one, and what explains it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from attnctl.audit.hints import hint
from attnctl.audit.intended import Intent, derived, is_stated, stated, unknown_names
from attnctl.audit.mistake import Mistake
from attnctl.audit.precision import DTYPES, FLOAT64
from attnctl.audit.record import Record, Strictness, with_precisions
from attnctl.audit.report import Finding, Report
from attnctl.audit.search import Fit, Search, best
from attnctl.audit.walk import Checked, Verdict, Walk, Walker, nothing_checked
from attnctl.config.settings import Settings
from attnctl.errors import AttnError
from attnctl.memory import require
from attnctl.trace import Trace

Array = NDArray[Any]

ARRAYS_AT_ONCE = 8
"""Arrays of the size of the largest step that a check may hold, in float64."""

WRITTEN_WRONG = "What follows was computed from the right numbers: only those written down here are wrong."


def check(
    trace: Trace,
    settings: Settings | None = None,
    strictness: Strictness = Strictness(),
    blanks: Mapping[str, Array] | None = None,
    unfilled: Collection[str] = (),
) -> Report:
    """Recompute every step of a trace from the inputs recorded beside it.

    A dump of ours says how each step came about. For anyone else's arrays `settings` say what was
    intended; given for a dump of ours, they overrule it. `blanks` marks cells that are still to
    be filled in, `unfilled` names steps that are. Raises AttnError where nothing can be compared.
    """
    require(ARRAYS_AT_ONCE * 8 * max((array.size for array in trace.values()), default=0), "checking this")
    intent = intended(trace, settings)
    record = Record(
        intent.trace, intent.sizes, intent.derivation, strictness, blanks or {}, edited(intent.trace)
    )
    dtype = settings.dtype if settings else trace.config.get("dtype")
    record = with_precisions(record, DTYPES.get(str(dtype), FLOAT64))
    walk = Walker(record).walk(record.intended)
    unknown = unknown_names(trace) if intent.trace is not trace else []
    if nothing_checked(walk.steps.values()):
        raise AttnError(nothing_to_compare(trace, unknown))
    steps = dict(walk.steps)
    steps |= {name: Checked(name, Verdict.NOT_FILLED) for name in steps if name in unfilled}
    return Report(intent.trace, steps, tuple(findings(record, walk)), str(strictness), tuple(unknown))


def intended(trace: Trace, settings: Settings | None) -> Intent:
    """How the recorded steps should have come about."""
    if settings is None and is_stated(trace):
        return stated(trace)
    lengths = trace.config.get("key_lengths")
    if settings is None:
        return derived(trace, configured(trace), lengths)
    return derived(trace, settings, lengths, keep=False)


def configured(trace: Trace) -> Settings:
    """The settings that a dump's config describes; the defaults where it has none."""
    config = {name: value for name, value in trace.config.items() if name != "key_lengths"}
    offset = config.pop("causal_offset", None)
    if not config and offset is None:
        return Settings()
    from attnctl.config.schema import validate

    return validate(config).with_(causal_offset=tuple(offset) if isinstance(offset, list) else offset)


def edited(trace: Trace) -> frozenset[str]:
    """The steps whose numbers were edited: they are what they are."""
    edits = trace.header.get("edits") or ()
    return frozenset(each["step"] for each in edits if isinstance(each, dict) and "step" in each)


def nothing_to_compare(trace: Trace, unknown: Sequence[str]) -> str:
    """Why nothing could be checked, and what would help."""
    has = ", ".join(trace) or "nothing"
    lost = f" (no step is called {', '.join(unknown)}: --name THEIRS=OURS renames)" if unknown else ""
    return f"nothing to compare: it has {has}{lost}; give a step and what it is computed from, like Q, K and scores"


def findings(record: Record, walk: Walk) -> Iterator[Finding]:
    """Every wrong step with what explains it; after each the walk goes on as the program did."""
    unexplained: set[str] = set()
    seen: set[tuple[str, str]] = set()
    while wrong := [name for name in walk.wrong if name not in unexplained]:
        first = wrong[0]
        gap = walk.steps[first].gap
        assert gap is not None  # or it could not be wrong
        search = Search.begin(record, walk, first)
        fit, also = best(search.fits())
        if fit is None or not seen.isdisjoint({(first, mistake.name) for mistake, _ in fit.mistakes}):
            unexplained.add(first)
            without = record.forgetting(first)
            after = Walker(without).walk(walk.derivation)
            if set(after.wrong) < set(walk.wrong) - {first}:
                yield Finding(first, gap, hint=WRITTEN_WRONG)
                record, walk = without, after
            else:
                yield Finding(first, gap, hint=hint(search))
            continue
        for number, (mistake, detail) in enumerate(fit.mistakes):
            seen.add((first, mistake.name))
            others = tuple(named(each) for each in also) if not number else ()
            yield Finding(first, gap, mistake.name, *spoken(mistake, detail), others)
        walk = Walker(record).walk(fit.walk.derivation)


def named(fit: Fit) -> str:
    """What else fits."""
    return " and ".join(mistake.name for mistake, _ in fit.mistakes)


def spoken(mistake: Mistake, detail: str) -> tuple[str, str]:
    """What the mistake is and what to write instead, with what was found of it."""
    return mistake.words.replace("{}", detail), mistake.fix.replace("{}", detail)
