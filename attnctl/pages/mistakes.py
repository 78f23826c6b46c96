"""The catalogue of mistakes as static pages: a list, and a page for each that an answer can link to."""

from __future__ import annotations

from pathlib import Path

from attnctl.base.files import refuse_os_errors
from attnctl.math import Progress
from attnctl.pages.tables import html_paragraphs, html_table, page, text
from attnctl.store.files import open_output
from attnctl.verbs.check.about import (
    MistakePage,
    mistake_names,
    mistake_page,
    part_shown,
    sections,
    title_of_example,
)

INDEX = "index.html"
HEADING = "Mistakes in attention"
FACTS = "what attnctl check finds: what is wrong, why people make it, what to write instead"


def write_pages(folder: Path, progress: Progress) -> Path:
    """Write a page for each mistake, then the list, which is returned. Raises AttnError where it cannot."""
    with refuse_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    terms, known = [], mistake_names()
    for done, name in enumerate(known, start=1):
        mistake = mistake_page(name)
        write(folder / f"{name}.html", page_of(mistake))
        progress(done, len(known))
        terms.append(f'<dt><a href="{name}.html">{text(name)}</a></dt><dd>{text(wrong(mistake))}</dd>')
    listed = f'<section><dl class="terms">{"".join(terms)}</dl></section>'
    write(folder / INDEX, page(HEADING, HEADING, FACTS, [listed]))
    return folder / INDEX


def write(path: Path, content: bytes) -> None:
    with open_output(path) as stream:
        stream.write(content)


def wrong(mistake: MistakePage) -> str:
    return mistake.report.findings[0].words


def page_of(mistake: MistakePage) -> bytes:
    """Wrong and right side by side, below what is to be said of it."""
    name, seen = mistake.mistake.name, part_shown(mistake)
    texts = [(title, html_paragraphs([words])) for title, words in sections(mistake) if words]
    texts.append((title_of_example(mistake), f"<pre>{text(mistake.mistake.example)}</pre>"))
    said = "".join(f"<h2>{text(title)}</h2>{content}" for title, content in texts)
    titles = [f"{kind} {column}" for kind in ("wrong", "right") for column in seen.columns]
    rows = [(place, *found, *right) for place, found, right in seen.rows]
    back = f'<p class="note"><a href="{INDEX}">All mistakes</a></p>'
    body = [f"<section>{said}{back}</section>", html_table(seen.title, ["", *titles], rows)]
    return page(f"{name} · {HEADING}", name, f"What you get when {wrong(mistake)}.", body)
