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

PATIENCE = 100_000
"""Objects that are made between two looks for garbage: of those that imports make none is any."""

INTERRUPTED = 130
SAID = b"attnctl: interrupted\n"


def main() -> None:
    try:
        import signal

        listen()
        gc.set_threshold(PATIENCE)
        open_streams()
        from attnctl.cli.program import program

        code = int(program(sys.argv[1:]))
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is left is Python's own end
    except KeyboardInterrupt:  # before the program had begun to listen, or after it had ended
        leave(INTERRUPTED, SAID)
    finally:
        clean_up()
    end(code)


def look_for_garbage() -> None:
    """Look for garbage as often as Python does by itself: cycles of a few objects may hold large arrays."""
    if gc.get_threshold()[0] == PATIENCE:
        gc.freeze()  # what was imported stays
        gc.set_threshold(700, 10, 10)


def listen() -> None:
    """Hear the signals that end a process, unless whoever started it has them ignored."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, terminate)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt."""
    if is_importing(frame):
        leave(INTERRUPTED, SAID)
    raise KeyboardInterrupt


def terminate(number: int, frame: FrameType | None) -> None:
    """End with the exit code that a shell gives a process ended by this signal."""
    if is_importing(frame):
        leave(128 + number)
    raise SystemExit(128 + number)


def is_importing(frame: FrameType | None) -> bool:
    """True in an import, which may lose what is raised, or take it for a failure of its own."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def clean_up() -> None:
    """End the programs that are running, and remove what is half written: nobody else will."""
    for module, name in (("base.programs", "kill_all"), ("base.files", "remove_unfinished")):
        remove = getattr(sys.modules.get(f"attnctl.{module}"), name, None)
        if remove is not None:  # it may not be imported, or not yet all of it
            remove()


def end(code: int) -> NoReturn:
    """End the process; Python would take all modules apart first, a twentieth of a toy run."""
    atexit._run_exitfuncs()  # noqa: SLF001  (what others asked for; there is no public name)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def leave(code: int, said: bytes = b"") -> NoReturn:
    """End the process at once, without a word more of Python's."""
    show_cursor = b"\x1b[?25h" if os.isatty(2) else b""  # a progress bar may have hidden it
    try:
        clean_up()
        os.write(2, show_cursor + said)
    finally:
        os._exit(code)


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
