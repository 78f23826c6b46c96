"""The screen that views draw on: its width, whether they must fit it, its characters and colours."""

from __future__ import annotations

from typing import NamedTuple

from attnctl.drawing.screen.text import cells, encodable, fold_text, shorten, token_text, visible

Span = tuple[str, str]
"""Text, and the name of its style ("" for none)."""

Line = list[Span]


class Box(NamedTuple):
    """The characters of a frame: a horizontal line has a left end, a dash, a divider and a right end."""

    top: str
    bar: str
    separator: str
    bottom: str


ROUND = Box("╭─┬╮", "│", "├─┼┤", "╰─┴╯")
ASCII = Box("+-++", "|", "+-++", "+-++")


class Screen(NamedTuple):
    """A terminal, where views are fitted to the width, or anything else, where they are whole."""

    width: int = 80
    fits: bool = False
    encoding: str = "utf-8"
    colours: bool = False
    shades: bool = False
    """Whether its colours are enough for heat maps."""

    @property
    def ascii_only(self) -> bool:
        """True where box drawing and symbols must do without Unicode."""
        return not self.encoding.lower().startswith("utf")

    @property
    def box(self) -> Box:
        return ASCII if self.ascii_only else ROUND

    @property
    def dot(self) -> str:
        return " | " if self.ascii_only else " · "

    def ours(self, text: str) -> str:
        """A formula, a caption: our own words, or what a file has in their place."""
        return encodable(visible(text), self.encoding)

    def token(self, token: str) -> str:
        """A token, nothing in it invisible."""
        return token_text(token, self.encoding)

    def short(self, text: str, width: int) -> str:
        """The text in at most `width` cells where views are fitted; whole elsewhere."""
        return shorten(text, width, self.ours("…")) if self.fits else text

    def flow(self, spans: Line, gap: str) -> list[Line]:
        """The spans one after the other, going on below (and folded) where views are fitted."""
        lines: list[Line] = [[]]
        used = 0
        for text, style in spans:
            if lines[-1] and (not self.fits or used + len(gap) + cells(text) <= self.width):
                lines[-1].append((gap, "" if gap.isspace() else "aside"))
                used += len(gap)
            elif lines[-1]:
                lines.append([("  ", "")])
                used = 2
            whole = not self.fits or used + cells(text) <= self.width
            first, *rest = [text] if whole else fold_text(text, max(1, self.width - max(used, 2)))
            lines[-1].append((first, style))
            lines += [[("  ", ""), (each, style)] for each in rest]
            used = cells(first) + used if not rest else 2 + cells(rest[-1])
        return lines

    def sentence(self, text: str, style: str = "") -> list[Line]:
        """Our own words, going on below where views are fitted."""
        return self.flow([(self.ours(word), style) for word in text.split()], " ")

    def left_out(self, count: int) -> str:
        """The words for what is not shown."""
        return self.ours(f"… {count} more")
