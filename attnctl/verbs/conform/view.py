"""A conformance on the screen, a table and each failure in words, and as JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf

from attnctl.base.words import plural
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.screen import Line, Screen, Span
from attnctl.verbs.conform.report import (
    DIFFERS,
    FAILED,
    IGNORED,
    PASSED,
    SKIPPED,
    XFAIL,
    Conformance,
    FeatureResult,
)

SIGNS = {
    PASSED: ("✓", "ok", "good"),
    FAILED: ("✗", "X", "bad"),
    IGNORED: ("✗", "X", "bad"),
    SKIPPED: ("–", "-", "aside"),
    XFAIL: ("✗", "X", "aside"),
    DIFFERS: ("–", "-", "aside"),
}
"""Each as a sign, as ASCII, and its style."""


def list_lines(found: Conformance, screen: Screen) -> Iterator[Element]:
    if found.run:
        yield from make_table(found, screen).lines()
    yield from screen.sentence(summarise(found))
    for reason, names in list_skipped(found).items():
        yield from screen.sentence(f"Skipped: {', '.join(names)}: {reason}.", "aside")
    for reason, names in list_refused(found).items():
        yield from screen.sentence(f"In part: {', '.join(names)}: {reason}.", "aside")
    for name, value in found.conventions.items():
        yield from screen.sentence(f"Convention: {name}: {value}.")
    for note in found.notes:
        yield from screen.sentence(note)
    for results in group_failures(found):
        yield []
        yield from describe_failures(results, screen)


def make_table(found: Conformance, screen: Screen) -> Listing:
    """Make a row for each feature that was run anywhere, a column for each type."""
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
                *(make_cell(mine.get(dtype), screen) for dtype in dtypes),
            ]
        )
    return Listing(screen, [("feature", "cases", *dtypes)], rows, left={0})


def make_cell(result: FeatureResult | None, screen: Screen) -> Span:
    """Show the status of a feature in one type, with the worst ratio; empty where there is none."""
    if result is None:
        return "", ""
    sign, ascii_sign, style = SIGNS[result.status]
    mark = ascii_sign if screen.ascii_only else sign
    plain = result.status in {SKIPPED, IGNORED, DIFFERS}
    words = result.status if plain else format_ratio(result.ratio)
    if result.failure and result.failure.mistake in {"crash", "exit", "hang", "exception"}:
        words = "raises" if result.failure.mistake == "exception" else result.failure.mistake
    if result.status == XFAIL:
        words = f"known {words}"
    return f"{mark} {words}".rstrip(), style


def format_ratio(ratio: float | None) -> str:
    if ratio is None:
        return ""
    if isinf(ratio):
        return "∞"
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0e}"


def summarise(found: Conformance) -> str:
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
    """List features that were skipped everywhere or in some types, by reason."""
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
    """List features of which some cases were refused, by reason."""
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


def describe_failures(results: list[FeatureResult], screen: Screen) -> Iterator[Line]:
    """Describe what one mistake spoils: features and types, its sentence, a case, how to replay it."""
    first = results[0]
    failure = first.failure
    assert failure is not None
    names = ", ".join(dict.fromkeys(each.feature for each in results))
    types = list(dict.fromkeys(each.dtype for each in results))
    known = "".join(
        f" (known: {why})" for why in dict.fromkeys(each.known for each in results if each.known)
    )
    name = failure.mistake or first.status
    yield from screen.sentence(f"{name}: {names}, in {', '.join(types)}{known}", "name")
    yield from screen.sentence(
        make_sentence(failure.explanation) or "No known mistake gives these numbers."
    )
    words = "" if failure.words == failure.explanation else f": {failure.words}"
    yield from screen.sentence(f"{failure.case}{words}", "aside")
    if failure.replay:
        yield [(screen.ours(failure.replay), "")]


def make_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def write_junit(found: Conformance) -> str:
    """Return JUnit XML, a case for each feature and type; a known failure is skipped with its reason."""
    from xml.etree import ElementTree as ET

    skipped = sum(each.status in {SKIPPED, XFAIL} for each in found.features)
    suite = ET.Element("testsuite", name=f"attnctl conform {found.target}", errors="0")
    suite.attrib |= {
        "tests": str(len(found.features)),
        "failures": str(len(found.wrong)),
        "skipped": str(skipped),
    }
    for each in found.features:
        case = ET.SubElement(suite, "testcase", classname=f"{found.target}.{each.dtype}", name=each.feature)
        if each.status in {SKIPPED, XFAIL}:
            ET.SubElement(case, "skipped", message=replace_illegal(each.known or each.reason))
        elif each.failure:
            failure = each.failure
            said = failure.explanation or failure.words
            node = ET.SubElement(
                case, "failure", type=failure.mistake or each.status, message=replace_illegal(said)
            )
            node.text = replace_illegal(f"{failure.words}\nin {failure.case}\n{failure.replay}".strip())
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def replace_illegal(text: str) -> str:
    return "".join(each if each in "\n\t" or each.isprintable() else "?" for each in text)
