"""A program on a page: its lines, which step each makes, what is wrong with it, and what was put there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from attnctl.base.words import plural
from attnctl.evidence.walk import Verdict
from attnctl.pages.html import text
from attnctl.verbs.check.report import Finding, ProgramListing, Report

WHOLE = 60
"""Lines of a program that is shown whole; of a longer one what is near a line that says something."""

NEAR = 3

JUDGED = {Verdict.AGREES, Verdict.WRONG}

PIECE = re.compile(r"\w+|\s+|.", re.DOTALL)
"""What a line is compared by."""


class WrongExpression(NamedTuple):
    """An expression of a program that is wrong: where it stands, and the number of its card."""

    number: int
    report: Report
    finding: Finding

    @property
    def file(self) -> str:
        return str(self.span["file"])

    @property
    def span(self) -> Mapping[str, str | int]:
        return self.report.places[self.finding.step].span

    def covers(self, line: int) -> bool:
        return int(self.span["line"]) <= line <= int(self.span["end_line"])


class CodeLine(NamedTuple):
    """A line as a page, or a picture, has it."""

    number: int | None
    """None of a line that was put there."""
    kind: str
    """"" of a line that stays, or wrong, gone, new."""
    parts: Sequence[tuple[str, bool]]
    """Its text, piece by piece, and which of it is meant."""
    badges: Sequence[int] = ()
    """The cards that are about it."""
    steps: Sequence[tuple[str, bool]] = ()
    """The steps that it makes, and whether these are right."""

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.parts)


def listing_of(reports: Iterable[Report]) -> ProgramListing | None:
    """The program of these reports; None where they are of no program."""
    return next((report.program for report in reports if report.program), None)


def code_lines(file: str, listing: ProgramListing, reports: Sequence[Report]) -> list[CodeLine]:
    """The lines of one file, with what is wrong among them and what was put there instead."""
    old = lines_of_text(listing.files[file])
    new = lines_of_text(listing.mended.get(file, listing.files[file]))
    wrong = [each for each in wrong_places(reports) if each.file == file]
    steps = steps_by_line(file, reports)

    out: list[CodeLine] = []
    for kind, first, last, new_first, new_last in SequenceMatcher(None, old, new, False).get_opcodes():
        if kind == "equal":
            out += [as_it_is(at + 1, old[at], wrong, steps) for at in range(first, last)]
        else:
            out += changed(old[first:last], new[new_first:new_last], first, wrong, steps)
    return out


def lines_of_text(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


Steps = Mapping[int, Sequence[tuple[str, bool]]]


def as_it_is(number: int, text: str, wrong: Sequence[WrongExpression], steps: Steps) -> CodeLine:
    """A line that nothing was put in the place of; what is wrong in it is marked."""
    here = [each for each in wrong if each.covers(number)]
    parts = [(text, False)]
    if here:
        parts = marked_parts(number, text, here)
    return CodeLine(
        number=number,
        kind="wrong" if here else "",
        parts=parts,
        badges=[each.number for each in here if each.span["line"] == number],
        steps=steps.get(number, ()),
    )


def marked_parts(number: int, text: str, wrong: Sequence[WrongExpression]) -> list[tuple[str, bool]]:
    """A line cut where what is meant begins and ends; of several expressions from the first to the last."""
    begin = len(text)
    end = 0

    for each in wrong:
        span = each.span
        first = len(text) - len(text.lstrip())
        last = len(text)
        if span["line"] == number:
            first = int(span["column"]) - 1
        if span["end_line"] == number:
            last = int(span["end_column"]) - 1
        begin = min(begin, first)
        end = max(end, last)

    parts = [(text[:begin], False), (text[begin:end], True), (text[end:], False)]
    return [part for part in parts if part[0]]


def changed(
    old: Sequence[str], new: Sequence[str], before: int, wrong: Sequence[WrongExpression], steps: Steps
) -> Iterator[CodeLine]:
    """Lines that were there, each with the one that was put in its place beneath it, then the others."""
    for at in range(max(len(old), len(new))):
        was = old[at] if at < len(old) else None
        now = new[at] if at < len(new) else None
        gone, put = compare(was or "", now or "")
        if was is not None:
            number = before + at + 1
            plain = as_it_is(number, was, wrong, steps)
            yield plain._replace(kind="gone", parts=gone)
        if now is not None:
            yield CodeLine(number=None, kind="new", parts=put)


def compare(old: str, new: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Two lines by their pieces, those marked that are in one of them alone."""
    was = PIECE.findall(old)
    now = PIECE.findall(new)
    gone: list[tuple[str, bool]] = []
    put: list[tuple[str, bool]] = []
    for kind, first, last, new_first, new_last in SequenceMatcher(None, was, now, False).get_opcodes():
        is_other = kind != "equal"
        if last > first:
            gone.append(("".join(was[first:last]), is_other))
        if new_last > new_first:
            put.append(("".join(now[new_first:new_last]), is_other))
    return gone, put


