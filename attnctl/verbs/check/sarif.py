"""A check as SARIF 2.1.0, which editors and code hosts show beside the lines of a program.

The format is that of the OASIS standard (Static Analysis Results Interchange Format, 2.1.0): a run has
results, each with a rule, a level, a message, and a region of a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any
from urllib.parse import quote

from attnctl.base import __version__
from attnctl.store.files import encode_json, json_text, sink
from attnctl.verbs.check.report import CheckedTrace, Finding, Report, Unjudged

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
UNEXPLAINED = "wrong-step"
"""The rule of what no known mistake explains."""
NOT_JUDGED = "not-judged"

MEANING = {
    UNEXPLAINED: "A step does not follow from those before it, and no known mistake explains it",
    NOT_JUDGED: "A recorded step could not be judged",
}


def write_sarif(found: Sequence[Report | CheckedTrace], stream: IO[Any]) -> None:
    """Write what checks found as one run of SARIF."""
    reports = [one.report if isinstance(one, CheckedTrace) else one for one in found]
    results = [result for report in reports if report is not None for result in results_of(report)]
    rules = {result["ruleId"]: rule(result) for result in results}
    for result in results:
        del result["properties"]["rule"]

    driver = {"name": "attnctl", "version": __version__, "rules": list(rules.values())}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    text = json_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)
    sink(stream)(encode_json(f"{text}\n"))


def results_of(report: Report) -> Iterator[dict[str, Any]]:
    for finding in report.findings:
        yield result_of(report, finding)
    for unjudged in report.cannot_tell:
        yield result_of_unjudged(unjudged)


def result_of(report: Report, finding: Finding) -> dict[str, Any]:
    """One wrong step: an error where it is made, or of no place where the numbers came alone."""
    text = f"{finding.step} is wrong"
    if finding.words:
        text = f"{finding.words}: {finding.fix}" if finding.fix else finding.words
    elif finding.hint:
        text += f". {finding.hint}"

    place = report.places.get(finding.step)
    location: dict[str, Any] = {"logicalLocations": [{"name": finding.step, "kind": "variable"}]}
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
    return {
        "ruleId": finding.mistake or UNEXPLAINED,
        "level": "error",
        "message": {"text": f"{text}."},
        "locations": [location],
        "properties": {"step": finding.step, "rule": finding.words or MEANING[UNEXPLAINED]},
    }


def result_of_unjudged(unjudged: Unjudged) -> dict[str, Any]:
    return {
        "ruleId": NOT_JUDGED,
        "level": "note",
        "message": {"text": f"{unjudged.step} cannot be judged: {unjudged.words}."},
        "locations": [{"logicalLocations": [{"name": unjudged.step, "kind": "variable"}]}],
        "properties": {"step": unjudged.step, "rule": MEANING[NOT_JUDGED]},
    }


def rule(result: dict[str, Any]) -> dict[str, Any]:
    return {"id": result["ruleId"], "shortDescription": {"text": result["properties"]["rule"]}}
