"""Traces, findings and statistics as notebooks show them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

from attnctl.pages.found import check_pieces, conform_pieces, diff_pieces
from attnctl.pages.write import asset, draw_trace, pieces
from attnctl.record import Trace
from attnctl.verbs.check.report import Report
from attnctl.verbs.conform.report import Conformance
from attnctl.verbs.diff import Difference
from attnctl.verbs.explain import Explanation
from attnctl.verbs.stats.picture import stats_picture
from attnctl.verbs.stats.report import DumpStats, StatsReport

HEIGHT = 680
"""Of the frame, in pixels: the first screen of a page, which scrolls inside it."""

THEME = asset("theme.html").removesuffix("\n")
"""Tells the frame whether the notebook is dark: its own theme, which need not be the system's."""


def bundle(shown: Any) -> dict[str, str]:
    """Return the two forms a notebook chooses from: the page in a frame, and text.

    The frame lets the page run its own script and nothing else: no network, no cookies, no access
    to the notebook. Inside its tag stands a picture for where frames are taken out. Statistics are
    drawn.
    """
    if isinstance(shown, Explanation):
        return {"text/plain": str(shown)}
    if isinstance(shown, DumpStats):
        return {"image/svg+xml": stats_picture([StatsReport((shown,))]).svg, "text/plain": repr(shown)}
    page, text, traces = parts(shown)
    source, picture = b"".join(page()).decode(), "".join(map(draw_trace, traces[:1]))
    frame = (
        f'<iframe title="attnctl" sandbox="allow-scripts allow-downloads" srcdoc="{escape(source)}" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0">{picture}</iframe>'
    )
    return {"text/html": frame + THEME, "text/plain": text}


def parts(shown: Any) -> tuple[Callable[[], Iterator[bytes]], str, Sequence[Trace]]:
    """The page of something, its text, and the traces that a picture of it shows."""
    if isinstance(shown, Report):
        return lambda: check_pieces([shown]), str(shown), [shown.trace]
    if isinstance(shown, Conformance):
        return lambda: conform_pieces([shown]), str(shown), []
    if isinstance(shown, Difference):
        assert shown.alignment is not None
        return lambda: diff_pieces([shown]), f"{shown}\n", [shown.alignment.a]
    traces = [shown] if isinstance(shown, Trace) else shown
    return lambda: pieces(traces), repr(shown), traces
