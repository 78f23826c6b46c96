"""What a difference looks like. Run this file to write the golden files anew, then read the diff."""

from functools import partial
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import numpy as np
import pytest
from diff_traces import trace_of
from rich.console import Console

import attnctl
from attnctl.drawing.screen.grid import four_digits
from attnctl.drawing.screen.output import PlainOutput, print_view
from attnctl.drawing.screen.text import cells
from attnctl.verbs.diff.view import difference_lines, signed_percent

FOLDER = Path(__file__).parent / "golden"


def love(**options):
    return attnctl.run("I love AI", heads=2, **options)


def terminal(a, b, width, colours=None, *, full=False):
    stream = StringIO()
    console = Console(
        file=stream, force_terminal=True, width=width, color_system=colours, legacy_windows=False
    )
    print_view(partial(difference_lines, attnctl.diff(a, b)), console, full=full)
    return stream.getvalue()


def piped(a, b, encoding="utf-8"):
    stream = TextIOWrapper(BytesIO(), encoding=encoding)
    print_view(partial(difference_lines, attnctl.diff(a, b)), PlainOutput(stream))
    stream.seek(0)
    return stream.read()


def hostile():
    words = ["[red]", "\x1b[31m\u202e", "a, b", "日本語のとても長いトークンです"]
    return [trace_of({"X": np.diag([1.0, 2, 3, at])}, tokens=words) for at in (4, 5e-7)]


def many_heads():
    arrays = {name: np.random.RandomState(at).standard_normal((12, 5, 4)) for at, name in enumerate("QKV")}
    other = arrays | {"V": np.where(np.arange(12)[:, None, None] == 7, arrays["V"], -arrays["V"])}
    return attnctl.attend(arrays), attnctl.attend(other, causal=True)


def configured():
    return love(), love(seed=3, scale=0.5, causal=True, softcap=2.0, dtype="float32", causal_offset=1)


CASES = {
    "causal-80.txt": lambda: terminal(love(), love(causal=True), 80),
    "causal-80-colours.txt": lambda: terminal(love(), love(causal=True), 80, "standard"),
    "seed-140.txt": lambda: terminal(love(), love(seed=1), 140),
    "seed-80.txt": lambda: terminal(love(), love(seed=1), 80),
    "heads-80.txt": lambda: terminal(love(), attnctl.run("I love AI"), 80),
    "sentence-pipe.txt": lambda: piped(love(), attnctl.run("I really love AI", heads=2)),
    "window-pipe.txt": lambda: piped(love(window=(1, 1)), love(window=(1, 0))),
    "ablated-pipe.txt": lambda: piped(love(), love(edits=("head_outputs[1]=0",))),
    "causal-ascii.txt": lambda: piped(love(), love(causal=True), "ascii"),
    "hostile-60.txt": lambda: terminal(*hostile(), 60),
    "many-heads-80.txt": lambda: terminal(*many_heads(), 80),
    "configs-100.txt": lambda: terminal(*configured(), 100),
    "same-80.txt": lambda: terminal(love(), love(), 80),
}


@pytest.mark.parametrize("name", CASES)
def test_it_looks_as_it_should(name):
    assert CASES[name]() == (FOLDER / name).read_text(encoding="utf-8")


FITTED = [(name, int(name.removesuffix(".txt").rpartition("-")[2])) for name in CASES if name[-5].isdigit()]


@pytest.mark.parametrize(("name", "width"), FITTED)
def test_it_fits_the_terminal(name, width):
    assert max(map(cells, (FOLDER / name).read_text(encoding="utf-8").splitlines())) <= width


def test_a_pipe_gets_every_line_whole():
    config = {f"key{i}": i for i in range(30)}
    a, b = trace_of({"X": np.eye(2)}, config=config), trace_of({"X": np.eye(2)}, config={})
    assert piped(a, b).count("config: key") == 30
    assert terminal(a, b, 80).count("config: key") == 8
    assert "config: … 22 more (--full shows them)" in terminal(a, b, 80)
    assert terminal(a, b, 80, full=True).count("config: key") == 30


@pytest.mark.parametrize("width", [30, 60, 80])
def test_both_numbers_are_there_however_narrow_the_terminal(width):
    found = attnctl.diff(love(), love(seed=1)).steps
    text = " ".join(terminal(love(), love(seed=1), width).split())
    for step in found.values():
        assert f"{four_digits(step.a)} · {four_digits(step.b)}" in text
    assert "share of" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (0.123456, "0.1235"),
        (-2.0, "-2"),
        (1e-9, "1e-09"),
        (-123456.0, "-1.235e+05"),
        (float("inf"), "∞"),
        (float("-inf"), "-∞"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers(value, text):
    assert four_digits(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100.0 %"), (-0.5, "-50.0 %"), (-1e-9, "0.0 %"), (12.3456, "1234.6 %"), (None, "")],
)
def test_shares(share, text):
    assert signed_percent(share) == text


if __name__ == "__main__":
    for each, make in CASES.items():
        (FOLDER / each).write_text(make(), encoding="utf-8")
