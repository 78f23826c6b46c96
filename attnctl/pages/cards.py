"""What a check found, as a page opens with it: a heading, numbered cards, the lines of the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from attnctl.base.words import all_of, plural
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.text import shell_line
from attnctl.mistakes import CATALOGUE
from attnctl.pages.html import text
from attnctl.pages.program import listing_of, program_html, wrong_places
from attnctl.pages.tables import file_name
from attnctl.record import Trace
from attnctl.record.cells import Speller
from attnctl.sources.program.text import NOTEBOOK
from attnctl.verbs.check.places import say_pattern
from attnctl.verbs.check.report import Finding, Report, StepPlace
from attnctl.verbs.check.view import format_number, sentences

LETTERS = {"head": "H", "batch": "B", "chunk": "C"}
"""Axes before those of a matrix, as the address of a page has them."""

NEXT = '<p class="command" id="next" hidden>Why: <code></code></p>'
"""The place of the command that explains the number at which a page opens: its script knows the file."""


class FoundCard(NamedTuple):
    """A finding, the number of its card, and where its trace stands on the page."""

    number: int
    report: Report
    finding: Finding
    trace: int
    step_before: str | None
    """The step of the finding before it, of the same trace."""


def cards_of(reports: Sequence[Report]) -> list[FoundCard]:
    """A card for each mistake: of a program for each expression, once, else for each finding."""
    placed = {(id(each.report), each.finding.step): each.number for each in wrong_places(reports)}
    cards: list[FoundCard] = []
    is_program = bool(placed)
    for trace, report in enumerate(reports):
        before = None
        for finding in report.findings:
            number = placed.get((id(report), finding.step)) if is_program else len(cards) + 1
            if number is not None and number not in {card.number for card in cards}:
                cards.append(FoundCard(number, report, finding, trace=trace, step_before=before))
            before = finding.step
    return cards


def names_of_files(reports: Sequence[Report]) -> dict[str, str]:
    """What the files of a program are called on its page: by their names, wherever they lie."""
    program = listing_of(reports)
    return {path: file_name(path) for path in program.files} if program else {}


def open_check(reports: Sequence[Report], names: Mapping[str, str]) -> Iterator[str]:
    """What is wrong, as HTML: what to type next, the lines of the program, a card for each mistake."""
    cards = cards_of(reports)
    yield from broken_cards(reports, names)
    if not cards:
        return

    yield from next_commands(reports, names)
    program = listing_of(reports)
    several = len(reports) > 1
    rows = "".join(card_html(card, names, several=several) for card in cards)
    listed = f'<ol class="cards">{rows}</ol>'
    if program and wrong_places(reports):
        code = program_html(program, reports, names)
        yield f'<div class="beside-code">{code}{listed}</div>'
    else:
        yield listed


def broken_cards(reports: Sequence[Report], names: Mapping[str, str]) -> Iterator[str]:
    """What is wrong beside steps that are right, each once."""
    laws = {str(law): law for report in reports for law in report.broken}
    if not laws:
        return
    rows = []
    for number, law in enumerate(laws.values(), 1):
        where = "" if law.place is None else short_place(law.place, names)
        fix = f'<p class="fix"><b>Instead</b> {text(law.fix)}.</p>' if law.fix else ""
        what = f'<p class="what">{text(capitalised(law.words))}.</p>'
        rows.append(f'<li value="{number}"><p class="where">{text(where)}</p>{what}{fix}</li>')
    yield f'<ol class="cards">{"".join(rows)}</ol>'


def next_commands(reports: Sequence[Report], names: Mapping[str, str]) -> Iterator[str]:
    """The command that tries changes of a program, or writes the one that was tried; else what explains."""
    program = listing_of(reports)
    places = wrong_places(reports)
    if program and places:
        path = names.get(places[0].file, places[0].file)
        command = ["attnctl", "check", path]
        if program.is_written:
            yield command_html("The file reads so now. Check it again", command)
        elif program.mended:
            yield command_html(
                "With the green lines every attention agrees. Write them", [*command, "--fix"]
            )
        elif not path.endswith(NOTEBOOK):  # which is mended by hand
            yield command_html("Try changes, and show the one that works", [*command, "--diff"])
    yield NEXT


def command_html(words: str, command: Sequence[str]) -> str:
    return f'<p class="command">{text(words)}: <code>{text(shell_line(command))}</code></p>'


def card_html(card: FoundCard, names: Mapping[str, str], *, several: bool) -> str:
    """A mistake: where, what it is, what to write, how far off which numbers are, what they show."""
    report = card.report
    finding = card.finding
    place = report.places.get(finding.step)
    lines = [f'<p class="where">{text(place_words(card, names, several=several))}</p>']
    if finding.words:
        lines.append(f'<p class="what">{text(capitalised(finding.words))}.</p>')
        lines.append(f'<p class="fix"><b>Instead</b> {text(finding.fix)}.</p>')
    else:
        lines.append(f'<p class="what"><code>{text(finding.step)}</code> is wrong.</p>')

    for sentence, style in sentences(report, finding, card.step_before, Screen()):
        is_said = place is not None and sentence.startswith(place.text)
        if style == "aside" or is_said or sentence.startswith("It is what you get when "):
            continue
        lines.append(f"<p>{numbered_link(card, sentence, several=several)}</p>")

    pattern = pattern_of(report, finding)
    if pattern and pattern not in finding.hint:
        lines.append(f'<p class="pattern">{text(pattern)}</p>')
    if finding.mistake and finding.mistake in {mistake.name for mistake in CATALOGUE}:
        command = shell_line(["attnctl", "check", "--about", finding.mistake])
        lines.append(f'<p class="about"><code>{text(command)}</code></p>')
    return f'<li value="{card.number}">{"".join(lines)}</li>'


def short_place(place: StepPlace, names: Mapping[str, str]) -> str:
    """homework.py:9:12, wherever the file lies."""
    if not place.span:
        return file_name(place.text)
    path = str(place.span["file"])
    return place.text.replace(path, names.get(path, path), 1)


def place_words(card: FoundCard, names: Mapping[str, str], *, several: bool) -> str:
    """line 9 · Q, K, V: where it is, and which steps are wrong by it."""
    place = card.report.places.get(card.finding.step)
    words = []
    if place:
        words.append(short_place(place, names))
    elif several:
        words.append(f"trace {card.trace}")
    words.append(", ".join(steps_by(card)))
    return " · ".join(words)


def steps_by(card: FoundCard) -> list[str]:
    """The step of a finding, and those that the same line makes and that are wrong, too."""
    report = card.report
    step = card.finding.step
    made = report.program.made if report.program else {}
    if step not in made:
        return [step]
    others = [name for name in report.walk.wrong if name != step and made.get(name) == made[step]]
    return [step, *others]


def numbered_link(card: FoundCard, sentence: str, *, several: bool) -> str:
    """A sentence with the name of its step as a link to the number that is furthest off."""
    step = card.finding.step
    words = text(sentence)
    if step not in card.report.trace or not sentence.startswith(step):
        return words
    gap = card.finding.gap
    shown = f"found {format_number(gap.found)}, expected {format_number(gap.expected)}"
    address = cell_address(card.report.trace, step, gap.at, f"T{card.trace}" if several else "")
    link = f'<a href="{text(address)}">{text(step)}</a>'
    return f"{link}{words.removeprefix(text(step)).rstrip('.')}: {text(shown)}."


def cell_address(trace: Trace, step: str, cell: Sequence[int], number: str = "") -> str:
    """The address of a cell on a page: #H0/love/AI/scores; of several traces with the number of its own."""
    speller = Speller(trace)
    axes = trace.steps[step].axes
    lead = number + "".join(
        f"{LETTERS.get(axis, axis)}{at}" for axis, at in zip(axes[:-2], cell, strict=False)
    )
    first = max(0, len(cell) - 2)
    inner = []
    for axis in range(first, len(cell)):
        words = speller.words(step, axis)
        inner.append(words[cell[axis]] if words else str(cell[axis]))
    return "#" + "/".join(quote(part, safe="!'()*~") for part in [lead, *inner, step] if part)


def pattern_of(report: Report, finding: Finding) -> str:
    expected = report.walk.expect(finding.step)
    if expected is None or finding.step not in report.trace:
        return ""
    axes = report.trace.steps[finding.step].axes
    return say_pattern(report.trace[finding.step], expected.value, axes)


def capitalised(words: str) -> str:
    """A sentence begins with a capital, unless its first word is a name: Q, W_O, head_outputs."""
    first = words.partition(" ")[0]
    is_name = "_" in first or not first.isalpha() or not first.islower()
    return words if is_name else words[0].upper() + words[1:]


def heading_of(reports: Sequence[Report], names: Mapping[str, str]) -> str:
    """2 mistakes in attention_with_bugs.py; "" where there is no program, or nothing wrong in it."""
    places = wrong_places(reports)
    if not places:
        return ""
    files = dict.fromkeys(names.get(each.file, each.file) for each in places)
    return f"{plural(len(places), 'mistake')} in {all_of(files)}"
