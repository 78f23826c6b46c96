"""run --story and show --story: whole in a pipe, a step at a time on a terminal."""

import fcntl
import io
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time

import pytest
from command_line import call
from rich.console import Console

import attnctl
from attnctl.drawing.screen.output import print_view
from attnctl.verbs.story import story
from attnctl.verbs.story.view import story_lines


def test_a_story_in_a_pipe_is_text():
    code, out, err = call("run", "I love AI", "--heads", "2", "--story")
    assert (code, err) == (0, "")
    said = 'head 0: "love" looks most at "I": 62 %, because its score 0.1252 is the largest of'
    assert said in " ".join(out.split())
    assert re.findall(r"^\d+/\d+ ([\w, ]+?)(?:   |$)", out, re.MULTILINE) == [
        "embeddings", "W_Q, W_K, W_V", "Q, K, V", "scores", "scaled_scores",
        "attention_weights", "head_outputs", "concat", "W_O", "output",
    ]  # fmt: skip
    assert "Each row of X is multiplied by W_Q, W_K and W_V" in out
    assert max(map(len, out.splitlines())) <= 80


def test_one_head_side_by_side_with_none_is_the_same_matrix():
    out = call("run", "I love AI", "--story")[1]
    assert "/9 head_outputs" in out
    assert "concat is the same matrix." in " ".join(out.split())


def test_matrices_that_do_not_fit_beside_each_other_are_all_shown():
    output = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    told = story(attnctl.run("I love AI", d_model=8))
    print_view(lambda screen: story_lines(told, screen), output)
    shown = output.file.getvalue()
    assert all(f"─ {name} ─" in shown for name in ("W_Q", "W_K", "W_V", "Q", "K", "V"))


def test_a_copy_is_told_where_it_is_asked_for():
    assert "X is embeddings as it is." in call("run", "I love AI", "--story", "--step", "X")[1]


@pytest.mark.parametrize(("width", "beside"), [(100, True), (60, False)])
def test_on_a_terminal_the_matrix_stands_beside_or_above_its_words(width, beside):
    output = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    told = story(attnctl.run("I love AI"), ["attention_weights"])
    print_view(lambda screen: story_lines(told, screen), output)
    (row,) = [line for line in output.file.getvalue().splitlines() if "0.7124" in line]
    assert row.endswith("│") == (not beside)
    assert max(map(len, output.file.getvalue().splitlines())) <= width


def test_a_dump_is_told_like_its_run(tmp_path):
    _, told, _ = call("run", "I love AI", "--causal", "--story")
    call("run", "I love AI", "--causal", "-o", str(tmp_path / "x.npz"))
    assert call("show", str(tmp_path / "x.npz"), "--story")[1] == told


@pytest.mark.parametrize(
    ("steps", "said"),
    [("X,V,W_O", "W_O is drawn"), ("output,d_X_through_K", "Through K, a small increase of X[1,0]")],
)
def test_a_dump_of_a_few_steps_is_told(tmp_path, steps, said):
    call("run", "I love AI", "--backward", "--step", steps, "-o", str(tmp_path / "x.json"))
    code, out, _ = call("show", str(tmp_path / "x.json"), "--story")
    assert code == 0
    assert said in " ".join(out.split())


def test_some_steps_are_told_alone():
    _, out, _ = call("run", "I love AI", "--story", "--step", "scores,attention_weights")
    assert re.findall(r"^(\d/\d) (\w+)", out, re.MULTILINE) == [
        ("1/2", "scores"),
        ("2/2", "attention_weights"),
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--json"], "--story: it is text on stdout; leave out other formats and -o"),
        (["-o", "x.json"], "--story: it is text on stdout; leave out other formats and -o"),
        (["--head", "0"], "--head: only tables and pictures have that; leave it out with --story"),
        (
            ["--precision", "2"],
            "--precision: only tables and pictures have that; leave it out with --story",
        ),
        (["--heat"], "--heat: only tables and pictures have that; leave it out with --story"),
        (["--cost"], "--cost: nothing is computed that could be told; leave out --story"),
    ],
)
def test_what_does_not_go_with_it_is_refused(args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("run", "I love AI", "--story", *args)
    assert (code, out) == (2, "")
    assert message in err
    assert not list(tmp_path.iterdir())


class Terminal:
    """A process on a terminal of its own."""

    def __init__(self, *args, **environ):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "attnctl", *args], stdin=slave, stdout=slave, stderr=slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", **environ},
            start_new_session=True,  # with a terminal of its own, as a shell gives one
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )  # fmt: skip
        os.close(slave)
        self.seen, self.at = "", 0

    def until(self, text, seconds=60):
        """Read on until a text is there; what came before it."""
        end = time.monotonic() + seconds
        while text not in self.seen[self.at :]:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            assert ready, f"{text!r} did not come: {self.seen!r}"
            self.seen += os.read(self.master, 4096).decode(errors="replace")
        start, self.at = self.at, self.seen.index(text, self.at) + len(text)
        return self.seen[start : self.at]

    def type(self, text):
        os.write(self.master, text.encode())

    def end(self):
        return self.process.wait(timeout=600)


@pytest.fixture
def terminal():
    """Starts a process on a terminal; none is left over."""
    started = []

    def start(*args, **environ):
        started.append(Terminal(*args, **environ))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
        os.close(each.master)


def test_on_a_terminal_enter_goes_on_and_q_ends(terminal):
    terminal = terminal("run", "I love AI", "--story")
    assert "2/9" not in terminal.until("q: end")
    terminal.type("\n")
    assert "2/9" in terminal.until("q: end")
    terminal.type("q\n")
    assert terminal.end() == 0
    assert "3/9" not in terminal.seen


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("colour", "ink_on_blue"), [("ffff/ffff/ffff", "231;48;5;18m"), ("0/0/0", "16;48;5;159m")]
)
def test_a_terminal_is_asked_for_its_background(terminal, colour, ink_on_blue):
    terminal = terminal(
        "run", "I love AI", "--step", "attention_weights", TERM="xterm-256color", COLORTERM=""
    )
    terminal.until("\x1b]11;?\x1b\\\x1b[c")
    terminal.type(f"\x1b]11;rgb:{colour}\x1b\\\x1b[?6c")
    terminal.until(f"{ink_on_blue} 0.7124")
    assert terminal.end() == 0


def test_a_lesson_on_a_terminal(terminal, tmp_path):
    terminal = terminal("learn", XDG_DATA_HOME=str(tmp_path))
    terminal.until("> ")
    for typed, answered in [
        ("5\n", "Not right yet"),
        ("hint\n", "The vocabulary begins"),
        ("\n", "Type an answer"),
        ("4\n", "position-for-id"),
        ("2\n", "Right."),
    ]:
        terminal.type(typed)
        terminal.until(answered)
        terminal.until("> ")
    terminal.type("\n")
    assert "2.1066" in terminal.until("Which number is")
    terminal.type("q\n")
    assert terminal.end() == 0
    assert '"tokens": 3' in (tmp_path / "attnctl" / "progress.json").read_text()
