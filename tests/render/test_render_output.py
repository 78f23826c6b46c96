"""Where lines go: terminals, pipes, encodings, and what the environment says of colours."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
import render_traces as traces
from render_golden import FULL, piped, show
from rich.console import Console

from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.output import PlainOutput, output_for, plain_text, screen_of
from attnctl.drawing.show.tables import View, lines_of_all
from attnctl.math.rules import Causal


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("environ", "tty", "fits", "colours"),
    [
        ({}, False, False, False),
        ({"TERM": "xterm"}, True, True, True),
        ({"TERM": "dumb"}, True, True, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, True, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True, True),
        ({"TERM": "xterm", "FORCE_COLOR": "0"}, True, True, False),
        ({"TERM": "xterm", "FORCE_COLOR": "0"}, False, False, False),
        ({"TERM": "xterm", "FORCE_COLOR": "1"}, False, True, True),
        ({"TERM": "xterm", "FORCE_COLOR": "1", "NO_COLOR": "1"}, False, True, False),
        ({"FORCE_COLOR": ""}, False, False, False),
    ],
)
def test_the_environment_decides_on_colours(environ, tty, fits, colours):
    stream = Terminal() if tty else io.StringIO()
    output = output_for(stream, environ)
    screen = screen_of(output)
    assert (screen.fits, screen.colours) == (fits, colours)
    show(traces.causal(), output)
    assert ("\x1b" in stream.getvalue()) == colours


@pytest.mark.parametrize(
    ("columns", "width"), [("120", 120), ("", 80), ("0", 80), ("-5", 80), ("wide", 80)]
)
def test_columns_set_the_width_of_a_pipe(columns, width):
    assert output_for(io.StringIO(), {"COLUMNS": columns}).width == width


def test_columns_set_the_width_of_a_terminal():
    assert screen_of(output_for(Terminal(), {"COLUMNS": "61", "LINES": "20", "TERM": "xterm"})).width == 61


def test_a_console_that_is_no_terminal_is_a_pipe():
    console = Console(file=io.StringIO(), width=80)
    show(traces.grouped(), console)
    assert console.file.getvalue() == piped(traces.grouped())


def test_a_recording_console_gets_the_same_text():
    console = Console(
        file=io.StringIO(), record=True, force_terminal=True, width=80, color_system="truecolor"
    )
    show(traces.small(), console, FULL)
    assert console.export_text(clear=False) == piped(traces.small())
    assert 'fill="#d3e7fe"' in console.export_svg()


@pytest.mark.sample(6)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "shift_jis", "utf-16", "utf-8"])
@pytest.mark.parametrize("tty", [True, False])
def test_every_encoding_gets_every_table(encoding, tty):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    output = (
        Console(file=stream, force_terminal=True, width=80, color_system=None)
        if tty
        else PlainOutput(stream)
    )
    for trace in (traces.hostile(), traces.masked(), traces.grouped()):
        show(trace, output)
        show(trace, output, FULL)
    stream.flush()
    lines = raw.getvalue().decode(encoding).splitlines()
    if encoding == "ascii":
        assert "+---+- head 0 ---------+- head 1 ---------+" in lines
        assert "scaled_scores   S' = scores / sqrt d_k   2 x 6 x 6 (head, query, key)" in lines


def test_a_broken_pipe_is_left_to_the_caller():
    class Broken(Terminal):
        def write(self, text):
            raise BrokenPipeError

    for output in (output_for(Broken(), {"TERM": "xterm"}), PlainOutput(Broken())):
        with pytest.raises(BrokenPipeError):
            show(traces.small(), output)


def test_several_traces_stand_apart():
    lines = plain_text(lines_of_all([traces.small(), traces.grouped()], Screen(), View()))
    assert "".join(f"{line}\n" for line in lines) == f"{piped(traces.small())}\n{piped(traces.grouped())}"


def test_a_large_print_is_written_in_parts():
    class Counting(io.StringIO):
        longest = 0

        def write(self, text):
            self.longest = max(self.longest, len(text))
            return len(text)

    stream = Counting()
    show(traces.trace_of([f"w{i}" for i in range(600)], 2, 1, rules=(Causal(),)), PlainOutput(stream))
    assert 0 < stream.longest < 600 * 600 * 8 / 2


def test_a_pipe_needs_nothing_of_rich():
    script = (
        "import io, sys, render_traces\n"
        "from attnctl.cli.program import program\n"
        "dump = io.StringIO()\n"
        "assert not program(['run', 'I love AI', '--json'], stdout=dump)\n"
        "dump = io.TextIOWrapper(io.BytesIO(dump.getvalue().encode()))\n"
        "assert not program(['check', '-'], stdin=dump, stdout=io.StringIO())\n"
        "from attnctl.drawing.screen.output import print_view\n"
        "from attnctl.drawing.show.tables import View, lines_of_all\n"
        "print_view(lambda screen: lines_of_all([render_traces.causal()], screen, View()))\n"
        "heavy = {'rich', 'pygments', 'pydantic', 'yaml'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", script], check=False, cwd=here, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "causal" in done.stdout.decode()
