"""Check a trace: recompute every step, name the first wrong one, and what explains it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attnctl.config.settings import Settings
from attnctl.engine.memory import require
from attnctl.errors import AttnError
from attnctl.names import KEY_LENGTHS, TABLE
from attnctl.plan.intended import Intent, derived, is_stated, stated, unknown_names
from attnctl.trace import Trace
from attnctl.verbs.check.catalogue import CATALOGUE
from attnctl.verbs.check.evidence import with_products
from attnctl.verbs.check.hints import hint, printed
from attnctl.verbs.check.mistake import Mistake
from attnctl.verbs.check.precision import DTYPES, FLOAT64
from attnctl.verbs.check.readings import Look, Reading, Unasked, agreeing
from attnctl.verbs.check.record import Record, Strictness, with_precisions
from attnctl.verbs.check.report import Finding, Report
from attnctl.verbs.check.sample import samples
from attnctl.verbs.check.search import Fit, Search, best
from attnctl.verbs.check.untold import untold
from attnctl.verbs.check.walk import Checked, Verdict, Walk, Walker, nothing_checked

ARRAYS_AT_ONCE = 8
"""Arrays of the size of the largest step that a check may hold, in float64."""

NOT_MEANT = {KEY_LENGTHS, "causal_offset", "edits", "renormalize"}
"""What a dump's config may hold beside the settings of a config file, or in another form."""

BY_ROUNDING = Strictness()
IN_TF32 = "Its products of matrices are in TF32: each factor rounded to 11 bits, sums in float32."
WRITTEN_WRONG = "What follows was computed from the right numbers: only those written down here are wrong."


@np.errstate(all="ignore")  # what overflows becomes ∞ and NaN, and is found
def check(
    trace: Trace,
    settings: Settings | None = None,
    strictness: Strictness = BY_ROUNDING,
    begun: Collection[str] = (),
    unfilled: Collection[str] = (),
    intent: Intent | None = None,
    *,
    pairs: bool = True,
) -> Report:
    """Recompute every step of a trace from the inputs recorded beside it.

    A dump of ours says how each step came about. For anyone else's arrays `settings` say what was
    intended; given for a dump of ours, they overrule it. Steps that are `begun` have NaN where a
    number is still to be filled in; those that are `unfilled` are not there. An `intent` is what
    was meant where neither says it: a layer of a model. Without `pairs`, which take most of the
    time, no two mistakes at once are tried. Raises AttnError where nothing can be compared.
    """
    trace = replace(trace, arrays=dict(trace))  # a file gives an array anew each time it is asked
    require(ARRAYS_AT_ONCE * 8 * max((array.size for array in trace.values()), default=0), "checking this")
    of_a_model = intent is not None
    intent, record, walk = walked(trace, settings, strictness, begun, intent)
    reading = None
    if walk.wrong and not (begun or unfilled or of_a_model):
        reading = agreeing(trace, settings, intent.sizes, walk, looking(strictness))
    if reading and reading.words:
        trace = reading.trace
        intent, record, walk = walked(trace, reading.settings, strictness, ())
    unknown = unknown_names(trace) if intent.trace is not trace else []
    if nothing_checked(walk.steps.values()):
        blank = [name for name in walk.steps if name in unfilled]
        raise AttnError(nothing_filled(blank) if blank else nothing_to_compare(trace, unknown))
    diagnosis = Diagnosis(record, walk, shown(walk.steps, intent.trace, unfilled), pairs)
    unasked = reading.unasked if reading else ()
    findings = tuple(not_asked(walk, unasked) if unasked else diagnosis.findings())
    return Report(
        intent.trace,
        diagnosis.steps,
        findings,
        str(strictness),
        tuple(unknown),
        tuple(untold(diagnosis.record, diagnosis.walk, diagnosis.steps)),
        (*notes_of(trace, intent), *((IN_TF32,) if record.factors.short else ())),
        reading.words if reading else "",
        (record, walk),
    )


def walked(
    trace: Trace,
    settings: Settings | None,
    strictness: Strictness,
    begun: Collection[str],
    intent: Intent | None = None,
) -> tuple[Intent, Record, Walk]:
    """What was intended of a trace (where no `intent` says so), what it records, and the walk over it."""
    intent = intent or intended(trace, settings)
    blanks = {name: np.isnan(intent.trace[name]) for name in begun if name in intent.trace}
    record = Record(intent.trace, intent.sizes, intent.derivation, strictness, blanks, edited(intent.trace))
    dtype = settings.dtype if settings else trace.config.get("dtype")
    record = with_precisions(record, DTYPES.get(str(dtype), FLOAT64))
    walk = Walker(record).walk(record.intended)
    record = with_short_factors(record, walk)
    if record.factors.short:
        walk = Walker(record).walk(record.intended)
    return intent, record, walk


