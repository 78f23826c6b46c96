"""The command line. `program` is all of it as a function; `main` is what the shell starts."""

from __future__ import annotations

import gc
import io
import os
import sys


def main() -> None:
    """Run the command line of this process and exit with its code."""
    gc.set_threshold(100_000)  # imports make many objects and no garbage: each look for it is in vain
    try:
        open_streams()
        from attnctl.cli.program import program

        code = int(program(sys.argv[1:]))
    except KeyboardInterrupt:  # before the program had begun to listen, or after it had ended
        code = 130
    gc.freeze()  # or the collector walks all of NumPy once more before the process may end
    sys.exit(code)


def open_streams() -> None:
    """Open the streams that the shell had closed (`>&-`): to use one is an error that can be told.

    Left closed, the next file to be opened would take its number. Each opens the wrong way round,
    so that reading and writing fail; only stderr swallows what it gets.
    """
    for name, flag, mode in (
        ("stdin", os.O_WRONLY, "r"),
        ("stdout", os.O_RDONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flag), mode, encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # what it cannot spell, it escapes
