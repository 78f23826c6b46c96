"""The command line. `program` is all of it as a function; `main` is what the shell starts."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process and exit with its code."""
    from attnctl.cli.program import program

    sys.exit(program(sys.argv[1:]))
