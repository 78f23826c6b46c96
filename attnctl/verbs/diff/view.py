"""A difference on the screen: the verdict, what was compared and what not, and why outputs differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice

from attnctl.base.namedtuple import NamedTuple
from attnctl.base.words import all_of, plural
from attnctl.drawing.screen import Line, Screen, Span
from attnctl.drawing.screen.grid import four_digits
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.math.names import W_O
from attnctl.verbs.diff import ABSENT, Difference, StepDifference
from attnctl.verbs.diff.split import BOTH, ELSEWHERE, LINES, PROJECTION, REST, SAID, Change


class PartWords(NamedTuple):
    """A part of a change in words, on two lines, and as a formula."""

    first: str
    second: str
    formula: str


PARTS = {
    ELSEWHERE: PartWords("attended", "elsewhere", "ΔA·V"),
    SAID: PartWords("said", "something else", "A·ΔV"),
    BOTH: PartWords("both", "", "ΔA·ΔV"),
    PROJECTION: PartWords("another", W_O, "Z·ΔW_O"),
    LINES: PartWords("other", "lines", ""),
    REST: PartWords("none of", "these", ""),
}
"""The words of a part; others have the name of what is another."""

STEP_TITLES = ("step", "differ", "max abs", "max rel", "largest at", "A", "B")

MOST_SETTINGS = 8  # settings that differ and are shown on a terminal


def lines_of_pairs(found: Sequence[Difference], alone: Sequence[str], screen: Screen) -> Iterator[Element]:
    if len(found) > 1 and found[0].call:
        yield from lines_of_calls(found, alone, screen)
        return

    for number, difference in enumerate(found):
        if number > 0:
            yield []
        if len(found) > 1:
            yield [(f"pair {number}", "name")]
        yield from difference_lines(difference, screen)


def lines_of_calls(found: Sequence[Difference], alone: Sequence[str], screen: Screen) -> Iterator[Element]:
    """The pairs of two captures, and the first that differs in full."""
    differing = [pair for pair in found if not pair.same]
    sentence = f"same: {plural(len(found), 'call')}"
    if differing:
        call = differing[0].call
        place = ", ".join(filter(None, [f"call {call['number']}", call["at"], call["module"]]))
        is_single = len(differing) == 1
        count = f"{len(differing)} of {plural(len(found), 'call')} {'differs' if is_single else 'differ'}"
        which = ": " if is_single else "; the first is "
        sentence = f"{count}{which}{place}"

    yield from screen.flow([(screen.printable(sentence), "wrong" if differing else "right")], " ")
    for words in alone:
        yield [(screen.printable(words), "")]

    yield []
    rows = [call_row(pair, screen) for pair in found]
    yield from Listing(screen, [("call", "at", "module", "")], rows, left={1, 2, 3}).fit(3).lines()

    if differing:
        yield []
        yield from difference_lines(differing[0], screen)


def call_row(pair: Difference, screen: Screen) -> list[Span]:
    return [
        (str(pair.call["number"]), ""),
        (screen.printable(pair.call["at"]), "aside"),
        (screen.printable(pair.call["module"]), "aside"),
        (screen.printable(verdict(pair)), "aside" if pair.same else ""),
    ]


def difference_lines(found: Difference, screen: Screen) -> Iterator[Element]:
    sentence = verdict(found)
    style = "right" if sentence.startswith("same") else "wrong"
    yield from screen.flow([(screen.printable(sentence), style)], " ")
    yield from configs(found, screen)
    yield from apart(found, screen)
    if found.first is None:
        return

    yield []
    rows = [step_row(name, step, screen) for name, step in found.steps.items()]
    yield from Listing(screen, [STEP_TITLES], rows, left={0, 4}).fit(4).lines()
    yield from oddities(found, screen)

    if found.no_split:
        beyond = " beyond the heads" if found.split else ""
        reason = f"Why the outputs differ cannot be said{beyond}: {found.no_split}."
        yield from screen.flow([(screen.printable(reason), "aside")], " ")
    if found.split:
        yield []
        yield from split_lines(found, screen)


def verdict(found: Difference) -> str:
    total = plural(len(found.steps), "step")
    if found.first is not None:
        differing = sum(not step.same for step in found.steps.values())
        which = "the only step that differs" if differing == 1 else f"the first of {differing} that differ"
        return f"differ: {found.first} is {which} ({total} compared)"

    compared = sum(step.measure.of for step in found.steps.values())
    numbers = plural(compared, "number")
    if found.skipped:
        shapes = f"differ: {all_of(found.skipped)}, in shape"
        return f"{shapes}; what can be compared is the same ({numbers} in {total})"

    largest = max(step.measure.max_abs for step in found.steps.values())
    most = f"largest difference {four_digits(largest)}" if largest else "bit-for-bit identical"
    if not found.same:
        return f"differ: the sentences; what they have in common is the same ({numbers} in {total}, {most})"
    return f"same: {numbers} in {total}, {most}"


def apart(found: Difference, screen: Screen) -> Iterator[Line]:
    """Lines on what only one side has, and on what could not be compared."""
    for side, tokens in zip("AB", found.left_out, strict=True):
        if tokens:
            yield from fact(f"tokens only in {side}", ", ".join(map(screen.token, tokens)), screen)

    for side, names in zip("AB", (found.only_in_a, found.only_in_b), strict=True):
        if names:
            yield from fact(f"steps only in {side}", ", ".join(names), screen)

    names_by_reason: dict[str, list[str]] = {}
    for name, reason in found.skipped.items():
        names_by_reason.setdefault(reason, []).append(name)
    for reason, names in names_by_reason.items():
        yield from fact("not compared", f"{', '.join(names)} ({reason})", screen)

    for sentence in found.heads:
        yield from fact("heads", sentence, screen)


def fact(label: str, text: str, screen: Screen) -> list[Line]:
    words = [(word, "") for word in screen.printable(text).split(" ")]
    return screen.flow([(f"{label}:", "aside"), *words], " ")


def configs(found: Difference, screen: Screen) -> Iterator[Line]:
    """The paths at which the configs differ, a line each; a terminal gets the first, with short values."""
    most = MOST_SETTINGS if screen.fits else len(found.configs)
    for path, texts in islice(settings_apart(found, screen), most):
        room = max(8, (screen.width - len(path) - 14) // 2)  # for either value, beside the label and arrow
        shown = " → ".join(screen.short(text, room) for text in texts)
        yield from fact("config", f"{path}: {shown}", screen)

    if len(found.configs) > most:
        rest = screen.left_out(len(found.configs) - most)
        yield from fact("config", f"{rest} (--full shows them)", screen)


def settings_apart(found: Difference, screen: Screen) -> Iterator[tuple[str, list[str]]]:
    """Each path at which the configs differ, and what stands there in A and in B."""
    for path, values in found.configs.items():
        yield path, [setting_text(value, screen) for value in values]


def setting_text(value: object, screen: Screen) -> str:
    text = "–" if value is ABSENT else json.dumps(value, ensure_ascii=False, default=str)
    return screen.printable(text)


def step_row(name: str, step: StepDifference, screen: Screen) -> list[Span]:
    style = "aside" if step.same else ""
    texts = step_texts(name, step)
    return [(screen.printable(name), style or "name"), *((screen.printable(text), style) for text in texts)]


def step_texts(name: str, step: StepDifference) -> list[str]:
    """What stands below each of `STEP_TITLES` but the first."""
    if step.cell is None:
        return ["same", "", "", "", "", ""]

    measure = step.measure
    return [
        "same" if step.same else f"{measure.differing} of {measure.of}",
        four_digits(measure.max_abs),
        four_digits(measure.max_rel),
        step.cell.removeprefix(name),
        four_digits(step.a or 0.0),
        four_digits(step.b or 0.0),
    ]


def oddities(found: Difference, screen: Screen) -> Iterator[Line]:
    """Numbers that are hidden on one side, or are no numbers."""
    for name, step in found.steps.items():
        measure = step.measure
        kinds = (
            (measure.hidden_in_a, "hidden (-∞) in A only"),
            (measure.hidden_in_b, "hidden (-∞) in B only"),
            (measure.nan, "NaN on one side"),
        )
        words = [f"{count} {kind}" for count, kind in kinds if count]
        if words:
            yield from fact(name, ", ".join(words), screen)


def split_lines(found: Difference, screen: Screen) -> Iterator[Element]:
    """The parts of the outputs' change: shares by head, and the number that changed most."""
    last = found.split[-1]
    title = [("why the outputs differ", "name"), ("shares of the change, adding up to 100 %", "aside")]
    yield from screen.flow([(screen.printable(text), style) for text, style in title], "   ")

    shown = [name for name in last.parts if any(matters(change, name) for change in found.split)]
    titles = ["", "change", *("\n".join(part_in_words(name)) for name in shown)]
    rows = [share_row(change, shown) for change in found.split]
    if last.head is None:  # the result itself, of whose change each head has a share
        titles.append(f"share of\nthe change\nof {last.step}")
        for row, change in zip(rows, found.split, strict=True):
            row.append(signed_percent(change.of_output))

    printable_titles = ["\n".join(map(screen.printable, title.split("\n"))) for title in titles]
    styled_rows: list[list[Span]] = []
    for label, *texts in rows:
        numbers = [(screen.printable(text), "") for text in texts]
        styled_rows.append([(screen.printable(label), "name"), *numbers])
    listing = Listing(screen, [printable_titles], styled_rows, left={0})
    yield from listing.fit(1, rest=len(shown) + 2).lines()

    if last.norm:
        yield from screen.flow([(screen.printable(word), "") for word in sum_words(last)], " ")


