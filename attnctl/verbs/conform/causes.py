"""Why features fail: what the feature itself says, what explained others, and what is searched for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path

from attnctl.base.dataclass import dataclass
from attnctl.drawing.screen.text import shell_line
from attnctl.verbs.conform import features
from attnctl.verbs.conform.case import Case
from attnctl.verbs.conform.diagnosis import diagnose, explain_repeats, ignored_cause
from attnctl.verbs.conform.features import (
    ATTENTION,
    REPEATABLE,
    REPEATABLE_GRADIENTS,
)
from attnctl.verbs.conform.held import NOTHING, Cause, Diagnosed, choose, spare, unite
from attnctl.verbs.conform.kinds import NOT_SOFTMAX
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.profile import (
    LENGTHS,
    OTHER_D_V,
    Request,
)
from attnctl.verbs.conform.relations import RELATIONS
from attnctl.verbs.conform.report import Failure, FeatureResult
from attnctl.verbs.conform.results import save_case, shrink
from attnctl.verbs.conform.suite import CaseResult, Suite

Search = Callable[[Sequence[CaseResult]], Failure]

MAY_LACK = {LENGTHS: "unequal numbers of queries and keys", OTHER_D_V: "values of another width"}
"""Features that kernels need not have, and often answer wrongly rather than refuse."""


@dataclass
class CauseSearch:
    """The causes of the wrong cases of a run, which are looked for among those found before."""

    suite: Suite
    runs: list[FeatureResult]
    """The runs of all features, whose right cases may speak against a cause."""
    recalled: Failure | None = None
    """The cause that was found before, of a case that is run again."""
    search: Search | None = None
    """What finds the cause of wrong cases, where it is not `diagnose`."""
    causes: list[Cause] = field(default_factory=list)
    """What was found to explain a feature, which may explain others."""
    unexplained: set[str] = field(default_factory=set)
    """The features of which nothing was found in another type."""
    diagnosed: dict[tuple[str, str], Diagnosed] = field(default_factory=dict)
    """What is true of the failing cases of a feature in a type."""

    @property
    def request(self) -> Request:
        return self.suite.request

    def explain_all(self, results: Sequence[FeatureResult]) -> None:
        """Add to each result that fails why it does.

        In the order of features: a cause found for one is tried first on those that come later.
        """
        for result in results:
            if result.wrong:
                self.diagnosed[result.feature, result.dtype] = self.explain(result)
        self.unite_causes()
        for result in results:
            self.add_cause(result)

    def explain(self, run: FeatureResult) -> Diagnosed:
        known = self.explain_without_search(run)
        return self.search_cause(run) if known is None else known

    def explain_without_search(self, run: FeatureResult) -> Diagnosed | None:
        """What is known of wrong cases by their feature, or by plain attention; None for nothing."""
        name = run.feature
        wrong = run.wrong
        if self.recalled:
            return Diagnosed(self.recalled)

        if name in {REPEATABLE, REPEATABLE_GRADIENTS}:
            first, *others = (explain_repeats(result.answer) for result in wrong)
            alone = any(other.sentence != first.sentence for other in others)
            return Diagnosed(replace(first, alone=alone))
        if name == features.INPUTS_KEPT:
            words = f"it changes its inputs: {', '.join(wrong[0].answer.changed)} is not what it was before"
            return Diagnosed(Failure("inputs-changed", words))

        plain = self.diagnosed.get((ATTENTION, run.dtype))
        if plain is not None and plain.failure.mistake == NOT_SOFTMAX:
            # Whatever else is asked for is asked of something else.
            return Diagnosed(replace(plain.failure, explained=1, failing=1))

        if name in RELATIONS:
            relation = RELATIONS[name]
            never_answered = all(result.answer.error for result in wrong)
            return NOTHING if never_answered else Diagnosed(Failure(relation.mistake, relation.sentence))
        return Diagnosed(self.search(wrong)) if self.search else None

    def search_cause(self, run: FeatureResult) -> Diagnosed:
        """Look for what explains wrong cases: causes found before, an ignored option, then all others."""
        name = run.feature
        wrong = run.wrong
        right = list(self.list_beside(run))
        best = choose(self.causes, wrong, right)

        # Without its cache a case has other keys, a buffer for the output changes no numbers, and what is
        # stored in few bits has its scales in every case.
        if name in OPTIONS and name not in {"cache", "out", "scales"}:
            ignored = choose([ignored_cause(self.suite, name)], wrong, right)
            if ignored.explains_all:
                best = ignored

        # Where plain attention fails, and nobody knows why, nothing is found by its options either.
        plain = self.diagnosed.get((ATTENTION, run.dtype))
        may_be_found = plain is None or plain.cause is not None
        if may_be_found and name not in self.unexplained:
            best = diagnose(self.suite, wrong, right, best)

        if best.fits_by_chance:
            best = NOTHING
        if best.cause is None:
            self.unexplained.add(name)
        elif best.cause not in self.causes:
            self.causes.append(best.cause)
        return best

    def list_beside(self, run: FeatureResult) -> Iterator[Case]:
        """The right cases of all features; what is said of an option is said of those that have it."""
        others = [other for other in self.runs if other is not run and other.dtype == run.dtype]
        for result in (run, *others):
            for case in result.right:
                if self.suite.problem(case).has_many_scores:
                    continue  # only its last rows are judged
                is_other_option = run.feature in OPTIONS and run.feature not in case.option_values
                if not is_other_option:
                    yield case

    def unite_causes(self) -> None:
        """Say one detail for all features of a cause, where it explains all; look again at right cases."""
        for cause in self.causes:
            keys = [key for key, diagnosed in self.diagnosed.items() if diagnosed.cause is cause]
            if keys:
                united = unite([self.diagnosed[key] for key in keys])
                self.diagnosed |= zip(keys, united, strict=True)

        # Only now all causes have the detail that they are said with, and every feature has run.
        for run in self.runs:
            diagnosed = self.diagnosed.get((run.feature, run.dtype))
            if diagnosed and diagnosed.cause in self.causes:
                self.diagnosed[run.feature, run.dtype] = spare(diagnosed, self.list_beside(run))

    def add_cause(self, run: FeatureResult) -> None:
        """Add to a result that fails why it does, and how to run the case again that shows it."""
        if not run.wrong:
            return
        diagnosed = self.diagnosed[run.feature, run.dtype]
        failure = self.add_way_out(run, diagnosed.failure)
        shown = diagnosed.shown or run.wrong[0]
        words = shown.judgement.words or failure.sentence
        run.failure = replace(failure, case=shown.case, words=words)

        saved = self.save_failure(run, diagnosed)
        if saved:
            command = shell_line(["attnctl", "conform", *self.say_target("--replay", str(saved))])
            run.failure = replace(run.failure, replay=command, saved=str(saved))

    def say_target(self, *flags: str) -> tuple[str, ...]:
        """The words of the command line that call this target again, with `flags` more."""
        options = [*self.request.flags]
        if self.request.backward:
            options.append("--backward")
        if self.suite.apart:
            options.append(self.suite.apart[0].name)
        options += flags

        # What follows -- is the target's own, so that options stand before it.
        target = self.suite.target.words
        return (*options, *target) if target[:1] == ("--",) else (*target, *options)

    def add_way_out(self, run: FeatureResult, failure: Failure) -> Failure:
        """Say how to declare that a kernel is not meant for what fails, where plain attention is right."""
        name = run.feature
        if name not in MAY_LACK or name in self.suite.declared.features:
            return failure
        if self.recalled or (ATTENTION, run.dtype) in self.diagnosed:
            return failure
        way_out = f"if it is not meant for {MAY_LACK[name]}, say without: [{name}] in --claims"
        return replace(failure, sentence=f"{failure.sentence}; {way_out}".removeprefix("; "))

    def save_failure(self, run: FeatureResult, diagnosed: Diagnosed) -> Path | None:
        """Save a case that fails, made small where the cause allows it."""
        name = run.feature
        result = diagnosed.shown or run.wrong[0]
        if self.request.save is None:
            return None

        # What shows between several calls shows in no smaller case alone.
        if name not in {REPEATABLE, REPEATABLE_GRADIENTS, features.INPUTS_KEPT, *RELATIONS}:
            smaller = shrink(result, self.suite, diagnosed.explains)
            failure = diagnosed.say(smaller)
            if failure is not None:
                return save_case(self.suite, smaller, name, failure)

        failure = Failure(diagnosed.failure.mistake, diagnosed.failure.sentence)
        return save_case(self.suite, result, name, failure)
