"""A check as SARIF 2.1.0, which editors and code hosts show beside the lines of a program.

The format is that of the OASIS standard (Static Analysis Results Interchange Format, 2.1.0): a run has
results, each with a rule, a level, a message, and a region of a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple
from urllib.parse import quote

from attnctl.base import __version__
from attnctl.store.files import encode_json, json_text, sink
from attnctl.verbs.check.report import BrokenLaw, CheckedTrace, Finding, Report

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
UNEXPLAINED = "wrong-step"
"""The rule of what no known mistake explains."""
NOT_JUDGED = "not-judged"
AROUND = "around-attention"
"""The rule of what is wrong beside steps that are right: two calls, a residual, a cache."""

MEANING = {
    UNEXPLAINED: "A step does not follow from those before it, and no known mistake explains it",
    AROUND: "Each step is right, and what stands around them is not",
    NOT_JUDGED: "A recorded step could not be judged",
}


class SarifResult(NamedTuple):
    """One result of a run, and what its rule is about."""

    rule: str
    meaning: str
    level: str
    text: str
    location: dict[str, Any]
    step: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "ruleId": self.rule,
            "level": self.level,
            "message": {"text": self.text},
            "locations": [self.location],
            "properties": {"step": self.step},
        }


def write_sarif(found: Sequence[Report | CheckedTrace], stream: IO[Any]) -> None:
    """Write what checks found as one run of SARIF."""
    reports = [one.report if isinstance(one, CheckedTrace) else one for one in found]
    results = [result for report in reports if report is not None for result in results_of(report)]
    meanings = {result.rule: result.meaning for result in results}
    rules = [{"id": rule, "shortDescription": {"text": meaning}} for rule, meaning in meanings.items()]

    run = {
        "tool": {"driver": {"name": "attnctl", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [result.to_dict() for result in results],
    }
    text = json_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)
    sink(stream)(encode_json(f"{text}\n"))


def results_of(report: Report) -> Iterator[SarifResult]:
    for finding in report.findings:
        yield result_of(report, finding)
    for law in report.broken:
        yield result_of_broken(law)
    for unjudged in report.cannot_tell:
        yield SarifResult(
            NOT_JUDGED,
            MEANING[NOT_JUDGED],
            "note",
            text=f"{unjudged.step} cannot be judged: {unjudged.words}.",
            location=named_location(unjudged.step),
            step=unjudged.step,
        )


def result_of_broken(law: BrokenLaw) -> SarifResult:
    """What stands around an attention, at its place in a program."""
    location = named_location("attention")
    if law.place is not None:
        span = law.place.span
        location["physicalLocation"] = {
            "artifactLocation": {"uri": quote(str(span["file"]))},
            "region": {"startLine": span["line"], "startColumn": span["column"]},
        }
    return SarifResult(AROUND, MEANING[AROUND], "error", str(law), location=location, step="attention")


def result_of(report: Report, finding: Finding) -> SarifResult:
    """One wrong step: an error where it is made, or of no place where the numbers came alone."""
    text = f"{finding.step} is wrong"
    if finding.words:
        text = f"{finding.words}: {finding.fix}" if finding.fix else finding.words
    elif finding.hint:
        text += f". {finding.hint}"

    location = named_location(finding.step)
    place = report.places.get(finding.step)
    if place is not None and place.span:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": quote(str(place.span["file"]))},
            "region": {
                "startLine": place.span["line"],
                "startColumn": place.span["column"],
                "endLine": place.span["end_line"],
                "endColumn": place.span["end_column"],
            },
        }
    rule = finding.mistake or UNEXPLAINED
    meaning = finding.words or MEANING[UNEXPLAINED]
    return SarifResult(rule, meaning, "error", f"{text}.", location=location, step=finding.step)


def named_location(step: str) -> dict[str, Any]:
    return {"logicalLocations": [{"name": step, "kind": "variable"}]}
