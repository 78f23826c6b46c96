"""Traces, reports and differences as a notebook shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from attnctl.base.trace import Trace
from attnctl.pages.found import check_pieces, diff_pieces
from attnctl.pages.write import drawn, pieces
from attnctl.verbs.check.report import Report
from attnctl.verbs.diff import Difference

HEIGHT = 640
"""Of the frame, in pixels: pages scroll inside it."""


def bundle(shown: Any) -> dict[str, str]:
    """What a notebook is given, by kind: the page in a frame, and text.

    The frame lets the page run its own script and nothing else: no network, no cookies, no access
    to the notebook. Inside its tag stands a picture for where frames are taken out.
    """
    page, text, trace = parts(shown)
    source = b"".join(page()).decode()
    picture = drawn(trace)
    frame = (
        f'<iframe title="attnctl" sandbox="allow-scripts" srcdoc="{escape(source)}" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0">{picture}</iframe>'
    )
    return {"text/html": frame, "text/plain": text}


def parts(shown: Any) -> tuple[Callable[[], Iterator[bytes]], str, Trace]:
    """The page of something, its text, and the trace that a picture of it shows."""
    if isinstance(shown, Report):
        return lambda: check_pieces([shown]), str(shown), shown.trace
    if isinstance(shown, Difference):
        assert shown.alignment is not None
        return lambda: diff_pieces([shown]), f"{shown}\n", shown.alignment.a
    return lambda: pieces([shown]), repr(shown), shown
