"""Which wrong kernels pass, as a table, and what tells them apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from attnctl.base.words import plural
from attnctl.drawing.screen import Screen, Span
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.text import fold_text
from attnctl.verbs.mutants.survey import KernelOutcome, Survey
from attnctl.verbs.mutants.tested import Score

LEAST = 1e-5
"""Below this a share is rounding, of which each processor has its own."""

ONE = 0.995
"""From here on a share is said in whole per cent."""

INDENT = "    "
"""Before code that stands below its table."""

TITLES = ("passes, and is wrong", "off by", "outside", "told by", "")


def survey_lines(survey: Survey, screen: Screen) -> Iterator[Element]:
    survivors = survey.survivors
    shape = " × ".join(map(str, survey.inputs.shape))
    gradients = ", gradients" if survey.inputs.backward else ""
    yield from screen.sentence(
        f"{len(survivors)} of {len(survey.wrong)} wrong programs pass: {survey.criterion.words()}, "
        f"{survey.inputs.dtype}, {shape} of {survey.inputs.draw}{gradients}.",
        "bad" if survivors else "right",
    )
    yield from screen.sentence(said_of_right(survey.right))
    if not survivors:
        return

    words = {mutant.name: mutant.said["words"] for mutant in survey.mutants}
    rows: list[Sequence[Span]] = []
    for outcome in survivors:
        told_by = survey.told_by(outcome.name)
        rows.append(
            [
                (outcome.name, "name"),
                (percent(outcome.relative), ""),
                (percent(outcome.outside), ""),
                (str(told_by or "nothing tried"), ""),
                (screen.printable(words[outcome.name]), "aside"),
            ]
        )
    yield from lines_with_code(Listing(screen, [list(TITLES)], rows, frozenset({0, 4})))
    yield from screen.sentence(
        "Off by: the largest difference, by the largest right number. Outside: the share of numbers beyond "
        "the criterion.",
        "aside",
    )

    for number, command in enumerate(survey.bounds, 1):
        told = sum(survey.told_by(outcome.name) == number for outcome in survivors)
        yield []
        yield from screen.sentence(f"{number} tells {told} of them apart, and right programs pass it:")
        yield [("  ", ""), (command, "")]


def lines_with_code(listing: Listing) -> Iterator[Element]:
    """A table whose last column is code: on a terminal too narrow for it it stands below, unbroken."""
    if listing.fits:
        yield from listing.lines()
        return

    screen = listing.screen
    last = len(listing.titles[0]) - 1
    numbers = [row[:last] for row in listing.rows]
    titles = [line[:last] for line in listing.titles]
    yield from Listing(screen, titles, numbers, listing.left - {last}).fit(last - 1).lines()

    for row in listing.rows:
        yield [row[0]]
        for line in fold_text(row[last][0], screen.width - len(INDENT)):
            yield [(INDENT, ""), (line, row[last][1])]


def said_of_right(right: Sequence[KernelOutcome]) -> str:
    failing = [outcome for outcome in right if not outcome.passes]
    if not failing:
        return f"All {len(right)} right programs pass."
    names = ", ".join(f"{outcome.name} (off by {percent(outcome.relative)})" for outcome in failing)
    return f"Of {plural(len(right), 'right program')} {len(failing)} would fail: {names}."


def percent(share: float) -> str:
    """1.8 %, 0.0027 %."""
    if share == inf:
        return "no end"
    if 0 < share < LEAST:
        return f"< {100 * LEAST:g} %"
    if share < ONE:
        return f"{100 * share:.2g} %"
    return f"{100 * share:,.0f} %"


def score_lines(score: Score, screen: Screen) -> Iterator[Element]:
    count = len(score.mutants)
    survivors = score.survivors
    killed = f"{count - len(survivors)} of {count} wrong kernels killed"
    if survivors:
        yield from screen.sentence(f"{killed}; {len(survivors)} survive.", "bad")
    else:
        yield from screen.sentence(f"{killed}.", "right")

    rows: list[Sequence[Span]] = []
    for mutant, inputs, outcome in survivors:
        file = score.test.path(f"{mutant.name}.npz")
        rows.append(
            [
                (mutant.name, "name"),
                (percent(outcome.relative), ""),
                (screen.printable(f"{inputs.words()}: {file}"), ""),
                (screen.printable(mutant.said["words"]), "aside"),
            ]
        )
    if rows:
        titles = ["survives", "off by", "on these inputs", ""]
        yield from lines_with_code(Listing(screen, [titles], rows, frozenset({0, 2, 3})))

    names_by_reason: dict[str, list[str]] = {}
    for name, reason in score.equivalent.items():
        names_by_reason.setdefault(reason, []).append(name)
    for reason, names in names_by_reason.items():
        yield from screen.sentence(f"Not counted: {', '.join(names)}: {reason}.", "aside")
