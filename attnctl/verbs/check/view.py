"""A check on the screen: the verdict in words with its fix, and every step beside what it should be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isinf, isnan

from attnctl.base.words import plural
from attnctl.drawing.screen import Line, Screen, Span
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.evidence.judge import Gap
from attnctl.evidence.walk import Checked, Verdict
from attnctl.verbs.check.report import CheckedTrace, Finding, Report

MARKS = {
    Verdict.AGREES: ("✓", "ok", "right"),
    Verdict.WRONG: ("✗", "X", "wrong"),
    Verdict.CANNOT_TELL: ("?", "?", "bad"),
    Verdict.NOT_FILLED: ("…", "..", "bad"),
}
"""Each as a sign, as ASCII, and its style; a step that could not be checked has a dash."""

WORDS = re.compile(r"\[[^]]*\]\S*|\S+")
"""A place in brackets is not broken."""

MOST_ROWS = 40
"""Rows of a table of traces on a terminal."""

MOST_OTHERS = 2
"""Mistakes that give the same numbers, of which a sentence is said."""

TITLES = ("", "step", "", "off by", "allowed", "at", "found", "expected")

MOST_UNKNOWN = 8
"""Names of others that are listed."""

STEP, OFF_BY, ALLOWED, PLACE = (TITLES.index(title) for title in ("step", "off by", "allowed", "at"))


def report_lines(report: Report, screen: Screen) -> Iterator[Element]:
    """Findings in sentences, what could not be judged, and every step as a table."""
    if report.unasked:
        read = f", reading {report.reading}" if report.reading else ""
        yield from flowing(f"agrees with {report.unasked}, which was not asked for{read}.", screen)

    before = None
    for finding in report.findings:
        if before is not None:
            yield []
        yield from finding_lines(report, finding, before, screen)
        before = finding.step
    if report.findings and report.reading and not report.unasked:
        yield from flowing(f"Closest when read with {report.reading}.", screen)
    yield from name_pages(report, screen)

    if not report.findings and not report.broken:
        yield from flowing(conclusion(report), screen)
    yield from notes_below(report, screen)

    yield []
    yield from steps_listing(report, screen).lines()


def notes_below(report: Report, screen: Screen) -> Iterator[Line]:
    """What could not be judged and why, notes, and names that nobody knows."""
    for unjudged in report.cannot_tell:
        wanted = f"Record {', '.join(unjudged.record)} too" if unjudged.record else unjudged.otherwise
        why = f"{unjudged.step} cannot be judged: {unjudged.words}. {wanted}."
        yield from flowing(why, screen, name=unjudged.step)
    for note in (*map(str, report.broken), *report.notes):
        yield from flowing(note, screen)

    if report.unknown:
        names = ", ".join(report.unknown[:MOST_UNKNOWN])
        more = len(report.unknown) - MOST_UNKNOWN
        if more > 0:
            names += f" and {more} more"
        yield from flowing(f"Not known by name: {names} (--name THEIRS=OURS renames).", screen)


def finding_lines(report: Report, finding: Finding, before: str | None, screen: Screen) -> Iterator[Line]:
    """A finding in sentences; below the first of them the lines of the program that make it."""
    place = report.places.get(finding.step)
    lines_of_program = place.lines if place is not None else ()
    for number, (sentence, style) in enumerate(sentences(report, finding, before, screen)):
        for line in sentence.split("\n"):  # a picture has lines of its own
            yield from flowing(line, screen, style, finding.step)
        if number == 0:
            for line in lines_of_program:
                yield [(screen.printable(line), "")]


def name_pages(report: Report, screen: Screen) -> Iterator[Line]:
    mentioned = dict.fromkeys(finding.mistake for finding in report.findings if finding.mistake)
    if not mentioned:
        return
    from attnctl.mistakes import CATALOGUE  # a right dump needs none of it, and starts without

    known = {mistake.name for mistake in CATALOGUE}
    named = [mistake for mistake in mentioned if mistake in known]
    if named:
        yield from flowing(f"More: attnctl check --about {' or '.join(named)}", screen, "aside")


def flowing(text: str, screen: Screen, style: str = "", name: str | None = None) -> list[Line]:
    """A sentence, going on below on a narrow terminal; the name of a step in it is bold."""
    words = WORDS.findall(text)
    spans = [(screen.printable(word), "name" if word == name else style) for word in words]
    return screen.flow(spans, " ")


# --- in words ---


def sentences(report: Report, finding: Finding, before: str | None, screen: Screen) -> Iterator[Span]:
    """Where a step is wrong and how far off, what is true of its rows, and what explains it."""
    gap = finding.gap
    place = report.places.get(finding.step)
    if place:
        what = f"{finding.words}: {finding.fix}" if finding.mistake else f"{finding.step} is wrong"
        yield f"{place.text}: {what}.", "name"

    far = f"{distance(gap)} at {place_text(report, finding.step, gap, screen)}"
    if before is None:
        yield f"{finding.step} is the first wrong step: {far}.", ""
    elif before == finding.step:
        yield f"{finding.step} shows another mistake, too.", ""
    else:
        yield f"{finding.step} is wrong too: {far}.", ""

    # A mistake that explains wrong numbers explains their rows as well.
    broken = report.steps[finding.step].broken
    if broken and not (finding.mistake and gap.differing):
        alone = "" if gap.differing else ", though each number by itself is within rounding"
        yield f"Its {broken}{alone}.", ""

    if finding.mistake:
        yield from sentences_of_mistake(finding, is_said=place is not None)
    elif not gap.differing:
        yield "No known mistake gives these rows.", ""
    else:
        yield from sentences_of_unexplained(finding)


def sentences_of_unexplained(finding: Finding) -> Iterator[Span]:
    """How many numbers differ, and what can be said without a mistake."""
    gap = finding.gap
    differ = how_many_differ(gap) if gap.filled > 1 else "it differs"
    there = f"there it is {format_number(gap.found)} and should be {format_number(gap.expected)}"
    yield f"No known mistake gives these numbers: {differ}; {there}.", ""
    if finding.hint:
        yield finding.hint, ""


def sentences_of_mistake(finding: Finding, *, is_said: bool) -> Iterator[Span]:
    """What is wrong unless its place was said with it, what else would give the same numbers, its name."""
    if not is_said:
        yield f"It is what you get when {finding.words}: {finding.fix}.", ""
    for words, fix in finding.otherwise[:MOST_OTHERS]:
        yield f"It may as well be that {words}: {fix}.", ""

    name = str(finding.mistake)
    if finding.also:
        name += f"; also fits: {', '.join(finding.also)}"
    yield f"({name})", "aside"
    if finding.hint:
        yield finding.hint, ""


def distance(gap: Gap) -> str:
    if isnan(gap.largest):
        return "NaN"
    also = f" ({gap.nan} are NaN)" if gap.nan else ""
    return f"largest difference {format_number(gap.largest)}{also}"


def how_many_differ(gap: Gap) -> str:
    differ = "differs" if gap.differing == 1 else "differ"
    return f"{gap.differing} of {gap.filled} {differ}"


def place_text(report: Report, step: str, gap: Gap, screen: Screen) -> str:
    """[head 0, love, AI]."""
    trace = report.trace
    words = []
    for axis, place in enumerate(gap.at):
        tokens = trace.tokens_along(step, axis)
        if tokens is None:
            words.append(f"{trace.steps[step].axes[axis]} {place}")
            continue
        word = screen.token(tokens[place])
        if tokens.count(tokens[place]) > 1:  # told apart from others like it: the#2
            word += f"#{tokens[:place].count(tokens[place]) + 1}"
        words.append(word)
    return f"[{', '.join(words)}]"


def conclusion(report: Report) -> str:
    """The verdict of a report without a finding."""
    gaps = [step.gap for step in report.steps.values() if step.gap and step.verdict is Verdict.AGREES]
    judged = agreement(report, gaps) if gaps else ""
    if report.not_filled:
        return f"not done yet: {', '.join(report.not_filled)} not filled in. What is filled in {judged}."
    if report.cannot_tell:
        return f"cannot tell. What can be judged {judged}." if judged else "cannot tell."
    return judged


def agreement(report: Report, gaps: Sequence[Gap]) -> str:
    """How many numbers agree, and how far off they are at most."""
    count = sum(gap.filled for gap in gaps)
    largest = max(gap.largest for gap in gaps)
    if largest:
        most = f"largest difference {format_number(largest)}, within {report.allowance}"
    elif "decimals" in report.allowance:
        most = f"equal after {report.allowance}"
    else:
        most = "bit-for-bit identical"

    agrees = f"agrees, reading {report.reading}" if report.reading else "agrees"
    return f"{agrees}: {count:,} numbers in {plural(len(gaps), 'step')}, {most}"


def format_number(value: float, digits: int = 4) -> str:
    if isnan(value):
        return "NaN"
    text = "∞" if isinf(value) else f"{abs(value):.{digits}g}"
    return f"-{text}" if value < 0 else text


# --- step by step ---


def steps_listing(report: Report, screen: Screen) -> Listing:
    """Every step in order; the numbers themselves where there are wrong ones.

    On a narrow terminal, so that found and expected stand apart, what is off by how much of what is allowed
    stands where a step is wrong, below it.
    """
    rows = [step_row(report, step, screen) for step in report.steps.values()]
    # Columns behind the last that has a text in some row are left out.
    filled = [column + 1 for row in rows for column, (text, _) in enumerate(row) if text]
    count = max(PLACE, *filled)
    listing = Listing(screen, [TITLES[:count]], [row[:count] for row in rows], left={0, STEP, 2, PLACE})
    if listing.fits or count <= PLACE:
        return listing

    below = {STEP: PLACE, OFF_BY: ALLOWED}

    def stack(texts: Sequence[str]) -> list[str]:
        stacked = []
        for column, text in enumerate(texts):
            if column in below.values():
                continue
            has_below = column in below and texts[-1]
            stacked.append(f"{text}\n{texts[below[column]]}" if has_below else text)
        return stacked

    narrow = replace(listing.rewrite_texts(0, stack), left={0, STEP, 2}).fit(STEP, rest=count)
    return narrow if narrow.fits else listing


def step_row(report: Report, step: Checked, screen: Screen) -> list[Span]:
    """A row of the table of steps, its texts in the order of the titles."""
    is_wrong = step.verdict is Verdict.WRONG
    gap = step.gap
    texts = [step.verdict.value, "", "", "", "", ""]
    if gap:
        texts[0] = verdict_text(step, gap)
        texts[1] = format_number(gap.largest)
        texts[2] = format_number(gap.allowed, digits=2)
    if gap and (is_wrong or gap.largest):
        texts[3] = place_text(report, step.name, gap, screen)
    if gap and is_wrong:
        texts[4] = format_number(gap.found)
        texts[5] = format_number(gap.expected)

    name_style = "" if gap else "aside"
    text_style = "aside"
    if is_wrong:
        name_style = "name"
        text_style = ""
    sign, ascii_sign, style = MARKS.get(step.verdict, ("–", "-", "aside"))
    return [
        (ascii_sign if screen.ascii_only else sign, style),
        (screen.printable(step.name), name_style),
        *((screen.printable(text), text_style) for text in texts),
    ]


def verdict_text(step: Checked, gap: Gap) -> str:
    text = step.verdict.value
    if step.broken and not gap.differing:
        text = f"rows {step.broken.invariant.words} others"
    elif gap.differing:
        text = how_many_differ(gap)
    if gap.filled < gap.of:
        text += f" ({gap.filled} of {gap.of} filled)"
    return text


# --- the traces of one file: which are wrong, and the first of those in full ---


def lines_of_checked(every: Sequence[CheckedTrace], screen: Screen, summary: str = "") -> Iterator[Element]:
    """The table of several, and the report of the only one or the first that is wrong.

    Of a program each expression that is wrong is shown, and the `summary` says how much of it was judged.
    """
    wrong = [checked for checked in every if checked.agrees is False]
    if len(every) > 1:
        yield from lines_of_table(every, wrong, screen)
        if wrong:
            yield []

    shown = every if len(every) == 1 else wrong
    if shown and shown[0].report:
        yield from report_lines(shown[0].report, screen)
        if shown[0].again:
            yield []
            yield [("Why: ", "aside"), (shown[0].again, "")]

    yield from lines_of_other_places(wrong, screen)
    if summary:
        yield []
        yield from flowing(summary, screen)


def lines_of_other_places(wrong: Sequence[CheckedTrace], screen: Screen) -> Iterator[Element]:
    """What is wrong of a program besides what the first wrong attention shows, each expression once."""
    seen: set[str] = set()
    for number, checked in enumerate(wrong):
        if checked.report is None:
            continue
        for finding in checked.report.findings:
            place = checked.report.places.get(finding.step)
            if place is None or not place.lines or place.text in seen:
                continue
            seen.add(place.text)
            if number:
                yield []
                yield from finding_lines(checked.report, finding, None, screen)


def lines_of_table(
    every: Sequence[CheckedTrace], wrong: Sequence[CheckedTrace], screen: Screen
) -> Iterator[Element]:
    yield from flowing(headline(every, wrong), screen)
    yield []

    most = MOST_ROWS if screen.fits else len(every)
    shown: Sequence[CheckedTrace] = every
    if len(every) > most:
        # The wrong ones above all, and those that stand first; in their order.
        shown = sorted([*wrong, *every][:most], key=every.index)
    rows = [call_row(checked, screen) for checked in dict.fromkeys(shown)]

    # A column that is empty in every row is left out.
    titles = (every[0].kind, "", "sentence" if every[0].kind == "trace" else "at", "module", "")
    kept = [column for column in range(len(titles)) if any(row[column][0] for row in rows)]
    listing = Listing(
        screen,
        [[titles[column] for column in kept]],
        [[row[column] for column in kept] for row in rows],
        left={1, 2, 3, 4},
    )
    yield from listing.fit(len(kept) - 1).lines()
    if len(rows) < len(every):
        yield [(f"{screen.left_out(len(every) - len(rows))} (--full shows them)", "aside")]


def headline(every: Sequence[CheckedTrace], wrong: Sequence[CheckedTrace]) -> str:
    kind = every[0].kind
    unsure = sum(checked.agrees is None for checked in every)
    more = f"; {unsure} cannot be judged" if unsure else ""
    if not wrong:
        right = len(every) - unsure
        return f"{plural(right, kind)} {'agrees' if right == 1 else 'agree'}{more}."

    are = "is" if len(wrong) == 1 else "are"
    which = ": " if len(wrong) == 1 else "; the first is "
    first = ", ".join(filter(None, [f"{kind} {wrong[0].number}", *wrong[0].where]))
    return f"{len(wrong)} of {plural(len(every), kind)} {are} wrong{which}{first}{more}."


def call_row(checked: CheckedTrace, screen: Screen) -> list[Span]:
    verdicts = {True: Verdict.AGREES, False: Verdict.WRONG, None: Verdict.CANNOT_TELL}
    sign, ascii_sign, style = MARKS[verdicts[checked.agrees]]
    mark = (ascii_sign if screen.ascii_only else sign, style)

    text_style = "aside" if checked.agrees else ""
    texts = [(screen.printable(text), text_style) for text in (*checked.where, checked.words)]
    return [(str(checked.number), ""), mark, *texts]
