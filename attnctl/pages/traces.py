"""The page of traces: what a run is, or a model's next tokens."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import IO

from attnctl.base.words import quote
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.output import plain_text
from attnctl.drawing.screen.text import visible
from attnctl.drawing.show import View
from attnctl.drawing.show.overlay import has_picture, overlay_picture
from attnctl.drawing.show.picture import USUAL
from attnctl.math.names import FADED, LOGITS
from attnctl.pages import PageFinding, image, pieces
from attnctl.pages.html import html_table
from attnctl.record import Trace
from attnctl.record.picture import picture_in


def write_traces(traces: Sequence[Trace], stream: IO[bytes], view: View = USUAL) -> None:
    """A page of traces that opens as `view` says; one of next tokens, with these, at the likeliest."""
    finding = None
    if traces and "next" in traces[0].header and LOGITS in traces[0] and not view.cell:
        with suppress(
            ArithmeticError, AttributeError, LookupError, TypeError, ValueError
        ):  # anyone's header
            finding = find_next(traces)
            view = replace(view, cell=(LOGITS, (int(traces[0].header["next"]["at"]), 0)))
    if traces and finding is None and has_picture(traces, replace(view, steps=None)):
        finding = find_patches(traces, view)
    if traces and FADED in traces[0] and not view.cell:
        view = replace(view, cell=(FADED, (0,) * traces[0][FADED].ndim))
    stream.writelines(pieces(traces, finding, view))


def find_patches(traces: Sequence[Trace], view: View) -> PageFinding:
    """What each head looks at, over the picture, as the page of a model that sees opens with it."""
    drawn = overlay_picture(traces, replace(view, steps=None))
    seen = picture_in(traces[0].header)
    assert seen is not None
    name = visible(seen.path or "a picture")
    title = f"{name}: {seen.grid.rows} × {seen.grid.columns} patches"
    opening = f'<div class="scroll">{image(drawn.svg, title)}</div>'
    return PageFinding(title, title, [{}] * len(traces), opening=opening)


def find_next(traces: Sequence[Trace]) -> PageFinding:
    """What comes next, as the page of a model's logits opens with it."""
    from attnctl.verbs.models.next import NEXT_TITLES, next_lines, next_rows, place_words

    trace, screen = traces[0], Screen()
    rows = [[words for words, _ in row] for row in next_rows(trace, screen)]
    where = place_words(trace.tokens or [], screen, trace.header["next"]["at"])
    (likeliest, *_, share) = rows[0]
    title = f"{quote(likeliest)} is the likeliest token {where}: {share}"
    table = html_table("The likeliest tokens", NEXT_TITLES, rows, words=True)
    words = "\n".join(plain_text(next_lines(trace, screen)))
    return PageFinding(title, words, [{}] * len(traces), opening=table)
