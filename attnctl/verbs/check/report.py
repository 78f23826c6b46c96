"""The findings of a check, as values: for people, for scripts, for Python."""

from __future__ import annotations

import re
from dataclasses import field
from math import isfinite
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.display import Displayed
from attnctl.base.words import number_text
from attnctl.evidence.judge import Gap, differing
from attnctl.evidence.record import Record
from attnctl.evidence.walk import Checked, Verdict, Walk, Walker
from attnctl.math import Array
from attnctl.record.cells import spell_cell
from attnctl.record.trace import Trace
from attnctl.verbs.check.unjudged import Unjudged

OPTION = re.compile("(?:.*; or )?say (--.*) if it is meant")
"""What is to be written instead, where everything is right once an option says so."""


@dataclass(frozen=True)
class Finding:
    """A wrong step: where, by how much, and what explains it."""

    step: str
    gap: Gap
    mistake: str | None = None
    words: str = ""
    """Completes "It is what you get when …"."""
    fix: str = ""
    also: tuple[str, ...] = ()
    """Other mistakes that would give the same numbers."""
    hint: str = ""
    """What else can be said where no mistake is known."""

    @property
    def option(self) -> str | None:
        """The option that would have asked for it, where one would."""
        asked = OPTION.fullmatch(self.fix)
        return asked[1] if asked else None


@dataclass(frozen=True)
class Report(Displayed):
    """Every step of a dump, checked; the wrong ones in order, each with the mistake that explains it."""

    trace: Trace
    """The recorded steps, in our layout."""
    steps: dict[str, Checked]
    findings: tuple[Finding, ...]
    allowance: str = "rounding"
    """What a number may be off by, in words."""
    unknown: tuple[str, ...] = ()
    """Recorded arrays under names that attnctl does not know."""
    cannot_tell: tuple[Unjudged, ...] = ()
    """Recorded steps that could not be judged."""
    notes: tuple[str, ...] = ()
    """How the numbers had to be read for it."""
    reading: str = ""
    """How the arrays had to be read to agree, where they do not as their names and sizes say."""
    looked: tuple[Record, Walk] | None = field(default=None, repr=False, compare=False)
    """What was walked over, and what was found of it: what a picture of the report is made of."""

    @property
    def unasked(self) -> str | None:
        """The options with which everything agrees, where they were not given."""
        options = [finding.option for finding in self.findings]
        told = [option for option in options if option is not None]
        return " ".join(told) if told and told == options and not self.cannot_tell else None

    @property
    def agrees(self) -> bool | None:
        """True if every recorded step is right; None where none is wrong and some could not be judged.

        An exercise with blanks that are not filled in does not agree.
        """
        if self.findings or self.not_filled:
            return False
        return None if self.cannot_tell else True

    @property
    def not_filled(self) -> list[str]:
        return [
            name
            for name, step in self.steps.items()
            if step.verdict is Verdict.NOT_FILLED or (step.gap and step.gap.filled < step.gap.of)
        ]

    @property
    def first(self) -> str | None:
        return self.findings[0].step if self.findings else None

    @property
    def mistake(self) -> str | None:
        return self.findings[0].mistake if self.findings else None

    @property
    def gap(self) -> Gap | None:
        """The largest difference of the first wrong step, or of all steps where none is wrong."""
        if self.findings:
            return self.findings[0].gap
        gaps = [step.gap for step in self.steps.values() if step.gap]
        return max(gaps, key=lambda gap: gap.largest, default=None)

    def wrong_cells(self) -> dict[str, tuple[Array, Array]]:
        """For each wrong step which of its numbers are, and what each should be."""
        if self.looked is None:
            return {}
        record, walk = self.looked
        out = {}
        for name in walk.wrong:
            expected = Walker(record).expect(walk.derivation[name], walk.values)
            if expected is not None:
                out[name] = differing(record, name, expected)[1] & ~record.blank(name), expected.value
        return out

    def cell(self, step: str, gap: Gap) -> str:
        """The cell of the largest difference, as `explain` takes it."""
        return spell_cell(self.trace, step, gap.at)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        first, *then = self.findings or (None,)
        gap = self.gap
        return {
            "agrees": self.agrees,
            "first": self.first,
            "mistake": self.mistake,
            "largest_difference": gap and plain(gap.largest),
            "at": list(first.gap.at) if first else None,
            "cell": self.cell(first.step, first.gap) if first else None,
            "words": first.words or None if first else None,
            "fix": first.fix or None if first else None,
            "also": list(first.also) if first else [],
            "hint": first.hint or None if first else None,
            "then": [self.finding_dict(each) for each in then],
            "steps": {name: self.step_dict(step) for name, step in self.steps.items()},
            "unknown": list(self.unknown),
            "cannot_tell": [each.to_dict() for each in self.cannot_tell],
            "not_filled": self.not_filled,
            "notes": list(self.notes),
            "reading": self.reading or None,
            "unasked": self.unasked,
        }

    def finding_dict(self, finding: Finding) -> dict[str, Any]:
        """A later wrong step."""
        return {
            "step": finding.step,
            "mistake": finding.mistake,
            "largest_difference": plain(finding.gap.largest),
            "at": list(finding.gap.at),
            "cell": self.cell(finding.step, finding.gap),
            "words": finding.words or None,
            "fix": finding.fix or None,
            "also": list(finding.also),
            "hint": finding.hint or None,
        }

    def step_dict(self, step: Checked) -> dict[str, Any]:
        """The findings of one step."""
        if step.gap is None:
            return {"verdict": step.verdict.value}
        gap = step.gap
        out: dict[str, Any] = {
            "verdict": step.verdict.value,
            "largest_difference": plain(gap.largest),
            "allowed": plain(gap.allowed),
            "at": list(gap.at),
            "differing": gap.differing,
            "of": gap.filled,
        }
        if step.verdict is Verdict.WRONG:
            out |= {"found": plain(gap.found), "expected": plain(gap.expected)}
        return out


def plain(value: float) -> float | str:
    """A number as strict JSON has it."""
    return value if isfinite(value) else number_text(value)
