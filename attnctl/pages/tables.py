"""Pages of tables, which run no script: statistics of heads, checkpoints, grades, the known mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

from attnctl.base.errors import AttnError
from attnctl.base.files import refuse_os_errors
from attnctl.base.words import number_repeats
from attnctl.drawing.pictures.draw import describe_plot, draw
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.text import token_text, visible
from attnctl.drawing.show.headline import beginning
from attnctl.math import Progress
from attnctl.pages import MOST_PLAIN, MOST_TRACES, image, page_of_tables
from attnctl.pages.describe import model_name
from attnctl.pages.html import html_paragraphs, html_table, text
from attnctl.store.files import open_output
from attnctl.verbs.check import about
from attnctl.verbs.exercise import gradebook
from attnctl.verbs.exercise.grade import WRONG, HandIn
from attnctl.verbs.models.about import LAYER_HEADINGS, About, facts_of, layer_rows, size_lines, stack_name
from attnctl.verbs.stats import DumpStats, StatsReport
from attnctl.verbs.stats.picture import plots_of
from attnctl.verbs.stats.view import HEADINGS, head_rows, legend_of, notes_on

HEADING = "What each head does"
GRADES = "Grades"
FACTS = "means over rows of weights"
ROLLED = "Rollout: how much of each token (across) has reached each place (down)"
BATTERY = "{tokens} random tokens twice in a row, {draws} draws; heads with {enough:.0%} or more"


def write_stats(found: Sequence[StatsReport], stream: IO[bytes]) -> None:
    """A page of statistics: their picture, a table for each dump, and what the columns mean.

    Raises AttnError for more dumps than a page holds.
    """
    count = sum(len(part.dumps) for part in found)
    if count > MOST_TRACES:
        raise AttnError(f"{count} dumps: a page holds {MOST_TRACES}; pick one with --trace, or write .csv")
    shown = [without_folders(part) for part in found]
    body = [part for report in shown for part in stats_parts(report)]
    names = [visible(dump.name) for report in shown for dump in report.dumps]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    title = " · ".join([HEADING, *(name + more for name in names[:1])])
    stream.write(page_of_tables(title, HEADING, FACTS, body))


def write_model(found: Sequence[About], stream: IO[bytes]) -> None:
    """A page of checkpoints: a table for each part, and their sizes."""
    names = " · ".join(visible(model_name(part.name)) for part in found)
    body = []
    for model in found:
        for part, by_use in zip(model.parts, model.by_use, strict=True):
            notes = [" · ".join(facts_of(part))]
            body.append(html_table(stack_name(part), LAYER_HEADINGS, layer_rows(part), notes, words=True))
            body.append(draw_layer(by_use))
        body.append(f"<section>{html_paragraphs(size_lines(model)[1:])}</section>")
    sizes = " · ".join(size_lines(part)[0] for part in found)
    stream.write(page_of_tables(f"{names} · {sizes}", names, sizes, body))


def draw_layer(sizes: Mapping[str, int]) -> str:
    """A layer as a picture: what it has in its order, each as long as it has parameters."""
    total, most = sum(sizes.values()), max(sizes.values())
    rows = []
    for y, (use, size) in zip(range(0, 24 * len(sizes), 24), sizes.items(), strict=True):
        long = max(1, round(300 * size / most))
        rows.append(
            f'<text x="142" y="{y + 15}" text-anchor="end">{text(use.replace("_", " "))}</text>'
            f'<rect x="150" y="{y + 1}" width="{long}" height="18"/>'
            f'<text x="{long + 158}" y="{y + 15}">{size:,} ({100 * size / total:.0f} %)</text>'
        )
    said = f"Layer 0: {total:,} parameters"
    start = f'<section class="scroll" tabindex="0" aria-label="{said}"><h2>{said}</h2>'
    drawn = f'<svg class="layer" width="600" height="{24 * len(sizes)}" role="img" aria-label="{said}">'
    return f"{start}{drawn}{''.join(rows)}</svg></section>"


# --- statistics ---


def stats_parts(found: StatsReport) -> Iterator[str]:
    """List the parts of a statistics page: names of heads, pictures, tables, the meaning of columns."""
    if "battery" in found.more:
        yield battery_table(found.more["battery"])
    plots = plots_of(found)
    for some in filter(None, (plots[:1], plots[1:])):
        titles = ", ".join(plot.title for plot in some)
        said = " ".join(describe_plot(plot, plot.scale()) for plot in some)
        picture = image(draw(some).svg, said)
        yield f'<section class="scroll" tabindex="0" aria-label="{escape(titles)}">{picture}</section>'
    yield from map(group_table, found.dumps)
    if found.whole:
        yield group_table(replace(found.whole, name="all together"))
    if found.rolled is not None and found.rolled.size <= MOST_PLAIN:
        words = number_repeats(map(token_text, found.tokens or map(str, range(len(found.rolled)))))
        shares = [[f"{share:.2f}" for share in row] for row in found.rolled.tolist()]
        rows = [(word, *row) for word, row in zip(words, shares, strict=True)]
        yield html_table(ROLLED, ["", *words], rows)
    if found.dumps:
        meanings = legend_of(found).items()
        terms = "".join(f"<dt>{escape(word)}</dt><dd>{escape(means)}</dd>" for word, means in meanings)
        yield f'<section><dl class="terms">{terms}</dl></section>'


def group_table(group: DumpStats) -> str:
    names = ["head", *HEADINGS, "largest", *(["nearest"] if group.pairs else [])]
    rows = [row[: len(names)] for row in head_rows(group, 12, Screen())]
    said, rest = beginning(group.sentence or "")
    more = f" … {rest} more characters" if rest else ""
    return html_table(group.name, names, rows, [*([said + more] if said else []), *notes_on(group)])


def battery_table(found: dict[str, Any]) -> str:
    """Layers down, heads across: what the battery calls each head."""
    heads = {(head["layer"], head["head"]): " ".join(head["names"]) for head in found["heads"]}
    layers, columns = (sorted({place[axis] for place in heads}) for axis in (0, 1))
    rows = [(f"layer {at}", *(heads.get((at, head)) or "·" for head in columns)) for at in layers]
    notes = [f"{name}: {means}" for name, means in found["definitions"].items()]
    return html_table(BATTERY.format_map(found), ["", *map(str, columns)], rows, notes, words=True)


def without_folders(found: StatsReport) -> StatsReport:
    names = [dump.name if dump.name == dump.sentence else file_name(dump.name) for dump in found.dumps]
    pairs = zip(found.dumps, number_repeats(names), strict=True)
    return replace(found, dumps=tuple(replace(dump, name=name) for dump, name in pairs))


def file_name(path: str) -> str:
    """`/home/me/a.json` -> `a.json`; a path from here stays."""
    away = (
        PurePosixPath(path).is_absolute() or PureWindowsPath(path).drive or ".." in re.split(r"[\\/]", path)
    )
    return re.split(r"[\\/]", path)[-1] if away else path


# --- grades ---


def write_grades(sheets: Sequence[HandIn], stream: IO[bytes]) -> None:
    """What the class got wrong, a row for each student, and what is to be said to each."""
    steps, body = gradebook.marked_steps(sheets), []
    shared = [
        (mark.mistake or "no known mistake", mark.step, mark.words * bool(mark.mistake), ", ".join(names))
        for mark, names in gradebook.find_shared(sheets)
    ]
    if shared:
        titles = ["mistake", "step", "what it is", "who"]
        body.append(html_table("What the class got wrong", titles, shared, words=True))
    rows = [(str(sheet.student), *signs_and_mistakes(sheet, steps)) for sheet in sheets]
    notes = [
        f"{sheet.student}: {line}" for sheet in sheets for line in gradebook.remarks(sheet, alone=False)
    ]
    body.append(html_table(GRADES, ["name", *steps, "right"], rows, notes, words=True))
    stream.write(page_of_tables(GRADES, GRADES, gradebook.class_summary(sheets), body))


def signs_and_mistakes(sheet: HandIn, steps: Sequence[str]) -> list[str]:
    mistakes = {mark.step: gradebook.wrong_at(mark) for mark in sheet.marks if mark.verdict == WRONG}
    shown = zip([*steps, ""], gradebook.signs(sheet, steps), strict=True)
    return [f"{sign}: {mistakes[step]}" if mistakes.get(step) else sign for step, sign in shown]


# --- the catalogue of mistakes: a list, and a page for each that an answer can link to ---


INDEX = "index.html"
MISTAKES = "Mistakes in attention"
OF_MISTAKES = "what attnctl check finds: what is wrong, why people make it, what to write instead"


def write_pages(folder: Path, progress: Progress) -> Path:
    """Write a page for each mistake, then the list, which is returned. Raises AttnError where it cannot."""
    with refuse_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    terms, known = [], about.mistake_names()
    for done, name in enumerate(known, start=1):
        mistake = about.mistake_page(name)
        write(folder / f"{name}.html", page_of(mistake))
        progress(done, len(known))
        terms.append(f'<dt><a href="{name}.html">{text(name)}</a></dt><dd>{text(wrong(mistake))}</dd>')
    listed = f'<section><dl class="terms">{"".join(terms)}</dl></section>'
    write(folder / INDEX, page_of_tables(MISTAKES, MISTAKES, OF_MISTAKES, [listed]))
    return folder / INDEX


def write(path: Path, content: bytes) -> None:
    with open_output(path) as stream:
        stream.write(content)


def wrong(mistake: about.MistakePage) -> str:
    return mistake.report.findings[0].words


def page_of(mistake: about.MistakePage) -> bytes:
    """Wrong and right side by side, below what is to be said of it."""
    name, (seen, columns, rows) = mistake.mistake.name, about.part_shown(mistake)
    texts = [(title, html_paragraphs([words])) for title, words in about.sections(mistake) if words]
    texts.append((about.title_of_example(mistake), f"<pre>{text(mistake.mistake.example)}</pre>"))
    said = "".join(f"<h2>{text(title)}</h2>{content}" for title, content in texts)
    titles = [f"{kind} {column}" for kind in ("wrong", "right") for column in columns]
    back = f'<p class="note"><a href="{INDEX}">All mistakes</a></p>'
    cells = [(place, *found, *right) for place, found, right in rows]
    body = [f"<section>{said}{back}</section>", html_table(seen, ["", *titles], cells)]
    return page_of_tables(f"{name} · {MISTAKES}", name, f"What you get when {wrong(mistake)}.", body)