def looking(strictness: Strictness) -> Look:
    """Walks other readings; those whose arrays do not go together give nothing."""

    def look(reading: Reading, until: str | None) -> Walk | None:
        try:
            if until is None:
                return walked(reading.trace, reading.settings, strictness, ())[2]
            intent = intended(reading.trace, reading.settings)
            plain = Record(intent.trace, intent.sizes, intent.derivation, strictness)
            return Walker(with_precisions(plain, FLOAT64)).walk(intent.derivation, until=until)
        except AttnError:
            return None

    return look


def not_asked(walk: Walk, unasked: Sequence[Unasked]) -> Iterator[Finding]:
    """That everything agrees with an option that nobody gave: a finding for each."""
    known = {mistake.name: mistake for mistake in CATALOGUE}
    first = walk.wrong[0]
    for each in unasked:
        words = known[each.mistake].words if each.mistake in known else each.words
        fix = f"say {each.option} if it is meant"
        yield Finding(first, walk.gap(first), each.mistake, words.replace("{}", each.option), fix)


def notes_of(trace: Trace, intent: Intent) -> list[str]:
    """How someone's names and layouts were read."""
    read = [f"{theirs} as {ours}" for ours, theirs in trace.header.get("read", {}).items()]
    left_out = trace.header.get("notes", []) if "read" in trace.header else []
    return [*([f"Read {', '.join(read)}."] if read else []), *left_out, *intent.notes]


def with_short_factors(record: Record, walk: Walk) -> Record:
    """The record, its products of matrices in TF32 where a part of the first wrong step shows it."""
    if not walk.wrong:
        return record
    part = next(samples(record, walk, walk.wrong[0]))
    return replace(record, factors=with_products(part.record, part.walk).factors)


def intended(trace: Trace, settings: Settings | None) -> Intent:
    """How the recorded steps should have come about."""
    if settings is None and is_stated(trace):
        return stated(trace)
    lengths = trace.config.get(KEY_LENGTHS)
    if settings is None:
        return derived(trace, configured(trace), lengths)
    return derived(trace, settings, lengths, keep=False)


def configured(trace: Trace) -> Settings:
    """The settings that a dump's config describes; the defaults where it has none."""
    config = {name: value for name, value in trace.config.items() if name not in NOT_MEANT}
    offset = offset_of(trace.config.get("causal_offset"))
    if not config:
        return Settings(causal_offset=offset)
    from attnctl.config.schema import validate

    return validate(config).with_(causal_offset=offset)


def offset_of(value: Any) -> Any:
    """The causal offset that a dump's config says: a number, one for each member of a batch, or none.

    Raises AttnError where it is none of these.
    """
    several = value if isinstance(value, list) else [value]
    if value is not None and not all(type(each) is int and abs(each) < 2**31 for each in several):
        raise AttnError(f"$.config.causal_offset: {value!r} is not a number of keys")
    return tuple(several) if isinstance(value, list) else value


def edited(trace: Trace) -> frozenset[str]:
    """The steps whose numbers were edited: they are what they are."""
    edits = trace.header.get("edits")
    told = [each.get("step") for each in edits if isinstance(each, dict)] if isinstance(edits, list) else []
    return frozenset(step for step in told if isinstance(step, str))


def shown(
    steps: Mapping[str, Checked], recorded: Iterable[str], unfilled: Collection[str]
) -> dict[str, Checked]:
    """The steps to report: those up to the last one that is there, or should be filled in."""
    known = [*steps, *(name for name in TABLE if name not in steps)]  # blank though nothing needs it
    blank = {name: Checked(name, Verdict.NOT_FILLED) for name in known if name in unfilled}
    out = {**steps, **blank}
    out |= {name: Checked(name, Verdict.NOT_CHECKABLE) for name in recorded if name not in out}
    while out and out[last := next(reversed(out))].verdict is Verdict.NOT_RECORDED:
        del out[last]
    return out


def nothing_filled(unfilled: Sequence[str]) -> str:
    """That an exercise is still to be begun."""
    return f"nothing is filled in yet; write numbers for null in {', '.join(unfilled)}"


