"""Which wrong kernels pass, as a table, and what tells them apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from attnctl.base.words import plural
from attnctl.drawing.screen import Screen, Span
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.verbs.mutants.survey import KernelOutcome, Survey
from attnctl.verbs.mutants.tested import Score

LEAST = 1e-5
"""Below this a share is rounding, of which each processor has its own."""

ONE = 0.995
"""From here on a share is said in whole per cent."""

TITLES = ("passes, and is wrong", "off by", "outside", "told by", "")


def survey_lines(found: Survey, screen: Screen) -> Iterator[Element]:
    shape = " × ".join(map(str, found.inputs.shape))
    survivors, back = found.survivors, ", gradients" * found.inputs.backward
    yield from screen.sentence(
        f"{len(survivors)} of {len(found.wrong)} wrong programs pass: {found.criterion.words()}, "
        f"{found.inputs.dtype}, {shape} of {found.inputs.draw}{back}.",
        "bad" if survivors else "right",
    )
    yield from screen.sentence(said_of_right(found.right))
    if not survivors:
        return
    words = {mutant.name: mutant.said["words"] for mutant in found.mutants}
    rows: list[Sequence[Span]] = [
        [
            (outcome.name, "name"),
            (percent(outcome.relative), ""),
            (percent(outcome.outside), ""),
            (str(found.told_by(outcome.name) or "nothing tried"), ""),
            (screen.printable(words[outcome.name]), "aside"),
        ]
        for outcome in survivors
    ]
    yield from Listing(screen, [list(TITLES)], rows, frozenset({0, 4})).fit(4).lines()
    yield from screen.sentence(
        "Off by: the largest difference, by the largest right number. Outside: the share of numbers beyond "
        "the criterion.",
        "aside",
    )
    for number, command in enumerate(found.bounds, 1):
        told = sum(found.told_by(outcome.name) == number for outcome in survivors)
        yield []
        yield from screen.sentence(f"{number} tells {told} of them apart, and right programs pass it:")
        yield [("  ", ""), (command, "")]


def said_of_right(right: Sequence[KernelOutcome]) -> str:
    failing = [outcome for outcome in right if not outcome.passes]
    if not failing:
        return f"All {len(right)} right programs pass."
    said = ", ".join(f"{outcome.name} (off by {percent(outcome.relative)})" for outcome in failing)
    return f"Of {plural(len(right), 'right program')} {len(failing)} would fail: {said}."


def percent(share: float) -> str:
    """1.8 %, 0.0027 %."""
    if share == inf:
        return "no end"
    if 0 < share < LEAST:
        return f"< {100 * LEAST:g} %"
    return f"{100 * share:.2g} %" if share < ONE else f"{100 * share:,.0f} %"


def score_lines(found: Score, screen: Screen) -> Iterator[Element]:
    count, survivors = len(found.mutants), found.survivors
    killed = f"{count - len(survivors)} of {count} wrong kernels killed"
    yield from screen.sentence(
        f"{killed}; {len(survivors)} survive." if survivors else f"{killed}.",
        "bad" if survivors else "right",
    )
    rows: list[Sequence[Span]] = [
        [
            (mutant.name, "name"),
            (percent(outcome.relative), ""),
            (screen.printable(f"{inputs.words()}: {found.test.path(f'{mutant.name}.npz')}"), ""),
            (screen.printable(mutant.said["words"]), "aside"),
        ]
        for mutant, inputs, outcome in survivors
    ]
    if rows:
        titles = ["survives", "off by", "on these inputs", ""]
        yield from Listing(screen, [titles], rows, frozenset({0, 2, 3})).fit(2).lines()
    for why in dict.fromkeys(found.equivalent.values()):
        names = [name for name, reason in found.equivalent.items() if reason == why]
        yield from screen.sentence(f"Not counted: {', '.join(names)}: {why}.", "aside")
