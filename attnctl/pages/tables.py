"""Pages of tables, which run no script: statistics of heads, checkpoints, grades, the known mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, NamedTuple

from attnctl.base.errors import AttnError
from attnctl.base.files import refuse_os_errors
from attnctl.base.words import number_repeats, plural
from attnctl.drawing.pictures import Plot
from attnctl.drawing.pictures.draw import describe_plot, draw
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.text import shell_line, token_text, visible
from attnctl.drawing.show.headline import beginning
from attnctl.math import Array, Progress
from attnctl.math.names import WEIGHTS
from attnctl.pages import MOST_PLAIN, MOST_TRACES, image, page_of_tables
from attnctl.pages.describe import model_name
from attnctl.pages.html import finding_html, html_paragraphs, html_table, text
from attnctl.store.files import open_output
from attnctl.verbs.check import about
from attnctl.verbs.exercise import gradebook
from attnctl.verbs.exercise.grade import RIGHT, WRONG, HandIn
from attnctl.verbs.models.about import LAYER_HEADINGS, About, facts_of, layer_rows, size_lines, stack_name
from attnctl.verbs.stats import DumpStats, StatsReport
from attnctl.verbs.stats.picture import plots_of
from attnctl.verbs.stats.view import HEADINGS, head_rows, legend_of, notes_on

HEADING = "What each head does"
GRADES = "Grades"
SIGNS_OF_MARKS = {"right": "✓", "wrong": "✗"}
"""What stands before a mark, for those who do not tell its colour."""

FACTS = "means over rows of weights"
ROW_HEIGHT = 24  # pixels of a row in the picture of a layer
ROLLED = "Rollout: how much of each token (across) has reached each place (down)"
BATTERY = "{tokens} random tokens twice in a row, {draws} draws; heads with {enough:.0%} or more"


def write_stats(found: Sequence[StatsReport], stream: IO[bytes]) -> None:
    """A page of statistics: their picture, a table for each dump, and what the columns mean.

    Raises AttnError for more dumps than a page holds.
    """
    count = sum(len(part.dumps) for part in found)
    if count > MOST_TRACES:
        raise AttnError(f"{count} dumps: a page holds {MOST_TRACES}; pick one with --trace, or write .csv")

    reports = [without_folders(part) for part in found]
    body: list[str] = []
    for report in reports:
        body += stats_parts(report)
    finding = stats_finding([dump for report in reports for dump in report.dumps])
    stream.write(page_of_tables(stats_title(reports), HEADING, FACTS, body, finding=finding))


SHARES = {
    "previous": "the token before",
    "first": "the first token",
    "self": "the token itself",
    "same_token": "the same word elsewhere",
}
"""What a head may look at, by the measure that says how much."""


class MarkedHead(NamedTuple):
    """How much of its attention a head of a dump gives to one of `SHARES`."""

    share: float
    dump: DumpStats
    head: int
    words: str


def stats_finding(dumps: Sequence[DumpStats]) -> str:
    """The head that does one thing most, and what shows its weights."""
    found = []
    for dump in dumps:
        for number, head in enumerate(dump.heads):
            for measure, words in SHARES.items():
                found.append(MarkedHead(head.means.get(measure) or 0.0, dump, head=number, words=words))
    if not found:
        return ""

    most = max(found, key=lambda head: head.share)
    of = f" of {visible(most.dump.name)}" if len(dumps) > 1 else ""
    sentence = (
        f"Head {most.head}{of} gives {most.share:.0%} of its attention to {most.words}: the most here."
    )
    command = ["attnctl", "show", most.dump.name, "--head", str(most.head), "--step", WEIGHTS]
    is_file = most.dump.name != most.dump.sentence
    return finding_html(sentence, "See it", shell_line(command) if is_file else "")


def stats_title(reports: Sequence[StatsReport]) -> str:
    names = [visible(dump.name) for report in reports for dump in report.dumps]
    if not names:
        return HEADING
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{HEADING} · {names[0]}{more}"


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
    finding = model_finding(found[0]) if found else ""
    stream.write(page_of_tables(f"{names} · {sizes}", names, sizes, body, finding=finding))


def model_finding(model: About) -> str:
    """Which part of a layer has most of its parameters, and what shows a layer at work."""
    sizes = model.by_use[0] if model.by_use else {}
    if not sizes:
        return ""
    part = model.parts[0]
    attention = sum(sizes.get(use, 0) for use in "qkvo")
    share = attention / max(1, sum(sizes.values()))
    sentence = f"{', '.join(facts_of(part)[:2])}: attention has {share:.0%} of the parameters of layer 0."
    name = visible(model_name(model.name))
    command = shell_line(
        ["attnctl", "run", "--model", name, "--layer", "0", "A sentence", "-o", "layer.html"]
    )
    return finding_html(sentence, "See a layer at work", command)


def draw_layer(sizes: Mapping[str, int]) -> str:
    """A layer as a picture: what it has in its order, with a bar as long as it has parameters.

    The numbers stand before the bars, which a telephone cuts.
    """
    total = sum(sizes.values())
    largest = max(sizes.values())

    rows = []
    for number, (use, size) in enumerate(sizes.items()):
        y = ROW_HEIGHT * number
        length = max(1, round(300 * size / largest))
        share = f"{size / total:.0%}" if size >= total / 100 else "below 1%"
        rows.append(
            f'<text x="142" y="{y + 15}" text-anchor="end">{text(use.replace("_", " "))}</text>'
            f'<text x="292" y="{y + 15}" text-anchor="end">{size:,} ({share})</text>'
            f'<rect x="300" y="{y + 1}" width="{length}" height="18"/>'
        )

    label = f"Layer 0: {total:,} parameters"
    height = ROW_HEIGHT * len(sizes)
    start = f'<section class="scroll" tabindex="0" aria-label="{label}"><h2>{label}</h2>'
    picture = f'<svg class="layer" width="600" height="{height}" role="img" aria-label="{label}">'
    return f"{start}{picture}{''.join(rows)}</svg></section>"


# --- statistics ---


def stats_parts(found: StatsReport) -> Iterator[str]:
    """List the parts of a statistics page: names of heads, pictures, tables, the meaning of columns."""
    if "battery" in found.more:
        yield battery_table(found.more["battery"])

    plots = plots_of(found)
    for shown in (plots[:1], plots[1:]):  # the first has a section of its own
        if shown:
            yield plots_section(shown)

    yield from map(group_table, found.dumps)
    if found.whole:
        yield group_table(replace(found.whole, name="all together"))
    if found.rolled is not None and found.rolled.size <= MOST_PLAIN:
        yield rollout_table(found.rolled, found.tokens)

    if found.dumps:
        meanings = legend_of(found).items()
        terms = "".join(f"<dt>{escape(word)}</dt><dd>{escape(means)}</dd>" for word, means in meanings)
        yield f'<section><dl class="terms">{terms}</dl></section>'


def plots_section(plots: Sequence[Plot]) -> str:
    titles = ", ".join(plot.title for plot in plots)
    description = " ".join(describe_plot(plot, plot.scale()) for plot in plots)
    picture = image(draw(plots).svg, description)
    return f'<section class="scroll" tabindex="0" aria-label="{escape(titles)}">{picture}</section>'


def rollout_table(rolled: Array, tokens: Sequence[str] | None) -> str:
    words = number_repeats(map(token_text, tokens or map(str, range(len(rolled)))))
    rows = []
    for word, shares in zip(words, rolled.tolist(), strict=True):
        rows.append((word, *(f"{share:.2f}" for share in shares)))
    return html_table(ROLLED, ["", *words], rows)


def group_table(group: DumpStats) -> str:
    titles = ["head", *HEADINGS, "largest"]
    if group.pairs:
        titles.append("nearest")
    rows = [row[: len(titles)] for row in head_rows(group, 12, Screen())]

    notes = []
    sentence, left_out = beginning(group.sentence or "")
    if sentence:
        notes.append(f"{sentence} … {left_out} more characters" if left_out else sentence)
    notes += notes_on(group)
    return html_table(group.name, titles, rows, notes)


def battery_table(found: dict[str, Any]) -> str:
    """Layers down, heads across: what the battery calls each head."""
    kinds = {(head["layer"], head["head"]): " ".join(head["names"]) for head in found["heads"]}
    layers = sorted({layer for layer, _ in kinds})
    heads = sorted({head for _, head in kinds})

    def row(layer: int) -> list[str]:
        return [f"layer {layer}", *(kinds.get((layer, head)) or "·" for head in heads)]

    rows = [row(layer) for layer in layers]
    notes = [f"{name}: {means}" for name, means in found["definitions"].items()]
    return html_table(BATTERY.format_map(found), ["", *map(str, heads)], rows, notes, words=True)


def without_folders(found: StatsReport) -> StatsReport:
    names = [dump.name if dump.name == dump.sentence else file_name(dump.name) for dump in found.dumps]
    renamed = []
    for dump, name in zip(found.dumps, number_repeats(names), strict=True):
        renamed.append(replace(dump, name=name))
    return replace(found, dumps=tuple(renamed))


def file_name(path: str) -> str:
    """`/home/me/a.json` -> `a.json`; a path from here stays."""
    parts = re.split(r"[\\/]", path)
    is_absolute = PurePosixPath(path).is_absolute() or PureWindowsPath(path).drive
    if is_absolute or ".." in parts:
        return parts[-1]
    return path


# --- grades ---


def write_grades(sheets: Sequence[HandIn], stream: IO[bytes]) -> None:
    """What the class got wrong, a row for each student, and what is to be said to each."""
    body = []
    shared = gradebook.find_shared(sheets)
    if shared:
        titles = ["mistake", "step", "what it is", "who"]
        rows = [shared_row(mistake) for mistake in shared]
        body.append(html_table("What the class got wrong", titles, rows, words=True))

    steps = gradebook.marked_steps(sheets)
    students = []
    notes = [gradebook.BLANK_MEANS]
    for sheet in sheets:
        students.append((str(sheet.student), *signs_and_mistakes(sheet, steps)))
        notes += [f"{sheet.student}: {line}" for line in gradebook.remarks(sheet, alone=False)]
    body.append(
        html_table(GRADES, ["name", *steps, "right"], students, notes, words=True, kind=kind_of_mark)
    )

    summary = gradebook.class_summary(sheets)
    finding = grades_finding(sheets, shared)
    stream.write(page_of_tables(GRADES, GRADES, summary, body, finding=finding))


def grades_finding(sheets: Sequence[HandIn], shared: Sequence[gradebook.SharedMistake]) -> str:
    """What most of a class got wrong, and the page to read on it."""
    known = [mistake for mistake in shared if mistake.mark.mistake]
    if not known:
        all_right = bool(sheets) and all(sheet.right for sheet in sheets)
        return finding_html("Every hand-in is right.", kind="right") if all_right else ""
    first = known[0]
    have = "has" if len(first.students) == 1 else "have"
    count = f"{plural(len(first.students), 'hand-in')} {have}"
    words = first.mark.words[:1].upper() + first.mark.words[1:]
    sentence = f"{count} {first.mark.mistake} at {first.mark.step}. {words}."
    command = shell_line(["attnctl", "check", "--about", str(first.mark.mistake)])
    return finding_html(sentence, "Why people make it", command)


def kind_of_mark(words: str) -> str:
    """What a cell of the grades says: right, or wrong."""
    return next((kind for kind in ("right", "wrong") if words.startswith(SIGNS_OF_MARKS[kind])), "")


def shared_row(shared: gradebook.SharedMistake) -> Sequence[str]:
    mark = shared.mark
    students = ", ".join(shared.students)
    if not mark.mistake:
        return "no known mistake", mark.step, "", students
    return mark.mistake, mark.step, mark.words, students


def signs_and_mistakes(sheet: HandIn, steps: Sequence[str]) -> list[str]:
    """What stands below each step, with the mistake, and below `right`."""
    mistakes = {mark.step: gradebook.wrong_at(mark) for mark in sheet.marks if mark.verdict == WRONG}
    *signs, right = gradebook.signs(sheet, steps)

    shown = []
    for step, sign in zip(steps, signs, strict=True):
        mistake = mistakes.get(step)
        signed = " ".join(filter(None, [SIGNS_OF_MARKS.get(sign), sign]))
        shown.append(f"{signed}: {mistake}" if mistake else signed)
    return [*shown, right]


# --- the catalogue of mistakes: a list, and a page for each that an answer can link to ---


INDEX = "index.html"
MISTAKES = "Mistakes in attention"
OF_MISTAKES = "what attnctl check finds: what is wrong, why people make it, what to write instead"


def write_pages(folder: Path, progress: Progress) -> Path:
    """Write a page for each mistake, then the list, which is returned. Raises AttnError where it cannot."""
    with refuse_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)

    terms = []
    known = about.mistake_names()
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
    name = mistake.mistake.name
    texts = [(title, html_paragraphs([words])) for title, words in about.sections(mistake) if words]
    texts.append((about.title_of_example(mistake), f"<pre>{text(mistake.mistake.example)}</pre>"))
    sections = "".join(f"<h2>{text(title)}</h2>{content}" for title, content in texts)
    back = f'<p class="note"><a href="{INDEX}">All mistakes</a></p>'

    shown, columns, rows = about.part_shown(mistake)
    axes = mistake.example.right.steps[mistake.report.findings[0].step].axes
    down_and_across = [f"{axes[-2]} down, {axes[-1]} across"]
    found_rows = [(place, *found) for place, found, _ in rows]
    right_rows = [(place, *right) for place, _, right in rows]
    tables = [
        html_table(f"✗ {shown}: wrong", ["", *columns], found_rows, down_and_across, kind=lambda _: WRONG),
        html_table(f"✓ {shown}: right", ["", *columns], right_rows, down_and_across, kind=lambda _: RIGHT),
    ]
    body = [f"<section>{sections}{back}</section>", f'<div class="pair">{"".join(tables)}</div>']
    words = f"What you get when {wrong(mistake)}."
    finding = finding_html(words, "Find it in yours", "attnctl check homework.py", kind="wrong")
    return page_of_tables(f"{name} · {MISTAKES}", name, "", body, finding=finding)