def share_row(change: Change, shown: Sequence[str]) -> list[str]:
    """The change of a head, or of a whole step, and the share of each part in it."""
    row = [change.step if change.head is None else f"head {change.head}", four_digits(change.norm)]
    for name in shown:
        part = change.parts.get(name)
        # Of no change nothing is a share.
        row.append(signed_percent(part.share) if part and change.norm else "")
    return row


def part_in_words(part: str) -> PartWords:
    return PARTS.get(part, PartWords("another", part, f"Δ{part}"))


def matters(change: Change, name: str) -> bool:
    """True if a part has a column of its own: those beside the heads' only where they do something."""
    part = change.parts.get(name)
    if part is None:
        return False
    # A rest smaller than this part of the change is rounding, and would read 0.0 %.
    return name in (ELSEWHERE, SAID, BOTH) or part.norm > 5e-4 * change.norm


def signed_percent(share: float | None) -> str:
    """A share of the change; below 0 where it goes against it."""
    if share is None:
        return ""
    text = f"{abs(share) * 100:.1f} %"
    return f"-{text}" if share < 0 and text != "0.0 %" else text


def sum_words(change: Change) -> Iterator[str]:
    """The number that changed most, as the sum that it is."""
    yield f"{change.cell}: {four_digits(change.a)} in A"
    for name, term in change.terms.items():
        if term and matters(change, name):
            first, second, _ = part_in_words(name)
            sign = "-" if term < 0 else "+"
            yield f"{sign} {four_digits(abs(term))} {f'{first} {second}'.strip()}"
    yield f"= {four_digits(change.b)} in B"
