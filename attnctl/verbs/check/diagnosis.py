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
    """A finding for each option that was not given, and with which the arrays agree."""
    known = {mistake.name: mistake for mistake in CATALOGUE}
    first = walk.wrong[0]
    for option, mistake, own_words in reading.unasked:
        # Some options have no mistake in the catalogue; these bring words of their own.
        words = known[mistake].words if mistake in known else own_words
        fix = f"say {option} if it is meant"
        if option.startswith("--name"):
            fix = f"{write_fix(known[mistake].fix, plan=walk.record.plan)}; or {fix}"
        yield Finding(first, walk.gap(first), mistake, words=words.replace("{}", option), fix=fix)


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
        why = agrees_as_printed(self.walk) if self.walk.wrong else ""
        if why:
            first = self.walk.wrong[0]
            yield Finding(first, self.walk.gap(first), hint=why)
            return

        while wrong := [name for name in self.walk.wrong if (name, "") not in self.done]:
            first = wrong[0]
            search, fits = self.search(first)
            # A mistake that was named at this step already explains no more of it.
            if not fits or any((first, mistake.name) in self.done for mistake, _ in fits[0].mistakes):
                yield self.leave_unexplained(search)
            else:
                yield from self.explain(first, *fits)

    def search(self, first: str) -> tuple[Search, list[Fit]]:
        """Search a wrong step: where that was done, and what explains it, the best first.

        Few rows tell most mistakes. What is found there and is not what all rows show, more rows tell
        apart. Where nothing is found, the mistake may mix up queries, or have a number in it, or there
        are two.
        """
        begun: list[Search] = []
        for part in samples(self.walk, first):
            search = self.begin(part, first)
            candidates = search.fits()
            if not begun and not candidates and self.may_mix_queries(search):
                fits = self.screen_rows(search) or self.screen(search)
                if fits:
                    return search, fits

            begun.append(search)
            if not any(map(search.exactly, candidates)):
                candidates = search.fits(fitted=True, others=candidates)
            fits = self.verify_best(first, candidates, part)
            if fits:
                return search, fits

            # What mixes up queries shows in all of them: more rows tell no more.
            mixes_queries = any(mistake.across for fit in candidates for mistake, _ in fit.mistakes)
            fits = self.screen(search) if mixes_queries else []
            if fits:
                return search, fits
            if mixes_queries or not candidates:
                break

        pairs = begun[0].pairs() if self.pairs else []
        return begun[0], self.verify_best(first, pairs, begun[0].part)

    def may_mix_queries(self, search: Search) -> bool:
        """True where a part of the rows is off by more than plain arithmetic leaves of right numbers."""
        if not search.part.words:
            return False
        largest = self.walk.gap(search.case.first).largest
        # Written so that a gap of NaN counts as large.
        return not largest <= slight(search.case.expected.value)

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
        first = search.case.first
        part = search.part

        def value_of(case: WrongStep) -> Array | None:
            """NaN where the last queries, which these sums tell as well, show that it is another."""
            blocks = part.in_blocks_by_sums(case.derivation, self.walk, first)
            if blocks is None:
                return None
            if ends_elsewhere(blocks):
                return np.full(case.found.shape, np.nan)
            return part.value_in_blocks(blocks)

        return self.first_verified(first, search.screen(value_of), part)

    def first_verified(self, first: str, fits: Iterable[Fit], part: Part) -> list[Fit]:
        for fit in fits:
            verified = self.verify(first, fit, part)
            if verified:
                return [verified]
        return []

    def verify_best(self, first: str, fits: list[Fit], part: Part) -> list[Fit]:
        best = [fit for fit in fits if fit.rank == fits[0].rank]
        verified = [self.verify(first, fit, part) for fit in best]
        return [fit for fit in verified if fit]

    def begin(self, part: Part, first: str, *, plainly: bool = False) -> Search:
        """A search half as patient after each step that nothing explained: numbers may just be noise."""
        named = [name for _, name in self.done]
        unexplained = named.count("")
        return Search.begin(part, first, named, patience=0.5**unexplained, plainly=plainly)

    def verify(self, first: str, fit: Fit, part: Part) -> Fit | None:
        """Walk all of a record with what fits a part, or was screened; None where all shows more."""
        record = self.walk.record
        derivation = part.widen(fit.walk.derivation, record)
        may_stay_wrong = set(self.walk.wrong) - {first}
        try:
            whole = Walk.over(record, derivation, before=self.walk)
            was_walked = not part.words and fit.walk.steps
            if not was_walked and not set(whole.wrong) <= may_stay_wrong:
                # Rows that are meant to see nothing may be what is left: programs differ there.
                if not may_have_unseen(record):
                    return None
                loosely = Walk.over(replace(record, lenient=True), derivation, before=self.walk)
                if not set(loosely.wrong) <= may_stay_wrong:
                    return None
        except AttnError:  # shapes that go together in the part alone
            return None
        return replace(fit, walk=whole)

    def explain(self, first: str, fit: Fit, *as_good: Fit) -> Iterator[Finding]:
        """One finding for each mistake; from here on the derivation is the one that makes them.

        Where that leaves something wrong which is right without the step, nothing was computed from it.
        """
        plan = self.walk.record.plan
        also = []
        otherwise = []
        for other in as_good:
            also.append(" and ".join(mistake.name for mistake, _ in other.mistakes))
            if len(other.mistakes) == 1:
                mistake, plant = other.mistakes[0]
                otherwise.append(spoken(mistake, plant.detail, plan, plant.fix))

        gap = self.walk.gap(first)
        without = walk_without(self.walk, first) if fit.walk.wrong else None
        if without and not set(without.wrong) < set(fit.walk.wrong):
            without = None

        last = len(fit.mistakes) - 1
        for number, (mistake, plant) in enumerate(fit.mistakes):
            self.done.add((first, mistake.name))
            words, fix = spoken(mistake, plant.detail, plan, plant.fix)
            yield Finding(
                step=first,
                gap=gap,
                mistake=mistake.name,
                words=words,
                fix=fix,
                also=() if number else tuple(also),
                otherwise=() if number else tuple(otherwise),
                hint=WRITTEN_WRONG if without and number == last else "",
                planted=(mistake, plant),
            )

        if without:
            self.forget(first, without)
        else:
            self.walk = fit.walk

    def leave_unexplained(self, search: Search) -> Finding:
        """A step that no known mistake explains; forgotten, where what follows is right without it."""
        first = search.case.first
        gap = self.walk.gap(first)
        self.done.add((first, ""))

        # The part first, as it is walked sooner.
        without = walk_without(search.case.walk, first) and walk_without(self.walk, first)
        if not without:
            return Finding(first, gap, hint=guarded(lambda: self.hint_of(search)))
        self.forget(first, without)
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

    def forget(self, first: str, without: Walk) -> None:
        """Go on without a step that nothing was computed from: what follows is judged anew."""
        now_right = set(self.walk.wrong) - {first, *without.wrong}
        self.steps |= {name: without.steps[name] for name in now_right}
        self.walk = without


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
    """The walk over all but one step; None where that makes nothing right, or something wrong."""
    rest = walk.record.trace.select([name for name in walk.record.trace if name != first])
    without = Walk.over(replace(walk.record, trace=rest), walk.derivation, before=walk, anew={first})
    others = [without.steps[name] for name in walk.wrong if name != first and name in without.steps]
    makes_right = any(step.verdict is Verdict.AGREES for step in others)
    return without if makes_right and set(without.wrong) <= set(walk.wrong) else None


def spoken(mistake: Mistake, detail: str, plan: DumpPlan | None = None, fix: str = "") -> tuple[str, str]:
    """What is wrong, and what to write instead, in the numbers of this plan where there is one.

    A plant may have a fix of its own.
    """
    return mistake.words.replace("{}", detail), write_fix(fix or mistake.fix, detail, plan)
