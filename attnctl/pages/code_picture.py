"""What a check found as a picture, for a pull request: the wrong lines, a card for each mistake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

from attnctl.drawing.pictures.draw import Picture, element, escape_xml, plain_document, text_width, writers
from attnctl.drawing.pictures.png import MONO_NAME
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.text import visible
from attnctl.pages.cards import (
    FoundCard,
    capitalised,
    cards_of,
    heading_of,
    names_of_files,
    pattern_of,
    place_words,
)
from attnctl.pages.program import CodeLine, code_lines, listing_of, shown_near, wrong_places
from attnctl.verbs.check.report import CheckedTrace, Report
from attnctl.verbs.check.view import format_number, lines_of_checked

WIDTH = 1000.0
MARGIN = 24.0
INK = "#16191d"
QUIET = "#57606a"
FRAME = "#d8dde3"
WRONG = "#c4006a"
WRONG_PAPER = "#fdeaf3"
RIGHT = "#0f7b53"
RIGHT_PAPER = "#e4f5ed"

CODE = 13.0
"""The size of the letters of a program."""
LETTER = 0.602 * CODE
LINE = 21.0
GUTTER = 62.0
"""From the frame of a program to its text."""

BODY = 14.0
MOST_CARDS = 12
"""Mistakes that one picture tells."""

CROSS = "M-4,-4L4,4M-4,4L4,-4"
TICK = "M-4.5,0.5L-1.5,4L4.5,-4"

STYLES = {"wrong": (WRONG, WRONG_PAPER), "gone": (WRONG, WRONG_PAPER), "new": (RIGHT, RIGHT_PAPER)}
"""By kind of line the colours of its mark, and of its paper."""


class CodeDrawing:
    """The parts of a picture, from the top down."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.y = MARGIN

    def text(self, words: str, x: float, *, size: float = BODY, **more: object) -> None:
        place: dict[str, Any] = {"x": x, "y": self.y, "font_size": size, **more}
        self.parts.append(element("text", escape_xml(words), **place))

    def paragraph(self, words: str, x: float, *, size: float = BODY, **more: object) -> None:
        """Words, going on below where they do not fit."""
        letters = int((WIDTH - MARGIN - x) / text_width("n", size * 0.93))
        for line in wrap(words, letters) or [""]:
            self.y += size + 2
            self.text(line, x, size=size, **more)
            self.y += 4

    def sign(self, path: str, x: float, y: float, colour: str, scale: float = 1.0) -> None:
        place = f"translate({x:.1f} {y:.1f})scale({scale:.2f})"
        stroke: dict[str, Any] = {"stroke": colour, "stroke_width": 1.8, "fill": "none"}
        self.parts.append(element("path", d=path, transform=place, **stroke))

    def badge(self, number: int, x: float, y: float) -> None:
        self.parts.append(element("circle", cx=x, cy=y, r=9.0, fill=WRONG))
        place: dict[str, Any] = {
            "x": x,
            "y": y + 4,
            "text_anchor": "middle",
            "font_size": 11.0,
            "fill": "#ffffff",
        }
        self.parts.append(element("text", str(number), **place))


def check_picture(found: Sequence[Report | CheckedTrace]) -> Picture:
    checked = [each for each in found if isinstance(each, CheckedTrace)]
    reports = [each for each in found if isinstance(each, Report)]
    reports += [each.report for each in checked if each.report]
    names = names_of_files(reports)
    cards = cards_of(reports)

    drawing = CodeDrawing()
    heading = heading_of(reports, names) or first_line(checked, reports)
    draw_heading(drawing, heading, is_wrong=bool(cards))
    listing = listing_of(reports)
    if listing:
        for file in dict.fromkeys(each.file for each in wrong_places(reports)):
            draw_code(drawing, names.get(file, file), code_lines(file, listing, reports))
    for card in cards[:MOST_CARDS]:
        draw_card(drawing, card, place_words(card, names, several=len(reports) > 1))
    if len(cards) > MOST_CARDS:
        drawing.paragraph(f"and {len(cards) - MOST_CARDS} more", MARGIN, fill=QUIET)
    size = int(WIDTH), int(drawing.y + MARGIN)
    return Picture(plain_document(heading, drawing.parts, size, fill=INK), *size)


write_svg, write_png = writers(check_picture)


def first_line(checked: Sequence[CheckedTrace], reports: Sequence[Report]) -> str:
    """The verdict in a sentence."""
    if checked:
        (first, *_) = lines_of_checked(checked, Screen())
        return "".join(span[0] for span in first) if isinstance(first, list) else str(first)
    return str(reports[0]).partition("\n")[0]


def draw_heading(drawing: CodeDrawing, heading: str, *, is_wrong: bool) -> None:
    drawing.y += 12
    if is_wrong:
        drawing.sign(CROSS, MARGIN + 7, drawing.y - 6, WRONG, 1.6)
    elif heading.startswith("agree") or " agree" in heading:
        drawing.sign(TICK, MARGIN + 7, drawing.y - 6, RIGHT, 1.6)
    for line in wrap(heading, 80):
        drawing.text(line, MARGIN + 24, size=20.0, font_weight="bold")
        drawing.y += 26


# --- the program ---


