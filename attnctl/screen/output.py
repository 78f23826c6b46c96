"""Where lines go: a Rich console on a terminal, plain text everywhere else.

Rich is imported only when there is a console. A pipe or a file needs none of it, which is a fifth
of the time that a short run takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TextIO

from attnctl.screen.screen import Line, Screen, Span

if TYPE_CHECKING:
    from rich.console import Console
    from rich.style import Style

CHUNK = 256
"""Lines that a console is given at a time."""

DEFAULT_WIDTH = 80

NO_CODES = ("", "")

NEW_LINE: Span = ("\n", "")


class Plain(NamedTuple):
    """A stream that is no terminal: plain text, nothing cut; `width` only places heads side by side."""

    stream: TextIO
    width: int = DEFAULT_WIDTH


def output_for(stream: TextIO, environ: Mapping[str, str]) -> Console | Plain:
    """What to draw on for this stream: NO_COLOR, FORCE_COLOR, COLUMNS and TERM as people expect them."""
    forced = environ.get("FORCE_COLOR", "") not in {"", "0", "false"}
    if stream.isatty() or forced:
        from rich.console import Console

        class Terminal(Console):
            """A console that lets a broken pipe be somebody else's business."""

            def on_broken_pipe(self) -> None:
                raise  # noqa: PLE0704 - called while BrokenPipeError is handled

        return Terminal(
            file=stream,
            force_terminal=True,
            no_color=bool(environ.get("NO_COLOR")) or environ.get("FORCE_COLOR") in {"0", "false"},
            highlight=False,
            markup=False,
            emoji=False,
            _environ=environ,
        )
    columns = environ.get("COLUMNS", "")
    return Plain(stream, int(columns) if columns.isdecimal() and int(columns) else DEFAULT_WIDTH)


def screen_of(output: Console | Plain) -> Screen:
    """How wide it is, whether it is a terminal, what it can spell, whether it has colours."""
    if isinstance(output, Plain):
        return Screen(output.width, encoding=output.stream.encoding or "utf-8")
    colours = output.color_system is not None and not output.no_color
    return Screen(output.width, output.is_terminal, output.encoding, colours)


def print_lines(lines: Iterable[Line], output: Console | Plain) -> None:
    """Write the lines as they come: what is in memory stays small whatever is printed."""
    if isinstance(output, Plain):
        output.stream.writelines("".join([text for text, _ in line]) + "\n" for line in lines)
        return
    rest = iter(lines)
    while chunk := list(islice(rest, CHUNK)):
        print_styled(chunk, output)


def print_styled(lines: Iterable[Line], console: Console) -> None:
    """Write the lines on a Rich console, neither wrapped nor cropped.

    Codes are put around each span here, as Rich would: a segment a span takes twice as long. A
    console that records, or that needs calls in place of codes, still gets its segments.
    """
    from rich.segment import Segment, Segments

    system = (console.color_system or "") if screen_of(console).colours else ""
    spans = (span for line in lines for span in (*line, NEW_LINE))
    if console.record or console.legacy_windows:
        styles = rich_styles(system)
        segments = [Segment(text, styles.get(style) if system else None) for text, style in spans]
    else:
        codes = ansi_codes(system)
        coded = (text.join(codes.get(style, NO_CODES)) for text, style in spans)  # before + text + after
        segments = [Segment("".join(coded))]
    console.print(Segments(segments), end="", crop=False)


@lru_cache(maxsize=4)
def rich_styles(color_system: str) -> dict[str, Style]:
    """A Rich style for each name, the ramp of attention weights as this terminal can show it."""
    from rich.style import Style

    from attnctl.screen.palette import STYLES, ramp

    named = {"": "", **STYLES, **{f"heat{i + 1}": style for i, style in enumerate(ramp(color_system))}}
    return {name: Style.parse(style) for name, style in named.items()}


@lru_cache(maxsize=4)
def ansi_codes(color_system: str) -> dict[str, tuple[str, str]]:
    """The codes before and after a text of each style; none where there are no colours."""
    from rich.console import COLOR_SYSTEMS

    system = COLOR_SYSTEMS.get(color_system)
    parted = {
        name: style.render("x", color_system=system).partition("x")
        for name, style in rich_styles(color_system).items()
    }
    return {name: (before, after) for name, (before, _, after) in parted.items()}
