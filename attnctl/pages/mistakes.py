"""The catalogue of mistakes as static pages: a list, and a page for each that an answer can link to."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl.pages.tables import page, paragraphs, table, text
from attnctl.verbs.check.about import (
    MistakePage,
    about,
    part_shown,
    sections,
    title_of_example,
)

INDEX = "index.html"
HEADING = "Mistakes in attention"
FACTS = "what attnctl check finds: what is wrong, why people make it, what to write instead"


def pages_of_mistakes() -> Iterator[tuple[str, bytes]]:
    """The name and the content of each file: a page a mistake, then the list."""
    terms = []
    for name in names():
        mistake = about(name)
        yield f"{name}.html", page_of(mistake)
        terms.append(f'<dt><a href="{name}.html">{text(name)}</a></dt><dd>{text(words_of(mistake))}</dd>')
    listed = f'<section><dl class="terms">{"".join(terms)}</dl></section>'
    yield INDEX, page(HEADING, HEADING, FACTS, [listed])


def words_of(mistake: MistakePage) -> str:
    return f"What you get when {mistake.report.findings[0].words}."


def page_of(mistake: MistakePage) -> bytes:
    """Wrong and right side by side, below what is to be said of it."""
    name, seen = mistake.mistake.name, part_shown(mistake)
    texts = [(title, paragraphs([words])) for title, words in sections(mistake) if words]
    texts.append((title_of_example(mistake), f"<pre>{text(mistake.mistake.example)}</pre>"))
    said = "".join(f"<h2>{text(title)}</h2>{content}" for title, content in texts)
    titles = [f"{kind} {column}" for kind in ("wrong", "right") for column in seen.columns]
    rows = [(place, *wrong, *right) for place, wrong, right in seen.rows]
    body = [
        f"<section>{said}</section>",
        table(seen.title, ["", *titles], rows),
        f'<section><p class="note"><a href="{INDEX}">All mistakes</a></p></section>',
    ]
    return page(f"{name} · {HEADING}", name, words_of(mistake), body)