def nothing_to_compare(trace: Trace, unknown: Sequence[str]) -> str:
    """Why nothing could be checked, and what would help."""
    has = ", ".join(trace) or "nothing"
    lost = f" (no step is called {', '.join(unknown)}: --name THEIRS=OURS renames)" if unknown else ""
    wanted = "give a step and what it is computed from, like Q, K and scores"
    return f"nothing to compare: it has {has}{lost}; {wanted}"


@dataclass
class Diagnosis:
    """Goes through the wrong steps, naming what explains each; `steps` is what is found of every one."""

    record: Record
    walk: Walk
    steps: dict[str, Checked]
    pairs: bool
    """Whether two mistakes at once are tried."""
    done: set[tuple[str, str]] = field(default_factory=set)
    """Steps with the mistakes that were named there; "" where nothing explains them."""

    def findings(self) -> Iterator[Finding]:
        """Every wrong step with what explains it; after each the walk goes on as the program did."""
        if self.walk.wrong and (why := printed(self.record, self.walk)):
            first = self.walk.wrong[0]
            yield Finding(first, self.walk.gap(first), hint=why)
            return
        while wrong := [name for name in self.walk.wrong if (name, "") not in self.done]:
            search, fit, also = self.searched(wrong[0])
            if fit is None or any((wrong[0], mistake.name) in self.done for mistake, _ in fit.mistakes):
                yield self.unexplained(search)
            else:
                yield from self.explained(wrong[0], fit, also)

    def searched(self, first: str) -> tuple[Search, Fit | None, list[Fit]]:
        """Where a wrong step was searched, what explains it, and what else does."""
        searches: list[Search] = []
        fits: list[Fit] = []
        for part in samples(self.record, self.walk, first):
            named = {name for _, name in self.done}
            searches.append(Search.begin(part.record, part.walk, first, named, part.words))
            fit, also = best(searches[-1].fits(quick=part.quick and not fits, pairs=self.pairs))
            fits = [each for each in (fit, *also) if each]
            verified = [each for each in fits if not part.words or self.verified(first, each)]
            if verified:
                return searches[-1], verified[0], verified[1:]
        return searches[0], None, []

    def verified(self, first: str, fit: Fit) -> bool:
        """Whether what explains a part of a step explains all of it, and upsets nothing else."""
        try:
            whole = Walker(self.record, lenient=True).walk(fit.walk.derivation, self.walk)
        except AttnError:  # shapes that go together in the part alone
            return False
        return set(whole.wrong) <= set(self.walk.wrong) - {first}

    def explained(self, first: str, fit: Fit, also: Sequence[Fit]) -> Iterator[Finding]:
        """One finding for each mistake; from here on the derivation is the one that makes them."""
        for number, (mistake, detail) in enumerate(fit.mistakes):
            self.done.add((first, mistake.name))
            others = () if number else tuple(map(named, also))
            yield Finding(first, self.walk.gap(first), mistake.name, *spoken(mistake, detail), others)
        self.walk = Walker(self.record).walk(fit.walk.derivation, self.walk)

    def unexplained(self, search: Search) -> Finding:
        """A step that no known mistake explains; forgotten, where what follows is right without it."""
        first, gap = search.case.first, self.walk.gap(search.case.first)
        self.done.add((first, ""))
        without = self.record.forgetting(first)
        after = righted(search.record, search.walk, first) and righted(self.record, self.walk, first)
        if not after:
            return Finding(first, gap, hint=hint(search))
        self.steps |= {
            name: after.steps[name] for name in self.walk.wrong if name not in {first, *after.wrong}
        }
        self.record, self.walk = without, after
        return Finding(first, gap, hint=WRITTEN_WRONG)


def righted(record: Record, walk: Walk, first: str) -> Walk | None:
    """The walk without a step, where that rights some that follow and makes none wrong; or None."""
    after = Walker(record.forgetting(first)).walk(walk.derivation)
    right = set(walk.wrong) - {first} - set(after.wrong)
    return after if right and set(after.wrong) <= set(walk.wrong) else None


def named(fit: Fit) -> str:
    """What else fits."""
    return " and ".join(mistake.name for mistake, _ in fit.mistakes)


def spoken(mistake: Mistake, detail: str) -> tuple[str, str]:
    """What the mistake is and what to write instead, with what was found of it."""
    return mistake.words.replace("{}", detail), mistake.fix.replace("{}", detail)