def steps_by_line(file: str, reports: Sequence[Report]) -> dict[int, list[tuple[str, bool]]]:
    """By line the steps that it makes which could be judged; one that was wrong once is wrong."""
    right: dict[tuple[int, str], bool] = {}
    for report in reports:
        made = report.program.made if report.program else {}
        for name, (where, line) in made.items():
            checked = report.steps.get(name)
            if where != file or checked is None or checked.verdict not in JUDGED:
                continue
            before = right.get((line, name), True)
            right[line, name] = before and checked.verdict is Verdict.AGREES

    for each in wrong_places(reports):
        if each.file == file:  # what is wrong by another line than its own stands there
            step = each.finding.step
            right = {key: is_right for key, is_right in right.items() if key[1] != step or is_right}
            right[int(each.span["line"]), step] = False

    order = {name: number for report in reports for number, name in enumerate(report.steps)}
    out: dict[int, list[tuple[str, bool]]] = {}
    for (line, name), is_right in sorted(right.items(), key=lambda each: order[each[0][1]]):
        out.setdefault(line, []).append((name, is_right))
    return out


def wrong_places(reports: Sequence[Report]) -> list[WrongExpression]:
    """What is wrong of a program, each expression once, numbered as its cards are."""
    found: list[WrongExpression] = []
    seen: set[tuple[str, str]] = set()
    for report in reports:
        for finding in report.findings:
            place = report.places.get(finding.step)
            key = (place.text if place else "", finding.words or finding.step)
            if place is None or not place.span or key in seen:
                continue
            seen.add(key)
            found.append(WrongExpression(len(found) + 1, report, finding))
    return found


def shown_blocks(lines: Sequence[CodeLine]) -> Iterator[tuple[bool, Sequence[CodeLine]]]:
    """Lines in runs, and whether each run is shown: all of a short program, else what is near a line."""
    if len(lines) <= WHOLE:
        yield True, lines
        return

    near = near_to(at for at, line in enumerate(lines) if line.kind or line.steps)
    begin = 0
    for at in range(1, len(lines) + 1):
        if at == len(lines) or (at in near) != (begin in near):
            yield begin in near, lines[begin:at]
            begin = at


def near_to(telling: Iterable[int]) -> set[int]:
    """The places of lines that say something, and of those around them."""
    return {at + by for at in telling for by in range(-NEAR, NEAR + 1)}


def shown_near(lines: Sequence[CodeLine]) -> Iterator[CodeLine | None]:
    """The lines near what is wrong or was put there, and None where others are left out."""
    near = near_to(at for at, line in enumerate(lines) if line.kind)
    last = -1
    for at, line in enumerate(lines):
        if at in near:
            if at != last + 1:
                yield None
            yield line
            last = at
    if last != len(lines) - 1:
        yield None


# --- as HTML ---


def program_html(listing: ProgramListing, reports: Sequence[Report], names: Mapping[str, str]) -> str:
    """The files in which something is wrong, or the first; `names` are those that a page gives them."""
    wrong_files = dict.fromkeys(each.file for each in wrong_places(reports))
    files = [file for file in wrong_files if file in listing.files]
    files += [file for file in listing.mended if file not in files]
    return "".join(file_html(file, listing, reports, names) for file in files)


def file_html(
    file: str, listing: ProgramListing, reports: Sequence[Report], names: Mapping[str, str]
) -> str:
    name = names.get(file, file)
    parts = []
    for is_shown, lines in shown_blocks(code_lines(file, listing, reports)):
        rows = "".join(map(line_html, lines))
        if is_shown:
            parts.append(f'<ol class="lines">{rows}</ol>')
        else:
            parts.append(
                f"<details><summary>⋯ {plural(len(lines), 'line')}</summary>"
                f'<ol class="lines">{rows}</ol></details>'
            )
    return f'<figure class="code"><figcaption>{text(name)}</figcaption>{"".join(parts)}</figure>'


SIGNS = {"": "", "wrong": "✗", "gone": "−", "new": "+"}
SPOKEN = {"": "", "wrong": "wrong: ", "gone": "instead of: ", "new": "write: "}


def code_text(words: str) -> str:
    return text(words.replace("\t", "    ").rstrip("\r"))


def line_html(line: CodeLine) -> str:
    """A line: its number, its sign, its text, and the steps that it makes with the cards about it."""
    tag = {"gone": "del", "new": "ins"}.get(line.kind, "mark")
    code = ""
    for part, is_meant in line.parts:
        words = code_text(part)
        code += f"<{tag}>{words}</{tag}>" if is_meant else words

    steps = ""
    for name, is_right in line.steps:
        mark = "right" if is_right else "wrong"
        sign = "✓" if is_right else "✗"
        steps += f'<i class="{mark}">{sign} {text(name)}</i>'

    number = "" if line.number is None else str(line.number)
    badges = "".join(f"<b>{badge}</b>" for badge in line.badges)
    spoken = f'<span class="unseen">{SPOKEN[line.kind]}</span>' if line.kind else ""
    kind = f' class="{line.kind}"' if line.kind else ""
    cells = [
        f'<span class="no">{number}</span>',
        f'<span class="sign">{SIGNS[line.kind]}</span>',
        f"<code>{spoken}{code}</code>",
        f'<span class="makes">{steps}{badges}</span>',
    ]
    return f"<li{kind}>{''.join(cells)}</li>"
