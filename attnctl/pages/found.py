"""Findings of check, conform and diff as pages: their words above the matrices, their cells marked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import IO, Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.drawing.show import View
from attnctl.inputs.plan.intended import under_our_names
from attnctl.math import Array
from attnctl.pages.write import Marks, PageFinding, pieces
from attnctl.record import Trace
from attnctl.store.source import read_one
from attnctl.verbs.check.check import check
from attnctl.verbs.check.report import Report
from attnctl.verbs.conform.report import Conformance
from attnctl.verbs.diff import Difference
from attnctl.verbs.diff.align import ApartError
from attnctl.verbs.diff.elements import differing
from attnctl.verbs.diff.view import verdict
from attnctl.verbs.explain.view import Question

BESIDE = "{} stands here in "

EXPECTED = {"own": "found", "other": "expected"}
A_AND_B = {"own": "A", "other": "B", "delta": "B − A"}
"""What the numbers of a trace are called on its page, and those beside them."""

MOST_CASES = 50
"""Failing cases of a target that its page shows."""

VERDICTS = {True: "conforms", False: "does not conform", None: "was not held to anything"}
"""What the heading says of a target."""


def write_explain(found: Sequence[Question], stream: IO[bytes]) -> None:
    """A page of the trace, open at the first of these cells."""
    explainer, address, depth = found[0]
    root = explainer.root(address, depth)
    stream.writelines(pieces([explainer.trace], view=View(cell=(root.step, root.cell))))


def conform_pieces(found: Sequence[Conformance]) -> Iterator[bytes]:
    """The page of targets: what was found, and each failing case that was saved, what is wrong marked."""
    saved = dict.fromkeys(
        (feature.failure.saved, f"{feature.feature}, {feature.dtype}")
        for one in found
        for feature in one.features
        if feature.failure and feature.failure.saved
    )
    cases = [(name, *failing_case(path)) for path, name in list(saved)[:MOST_CASES]]
    text = "\n\n".join(map(str, found))
    if len(saved) > MOST_CASES:
        text += f"\n\nOf {len(saved)} failing cases the first {MOST_CASES} are here."
    heading = "; ".join(f"{one.target} {VERDICTS[one.agrees]}" for one in found)
    finding = PageFinding(
        heading,
        text,
        [marks for _, _, marks in cases],
        [name for name, _, _ in cases],
        [EXPECTED] * len(cases),
        "first wrong",
    )
    yield from pieces([trace for _, trace, _ in cases], finding)


def failing_case(path: str) -> tuple[Trace, Marks]:
    """A case that was saved, and its wrong numbers; none are marked where the target gave no array."""
    trace = read_one(path)
    try:
        report = check(under_our_names(trace))
    except AttnError:
        return trace, {}
    return report.trace, mark_wrong(report)


def check_pieces(found: Sequence[Report]) -> Iterator[bytes]:
    marks = [mark_wrong(report) for report in found]
    text = "\n\n".join(map(str, found))
    first, *cause = text.partition("\n\n")[0].split("\n")
    for finding in [finding for report in found for finding in report.findings][1:]:
        if finding.mistake:
            cause.append(f"{finding.step}, too: when {finding.words}: {finding.fix}.")
    page = PageFinding(
        f"check: {first}", text, marks, (), [EXPECTED] * len(found), "first wrong", " ".join(cause)
    )
    yield from pieces([report.trace for report in found], page)


def mark_wrong(report: Report) -> Marks:
    cells = report.wrong_cells()
    return {name: (wrong, expected, "it should be {}") for name, (wrong, expected) in cells.items()}


def diff_pieces(found: Sequence[Difference]) -> Iterator[bytes]:
    """The page of differences: A and B of each, in both what differs marked."""
    traces: list[Trace] = []
    names: list[str] = []
    marks: list[Marks] = []
    for number, difference in enumerate(found):
        assert difference.alignment is not None
        pair = f" {number}" if len(found) > 1 else ""
        for side, other in ("AB", "BA"):
            traces.append(difference.alignment.a if side == "A" else difference.alignment.b)
            names.append(f"{side}{pair}")
            marks.append(dict(difference_marks(difference, side, other)))
    text = "".join(f"{report}\n" for report in found)
    panels = [A_AND_B, A_AND_B | {"own": "B", "other": "A"}] * len(found)
    finding = PageFinding(f"diff: {verdict(found[0])}", text, marks, names, panels, "first that differs")
    yield from pieces(traces, finding)


def difference_marks(
    found: Difference, side: str, other: str
) -> Iterator[tuple[str, tuple[Array, Array, str]]]:
    """Mark the cells where each step differs to one side, if the two stand beside each other."""
    alignment = found.alignment
    assert alignment is not None
    for name in found.steps:
        with suppress(ApartError):
            sides = alignment.sides(name)
            whole = (alignment.a if side == "A" else alignment.b)[name]
            places = np.ix_(*(pairing.a if side == "A" else pairing.b for pairing in sides.pairings))
            index: tuple[Any, ...] = (*(0,) * (whole.ndim - sides.a.ndim), *places)
            wrong, numbers = np.zeros(whole.shape, bool), np.full(whole.shape, np.nan)
            wrong[index] = differing(sides.a, sides.b, found.tolerance)
            numbers[index] = sides.b if side == "A" else sides.a
            yield name, (wrong, numbers, BESIDE + other)


def page_writer(
    pieces_of: Callable[[Sequence[Any]], Iterator[bytes]],
) -> Callable[[Sequence[Any], IO[bytes]], None]:
    return lambda found, stream: stream.writelines(pieces_of(found))


write_check = page_writer(check_pieces)
write_diff = page_writer(diff_pieces)
write_conform = page_writer(conform_pieces)
