"""python -m attnctl."""

from attnctl.cli import main

main()
