"""Stories on a terminal, a chapter at a time; in a pipe, whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from attnctl.base.trace import Trace
from attnctl.cli.keys import ask_key

ENDS = {"q", "Q", "\x1b", "\x04", ""}
"""The keys that end a story: q, Escape, and the end of the input."""


def tell(traces: Sequence[Trace], steps: Sequence[Sequence[str] | None]) -> None:
    """Print the story of each trace, of these `steps` of it if named; on a terminal a key goes on."""
    from attnctl.drawing.screen.output import output_for, print_lines, screen_of
    from attnctl.verbs.story import story
    from attnctl.verbs.story.view import chapter_lines, opening

    output = output_for(sys.stdout, os.environ)
    screen = screen_of(output)
    stepwise = sys.stdin.isatty() and sys.stdout.isatty()
    for number, trace in enumerate(traces):
        told = story(trace, steps[number])
        print_lines([[]] * bool(number), output)
        print_lines(opening(told, screen), output)
        for at in range(len(told.chapters)):
            if stepwise and at and ask_key("Enter: next step, q: end") in ENDS:
                return
            print_lines([[], *chapter_lines(told, at, screen)], output)
