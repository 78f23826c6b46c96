"""What explains the wrong steps of a walk, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.evidence.judge import wrong_numbers
from attnctl.evidence.record import may_have_unseen
from attnctl.evidence.walk import Checked, Verdict, Walk
from attnctl.inputs.plan import DumpPlan
from attnctl.math import Array
from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.fixes import write_fix
from attnctl.mistakes.mistake import Mistake, WrongStep
from attnctl.verbs.check.hints import WRITTEN_WRONG, agrees_as_printed, hint, hint_written
from attnctl.verbs.check.parts import Part, ends_elsewhere, one_head_of, samples
from attnctl.verbs.check.readings import Reading
from attnctl.verbs.check.report import Finding
from attnctl.verbs.check.search import Fit, Search, slight


def name_unasked(reading: Reading, walk: Walk) -> Iterator[Finding]:
    known = {mistake.name: mistake for mistake in CATALOGUE}
    first = walk.wrong[0]
    for option, mistake, words in reading.unasked:
        fix = f"say {option} if it is meant"
        if option.startswith("--name"):
            fix = f"{write_fix(known[mistake].fix, plan=walk.record.plan)}; or {fix}"
        said = known[mistake].words if mistake in known else words
        yield Finding(first, walk.gap(first), mistake, said.replace("{}", option), fix)


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
            if seek and (fits := self.screen_rows(search) or self.screen(search)):
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
        part = one_head_of(self.walk, first)
        search = replace(self.begin(part, first, plainly=True), screened=before.screened)
        return self.first_verified(first, search.screen(), part)

    def screen_rows(self, search: Search) -> list[Fit]:
        """The same in some rows, for what needs no more of the other queries than their sums."""
        first, part = search.case.first, search.part

        def value_of(case: WrongStep) -> Array | None:
            """NaN where the last queries, which these sums tell as well, show that it is another."""
            blocks = part.in_blocks_by_sums(case.derivation, self.walk, first)
            if blocks is None:
                return None
            return (
                np.full(case.found.shape, np.nan)
                if ends_elsewhere(blocks)
                else part.value_in_blocks(blocks)
            )

        return self.first_verified(first, search.screen(value_of), part)

    def first_verified(self, first: str, fits: Iterable[Fit], part: Part) -> list[Fit]:
        for fit in fits:
            if wide := self.verify(first, fit, part):
                return [wide]
        return []

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
                if not may_have_unseen(record):
                    return None
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
        plan = self.walk.record.plan
        others = tuple(" and ".join(mistake.name for mistake, _ in fit.mistakes) for fit in as_good)
        otherwise = tuple(
            spoken(mistake, plant.detail, plan, plant.fix)
            for fit in as_good
            for mistake, plant in fit.mistakes
            if len(fit.mistakes) == 1
        )
        gap, after = self.walk.gap(first), walk_without(self.walk, first) if fit.walk.wrong else None
        if after and not set(after.wrong) < set(fit.walk.wrong):
            after = None
        for number, (mistake, plant) in enumerate(fit.mistakes):
            self.done.add((first, mistake.name))
            words, fix = spoken(mistake, plant.detail, plan, plant.fix)
            yield Finding(
                step=first,
                gap=gap,
                mistake=mistake.name,
                words=words,
                fix=fix,
                also=() if number else others,
                otherwise=() if number else otherwise,
                hint=WRITTEN_WRONG if after and number == len(fit.mistakes) - 1 else "",
                planted=(mistake, plant),
            )
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
            return Finding(first, gap, hint=guarded(lambda: self.hint_of(search)))
        self.forget(first, after)
        return Finding(first, gap, hint=guarded(lambda: hint_written(search)))

    def hint_of(self, search: Search) -> str:
        """What is said of a step; of all that differs, rows that see nothing counted in."""
        first = search.case.first
        differing = self.walk.gap(first).differing
        expected = self.walk.expect(first)
        if differing > search.case.differs.sum() and expected is not None and not search.part.words:
            differs = wrong_numbers(self.walk.record, first, expected)
            search = replace(search, case=replace(search.case, differs=differs))
        return hint(search, differing)

    def forget(self, first: str, after: Walk) -> None:
        """Go on without a step that nothing was computed from: what follows is judged anew."""
        self.steps |= {name: after.steps[name] for name in set(self.walk.wrong) - {first, *after.wrong}}
        self.walk = after


def guarded(make_hint: Callable[[], str]) -> str:
    """A hint; nothing where making it fails.

    Hints try ops on whatever arrays there are, and some op may fail on them in a way that nobody foresaw.
    The verdict stands without a hint.
    """
    try:
        return make_hint()
    except Exception:  # noqa: BLE001  (any failure at all: see above)
        return ""


def walk_without(walk: Walk, first: str) -> Walk | None:
    rest = walk.record.trace.select([name for name in walk.record.trace if name != first])
    after = Walk.over(replace(walk.record, trace=rest), walk.derivation, walk, anew={first})
    steps = [after.steps[name] for name in walk.wrong if name != first and name in after.steps]
    right = any(step.verdict is Verdict.AGREES for step in steps)
    return after if right and set(after.wrong) <= set(walk.wrong) else None


def spoken(mistake: Mistake, detail: str, plan: DumpPlan | None = None, fix: str = "") -> tuple[str, str]:
    """What is wrong, and what to write instead, in the numbers of this plan where there is one.

    A plant may have a fix of its own.
    """
    return mistake.words.replace("{}", detail), write_fix(fix or mistake.fix, detail, plan)
