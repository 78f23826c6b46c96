"""The whole command line as a function: arguments and streams in, an exit code out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from functools import partial
from typing import TYPE_CHECKING, TextIO

from attnctl.base import __version__
from attnctl.base.errors import AttnError, Exit, PipeClosed, raise_all
from attnctl.base.files import OverwriteError, one_command
from attnctl.base.rooms import module_of_commands
from attnctl.cli.command import find_command
from attnctl.drawing.screen.output import say
from attnctl.drawing.screen.text import visible

if TYPE_CHECKING:
    from typer import TyperException

CAPTURE = "capture"  # the command of which most words are another program's
STATS = "stats"  # the command that was several
COMPLETING = "COMP_WORDS"  # in the environment where a shell asks for words
REPORT = "this is a bug in attnctl; please report it with what --debug prints (attnctl --debug COMMAND …)"


def program(
    args: Sequence[str],
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
) -> Exit:
    """Carry out one command line; the streams are the process's own unless handed in."""
    # One BLAS thread: toy matrices gain nothing from more, and an idle worker spins.
    if args[:1] != [CAPTURE]:  # whose program has its own environment
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
            with one_command():
                code = run_guarded(list(args))
            sys.stdout.flush()
        except (BrokenPipeError, PipeClosed):
            abandon(sys.stdout)
            code = Exit.BROKEN_PIPE
        except OSError as error:  # files say so themselves: this is a stream, full or closed
            complain(f"standard output: cannot be written: {error.strerror or error}")
            abandon(sys.stdout)
            code = Exit.USAGE
        return code


def run_guarded(args: list[str]) -> Exit:
    """Run a command; say what went wrong in one place, on stderr, with the exit code it deserves."""
    debug = "--debug" in args[:1]
    try:
        return command(args[1:] if debug else args)
    except (OSError, PipeClosed):
        raise
    except AttnError as error:
        complain(*error.problems)
        return Exit.USAGE
    except OverwriteError as error:
        complain(str(error))
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
    if args == ["--version"]:  # without the weight of a parser
        say(f"attnctl {__version__}")
        return Exit.OK
    raise_all(
        f"argument {number}: {arg[:80]!r} is not UTF-8; write it in the terminal's encoding"
        for number, arg in enumerate(args, start=1)
        if any("\ud800" <= char <= "\udfff" for char in arg)  # bytes that are no characters
    )
    if args[:1] in (["help"], ["version"]):  # as words, too
        args = [*args[1:], f"--{args[0]}"]
    if args[:1] == [STATS] and COMPLETING not in os.environ:
        from attnctl.cli.renamed import in_new_words, note_of

        new = in_new_words(args)
        if new != args:
            complain(note_of(new))
            args = new
    if COMPLETING not in os.environ:
        if args[:1] != [CAPTURE] and any(map(may_be_slip, args[1:])):
            from attnctl.cli.slips import refuse_slips

            refuse_slips(args)
        if (called := call_of(args)) is not None:
            return Exit(called())
    return ask_typer(args)


def call_of(args: list[str]) -> Callable[[], int] | None:
    """The call that the words ask for; None where Typer has to be asked, which is slow to import."""
    found = find_command(args)
    texts = found and found.command.texts_of(found.words)
    return None if found is None or texts is None else partial(found.command.run, **texts)


def ask_typer(args: list[str]) -> Exit:
    """Help, completion, or what is wrong with the words."""
    from typer import TyperException

    from attnctl.cli.app import app

    try:
        code = Exit(app(args, prog_name="attnctl", standalone_mode=False) or 0)
    except TyperException as error:
        complain(usage(error, args))
        return Exit.USAGE
    if code is Exit.INTERRUPTED:  # Typer turns KeyboardInterrupt into its exit code
        complain("interrupted")
    return code


def may_be_slip(word: str) -> bool:
    """True for what a sentence in quotes, a number and an option with two dashes never are."""
    if not word[:1].isascii():
        return True
    if word.startswith("-"):
        return word[1:2].isalpha()
    return " " not in word and not word.isdecimal()


def usage(error: TyperException, args: list[str]) -> str:
    """A usage error, with the command whose help explains it."""
    context = getattr(error, "ctx", None)
    told = ["attnctl", *(arg for arg in args[:1] if module_of_commands(arg))]
    path = context.command_path if context is not None else " ".join(told)
    dashed = any(arg.startswith("-") and " " in arg for arg in args)
    hint = '; put "--" before a sentence that starts with "-"' if dashed else ""
    place = path.removeprefix("attnctl").lstrip()
    message = error.format_message().rstrip(".")
    return f"{place}{': ' if place else ''}{message}{hint} (see {path} --help)"


def complain(*messages: str) -> None:
    """Say them on stderr, as text: whatever they hold, the terminal is not told to do anything."""
    try:
        for message in messages:
            say(f"attnctl: {visible(message)}", stream=sys.stderr)
    except OSError:  # nobody can be told; the exit code still tells
        abandon(sys.stderr)


def abandon(stream: TextIO) -> None:
    """Nothing can be written there any more: keep the interpreter from flushing what is left at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
