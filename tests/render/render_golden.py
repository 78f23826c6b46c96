"""The golden files: what each view must look like. Run this file to write them anew, then read the diff."""

from io import StringIO
from pathlib import Path

import render_traces as traces
from rich.console import Console

from attnctl import run
from attnctl.drawing.screen.output import PlainOutput, print_view
from attnctl.drawing.show.markdown import write_markdown
from attnctl.drawing.show.tables import View, lines_of_all

FOLDER = Path(__file__).parent / "golden"


def show(trace, output, view=None):
    """Print the trace as its commands do."""
    print_view(lambda screen: lines_of_all([trace], screen, view or View()), output)


def terminal(trace, width, colours=None, view=None, height=25):
    """What a terminal of this width gets."""
    stream = StringIO()
    console = Console(
        file=stream,
        force_terminal=True,
        width=width,
        height=height,
        color_system=colours,
        legacy_windows=False,
    )
    show(trace, console, view)
    return stream.getvalue()


def piped(trace, view=None, width=80):
    """What a pipe gets."""
    stream = StringIO()
    show(trace, PlainOutput(stream, width), view)
    return stream.getvalue()


def markdown(trace, **options):
    """What a Markdown file gets."""
    stream = StringIO()
    write_markdown([trace], stream, **options)
    return stream.getvalue()


def first(**settings):
    """What the README runs."""
    return run("I love AI", heads=2, **settings)


FULL = View(full=True)
BRIEF = View(brief=True)
WEIGHTS = View(steps=("attention_weights",))
SCORES = View(steps=("mask", "masked_scores", "attention_weights"))
CAUSAL = View(steps=("masked_scores", "attention_weights"))

CASES = {
    "first-80.txt": lambda: terminal(first(), 80),
    "first-100.txt": lambda: terminal(first(), 100),
    "first-100-256.txt": lambda: terminal(first(), 100, "256"),
    "first-140.txt": lambda: terminal(first(), 140),
    "first-causal-100.txt": lambda: terminal(first(causal=True), 100),
    "first-grouped-80.txt": lambda: terminal(traces.grouped(), 80),
    "full-80.txt": lambda: terminal(traces.small(), 80, None, FULL),
    "small-brief-100-truecolor.txt": lambda: terminal(traces.small(), 100, "truecolor", BRIEF),
    "causal-100-256.txt": lambda: terminal(traces.causal(), 100, "256", CAUSAL),
    "causal-80-standard.txt": lambda: terminal(traces.causal(), 80, "standard", CAUSAL),
    "masked-80.txt": lambda: terminal(traces.masked(), 80, None, SCORES),
    "masked-140.txt": lambda: terminal(traces.masked(), 140, None, SCORES),
    "hostile-80.txt": lambda: terminal(traces.hostile(), 80, None, WEIGHTS),
    "hostile-140.txt": lambda: terminal(traces.hostile(), 140, None, WEIGHTS),
    "base-80.txt": lambda: terminal(traces.base(), 80),
    "base-brief-140.txt": lambda: terminal(traces.base(), 140, None, BRIEF),
    "long-brief-100.txt": lambda: terminal(traces.long(), 100, None, BRIEF),
    "grouped-80.txt": lambda: terminal(traces.grouped(), 80, None, View(steps=("W_K", "K", "K_shared"))),
    "crossed-100.txt": lambda: terminal(traces.crossed(), 100, None, View(steps=("memory", "K", "scores"))),
    "small.md": lambda: markdown(traces.small()),
    "hostile.md": lambda: markdown(traces.hostile(), precision=2, view=View(steps=("V",))),
    "digits.md": lambda: markdown(traces.small(), precision=None, view=View(steps=("X", "W_O"))),
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, case in CASES.items():
        (FOLDER / name).write_text(case(), encoding="utf-8")
