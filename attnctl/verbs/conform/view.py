"""A conformance on the screen: a table of features and types, then each failure in words."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf
from typing import TYPE_CHECKING

from attnctl.screen.listing import Listing
from attnctl.screen.output import Element, Plain, print_lines, screen_of
from attnctl.screen.screen import Line, Screen, Span
from attnctl.verbs.conform.report import FAILED, IGNORED, PASSED, SKIPPED, Conformance, FeatureResult

if TYPE_CHECKING:
    from rich.console import Console

SIGNS = {
    PASSED: ("✓", "ok", "good"),
    FAILED: ("✗", "X", "bad"),
    IGNORED: ("✗", "X", "bad"),
    SKIPPED: ("–", "-", "aside"),
}
"""Each as a sign, as ASCII, and its style."""


def show_conformance(found: Conformance, output: Console | Plain) -> None:
    """Print what was found."""
    print_lines(lines(found, screen_of(output)), output)


def lines(found: Conformance, screen: Screen) -> Iterator[Element]:
    """The lines of `show_conformance`."""
    yield from table(found, screen).lines()
    yield from flowing(summary(found), screen)
    for reason, names in skipped(found).items():
        yield from flowing(f"Skipped: {', '.join(names)}: {reason}.", screen, "aside")
    for name, value in found.conventions.items():
        yield from flowing(f"Convention: {name}: {value}.", screen)
    for note in found.notes:
        yield from flowing(note, screen)
    for result in explained(found):
        yield []
        yield from of_failure(result, screen)


def flowing(text: str, screen: Screen, style: str = "") -> list[Line]:
    """A sentence, going on below on a narrow terminal."""
    return screen.flow([(screen.ours(word), style) for word in text.split()], " ")


def table(found: Conformance, screen: Screen) -> Listing:
    """A row for each feature that was run anywhere, a column for each type."""
    dtypes = list(dict.fromkeys(each.dtype for each in found.features))
    rows: list[list[Span]] = []
    for name in dict.fromkeys(each.feature for each in found.features):
        mine = {each.dtype: each for each in found.features if each.feature == name}
        if all(each.status == SKIPPED for each in mine.values()):
            continue
        cases = str(max(each.cases for each in mine.values()))
        rows.append(
            [(screen.ours(name), ""), (cases, "aside"), *(cell(mine[dtype], screen) for dtype in dtypes)]
        )
    return Listing(screen, [("feature", "cases", *dtypes)], rows, left={0})


def cell(result: FeatureResult, screen: Screen) -> Span:
    """The status of a feature in one type, with the worst ratio."""
    sign, ascii_sign, style = SIGNS[result.status]
    mark = ascii_sign if screen.ascii_only else sign
    words = {SKIPPED: "skipped", IGNORED: "ignored"}.get(result.status, ratio_text(result.ratio))
    if result.known:
        words, style = f"known {words}", "aside"
    return f"{mark} {words}".rstrip(), style


def ratio_text(ratio: float | None) -> str:
    """A ratio in few digits."""
    if ratio is None:
        return ""
    if isinf(ratio):
        return "∞"
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0e}"


def summary(found: Conformance) -> str:
    """The verdict in a sentence."""
    run = [each for each in found.features if each.status != SKIPPED]
    if not run:
        return "Nothing was run: cannot tell."
    cases = sum(each.cases for each in run)
    names = list(dict.fromkeys(each.feature for each in found.wrong))
    if not names:
        return f"It conforms: {cases} cases. (The numbers: the worst, as a part of what rounding explains.)"
    return f"It does not conform: {', '.join(names)}. ({cases} cases; a ratio above 1 is wrong.)"


def skipped(found: Conformance) -> dict[str, list[str]]:
    """Features that were skipped everywhere or in some types, by reason."""
    out: dict[str, list[str]] = {}
    for name in dict.fromkeys(each.feature for each in found.features):
        mine = [each for each in found.features if each.feature == name]
        gone = [each for each in mine if each.status == SKIPPED]
        for reason in dict.fromkeys(each.reason for each in gone):
            types = [each.dtype for each in gone if each.reason == reason]
            where = "" if len(types) == len(mine) else f" ({', '.join(types)})"
            out.setdefault(reason, []).append(f"{name}{where}")
    return out


def explained(found: Conformance) -> list[FeatureResult]:
    """The failures, one for each feature and what explains it."""
    out: dict[tuple[str, str], FeatureResult] = {}
    for each in found.features:
        if each.failure:
            out.setdefault((each.feature, each.failure.mistake or ""), each)
    return list(out.values())


def of_failure(result: FeatureResult, screen: Screen) -> Iterator[Line]:
    """A failure in words: the case, the mistake, how to see it again."""
    failure = result.failure
    assert failure is not None
    title = f"{result.feature}: {failure.mistake or result.status}"
    yield from flowing(title + (f" (known: {result.known})" if result.known else ""), screen, "name")
    yield from flowing(failure.explanation or "No known mistake gives these numbers.", screen)
    if failure.words != failure.explanation:
        yield from flowing(f"In {failure.case}: {failure.words}.", screen, "aside")
    else:
        yield from flowing(f"In {failure.case}.", screen, "aside")
    if failure.replay:
        yield [(screen.ours(failure.replay), "")]
