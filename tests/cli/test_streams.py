"""Streams: whoever stops reading, closes, fills up or interrupts gets a quiet, documented end."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

PIPED = [
    "run 'I love AI' --file lines.txt",
    "run 'I love AI' --file lines.txt --json",
    "run 'I love AI' --file lines.txt --format csv",
    "run 'I love AI' --file lines.txt --format jsonl",
    "run 'I love AI' --file lines.txt --format markdown",
    "attend big.npz",
    "attend big.npz --json",
    "show big.json",
    "show big.json --format csv",
    "show big.json --format markdown",
    "explain big.json 'output[0,0]' --depth 9",
    "explain big.json 'output[0,0]' --depth 9 --json",
    "diff big.json other.json --json",
    "stats big.json big.json big.json --rollout --json",
]
WRITING = [
    *("run I", "run I --json", "run I --format csv", "run I --format jsonl", "run I --format markdown"),
    *("run I --cost", "run I --help", "--help", "--version", "config schema", "config init"),
    *("show one.json", "explain one.json 'X[0,0]'", "diff one.json one.json", "check one.json"),
    *(
        "stats one.json",
        "attend big.npz --json",
        "config check configs/i-love-ai.yaml",
        "check one.json --json",
    ),
]


@pytest.fixture
def workplace(workplace):
    """The real executable: streams and signals are what this is about."""
    return workplace.real()


@pytest.fixture
def stocked(workplace):
    """A workplace with dumps whose every rendering is larger than a pipe holds."""
    (workplace.folder / "lines.txt").write_text("I love AI and AI loves me back today\n" * 60)
    words = " ".join(f"w{i}" for i in range(90))
    big = f"attnctl run '{words}' --d-model 32 --heads 4"
    script = f"{big} -o big.json -o big.npz; {big} --seed 1 -o other.json; attnctl run I -o one.json"
    assert workplace.shell(script).returncode == 0
    return workplace


@pytest.mark.slow
@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_pipe_that_closes_ends_every_verb_quietly(stocked, buffered):
    script = "; ".join(f"attnctl {each} | head -n 1 >/dev/null; echo ${{PIPESTATUS[0]}}" for each in PIPED)
    done = stocked.shell(script, PYTHONUNBUFFERED=buffered)
    codes = dict(zip(PIPED, done.stdout.split(), strict=True))
    # What fits into the pipe at once may have been written before its reader left.
    assert {each: code for each, code in codes.items() if code not in {b"141", b"0", b"1"}} == {}
    assert sum(code == b"141" for code in codes.values()) >= len(PIPED) - 3
    assert done.stderr == b""


def test_a_reader_that_stops_gets_141_and_nothing_else(workplace):
    for kind in ("table", "json", "csv", "markdown"):
        args = f"run -c configs/base-transformer.yaml --format {kind}"
        done = workplace.shell(f"attnctl {args} | head -n 1 >/dev/null; echo ${{PIPESTATUS[0]}}")
        assert (kind, done.stdout, done.stderr) == (kind, b"141\n", b"")


def each_ends_so(workplace, commands, redirection, reason):
    """Hold every command to one message and exit 2 when its stdout is redirected so."""
    script = "; ".join(f"attnctl {each} {redirection}; echo $? >&2" for each in commands)
    done = workplace.shell(script)
    expected = f"attnctl: standard output: cannot be written: {reason}\n2\n" * len(commands)
    assert (done.stdout, done.stderr.decode()) == (b"", expected)


FULL = (">/dev/full", "No space left on device")
CLOSED = (">&-", "Bad file descriptor")


@pytest.mark.sample(2)
@pytest.mark.parametrize(("redirection", "reason"), [FULL, CLOSED])
def test_a_stdout_that_takes_nothing_is_one_message(workplace, redirection, reason):
    each_ends_so(workplace, ["run I", "run I --json", "--version", "--help"], redirection, reason)


@pytest.mark.slow
@pytest.mark.parametrize(("redirection", "reason"), [FULL, CLOSED])
def test_every_verb_says_that_stdout_takes_nothing(stocked, redirection, reason):
    each_ends_so(stocked, WRITING, redirection, reason)


@pytest.mark.sample(2)
@pytest.mark.parametrize("args", ["run -", "run -c -", "show -", "check -"])
def test_a_stdin_that_is_closed_is_one_message(workplace, args):
    done = workplace.shell(f"attnctl {args} <&-")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert b"Bad file descriptor" in done.stderr


@pytest.mark.sample(2)
@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_a_stderr_that_takes_nothing_changes_no_exit_code(workplace, redirection):
    done = workplace.shell(
        f"attnctl run '' {redirection}; echo $?; attnctl run I --json {redirection} | jq .ids[0]"
    )
    assert (done.stdout, done.stderr) == (b"2\n0\n", b"")


def test_a_file_does_not_take_the_number_of_a_closed_stream(workplace):
    done = workplace.shell(
        "attnctl run I -o x.json >&- 2>&- <&-; attnctl run '' -o x.json >&- 2>&- <&-; echo $?"
    )
    assert done.stdout == b"2\n"
    assert json.loads((workplace.folder / "x.json").read_text())["tokens"] == ["I"]


def test_data_and_messages_do_not_mix(workplace):
    (workplace.folder / "c.yaml").write_text("rules: [{mask: [[0, 0], [1, 1]]}]\n")
    done = workplace.run("run", "I love", "-c", "c.yaml", "--json")
    assert json.loads(done.stdout)["empty_rows"] == [[0, 0]]
    assert done.stderr.startswith(b"attnctl: warning: ")
    assert done.stderr.count(b"\n") == 1


LONG = ("run", "-", "--d-model", "256", "--heads", "8")


def started(workplace, *args, tokens):
    """A run that takes many seconds on any machine, begun."""
    (workplace.folder / "old.npz").write_bytes(b"old")
    process = subprocess.Popen(
        ["attnctl", *args], cwd=workplace.folder, env=workplace.environ,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdin.write(b" ".join(b"t%d" % i for i in range(tokens)) + b"\n")
    process.stdin.close()
    process.stdin = None
    return process


def wait_for(condition):
    """Wait until it holds, ten minutes at most."""
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


INTERRUPTED = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = {args!r}
from attnctl.cli import main
main()
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("attnctl.cli.program", []),
        ("contextlib", []),
        ("typer", ["--help"]),
        ("attnctl.cli.app", ["--help"]),
        ("attnctl.cli.run", []),
        ("numpy", []),
    ],
)
def test_an_interrupt_of_an_import_is_130_and_no_traceback(workplace, name, more):
    script = INTERRUPTED.format(name=name, args=["run", "I love AI", "-o", "x.json", *more])
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=workplace.folder, capture_output=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"attnctl: interrupted\n")
    assert not (workplace.folder / "x.json").exists()


def test_an_interrupt_that_the_shell_ignores_is_ignored(workplace):
    script = INTERRUPTED.format(name="numpy", args=["run", "I love AI", "--step", "output"])
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{script}"
    done = subprocess.run(
        [sys.executable, "-c", ignoring],
        cwd=workplace.folder,
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("seconds", [1.5, pytest.param(2.5, marks=pytest.mark.slow)])
def test_an_interrupt_is_130_within_a_second(workplace, seconds):
    process = started(workplace, *LONG, "--step", "output", "-o", "old.npz", tokens=30_000)
    time.sleep(seconds)
    assert process.poll() is None
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    said, messages = process.communicate(timeout=600)
    took = time.monotonic() - began
    assert (process.returncode, said) == (130, b"")
    assert messages in {b"", b"attnctl: interrupted\n"}
    assert took < 1.5 * max(os.getloadavg()[0] / os.cpu_count(), 1)
    assert (workplace.folder / "old.npz").read_bytes() == b"old"
    assert not list(workplace.folder.glob(".attnctl-*"))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_during_a_write_leaves_the_old_file(workplace, number, code):
    args = ("run", "-", "--d-model", "4", "--step", "attention_weights", "-o", "old.json")
    (workplace.folder / "old.json").write_bytes(b"old")
    process = started(workplace, *args, tokens=6_000)
    wait_for(lambda: any(path.stat().st_size > 10**6 for path in workplace.folder.glob(".attnctl-*")))
    process.send_signal(number)
    process.communicate(timeout=600)
    assert process.returncode == code
    assert (workplace.folder / "old.json").read_bytes() == b"old"
    assert not list(workplace.folder.glob(".attnctl-*"))


def test_a_fifo_is_read_and_written(workplace):
    os.mkfifo(workplace.folder / "pipe")
    done = workplace.shell("attnctl run I --json > pipe & attnctl show pipe --json | jq -r .sentence")
    assert (done.stdout, done.stderr) == (b"I\n", b"")


def test_what_others_leave_for_the_end_of_the_process_is_done():
    """Our end is not Python's: code, streams and `atexit` are as there."""
    script = "import atexit, sys; from attnctl.cli import main; atexit.register(print, 'last', end='')\n"
    script += "sys.argv = ['attnctl', *sys.argv[1:]]; main()"
    for args, code in ((["--version"], 0), (["run", "--no-such-option"], 2)):
        done = subprocess.run([sys.executable, "-c", script, *args], capture_output=True, check=False)
        assert (done.returncode, done.stdout.endswith(b"last"), bool(done.stderr)) == (
            code,
            True,
            code == 2,
        )
