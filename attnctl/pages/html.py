"""Tables and paragraphs as HTML, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from attnctl.drawing.screen.text import visible


def html_table(
    caption: str,
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
    *,
    words: bool = False,
) -> str:
    """A table with a heading for each row and column, and notes below; it scrolls by itself."""
    head = "".join(f'<th scope="col">{text(name)}</th>' if name else "<td></td>" for name in names)
    body = "\n".join(
        f'<tr><th scope="row">{text(first)}</th>{"".join(f"<td>{text(word)}</td>" for word in rest)}</tr>'
        for first, *rest in rows
    )
    kind = "texts" if words else "numbers"
    return (
        f'<section class="scroll" tabindex="0" aria-label="{text(caption)}"><table class="{kind}">'
        f"<caption>{text(caption)}</caption><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
        f"{html_paragraphs(notes)}</section>"
    )


def html_paragraphs(lines: Iterable[str]) -> str:
    return "".join(f'<p class="note">{text(line)}</p>' for line in lines)


def text(words: str) -> str:
    return escape(visible(words))
