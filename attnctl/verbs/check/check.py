"""Check a trace: recompute every step, name the first wrong one, and what explains it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from itertools import islice

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.evidence.allowed import Strictness
from attnctl.evidence.walk import Checked, Verdict, Walk
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan import DumpPlan
from attnctl.inputs.plan.intended import settings_of
from attnctl.math.engine.cost import require
from attnctl.math.names import TABLE
from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.mistake import Mistake
from attnctl.record import Trace, is_unfinished
from attnctl.verbs.check.hints import agrees_as_printed, hint
from attnctl.verbs.check.read import (
    Walked,
    best_reading,
    notes_of,
    walk_over,
    with_causal_shown,
    with_shown_mask,
    without_unasked,
)
from attnctl.verbs.check.readings import Reading, is_foreign
from attnctl.verbs.check.report import Finding, Report, find_unjudged
from attnctl.verbs.check.search import Fit, Part, Search, samples, slight, whole_of

ARRAYS_AT_ONCE = 8
"""Arrays of the size of the largest step that a check may hold, in float64."""

KEPT_BYTES = 2**25 - 2**16
"""The largest array whose memory glibc keeps when it is freed, and that it then sees as usual.

By itself it gives each array of a few MiB back, and the system clears its pages anew for the next.
"""

BY_ROUNDING = Strictness()
WRITTEN_WRONG = "What follows was computed from the right numbers: only those written down here are wrong."


@np.errstate(all="ignore")  # what overflows becomes ∞ and NaN, and is found
def check(
    trace: Trace,
    meant: Settings | DumpPlan | None = None,
    strictness: Strictness = BY_ROUNDING,
    *,
    pairs: bool = True,
) -> Report:
    """Recompute every step of a trace from the inputs recorded beside it.

    A dump of ours says how each step came about. For anyone else's arrays settings say what was `meant`;
    given for a dump of ours, they overrule it. Where neither says it (a layer of a model, a case of
    conform), a plan does, and the trace is in our layout. Without `pairs`, which take most of the time, no
    two mistakes at once are tried. Raises AttnError where nothing can be compared.
    """
    np.empty(KEPT_BYTES, np.uint8)  # freed at once: malloc keeps what such arrays had for the next ones
    trace = replace(trace, arrays=dict(trace))  # a file gives an array anew each time it is asked
    require(ARRAYS_AT_ONCE * 8 * max((array.size for array in trace.values()), default=0), "checking this")
    settings, plan = (None, meant) if isinstance(meant, DumpPlan) else (meant, None)
    if settings is None and trace.is_own_call and trace.config:
        settings = settings_of(trace)  # as what a person says of arrays that may be laid out in any way
    reading = Reading(trace, settings)
    whole = seen = reading, walk_over(reading, strictness, plan)
    foreign = is_foreign(trace) and not (plan or is_unfinished(trace))
    if foreign:
        seen = best_reading(without_unasked(whole))
    raise_all(nothing_to_compare(trace, seen[1]))
    diagnosis, findings = diagnose(seen, trace.unfilled, pairs=pairs)
    if seen[0].left_out and any(finding.mistake is None for finding in findings):
        seen = best_reading(with_shown_mask(whole))
        diagnosis, findings = diagnose(seen, trace.unfilled, pairs=pairs)
    if foreign and any(finding.mistake is None for finding in findings):
        for causal in with_causal_shown(seen):
            explained = diagnose(causal, trace.unfilled, pairs=pairs)
            if all(finding.mistake for finding in explained[1]):
                seen, (diagnosis, findings) = causal, explained
    reading, walk = seen
    unjudged, notes = find_unjudged(diagnosis.walk, diagnosis.steps, reading), notes_of(trace, seen)
    said = walk.record.plan.unknown, tuple(unjudged), tuple(notes), reading.words, reading.presumed
    return Report(walk, diagnosis.steps, findings, str(strictness), *said)


def diagnose(seen: Walked, blank: Collection[str], *, pairs: bool) -> tuple[Diagnosis, tuple[Finding, ...]]:
    reading, walk = seen
    diagnosis = Diagnosis(walk, steps_to_report(walk.steps, walk.record.trace, blank), pairs)
    return diagnosis, tuple(name_unasked(*seen) if reading.unasked else diagnosis.findings())


def name_unasked(reading: Reading, walk: Walk) -> Iterator[Finding]:
    known = {mistake.name: mistake for mistake in CATALOGUE}
    first = walk.wrong[0]
    for option, mistake, words in reading.unasked:
        fix = f"say {option} if it is meant"
        if option.startswith("--name"):
            fix = f"{known[mistake].fix}; or {fix}"
        said = known[mistake].words if mistake in known else words
        yield Finding(first, walk.gap(first), mistake, said.replace("{}", option), fix)


def steps_to_report(
    steps: Mapping[str, Checked], recorded: Iterable[str], unfilled: Collection[str]
) -> dict[str, Checked]:
    """The steps to report: those up to the last one that is there, or should be filled in."""
    known = [*steps, *(name for name in TABLE if name not in steps)]  # blank though nothing needs it
    out = {**steps, **{name: Checked(name, Verdict.NOT_FILLED) for name in known if name in unfilled}}
    out |= {name: Checked(name, Verdict.NOT_CHECKABLE) for name in recorded if name not in out}
    while out and out[last := next(reversed(out))].verdict is Verdict.NOT_RECORDED:
        del out[last]
    return out


def nothing_to_compare(trace: Trace, walk: Walk) -> list[str]:
    judged = {Verdict.AGREES, Verdict.WRONG, Verdict.CANNOT_TELL}
    if any(step.verdict in judged for step in walk.steps.values()):
        return []
    if blank := [name for name in walk.steps if name in trace.unfilled]:
        return [f"nothing is filled in yet; write numbers for null in {', '.join(blank)}"]
    plan = walk.record.plan
    has = ", ".join(name for name in trace if name not in plan.supplied) or "nothing"
    unknown = ", ".join(plan.unknown)
    lost = (
        f" (no step is called {unknown}: say what it is, like --name {plan.unknown[0]}=attention_weights)"
        if unknown
        else ""
    )
    wanted = "give a step and what it is computed from, like Q, K and scores"
    return [f"nothing to compare: it has {has}{lost}; {wanted}"]


@dataclass
class Diagnosis:
    """Goes through the wrong steps, naming what explains each; `steps` is what is found of every one."""

    walk: Walk
    steps: dict[str, Checked]
    pairs: bool
    """Whether two mistakes at once are tried."""
    done: set[tuple[str, str]] = field(default_factory=set)
    """Steps with the mistakes that were named there; "" where nothing explains them."""

    def findings(self) -> Iterator[Finding]:
        if self.walk.wrong and (why := agrees_as_printed(self.walk)):
            first = self.walk.wrong[0]
            yield Finding(first, self.walk.gap(first), hint=why)
            return
        while wrong := [name for name in self.walk.wrong if (name, "") not in self.done]:
            search, fits = self.search(wrong[0])
            if not fits or any((wrong[0], mistake.name) in self.done for mistake, _ in fits[0].mistakes):
                yield self.leave_unexplained(search)
            else:
                yield from self.explain(wrong[0], *fits)

    def search(self, first: str) -> tuple[Search, list[Fit]]:
        """Search a wrong step: where that was done, and what explains it, the best first.

        Few rows tell most mistakes. What is found there and is not what all rows show, more rows tell
        apart. Where nothing is found, the mistake may mix up queries, or have a number in it, or there
        are two.
        """
        begun: list[Search] = []
        for part in samples(self.walk, first):
            search = self.begin(part, first)
            found = search.fits()
            much = not self.walk.gap(first).largest <= slight(search.case.expected.value)
            seek = part.words and not begun and not found and much
            if seek and (fits := self.screen(search)):
                return search, fits
            begun.append(search)
            if not any(map(search.exactly, found)):
                found = search.fits(fitted=True, others=found)
            if fits := self.verify_best(first, found, part):
                return search, fits
            across = any(mistake.across for fit in found for mistake, _ in fit.mistakes)
            if across and (fits := self.screen(search)):
                return search, fits
            if across or not found:
                break
        pairs = begun[0].pairs() if self.pairs else []
        return begun[0], self.verify_best(first, pairs, begun[0].part)

    def screen(self, before: Search) -> list[Fit]:
        """The mistake that mixes up queries and explains all of a step, sought by plain arithmetic."""
        first = before.case.first
        if not any(before.plants_to_screen()):
            return []
        part = whole_of(self.walk)
        search = self.begin(part, first, plainly=True)
        fits = filter(None, (self.verify(first, fit, part) for fit in search.screen()))
        return list(islice(fits, 1))

    def verify_best(self, first: str, fits: list[Fit], part: Part) -> list[Fit]:
        best = [fit for fit in fits if fit.rank == fits[0].rank]
        return [wide for fit in best if (wide := self.verify(first, fit, part))]

    def begin(self, part: Part, first: str, *, plainly: bool = False) -> Search:
        """A search half as patient after each step that nothing explained: numbers may just be noise."""
        named = [name for _, name in self.done]
        return Search.begin(part, first, named, patience=0.5 ** named.count(""), plainly=plainly)

    def verify(self, first: str, fit: Fit, part: Part) -> Fit | None:
        """Walk all of a record with what fits a part, or was screened; None where all shows more."""
        record = self.walk.record
        derivation = part.widen(fit.walk.derivation, record)
        explained = set(self.walk.wrong) - {first}
        try:
            whole = Walk.over(record, derivation, self.walk)
            if (part.words or not fit.walk.steps) and not set(whole.wrong) <= explained:
                loosely = Walk.over(replace(record, lenient=True), derivation, self.walk)
                if not set(loosely.wrong) <= explained:
                    return None
        except AttnError:  # shapes that go together in the part alone
            return None
        return replace(fit, walk=whole)

    def explain(self, first: str, fit: Fit, *as_good: Fit) -> Iterator[Finding]:
        """One finding for each mistake; from here on the derivation is the one that makes them.

        Where that leaves something wrong which is right without the step, nothing was computed from it.
        """
        others = tuple(" and ".join(mistake.name for mistake, _ in fit.mistakes) for fit in as_good)
        gap, after = self.walk.gap(first), walk_without(self.walk, first) if fit.walk.wrong else None
        if after and not set(after.wrong) < set(fit.walk.wrong):
            after = None
        for number, (mistake, plant) in enumerate(fit.mistakes):
            self.done.add((first, mistake.name))
            words, also = spoken(mistake, plant.detail), () if number else others
            hint = WRITTEN_WRONG if after and number == len(fit.mistakes) - 1 else ""
            yield Finding(first, gap, mistake.name, *words, also, hint, planted=(mistake, plant))
        if after:
            self.forget(first, after)
        else:
            self.walk = fit.walk

    def leave_unexplained(self, search: Search) -> Finding:
        """A step that no known mistake explains; forgotten, where what follows is right without it."""
        first, gap = search.case.first, self.walk.gap(search.case.first)
        self.done.add((first, ""))
        after = walk_without(search.case.walk, first) and walk_without(self.walk, first)
        if not after:
            return Finding(first, gap, hint=hint(search, gap.differing))
        self.forget(first, after)
        return Finding(first, gap, hint=WRITTEN_WRONG)

    def forget(self, first: str, after: Walk) -> None:
        """Go on without a step that nothing was computed from: what follows is judged anew."""
        self.steps |= {name: after.steps[name] for name in set(self.walk.wrong) - {first, *after.wrong}}
        self.walk = after


def walk_without(walk: Walk, first: str) -> Walk | None:
    rest = walk.record.trace.select([name for name in walk.record.trace if name != first])
    after = Walk.over(replace(walk.record, trace=rest), walk.derivation, walk, anew={first})
    steps = [after.steps[name] for name in walk.wrong if name != first and name in after.steps]
    right = any(step.verdict is Verdict.AGREES for step in steps)
    return after if right and set(after.wrong) <= set(walk.wrong) else None


def spoken(mistake: Mistake, detail: str) -> tuple[str, str]:
    return mistake.words.replace("{}", detail), mistake.fix.replace("{}", detail)
