"""A page on a mistake: what it is, why people make it, the fix, and an example that is carried out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import did_you_mean
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.drawing.show.headline import facts
from attnctl.inputs.plan.intended import trace_of_arrays
from attnctl.math.names import BIAS_INDEX, KEY_LENGTHS, PAGE_TABLE, POSITION_IDS
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
    mistake = next((mistake for mistake in CATALOGUE if mistake.name == name), None)
    if mistake is None:
        near = did_you_mean(name, mistake_names(), "attnctl mistakes lists them")
        raise AttnError(f"no mistake {json.dumps(name)}; {near}")
    example = carry_out_example(mistake)
    return MistakePage(mistake, example, judge(example))


def judge(example: PlantedRun) -> Report:
    """What check says of an example."""
    steps = example.right.steps.values()
    if any(getattr(step.op, "frequencies", ()) for step in steps):  # which neither arrays nor settings say
        return check(example.wrong)

    told = {KEY_LENGTHS, PAGE_TABLE, POSITION_IDS, BIAS_INDEX}
    beside = {name: array for name, array in example.given.items() if name in told}
    meant = example.meant
    if PAGE_TABLE in beside:
        meant = meant.with_(layout="bhnd")
    return check(trace_of_arrays({**beside, **example.wrong}), meant)


def list_mistakes() -> dict[str, str]:
    """What is wrong, by the name of each mistake; where only an example tells, why people make it."""
    words_of: dict[str, str] = {}
    for mistake in CATALOGUE:
        words = mistake.words.replace("{}", "…")
        if mistake.words.startswith("{}"):
            words = mistake.why
        words_of.setdefault(mistake.name, words)
    return words_of


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
        if text:
            yield []
            yield [(title, "aside")]
            yield from screen.sentence(text)

    yield []
    yield [(screen.printable(title_of_example(page)), "aside")]
    for line in page.mistake.example.split("\n"):
        yield [("  ", ""), (screen.printable(line), "")]

    part = part_shown(page)
    yield []
    yield [(screen.printable(part.title), "aside")]
    blank = [""] * (len(part.columns) - 1)
    titles = [["", "wrong", *blank, "right", *blank], ["", *part.columns, *part.columns]]
    rows: list[Line] = []
    for row in part.rows:
        wrong = [(text, "bad") for text in row.wrong]
        right = [(text, "") for text in row.right]
        rows.append([(row.place, "aside"), *wrong, *right])
    yield from Listing(screen, titles, rows, frozenset({0})).lines()


class RowShown(NamedTuple):
    """A row of an example's first wrong step."""

    place: str
    wrong: list[str]
    right: list[str]


class PartShown(NamedTuple):
    """What is about the largest difference of that step."""

    title: str
    columns: list[str]
    rows: list[RowShown]


def part_shown(page: MistakePage) -> PartShown:
    """The numbers about the largest difference of an example's first wrong step."""
    finding = page.report.findings[0]
    name = finding.step
    *outer, row, column = finding.gap.at
    wrong = page.example.wrong[name][tuple(outer)]
    right = page.example.right[name][tuple(outer)]
    rows = window(row, right.shape[0])
    columns = window(column, right.shape[1])

    places = zip(page.example.right.steps[name].axes, outer, strict=False)
    title = ", ".join([name, *(f"{axis} {place}" for axis, place in places)])
    shown = []
    for place in rows:
        wrong_texts = list(map(three_decimals, wrong[place, columns]))
        right_texts = list(map(three_decimals, right[place, columns]))
        shown.append(RowShown(str(place), wrong_texts, right_texts))
    return PartShown(title, list(map(str, columns)), shown)


def three_decimals(value: float) -> str:
    return f"{value:.3f}" if abs(value) < LARGE else f"{value:.2g}"


def window(place: int, size: int) -> list[int]:
    """The places shown: some in a row, this one among them."""
    first = max(0, min(place - 1, size - MOST))
    return list(range(first, min(first + MOST, size)))
