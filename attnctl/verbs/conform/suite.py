"""Cases carried out on a target and judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from math import inf
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.verbs.conform.call import NOT_CALLED, SENT, Answer, Target
from attnctl.verbs.conform.case import FORWARD, GRADIENTS, Case
from attnctl.verbs.conform.judge import Expected, Extras, Judgement, expect, judge_answer, judge_extras
from attnctl.verbs.conform.layout import make_call, packings, read_answer
from attnctl.verbs.conform.options import make_problem
from attnctl.verbs.conform.problem import Problem
from attnctl.verbs.conform.profile import HIDDEN_GRADIENTS, Request, TargetProfile
from attnctl.verbs.conform.signature import CallSignature, read_signature, refuse_unused
from attnctl.verbs.conform.stored import SCALE_OF

ABSENT = {"NotImplementedError"}
"""Exceptions by which a target says that it lacks an option whose keyword it takes."""

DIED = {"crash", "exit"}
"""The errors of a call that ended the process of the target."""

MOST_DEATHS = 3
"""Calls one after the other that may end it before no more are made."""

MOST_HANGS = 2
"""Calls that may hang, or be killed when they are made again, too, before no more are made."""


@dataclass(frozen=True)
class CaseResult:
    case: Case
    answer: Answer
    judgement: Judgement


class CaseDone(NamedTuple):
    """What a worker found of a case."""

    answer: Answer
    judgement: Judgement
    seconds: float
    has_nan_gradients: bool


@dataclass
class Suite:
    """Runs cases on a target, and keeps all that is learnt of it."""

    target: Target
    request: Request
    signature: CallSignature = CallSignature()
    profile: TargetProfile = TargetProfile()
    """How it is called in a type where nothing more is found out yet."""
    apart: tuple[Target, CallSignature] | None = None
    """What gives the gradients, where the target does not."""
    profiles: dict[str, TargetProfile] = field(default_factory=dict)
    """How it is called by type."""
    changed: dict[str, CaseResult] = field(default_factory=dict)
    """By type: a call that changed its inputs."""
    extras: Extras = field(default_factory=dict)
    """The outputs behind the first that are declared."""
    output_types: dict[str, dict[str, None]] = field(default_factory=dict)
    """By type: the types of outputs, in the order in which they came."""
    adds_truths: bool = False
    """A boolean mask is added as 1 and 0: it takes masks of numbers."""
    nan_gradients: set[str] = field(default_factory=set)
    """The types in which gradients are NaN where a row sees no key."""
    hangs: int = 0
    deaths: int = 0
    """The last calls, one after the other, that ended its process."""
    works: bool = False
    """Plain attention is right in some type: what it raises then is about what else it is asked for."""
    quickest: float = inf
    """The least seconds that a call took."""
    largest: tuple[int, float] = (0, 0.0)
    """The most weights of a call, and the seconds that it took."""
    seconds: float = 0.0
    """Those of the last call."""
    done: dict[Case, CaseDone] = field(default_factory=dict)
    """What workers have found of cases whose turn has not come yet."""

    @property
    def declared(self) -> TargetProfile:
        return self.request.profile

    @contextmanager
    def opened(self, back: Target | None = None) -> Iterator[None]:
        """Start the target, and what gives its gradients, where it does not.

        Raises AttnError where one cannot be called, or where gradients are asked for that nothing gives.
        """
        with ExitStack() as started:
            for target in filter(None, (self.target, back)):
                started.callback(target.close)
                target.start()

            signatures = self.read_signatures(back)
            refuse_unused(self.request, *signatures)
            yield

    def read_signatures(self, back: Target | None) -> list[CallSignature]:
        """Read how the target is called, and its backward pass where that is another one."""
        self.read_signature(forward=back is not None)
        if back is not None:
            signature = read_signature(back.parameters, self.request)
            self.apart = back, signature
            if not signature.handed:
                raise AttnError(
                    "--backward: it takes no d_output; a backward pass takes by name what it needs of "
                    "d_output, q, k, v, output, logsumexp and delta, and returns dq, dk and dv"
                )
            return [self.signature, signature]

        gives_gradients = bool(self.signature.handed) or self.target.goes_back
        if self.request.backward and not gives_gradients:
            raise AttnError(
                "--backward: nothing gives gradients; say --framework torch or jax, give the function "
                "that computes them (--backward file.py:fn), or a target that takes d_output"
            )
        return [self.signature]

    def read_signature(self, *, forward: bool) -> None:
        """Read how the target is called, perhaps only `forward`. Raises AttnError where it cannot be."""
        asked = replace(self.request, backward=self.request.backward and not forward)
        self.signature = signature = read_signature(self.target.parameters, asked)

        declared = self.declared
        always = declared.always
        is_told_kv_heads = not {"kv_heads", "kv_share"}.isdisjoint(signature.sizes)
        self.profile = profile = replace(
            declared,
            layout=declared.layout or signature.usual_layout,
            defaults=signature.defaults if declared.defaults is None else declared.defaults,
            heads=always.heads,
            scaled=tuple(name for name, scale in SCALE_OF.items() if scale in signature.keywords),
            paged="pages" in signature.required,
            tells_kv_heads=bool(always.kv_heads) or is_told_kv_heads,
        )
        if signature.is_packed and not declared.packed:
            self.profile = replace(profile, packed=packings(profile.axes)[0])

    @property
    def is_let_be(self) -> bool:
        """The target hung, or died, so often that it is not called any more."""
        return self.hangs >= MOST_HANGS or self.deaths >= MOST_DEATHS

    def profile_in(self, dtype: str) -> TargetProfile:
        return self.profiles.get(dtype, self.profile)

    def problem(
        self, case: Case, conventions: Mapping[str, str] | None = None, *, forward: bool = False
    ) -> Problem:
        """Make the problem of a case in sizes that the target takes, perhaps with other conventions.

        With `forward` a target that goes forward is not asked for gradients.
        """
        profile = self.profile_in(case.dtype).lay_over({"conventions": conventions or {}})
        fitted = profile.fit(case)
        outputs = self.outputs_of(fitted)
        if forward and not self.signature.handed:
            outputs = FORWARD
        return make_problem(fitted, profile, outputs)

    def outputs_of(self, case: Case) -> tuple[str, ...]:
        """What a case is asked for: gradients, too, where what gives them takes all of its options."""
        if self.signature.handed:
            return GRADIENTS
        if not self.request.backward:
            return FORWARD

        options = case.option_values.keys() | set(self.signature.required)
        if self.apart is not None:
            backward_takes = {*self.apart[1].claimed}
            return FORWARD + GRADIENTS if options <= backward_takes else FORWARD
        # Nothing goes back through a buffer.
        return FORWARD if "out" in options else FORWARD + GRADIENTS

    def fit(self, case: Case) -> Case:
        return self.profile_in(case.dtype).fit(case)

    def expect(self, case: Case) -> Expected:
        return expect(self.problem(case))

    def run(self, case: Case, *, forward: bool = False, **made: Any) -> CaseResult:
        """Call the target with a case and judge its answer; `made` says how often, and in what memory."""
        problem = self.problem(case, forward=forward)
        is_plain = not forward and not made
        if is_plain and problem.case in self.done and not self.is_let_be:
            answer, judgement = self.take_done(problem.case)
        else:
            answer, judgement = self.carry_out(problem, **made)

        result = CaseResult(problem.case, answer, judgement)
        self.output_types.setdefault(case.dtype, {}).setdefault(answer.dtype)
        if answer.changed:
            self.changed.setdefault(case.dtype, result)
        return result

    def carry_out(self, problem: Problem, **made: Any) -> tuple[Answer, Judgement]:
        begun = monotonic()
        answer = self.call(problem, **made)
        if not made:
            self.note_time(problem.case.weights, monotonic() - begun)

        expected = self.without_hidden_rows(expect(problem), answer)
        judgement = judge_answer(expected, answer)
        if judgement.right and self.extras:
            judgement = judge_extras(expected, answer, self.extras, judgement)
        return answer, judgement

    def take_done(self, case: Case) -> tuple[Answer, Judgement]:
        """What a worker found of a case, noted as if it had been called here."""
        done = self.done.pop(case)
        self.note_time(case.weights, done.seconds)
        self.note_end(done.answer)
        if done.has_nan_gradients:
            self.nan_gradients.add(case.dtype)
        return done.answer, done.judgement

    def note_time(self, weights: int, seconds: float) -> None:
        self.seconds = seconds
        self.quickest = min(self.quickest, seconds)
        if weights >= self.largest[0]:
            self.largest = weights, seconds

    def predict_time(self, case: Case) -> float:
        """The seconds that a call may take: for each weight as many as the largest took."""
        weights, seconds = self.largest
        if not weights:
            return 0.0
        return (seconds - self.quickest) * case.weights / weights

    def without_hidden_rows(self, expected: Expected, answer: Answer) -> Expected:
        """Expect no gradients where a row that sees no key makes NaN of them, which is a convention."""
        declared = self.declared.conventions.get(HIDDEN_GRADIENTS)
        arrays = read_answer(expected.problem, answer)
        has_nan = any(np.isnan(array).any() for name, array in arrays.items() if name in GRADIENTS)
        if expected.seen.all() or not has_nan or declared == "zeros":
            return expected

        self.nan_gradients.add(expected.problem.case.dtype)
        outputs = {name: output for name, output in expected.outputs.items() if name in FORWARD}
        return replace(expected, outputs=outputs)

    def answer(self, case: Case) -> Answer:
        return self.call(self.problem(case))

    def call(self, problem: Problem, **made: Any) -> Answer:
        """Call the target, and its backward pass where that is another function."""
        if self.is_let_be:
            what = f"hung or was killed {MOST_HANGS} times"
            if self.deaths >= MOST_DEATHS:
                what = f"died {MOST_DEATHS} times, one call after the other,"
            return Answer(error=NOT_CALLED, message=f"it {what} and is not called again")

        if self.apart and problem.backward:
            answer = self.call_both(problem, *self.apart, **made)
        else:
            answer = self.target.call(make_call(problem, self.signature, **made))
        self.note_end(answer)
        return answer

    def note_end(self, answer: Answer) -> None:
        """Count the calls that hang, and those that end its process."""
        self.hangs += answer.error == "hang" or answer.kind in SENT
        has_died = answer.error in DIED - self.target.refuses
        self.deaths = self.deaths + 1 if has_died else 0

    def call_both(self, problem: Problem, back: Target, signature: CallSignature, **made: Any) -> Answer:
        """The output of the target, and gradients of `back`, which alone is called again and again."""
        forward = replace(problem, outputs=FORWARD)
        first = self.target.call(make_call(forward, self.signature))
        if first.error:
            return first
        second = back.call(make_call(problem, signature, **made))
        changed = (*first.changed, *second.changed)
        return replace(second, outputs=first.outputs, changed=changed, dtype=first.dtype)

    def output_of(self, result: CaseResult) -> Array | None:
        return self.outputs_in(result).get(result.judgement.output)

    def outputs_in(self, result: CaseResult) -> dict[str, Array]:
        """Return the outputs that are there, numbers in the right shape."""
        arrays = read_answer(self.problem(result.case), result.answer)
        return {name: array for name, array in arrays.items() if array.dtype.kind != "b"}

    def is_refusal(self, answer: Answer) -> bool:
        # Of a target that works, whatever it raises is about what else it was asked for.
        if self.works and answer.is_exception:
            return True
        return not self.target.refuses.isdisjoint({answer.error, answer.kind})

    def takes(self, case: Case) -> bool:
        return not self.is_refusal(self.answer(case))
