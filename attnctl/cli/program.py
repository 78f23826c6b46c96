"""The whole command line as a function: arguments and streams in, an exit code out."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from typing import TYPE_CHECKING, TextIO

from attnctl import __version__
from attnctl.errors import AttnError, Exit, PipeClosed

if TYPE_CHECKING:
    from typer import TyperException

REPORT = "this is a bug in attnctl; please report it with what --debug prints (attnctl --debug COMMAND …)"


def program(
    args: Sequence[str],
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
) -> Exit:
    """Carry out one command line; the streams are the process's own unless handed in."""
    # One BLAS thread: toy matrices gain nothing from more, and an idle worker spins.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ExitStack() as stack:
        if stdout is not None:
            stack.enter_context(redirect_stdout(stdout))
        if stderr is not None:
            stack.enter_context(redirect_stderr(stderr))
        if stdin is not None:
            stack.callback(setattr, sys, "stdin", sys.stdin)
            sys.stdin = stdin
        try:
            code = guarded(list(args))
            sys.stdout.flush()
        except (BrokenPipeError, PipeClosed):
            code = abandon_stdout()
        return code


def guarded(args: list[str]) -> Exit:
    """Run a command; say what went wrong in one place, on stderr, with the exit code it deserves."""
    debug = "--debug" in args[:1]
    try:
        return command(args[1:] if debug else args)
    except (BrokenPipeError, PipeClosed):
        raise
    except AttnError as error:
        for problem in error.problems:
            complain(problem)
        return Exit.USAGE
    except KeyboardInterrupt:
        complain("interrupted")
        return Exit.INTERRUPTED
    except MemoryError:
        complain("not enough memory; make the run smaller, or keep fewer steps with --step")
        return Exit.USAGE
    except Exception as error:
        if debug:
            raise
        complain(f"{type(error).__name__}: {error}; {REPORT}")
        return Exit.BUG


def command(args: list[str]) -> Exit:
    """Parse and dispatch."""
    if args == ["--version"]:  # without the weight of a parser
        sys.stdout.write(f"attnctl {__version__}\n")
        return Exit.OK
    from typer import TyperException

    from attnctl.cli.app import app

    try:
        return Exit(app(args, prog_name="attnctl", standalone_mode=False) or 0)
    except TyperException as error:
        complain(usage(error, args))
        return Exit.USAGE


def usage(error: TyperException, args: list[str]) -> str:
    """What was wrong with the command line, and where its help is."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "attnctl"
    hint = ""
    if any(arg.startswith("-") and " " in arg for arg in args):
        hint = '; put "--" before a sentence that starts with "-"'
    message = error.format_message().rstrip(".")
    return f"{path}: {message}{hint} (see {path} --help)"


def complain(message: str) -> None:
    """Say it on stderr, as text: whatever it holds, the terminal is not told to do anything."""
    from attnctl.render.text import visible

    sys.stderr.write(f"attnctl: {visible(message)}\n")


def abandon_stdout() -> Exit:
    """Nobody reads any more: end quietly, and keep the interpreter from flushing into the void."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.BROKEN_PIPE
