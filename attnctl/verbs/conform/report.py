"""The results of a run as values: a conformance, its features, their failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import isfinite
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.display import Displayed
from attnctl.verbs.conform.call import chance_missed
from attnctl.verbs.conform.case import FORWARD
from attnctl.verbs.conform.features import INPUTS_KEPT

PASSED, FAILED, SKIPPED, IGNORED, XFAIL = "passed", "failed", "skipped", "ignored", "xfail"
DIFFERS = "differs"
"""The status of what is other from call to call, and may be."""


def plain(ratio: float | None) -> float | str | None:
    """A number as JSON has it."""
    return ratio if ratio is None or isfinite(ratio) else "Infinity"


def describe_left_out(left: int, what: str, why: str) -> str:
    return f"{left} of its cases {'is' if left == 1 else 'are'} {what}: {why}"


@dataclass(frozen=True)
class Failure:
    """A case that failed, and its cause."""

    case: object
    words: str
    """The error, or the end of the call."""
    mistake: str | None = None
    explanation: str = ""
    replay: str = ""
    saved: str = ""
    """The dump of a small failing case, which `replay` runs again."""


@dataclass(frozen=True)
class FeatureResult:
    """The result of one feature in one type."""

    feature: str
    dtype: str
    status: str
    cases: int = 0
    """Cases that were run, `of` those that the suite has for this target."""
    of: int = 0
    failed: int = 0
    ratio: float | None = None
    """The largest error of all cases, as a part of the rounding error allowed."""
    reason: str = ""
    """The reason why it was skipped, or why some of its cases were not run."""
    failure: Failure | None = None
    known: str = ""
    """The reason why it is expected to fail, where someone has said so."""
    calls: int = 0
    """Calls of the same cases, where they were made again and again."""
    ratios: Mapping[str, float] = field(default_factory=dict)
    """The same of each output, where gradients are judged too."""

    @property
    def is_backward(self) -> bool:
        """Gradients were judged."""
        return not set(self.ratios) <= {*FORWARD}

    def to_dict(self) -> dict[str, Any]:
        failure = self.failure
        ratio = self.ratio
        return {
            "feature": self.feature,
            "dtype": self.dtype,
            "status": self.status,
            "cases": self.cases,
            "of": self.of,
            "failed": self.failed,
            "ratio": plain(ratio),
            "mistake": failure.mistake if failure else None,
            "explanation": (failure.explanation or failure.words) if failure else self.reason or None,
            "replay": failure.replay or None if failure else None,
            **({"case": str(failure.case)} if failure else {}),
            **({"not_run": self.reason} if failure and self.reason else {}),
            **({"known": self.known} if self.known else {}),
            **(
                {"ratios": {name: plain(each) for name, each in self.ratios.items()}}
                if self.is_backward
                else {}
            ),
            **({"calls": self.calls, "missed": chance_missed(self.calls)} if self.calls > self.of else {}),
        }


@dataclass(frozen=True)
class Conformance:
    """The results of all features of a target, with its conventions."""

    target: str
    features: tuple[FeatureResult, ...]
    conventions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def run(self) -> bool:
        """Something was run."""
        return any(each.status != SKIPPED for each in self.features)

    @property
    def wrong(self) -> list[FeatureResult]:
        """The features that fail or are ignored and were not known to."""
        return [each for each in self.features if each.status in {FAILED, IGNORED}]

    @property
    def counts(self) -> tuple[int, int]:
        """Cases that were run, and those that the suite has for this target; each call counts once."""
        own = [each for each in self.features if each.feature != INPUTS_KEPT] or self.features
        return sum(each.cases for each in own), sum(each.of for each in own)

    @property
    def agrees(self) -> bool | None:
        """Everything that was run is right; None where nothing was."""
        if not self.run:
            return None
        return not self.wrong

    def to_dict(self) -> dict[str, Any]:
        cases, of = self.counts
        return {
            "target": self.target,
            "agrees": self.agrees,
            "cases": cases,
            "of": of,
            "conventions": self.conventions,
            "features": [each.to_dict() for each in self.features],
            "notes": list(self.notes),
        }

    __str__ = Displayed.__str__
    _repr_mimebundle_ = Displayed._repr_mimebundle_
