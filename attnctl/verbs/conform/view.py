"""A conformance on the screen: a table of features and types, then each failure in words."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf
from typing import TYPE_CHECKING

from attnctl.base.words import plural
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element, PlainOutput, print_lines, screen_of
from attnctl.drawing.screen.screen import Line, Screen, Span
from attnctl.verbs.conform.report import FAILED, IGNORED, PASSED, SKIPPED, XFAIL, Conformance, FeatureResult

if TYPE_CHECKING:
    from rich.console import Console

SIGNS = {
    PASSED: ("✓", "ok", "good"),
    FAILED: ("✗", "X", "bad"),
    IGNORED: ("✗", "X", "bad"),
    SKIPPED: ("–", "-", "aside"),
    XFAIL: ("✗", "X", "aside"),
}
"""Each as a sign, as ASCII, and its style."""


def show_conformance(found: Conformance, output: Console | PlainOutput) -> None:
    """Print what was found."""
    print_lines(lines(found, screen_of(output)), output)


def lines(found: Conformance, screen: Screen) -> Iterator[Element]:
    """The lines of `show_conformance`."""
    if found.run:
        yield from table(found, screen).lines()
    yield from flowing(summary(found), screen)
    for reason, names in list_skipped(found).items():
        yield from flowing(f"Skipped: {', '.join(names)}: {reason}.", screen, "aside")
    for reason, names in list_refused(found).items():
        yield from flowing(f"In part: {', '.join(names)}: {reason}.", screen, "aside")
    for name, value in found.conventions.items():
        yield from flowing(f"Convention: {name}: {value}.", screen)
    for note in found.notes:
        yield from flowing(note, screen)
    for results in group_failures(found):
        yield []
        yield from of_failures(results, screen)


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
            [
                (screen.ours(name), ""),
                (cases, "aside"),
                *(cell(mine.get(dtype), screen) for dtype in dtypes),
            ]
        )
    return Listing(screen, [("feature", "cases", *dtypes)], rows, left={0})


def cell(result: FeatureResult | None, screen: Screen) -> Span:
    """The status of a feature in one type, with the worst ratio; empty where there is none in it."""
    if result is None:
        return "", ""
    sign, ascii_sign, style = SIGNS[result.status]
    mark = ascii_sign if screen.ascii_only else sign
    words = {SKIPPED: "skipped", IGNORED: "ignored"}.get(result.status, ratio_text(result.ratio))
    if result.failure and result.failure.mistake in {"crash", "exit", "hang", "exception"}:
        words = "raises" if result.failure.mistake == "exception" else result.failure.mistake
    if result.status == XFAIL:
        words = f"known {words}"
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
    done, there = found.counts
    cases = f"{done:,} of {plural(there, 'case')}"
    names = list(dict.fromkeys(each.feature for each in found.wrong))
    if names:
        return f"It does not conform: {', '.join(names)}. ({cases}; a ratio above 1 is wrong.)"
    known = list(dict.fromkeys(each.feature for each in found.features if each.status == XFAIL))
    verdict = f"It conforms but for what is known to fail, {', '.join(known)}" if known else "It conforms"
    return f"{verdict}: {cases}. Each number is the largest error divided by the rounding error allowed."


def list_skipped(found: Conformance) -> dict[str, list[str]]:
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


def list_refused(found: Conformance) -> dict[str, list[str]]:
    """Features of which some cases were refused, by reason."""
    out: dict[str, list[str]] = {}
    for each in found.features:
        if each.status != SKIPPED and each.reason and each.feature not in out.setdefault(each.reason, []):
            out[each.reason].append(each.feature)
    return out


def group_failures(found: Conformance) -> list[list[FeatureResult]]:
    out: dict[tuple[str, str], list[FeatureResult]] = {}
    for each in found.features:
        if each.failure:
            alone = each.feature if each.failure.mistake is None else ""
            out.setdefault((each.failure.mistake or "", alone), []).append(each)
    return list(out.values())


def of_failures(results: list[FeatureResult], screen: Screen) -> Iterator[Line]:
    """What one mistake spoils, in words: where, what it is, a case, how to see it again."""
    first = results[0]
    failure = first.failure
    assert failure is not None
    names = ", ".join(dict.fromkeys(each.feature for each in results))
    types = list(dict.fromkeys(each.dtype for each in results))
    known = "".join(
        f" (known: {why})" for why in dict.fromkeys(each.known for each in results if each.known)
    )
    yield from flowing(
        f"{failure.mistake or first.status}: {names}, in {', '.join(types)}{known}", screen, "name"
    )
    yield from flowing(sentence(failure.explanation) or "No known mistake gives these numbers.", screen)
    words = "" if failure.words == failure.explanation else f": {failure.words}"
    yield from flowing(f"{failure.case}{words}", screen, "aside")
    if failure.replay:
        yield [(screen.ours(failure.replay), "")]


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}." if text else ""
