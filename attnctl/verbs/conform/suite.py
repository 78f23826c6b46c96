"""Cases carried out on a target and judged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from attnctl.math import Array
from attnctl.math.derivation import Rotary
from attnctl.verbs.conform.call import Answer, Target, have_same_bits, make_call, read_output
from attnctl.verbs.conform.case import Case, Problem
from attnctl.verbs.conform.claims import Request
from attnctl.verbs.conform.conventions import (
    MASK_KIND,
    MASK_KINDS,
    MASK_SHAPE,
    MASKED,
    MASKS,
    MERGED,
    TRUE,
    USUAL,
    Conventions,
)
from attnctl.verbs.conform.declared import Declared
from attnctl.verbs.conform.extra_outputs import judge_extras
from attnctl.verbs.conform.judge import Expected, Judgement, expect, judge_answer
from attnctl.verbs.conform.layout import SizeLimits, axes_in, packings
from attnctl.verbs.conform.options import make_problem
from attnctl.verbs.conform.signature import CallSignature, read_signature

ABSENT = {"NotImplementedError"}
"""Exceptions by which a target says that it lacks an option whose keyword it takes."""

NOT_CALLED = "not called"
"""The error in place of an answer, once a target hung too often to be called again."""

MOST_HANGS = 2
"""Calls that may hang before no more are made."""


@dataclass(frozen=True)
class CaseResult:
    """One case with its answer and the judgement on it."""

    case: Case
    answer: Answer
    judgement: Judgement


@contextmanager
def start_target(target: Target, request: Request) -> Iterator[CallSignature]:
    """Start a target and read its signature, and end it. Raises AttnError where it cannot be called."""
    try:
        target.start()
        yield read_signature(target.parameters, request.library, request.renames)
    finally:
        target.close()


def limit_sizes(declared: Declared, signature: CallSignature) -> SizeLimits:
    """Collect the sizes that are declared, of a target that is passed the sizes of its signature."""
    always = declared.always
    rotary = always.positions if isinstance(always.positions, Rotary) else None
    tells = always.kv_heads is not None or not {"kv_heads", "kv_share"}.isdisjoint(signature.sizes)
    return SizeLimits(
        declared.head_sizes, declared.multiple_of, always.heads, always.kv_heads, rotary, tells
    )


@dataclass
class Suite:
    """Runs cases on a target, and keeps all that is learnt of it."""

    target: Target
    request: Request
    signature: CallSignature
    usual: Conventions = field(init=False)
    """Its conventions in a type where none are found out yet."""
    conventions: dict[str, Conventions] = field(default_factory=dict)
    """Its conventions by type."""
    sizes: SizeLimits = field(init=False)
    changed: dict[str, CaseResult] = field(default_factory=dict)
    """By type: a call that changed its inputs."""
    extras: dict[int, str] = field(default_factory=dict)
    """The names of outputs behind the first, by place, as far as they are known."""
    output_types: dict[str, dict[str, Case]] = field(default_factory=dict)
    """By type: the types of outputs, each with the first case that gave it."""
    hangs: int = 0

    def __post_init__(self) -> None:
        declared = self.request.conventions
        layout = self.request.declared.layout or (MERGED if self.signature.is_packed else USUAL)
        self.sizes = limit_sizes(self.request.declared, self.signature)
        self.usual = Conventions(
            layout=layout,
            packed=packings(axes_in(layout))[0] if self.signature.is_packed else "",
            mask=declared.get(MASK_SHAPE, MASKS[0]),
            mask_kind=declared.get(MASK_KIND, MASK_KINDS[0]),
            true=declared.get(TRUE, "may attend"),
            masked=declared.get(MASKED, "both"),
        )

    @property
    def is_let_be(self) -> bool:
        """The target hung so often that it is not called any more."""
        return self.hangs >= MOST_HANGS

    def conventions_in(self, dtype: str) -> Conventions:
        return self.conventions.get(dtype, self.usual)

    def problem(self, case: Case, **otherwise: str) -> Problem:
        """Make the problem of a case in sizes that the target takes, perhaps with other conventions."""
        conventions = replace(self.conventions_in(case.dtype), **otherwise)
        return make_problem(self.sizes.fit(case, conventions), conventions, self.request.declared.always)

    def fit(self, case: Case) -> Case:
        return self.sizes.fit(case, self.conventions_in(case.dtype))

    def expect(self, case: Case) -> Expected:
        return expect(self.problem(case))

    def run(self, case: Case, **made: Any) -> CaseResult:
        """Call the target with a case and judge its answer; `made` says how often, and in what memory."""
        problem = self.problem(case)
        answer = self.call(problem, **made)
        wanted = expect(problem)
        judgement = judge_answer(wanted, answer)
        if judgement.right and self.extras:
            judgement = judge_extras(wanted, answer, self.extras, judgement)
        found = CaseResult(problem.case, answer, judgement)
        self.output_types.setdefault(case.dtype, {}).setdefault(answer.dtype, problem.case)
        if answer.changed:
            self.changed.setdefault(case.dtype, found)
        return found

    def answer(self, case: Case) -> Answer:
        return self.call(self.problem(case))

    def call(self, problem: Problem, **made: Any) -> Answer:
        if self.is_let_be:
            return Answer(error=NOT_CALLED, message=f"it hung {MOST_HANGS} times and is not called again")
        answer = self.target.call(make_call(problem, self.signature, **made))
        self.hangs += answer.error == "hang"
        return answer

    def output_of(self, result: CaseResult) -> Array | None:
        """Return an output over (batch, head, query, d_v), None where there is none of that shape."""
        return read_output(self.problem(result.case), result.answer)

    def is_refusal(self, answer: Answer) -> bool:
        """The target says that it does not take this call."""
        return not self.target.refuses.isdisjoint({answer.error, answer.kind})

    def takes(self, case: Case) -> bool:
        return not self.is_refusal(self.answer(case))

    def ignores(self, option: str, wrong: list[CaseResult]) -> bool:
        """An option is taken and changes nothing: the answers are those without it."""
        for each in wrong:
            if each.answer.error:
                return False
            bare = self.run(each.case.without(option))
            if bare.answer.error or not have_same_bits(bare.answer.outputs[:1], each.answer.outputs[:1]):
                return False
        return True
