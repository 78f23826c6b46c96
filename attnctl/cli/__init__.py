"""The command line. `program` is all of it as a function; `main` is what the shell starts."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys

TYPE_CHECKING = False  # as in typing, which is not imported before an interrupt is heard
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn


def main() -> None:
    try:
        import signal

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have us ignore it
            signal.signal(signal.SIGINT, interrupt)
        gc.set_threshold(100_000)  # imports make many objects and no garbage: each look for it is in vain
        open_streams()
        from attnctl.cli.program import program

        code = int(program(sys.argv[1:]))
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is left is Python's own end
    except KeyboardInterrupt:  # before the program had begun to listen, or after it had ended
        leave()
    end(code)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; in an import, which may lose it or take it for a failure, leave at once."""
    writing = getattr(sys.modules.get("attnctl.base.files"), "UNFINISHED", ())
    while frame is not None and not writing:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            leave()
        frame = frame.f_back
    raise KeyboardInterrupt


def end(code: int) -> NoReturn:
    """End the process; Python would take all modules apart first, a twentieth of a toy run."""
    atexit._run_exitfuncs()  # noqa: SLF001  (what others asked for; there is no public name)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def leave() -> NoReturn:
    """End the process as one that was interrupted, without a word more of Python's."""
    show_cursor = b"\x1b[?25h" if os.isatty(2) else b""  # a progress bar may have hidden it
    try:
        os.write(2, show_cursor + b"attnctl: interrupted\n")
    finally:
        os._exit(130)


def open_streams() -> None:
    """Open the streams that the shell had closed (`>&-`): to use one is an error that can be told.

    Left closed, the next file to be opened would take its number. Each opens the wrong way round,
    so that reading and writing fail; only stderr swallows what it gets.
    """
    opened = (("stdin", os.O_WRONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w"))
    for name, flag, mode in opened:
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flag), mode, encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # what it cannot spell, it escapes