def draw_code(drawing: CodeDrawing, name: str, lines: Sequence[CodeLine]) -> None:
    """The lines near what is wrong, in a frame under the name of their file."""
    drawing.y += 12
    drawing.text(name, MARGIN + 10, size=13.0, font_weight="bold")
    drawing.y += 8
    top = drawing.y
    for block in shown_near(lines):
        if block is None:
            drawing.y += LINE
            drawing.text("…", MARGIN + GUTTER, size=CODE, fill=QUIET, y=drawing.y - 6)
        else:
            draw_line(drawing, block)
    frame: dict[str, Any] = {
        "x": MARGIN,
        "y": top,
        "width": WIDTH - 2 * MARGIN,
        "height": drawing.y - top + 4,
    }
    drawing.parts.append(element("rect", **frame, rx=5.0, fill="none", stroke=FRAME))
    drawing.y += 14


def draw_line(drawing: CodeDrawing, line: CodeLine) -> None:
    """A line of a program in as many rows as it needs: its number, its sign, its text, its cards."""
    ink, paper = STYLES.get(line.kind, (INK, ""))
    letters = int((WIDTH - 2 * MARGIN - GUTTER - 60) / LETTER)
    rows = [*rows_of(line, letters)]
    if paper:
        frame: dict[str, Any] = {
            "x": MARGIN,
            "y": drawing.y,
            "width": WIDTH - 2 * MARGIN,
            "height": LINE * len(rows),
        }
        drawing.parts.append(element("rect", **frame, fill=paper))
        drawing.parts.append(element("rect", **{**frame, "width": 3.0}, fill=ink))

    middle = drawing.y + LINE / 2
    if line.number is not None:
        number: dict[str, Any] = {
            "text_anchor": "end",
            "fill": QUIET,
            "font_family": MONO_NAME,
            "y": middle + 4,
        }
        drawing.text(str(line.number), MARGIN + 36, size=CODE, **number)
    if line.kind == "wrong":
        drawing.sign(CROSS, MARGIN + 48, middle, WRONG)
    elif line.kind:
        drawing.text("+" if line.kind == "new" else "−", MARGIN + 44, size=CODE, fill=ink, y=middle + 4)
    for place, badge in enumerate(line.badges):
        drawing.badge(badge, WIDTH - MARGIN - 18 - 22 * place, middle)

    for row in rows:
        draw_row(drawing, row, line.kind, ink)
        drawing.y += LINE


Row = Sequence[tuple[str, bool]]


def rows_of(line: CodeLine, letters: int) -> Iterator[Row]:
    """The parts of a line, cut where a row is full; what goes on stands further in."""
    row: list[tuple[str, bool]] = []
    room = letters
    for part, is_meant in line.parts:
        rest = visible(part.replace("\t", "    ").rstrip("\r"))
        while len(rest) > room:
            row.append((rest[:room], is_meant))
            yield row
            rest = rest[room:]
            row = [("    ", False)]
            room = letters - 4
        row.append((rest, is_meant))
        room -= len(rest)
    yield row


def draw_row(drawing: CodeDrawing, row: Row, kind: str, ink: str) -> None:
    x = MARGIN + GUTTER
    base = drawing.y + LINE / 2 + 4
    for words, is_meant in row:
        width = LETTER * len(words)
        colour = ink if is_meant and kind in {"gone", "new"} else INK
        place: dict[str, Any] = {
            "y": base,
            "font_family": MONO_NAME,
            "fill": colour,
            "xml:space": "preserve",
        }
        if words.strip():
            drawing.text(words, x, size=CODE, textLength=width, **place)
        if is_meant and kind in {"gone", "wrong"}:
            height = base - 4 if kind == "gone" else base + 4
            drawing.parts.append(element("rect", x=x, y=height, width=width, height=1.3, fill=WRONG))
        x += width


# --- cards ---


def draw_card(drawing: CodeDrawing, card: FoundCard, where: str) -> None:
    finding = card.finding
    top = drawing.y
    drawing.y += 4
    drawing.badge(card.number, MARGIN + 14, drawing.y + 16)
    x = MARGIN + 34
    drawing.paragraph(where, x, size=12.0, fill=QUIET)
    if finding.words:
        drawing.paragraph(f"{capitalised(finding.words)}.", x, size=15.0, font_weight="bold")
        drawing.paragraph(f"Instead {finding.fix}.", x, fill=RIGHT)
    else:
        drawing.paragraph(f"{finding.step} is wrong.", x, size=15.0, font_weight="bold")

    gap = finding.gap
    numbers = f"found {format_number(gap.found)}, expected {format_number(gap.expected)}"
    drawing.paragraph(f"{finding.step}: {numbers}; {gap.differing} of {gap.filled} numbers differ.", x)
    for words in (pattern_of(card.report, finding), *finding.hint.split("\n")):
        if words:
            drawing.paragraph(words, x, fill=QUIET)
    drawing.y += 6
    frame: dict[str, Any] = {"x": MARGIN, "y": top, "width": WIDTH - 2 * MARGIN, "height": drawing.y - top}
    drawing.parts.append(element("rect", **frame, rx=5.0, fill="none", stroke=FRAME))
    drawing.y += 12
