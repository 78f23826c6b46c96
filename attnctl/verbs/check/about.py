"""A page on a mistake: what it is, why people make it, the fix, and an example that is carried out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import did_you_mean
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.drawing.show.headline import facts
from attnctl.inputs.plan.intended import trace_of_arrays
from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.examples import PlantedRun, carry_out_example
from attnctl.mistakes.mistake import Mistake
from attnctl.verbs.check.check import check
from attnctl.verbs.check.report import Report

MOST = 4
"""Rows and columns of a matrix that a page shows."""

LARGE = 1000
"""Numbers from here on are shown without decimals."""


@dataclass(frozen=True)
class MistakePage:
    """The page of one mistake; `report` is the finding of `check` in its example."""

    mistake: Mistake
    example: PlantedRun
    report: Report

    def to_dict(self) -> dict[str, Any]:
        finding = self.report.findings[0]
        return {
            "name": self.mistake.name,
            "steps": list(self.mistake.steps),
            "words": finding.words,
            "why": self.mistake.why,
            "seen": self.mistake.seen.split("; ") if self.mistake.seen else [],
            "fix": finding.fix,
            "meant": facts(self.example.right),
            "example": self.mistake.example.split("\n"),
            "check": self.report.to_dict(),
        }


def names() -> list[str]:
    return list(dict.fromkeys(each.name for each in CATALOGUE))


def about(name: str) -> MistakePage:
    """The page of a mistake. Raises AttnError where there is none of this name."""
    found = next((each for each in CATALOGUE if each.name == name), None)
    if found is None:
        near = did_you_mean(name, names(), "attnctl check names those that it knows, like no-scale")
        raise AttnError(f"--about: no mistake {json.dumps(name)}; {near}")
    example = carry_out_example(found)
    return MistakePage(found, example, judge(example))


def judge(example: PlantedRun) -> Report:
    if not example.by_arrays:
        return check(example.wrong)
    beside = {name: each for name, each in example.given.items() if name == "key_lengths"}
    return check(trace_of_arrays({**beside, **dict(example.wrong.items())}), example.meant)


def lines(page: MistakePage, screen: Screen) -> Iterator[Element]:
    mistake, (finding, *_) = page.mistake, page.report.findings
    yield [(mistake.name, "name")]
    yield from screen.sentence(f"What you get when {finding.words}.")
    fix = f"{finding.fix[0].upper()}{finding.fix[1:]}."
    for title, text in (("Why people make it", mistake.why), ("Seen in", mistake.seen), ("Instead", fix)):
        yield from [[], [(title, "aside")], *screen.sentence(text)] if text else []
    meant = ", ".join(facts(page.example.right))
    yield from [[], [(screen.ours(f"Example ({meant})"), "aside")]]
    yield from ([("  ", ""), (screen.ours(line), "")] for line in mistake.example.split("\n"))
    yield []
    yield from matrices(page, screen)


def matrices(page: MistakePage, screen: Screen) -> Iterator[Element]:
    """A part of the first wrong step, about its largest difference: what it is beside what it should be."""
    name, at = page.report.findings[0].step, page.report.findings[0].gap.at
    right, found = page.example.right[name], page.example.wrong[name]
    *outer, row, column = at
    rows, columns = (window(*each) for each in zip((row, column), right.shape[-2:], strict=True))
    said = zip(page.example.right.steps[name].axes, outer, strict=False)
    yield [(screen.ours(", ".join([name, *(f"{axis} {place}" for axis, place in said)])), "aside")]
    across = [str(each) for each in columns]
    blank = [""] * (len(columns) - 1)
    titles = [["", "wrong", *blank, "right", *blank], ["", *across, *across]]
    body: list[Line] = []
    for at_row in rows:
        line = [(str(at_row), "aside")]
        for array, style in ((found, "bad"), (right, "")):
            numbers = array[tuple(outer)][at_row, columns]
            line += [(f"{each:.3f}" if abs(each) < LARGE else f"{each:.2g}", style) for each in numbers]
        body.append(line)
    yield from Listing(screen, titles, body, frozenset({0})).lines()


def window(at: int, size: int) -> list[int]:
    """The places shown: some in a row, `at` among them."""
    first = max(0, min(at - 1, size - MOST))
    return list(range(first, min(first + MOST, size)))
