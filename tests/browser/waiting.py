"""Asking a page: its policy refuses eval, by which Playwright asks a second time."""

import time
from pathlib import Path

import pytest

SECONDS = 10


def wait_until(page, expression, arg=None):
    """Ask until it is true; each time the debugger evaluates it, which no policy refuses."""
    end = time.monotonic() + SECONDS
    while not page.evaluate(expression, arg):
        assert time.monotonic() < end, f"{expression} is not true after {SECONDS} s"
        page.wait_for_timeout(20)


def violations(page):
    """What axe has to say against a page."""
    axe = pytest.importorskip("axe_core_python")
    source = next(Path(axe.__file__).parent.rglob("axe.min.js")).read_text()
    found = page.evaluate(
        f"(async () => {{ {source}; return await axe.run({{ resultTypes: ['violations'] }}); }})()"
    )
    return [(each["id"], each["nodes"][0]["html"]) for each in found["violations"]]
