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
from attnctl.math.names import KEY_LENGTHS, PAGE_TABLE, POSITION_IDS
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


def mistake_names() -> list[str]:
    return list(dict.fromkeys(mistake.name for mistake in CATALOGUE))


def mistake_page(name: str) -> MistakePage:
    """The page of a mistake. Raises AttnError where there is none of this name."""
    found = next((mistake for mistake in CATALOGUE if mistake.name == name), None)
    if found is None:
        near = did_you_mean(name, mistake_names(), "attnctl mistakes lists them")
        raise AttnError(f"no mistake {json.dumps(name)}; {near}")
    example = carry_out_example(found)
    return MistakePage(found, example, judge(example))


def judge(example: PlantedRun) -> Report:
    steps = example.right.steps.values()
    if any(getattr(step.op, "frequencies", ()) for step in steps):  # which neither arrays nor settings say
        return check(example.wrong)
    told = {KEY_LENGTHS, PAGE_TABLE, POSITION_IDS}
    beside = {name: array for name, array in example.given.items() if name in told}
    meant = example.meant.with_(layout="bhnd") if PAGE_TABLE in beside else example.meant
    return check(trace_of_arrays({**beside, **example.wrong}), meant)


def list_mistakes() -> dict[str, str]:
    """What is wrong, by the name of each mistake; where only an example tells, why people make it."""
    said: dict[str, str] = {}
    for mistake in CATALOGUE:
        words = mistake.why if mistake.words.startswith("{}") else mistake.words.replace("{}", "…")
        said.setdefault(mistake.name, words)
    return said


def sections(page: MistakePage) -> Iterator[tuple[str, str]]:
    fix = page.report.findings[0].fix
    yield "Why people make it", page.mistake.why
    yield "Seen in", page.mistake.seen
    yield "Instead", f"{fix[0].upper()}{fix[1:]}."


def title_of_example(page: MistakePage) -> str:
    return f"Example ({', '.join(facts(page.example.right))})"


def page_lines(page: MistakePage, screen: Screen) -> Iterator[Element]:
    yield [(page.mistake.name, "name")]
    yield from screen.sentence(f"What you get when {page.report.findings[0].words}.")
    for title, text in sections(page):
        yield from [[], [(title, "aside")], *screen.sentence(text)] if text else []
    yield from [[], [(screen.printable(title_of_example(page)), "aside")]]
    yield from ([("  ", ""), (screen.printable(line), "")] for line in page.mistake.example.split("\n"))
    seen, columns, rows = part_shown(page)
    yield from [[], [(screen.printable(seen), "aside")]]
    blank = [""] * (len(columns) - 1)
    titles = [["", "wrong", *blank, "right", *blank], ["", *columns, *columns]]
    body: list[Line] = [
        [(place, "aside"), *((text, "bad") for text in wrong), *((text, "") for text in right)]
        for place, wrong, right in rows
    ]
    yield from Listing(screen, titles, body, frozenset({0})).lines()


def part_shown(page: MistakePage) -> tuple[str, list[str], list[tuple[str, list[str], list[str]]]]:
    """What is about the largest difference of an example's first wrong step.

    Its title, its columns, and of each row the place, the wrong numbers and the right ones.
    """
    name = page.report.findings[0].step
    at = page.report.findings[0].gap.at
    *outer, row, column = at
    arrays = [trace[name][tuple(outer)] for trace in (page.example.wrong, page.example.right)]
    rows, columns = (window(*span) for span in zip((row, column), arrays[1].shape, strict=True))
    said = zip(page.example.right.steps[name].axes, outer, strict=False)
    title = ", ".join([name, *(f"{axis} {place}" for axis, place in said)])
    wrong, right = ([list(map(three_decimals, array[row, columns])) for row in rows] for array in arrays)
    return title, list(map(str, columns)), list(zip(map(str, rows), wrong, right, strict=True))


def three_decimals(value: float) -> str:
    return f"{value:.3f}" if abs(value) < LARGE else f"{value:.2g}"


def window(at: int, size: int) -> list[int]:
    """The places shown: some in a row, `at` among them."""
    first = max(0, min(at - 1, size - MOST))
    return list(range(first, min(first + MOST, size)))
