"""Cases carried out on a target and judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from attnctl.math import Array
from attnctl.verbs.conform.build import problem_of
from attnctl.verbs.conform.call import Answer, call_of, output_of
from attnctl.verbs.conform.case import MASK_KINDS, TYPES, Case, Conventions, Problem
from attnctl.verbs.conform.claims import Claims, Known
from attnctl.verbs.conform.conventions import MASK_KIND, MASK_SHAPE, MASKED, TRUE
from attnctl.verbs.conform.declared import Declared
from attnctl.verbs.conform.extra_outputs import judge_extras
from attnctl.verbs.conform.judge import Expected, Judgement, expect, judge_answer
from attnctl.verbs.conform.layout import MASKS, MERGED, USUAL, axes_in, packings
from attnctl.verbs.conform.library import LIBRARIES, Library
from attnctl.verbs.conform.repeat import alike
from attnctl.verbs.conform.signature import Signature, read_signature
from attnctl.verbs.conform.sizes import Sizes
from attnctl.verbs.conform.target import Target

ABSENT = {"NotImplementedError"}
"""By this exception a target says that it does not have what it takes a keyword for."""

NOT_CALLED = "not called"
"""What stands for the answer of a target that is not asked any more."""

MOST_HANGS = 2
"""Calls that may hang before no more are made."""


@dataclass(frozen=True)
class Asked:
    """How a suite is to be run."""

    said: Declared = Declared()  # noqa: RUF009  (frozen)
    """What arrays it takes and what is always on, by options and claims."""
    returns: tuple[str, ...] = ()
    """What it returns, where that is declared."""
    library: Library = LIBRARIES[""]
    renames: Mapping[str, str] = field(default_factory=dict)
    dtypes: tuple[str, ...] = tuple(TYPES)
    only: tuple[str, ...] = ()
    """Features to run; none means all."""
    quick: bool = False
    claims: Claims = Claims()  # noqa: RUF009  (frozen)
    xfail: Mapping[str, Known] = field(default_factory=dict)
    save: str | None = None
    """The folder for failing cases."""
    called: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """How the command line named the target: what stands before --replay FILE, and after it."""
    jobs: int = 1

    @property
    def declared(self) -> dict[str, str]:
        """The conventions that are declared, by the library, by claims or by options."""
        shape = {MASK_SHAPE: self.said.mask_shape} if self.said.mask_shape else {}
        return {**self.library.conventions, **self.claims.conventions, **shape}


@dataclass(frozen=True)
class Outcome:
    """One case, carried out and judged."""

    case: Case
    answer: Answer
    judgement: Judgement


@contextmanager
def start_target(target: Target, asked: Asked) -> Iterator[Signature]:
    """What a target can do, while it can be called. Raises AttnError where it cannot be."""
    try:
        target.start()
        yield read_signature(target.parameters, asked.library, asked.renames)
    finally:
        target.close()


@dataclass
class Suite:
    """Runs cases on a target."""

    target: Target
    asked: Asked
    signature: Signature
    usual: Conventions = field(init=False)
    """What it does where programs differ, in every type."""
    conventions: dict[str, Conventions] = field(default_factory=dict)
    """By type: the same, as far as it was found out in that type."""
    sizes: Sizes = field(init=False)
    changed: dict[str, Outcome] = field(default_factory=dict)
    """By type: a call that changed its inputs."""
    extras: dict[int, str] = field(default_factory=dict)
    """What the outputs behind the first are, by place, as far as they are known."""
    output_types: dict[str, dict[str, Case]] = field(default_factory=dict)
    """By type: the types of outputs, each with the first case that gave it."""
    hangs: int = 0

    def __post_init__(self) -> None:
        declared = self.asked.declared
        layout = self.asked.said.layout or (MERGED if self.signature.is_packed else USUAL)
        self.sizes = Sizes.of(self.asked.said, self.signature.sizes)
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
        """Whether the target hung so often that nothing is asked of it any more."""
        return self.hangs >= MOST_HANGS

    def conventions_in(self, dtype: str) -> Conventions:
        """What is known so far of what it does where programs differ."""
        return self.conventions.get(dtype, self.usual)

    def problem(self, case: Case, **otherwise: str) -> Problem:
        """A case in sizes that the target takes, as it is meant, or would be with other conventions."""
        conventions = replace(self.conventions_in(case.dtype), **otherwise)
        return problem_of(self.sizes.fit(case, conventions), conventions, self.asked.said.always)

    def sized(self, case: Case) -> Case:
        return self.sizes.fit(case, self.conventions_in(case.dtype))

    def wanted(self, case: Case) -> Expected:
        return expect(self.problem(case))

    def outcome(self, case: Case, **made: Any) -> Outcome:
        """Carry out a case and judge it; `made` says how often, and in what memory."""
        problem = self.problem(case)
        answer = self.call(problem, **made)
        wanted = expect(problem)
        judgement = judge_answer(wanted, answer)
        if judgement.right and self.extras:
            judgement = judge_extras(wanted, answer, self.extras, judgement)
        found = Outcome(problem.case, answer, judgement)
        self.output_types.setdefault(case.dtype, {}).setdefault(answer.dtype, problem.case)
        if answer.changed:
            self.changed.setdefault(case.dtype, found)
        return found

    def answer(self, case: Case, **made: Any) -> Answer:
        return self.call(self.problem(case), **made)

    def call(self, problem: Problem, **made: Any) -> Answer:
        """What the target answers; nothing is asked of one that hung too often."""
        if self.is_let_be:
            return Answer(error=NOT_CALLED, message=f"it hung {MOST_HANGS} times and is not called again")
        answer = self.target.call(call_of(problem, self.signature, **made))
        self.hangs += answer.error == "hang"
        return answer

    def output_of(self, outcome: Outcome) -> Array | None:
        """An output over (batch, head, query, d_v), None where there is none of that shape."""
        return output_of(self.problem(outcome.case), outcome.answer)

    def is_refusal(self, answer: Answer) -> bool:
        """Whether the target says that it does not take this."""
        return not self.target.refuses.isdisjoint({answer.error, answer.kind})

    def has(self, case: Case) -> bool:
        return not self.is_refusal(self.answer(case))

    def ignores(self, option: str, wrong: list[Outcome]) -> bool:
        """Whether an option is taken and changes nothing: the answers are those without it."""
        for each in wrong:
            if each.answer.error:
                return False
            bare = self.outcome(each.case.without(option))
            if bare.answer.error or not alike(bare.answer.outputs[:1], each.answer.outputs[:1]):
                return False
        return True
