"""Print lines and tables: to a Rich console on a terminal, as plain text everywhere else.

Rich is imported only when there is a console. A pipe or a file needs none of it, which is a fifth
of the time that a short run takes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

from attnctl.base.namedtuple import NamedTuple
from attnctl.drawing.screen import Frame, Line, Screen, element_lines
from attnctl.drawing.screen.text import safe, shell_line

if TYPE_CHECKING:
    from rich.console import Console

Element = Line | Frame

CHUNK = 256  # lines that a console is given at a time
DEFAULT_WIDTH = 80


class PlainOutput(NamedTuple):
    """A stream that is no terminal: plain text, nothing cut; `width` only places heads side by side."""

    stream: TextIO
    width: int = DEFAULT_WIDTH


def text_of_view(lines: Callable[[Any, Screen], Iterable[Element]], value: Any) -> str:
    return "\n".join(plain_text(lines(value, Screen()))).rstrip("\n")


def output_for(stream: TextIO, environ: Mapping[str, str]) -> Console | PlainOutput:
    """Open an output for a stream; NO_COLOR, FORCE_COLOR, COLUMNS and TERM act as people expect."""
    if stream.isatty() or environ.get("FORCE_COLOR", "") not in {"", "0", "false"}:
        from rich.console import Console

        console = Console(
            file=stream,
            force_terminal=True,
            no_color=bool(environ.get("NO_COLOR")) or environ.get("FORCE_COLOR") in {"0", "false"},
            highlight=False,
            markup=False,
            emoji=False,
            _environ=environ,
        )
        console.on_broken_pipe = leave_to_caller  # type: ignore[method-assign]
        return console
    columns = environ.get("COLUMNS", "")
    return PlainOutput(stream, int(columns) if columns.isdecimal() and int(columns) else DEFAULT_WIDTH)


def leave_to_caller() -> None:
    raise  # noqa: PLE0704 - called while BrokenPipeError is handled


def screen_of(output: Console | PlainOutput) -> Screen:
    if isinstance(output, PlainOutput):
        return Screen(output.width, encoding=output.stream.encoding or "utf-8")
    colours = output.color_system is not None and not output.no_color
    shades = colours and output.color_system in {"truecolor", "256"}
    return Screen(output.width, output.is_terminal, output.encoding, colours, shades, output.height)


def plain_text(elements: Iterable[Element]) -> Iterator[str]:
    for element in elements:
        for line in element_lines(element):
            yield safe("".join([text for text, _ in line]))


def say(*lines: str, stream: TextIO | None = None, end: str = "\n") -> None:
    """Write lines of text, on stdout unless a stream is given; no terminal is told to do anything."""
    stream = sys.stdout if stream is None else stream
    stream.write("\n".join(map(safe, lines)) + end)
    stream.flush()


def print_view(
    view: Callable[[Screen], Iterable[Element]],
    output: Console | PlainOutput | None = None,
    *,
    full: bool = False,
) -> None:
    """Print a view for the screen that standard output is, or another; `full` shortens nothing on it."""
    output = output_for(sys.stdout, os.environ) if output is None else output
    screen = screen_of(output)
    print_lines(view(screen._replace(fits=screen.fits and not full)), output)


def with_next(
    view: Callable[[Screen], Iterable[Element]], command: Sequence[str]
) -> Callable[[Screen], Iterator[Element]]:
    """The view, and on a terminal the command that goes on from there, in one line that can be copied."""

    def lines(screen: Screen) -> Iterator[Element]:
        yield from view(screen)
        if screen.fits and command:
            yield []
            yield [("next: ", "aside"), (shell_line(command), "")]

    return lines


def print_lines(elements: Iterable[Element], output: Console | PlainOutput) -> None:
    """Write lines and tables as they come: what is in memory stays small whatever is printed."""
    if isinstance(output, PlainOutput):
        output.stream.writelines(f"{line}\n" for line in plain_text(elements))
        return
    from attnctl.drawing.screen.palette import segments, styles_of

    styles = styles_of(output)
    if not output.is_terminal:
        elements = ([(line, "")] for line in plain_text(elements))
    lines = (line for element in elements for line in element_lines(element))
    while chunk := list(islice(lines, CHUNK)):
        output.print(segments(chunk, styles), crop=False)
