"""Tables and paragraphs as HTML, every text escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from attnctl.drawing.screen.text import visible


def html_table(
    caption: str,
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
    *,
    words: bool = False,
    kind: Callable[[str], str] = lambda _: "",
) -> str:
    """A table with a heading for each row and column, and notes below; it scrolls by itself.

    `kind` is the class of a cell, by its text: right or wrong.
    """
    head = "".join(map(column_heading, names))
    body = "\n".join(table_row(row, kind) for row in rows)
    title = text(caption)
    align = "texts" if words else "numbers"

    parts = [
        f'<section class="scroll" tabindex="0" aria-label="{title}">',
        f'<table class="{align}"><caption>{title}</caption><thead><tr>{head}</tr></thead>\n',
        f"<tbody>{body}</tbody></table>",
        html_paragraphs(notes),
        "</section>",
    ]
    return "".join(parts)


def column_heading(name: str) -> str:
    """Nothing above the headings of rows is no heading."""
    return f'<th scope="col">{text(name)}</th>' if name else "<td></td>"


def table_row(row: Sequence[str], kind: Callable[[str], str]) -> str:
    heading, *words = row
    cells = [f'<th scope="row">{text(heading)}</th>']
    for word in words:
        name = kind(word)
        start = f'<td class="{name}">' if name else "<td>"
        cells.append(f"{start}{text(word)}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def finding_html(sentence: str, words: str = "", command: str = "", *, kind: str = "") -> str:
    """What a page of tables comes to, and what to type next with what that is for."""
    named = f' class="{kind}"' if kind else ""
    after = f'<p class="command">{text(words)}: <code>{text(command)}</code></p>' if command else ""
    return f'<section id="finding"{named} aria-label="finding"><p>{text(sentence)}</p>{after}</section>'


def scrolled(content: str, label: str) -> str:
    """HTML that may be wider than the screen: it scrolls by itself, which the keyboard can do, too."""
    return f'<div class="scroll" role="group" tabindex="0" aria-label="{text(label)}">{content}</div>'


def html_paragraphs(lines: Iterable[str]) -> str:
    return "".join(f'<p class="note">{text(line)}</p>' for line in lines)


def text(words: str) -> str:
    return escape(visible(words))
