"""Waiting for a page: its policy refuses eval, by which Playwright asks a second time."""

import time

SECONDS = 10


def wait_until(page, expression, arg=None):
    """Ask until it is true; each time the debugger evaluates it, which no policy refuses."""
    end = time.monotonic() + SECONDS
    while not page.evaluate(expression, arg):
        assert time.monotonic() < end, f"{expression} is not true after {SECONDS} s"
        page.wait_for_timeout(20)
