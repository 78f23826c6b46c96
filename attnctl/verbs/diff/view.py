"""A difference on the screen: the verdict, what was compared and what not, and why outputs differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice

from attnctl.base.words import all_of, plural
from attnctl.drawing.screen import Line, Screen, Span
from attnctl.drawing.screen.grid import four_digits
from attnctl.drawing.screen.listing import Listing
from attnctl.drawing.screen.output import Element
from attnctl.math.names import W_O
from attnctl.verbs.diff import ABSENT, Difference, StepDifference
from attnctl.verbs.diff.split import BOTH, ELSEWHERE, SAID, Change

PARTS = {
    "attended_elsewhere": ("attended", "elsewhere", "ΔA·V"),
    "said_something_else": ("said", "something else", "A·ΔV"),
    "both": ("both", "", "ΔA·ΔV"),
    "projection": ("another", W_O, "Z·ΔW_O"),
    "lines": ("other", "lines", ""),
    "rest": ("none of", "these", ""),
}
"""Parts of a change in words, on two lines, and as a formula; others have the name of what is another."""

STEP_TITLES = ("step", "differ", "max abs", "max rel", "largest at", "A", "B")


def lines_of_pairs(found: Sequence[Difference], alone: Sequence[str], screen: Screen) -> Iterator[Element]:
    if len(found) > 1 and found[0].call:
        yield from lines_of_calls(found, alone, screen)
        return
    for number, difference in enumerate(found):
        if number:
            yield []
        if len(found) > 1:
            yield [(f"pair {number}", "name")]
        yield from difference_lines(difference, screen)


def lines_of_calls(found: Sequence[Difference], alone: Sequence[str], screen: Screen) -> Iterator[Element]:
    """The pairs of two captures, and the first that differs in full."""
    apart = [pair for pair in found if not pair.same]
    said = f"same: {plural(len(found), 'call')}"
    if apart:
        call = apart[0].call
        first = f"call {call['number']}: {', '.join(filter(None, [call['at'], call['module']]))}"
        said = f"{len(apart)} of {plural(len(found), 'call')} differ; the first is {first}"
    yield from screen.flow([(screen.printable(said), "wrong" if apart else "right")], " ")
    yield from ([(screen.printable(words), "")] for words in alone)
    yield []
    rows = [
        [
            (str(pair.call["number"]), ""),
            *((screen.printable(pair.call[key]), "aside") for key in ("at", "module")),
            (screen.printable(verdict(pair)), "aside" if pair.same else ""),
        ]
        for pair in found
    ]
    yield from Listing(screen, [("call", "at", "module", "")], rows, left={1, 2, 3}).fit(3).lines()
    if apart:
        yield []
        yield from difference_lines(apart[0], screen)


def difference_lines(found: Difference, screen: Screen) -> Iterator[Element]:
    said = verdict(found)
    yield from screen.flow([(screen.printable(said), "right" if said.startswith("same") else "wrong")], " ")
    yield from configs(found, screen)
    yield from apart(found, screen)
    if found.first is None:
        return
    yield []
    rows = [step_row(name, step, screen) for name, step in found.steps.items()]
    yield from Listing(screen, [STEP_TITLES], rows, left={0, 4}).fit(4).lines()
    yield from oddities(found, screen)
    if found.no_split:
        beyond = " beyond the heads" * bool(found.split)
        said = f"Why the outputs differ cannot be said{beyond}: {found.no_split}."
        yield from screen.flow([(screen.printable(said), "aside")], " ")
    if found.split:
        yield []
        yield from split_lines(found, screen)


def verdict(found: Difference) -> str:
    total = plural(len(found.steps), "step")
    if found.first is not None:
        differing = sum(not step.same for step in found.steps.values())
        which = "the only step that differs" if differing == 1 else f"the first of {differing} that differ"
        return f"differ: {found.first} is {which} ({total} compared)"
    numbers = plural(sum(step.measure.of for step in found.steps.values()), "number")
    largest = max(step.measure.max_abs for step in found.steps.values())
    most = f"largest difference {four_digits(largest)}" if largest else "bit-for-bit identical"
    if found.skipped:
        shapes = f"differ: {all_of(found.skipped)}, in shape"
        return f"{shapes}; what can be compared is the same ({numbers} in {total})"
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
    reasons: dict[str, list[str]] = {}
    for name, reason in found.skipped.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        yield from fact("not compared", f"{', '.join(names)} ({reason})", screen)
    for sentence in found.heads:
        yield from fact("heads", sentence, screen)


def fact(label: str, text: str, screen: Screen) -> list[Line]:
    words = [(word, "") for word in screen.printable(text).split(" ")]
    return screen.flow([(f"{label}:", "aside"), *words], " ")


def configs(found: Difference, screen: Screen) -> Iterator[Line]:
    """The paths at which the configs differ, a line each; a terminal gets the first, with short values."""
    most = 8 if screen.fits else len(found.configs)
    for path, texts in islice(settings_apart(found, screen), most):
        room = max(8, (screen.width - len(path) - 14) // 2)
        shown = " → ".join(screen.short(text, room) for text in texts)
        yield from fact("config", f"{path}: {shown}", screen)
    if len(found.configs) > most:
        rest = screen.left_out(len(found.configs) - most)
        yield from fact("config", f"{rest} (--full shows them)", screen)


def settings_apart(found: Difference, screen: Screen) -> Iterator[tuple[str, list[str]]]:
    """Each path at which the configs differ, and what stands there in A and in B."""
    for path, values in found.configs.items():
        dumped = [json.dumps(value, ensure_ascii=False, default=str) for value in values]
        told = ("–" if value is ABSENT else text for value, text in zip(values, dumped, strict=True))
        yield path, [screen.printable(text) for text in told]


def step_row(name: str, step: StepDifference, screen: Screen) -> list[Span]:
    m = step.measure
    style = "aside" if step.same else ""
    if step.cell is None:
        texts = ["same", "", "", "", "", ""]
    else:
        differ = "same" if step.same else f"{m.differing} of {m.of}"
        values = map(four_digits, (step.a or 0.0, step.b or 0.0))
        place = step.cell.removeprefix(name)
        texts = [differ, four_digits(m.max_abs), four_digits(m.max_rel), place, *values]
    return [(screen.printable(name), style or "name"), *((screen.printable(text), style) for text in texts)]


def oddities(found: Difference, screen: Screen) -> Iterator[Line]:
    """Numbers that are hidden on one side, or are no numbers."""
    for name, step in found.steps.items():
        m = step.measure
        kinds = (
            (m.hidden_in_a, "hidden (-∞) in A only"),
            (m.hidden_in_b, "hidden (-∞) in B only"),
            (m.nan, "NaN on one side"),
        )
        said = [f"{count} {words}" for count, words in kinds if count]
        if said:
            yield from fact(name, ", ".join(said), screen)


def split_lines(found: Difference, screen: Screen) -> Iterator[Element]:
    """The parts of the outputs' change: shares by head, and the number that changed most."""
    last = found.split[-1]
    shown = [name for name in last.parts if any(matters(change, name) for change in found.split)]
    title = [("why the outputs differ", "name"), ("shares of the change, adding up to 100 %", "aside")]
    yield from screen.flow([(screen.printable(text), style) for text, style in title], "   ")
    titles = ["", "change", *("\n".join(part_in_words(name)) for name in shown)]
    rows = []
    for change in found.split:
        label = change.step if change.head is None else f"head {change.head}"
        parts = (change.parts.get(name) if change.norm else None for name in shown)
        shares = (signed_percent(part.share) if part else "" for part in parts)
        rows.append([label, four_digits(change.norm), *shares])
    if last.head is None:
        titles.append(f"share of\nthe change\nof {last.step}")
        last_shares = (signed_percent(change.of_output) for change in found.split)
        rows = [[*row, share] for row, share in zip(rows, last_shares, strict=True)]
    heads = ["\n".join(map(screen.printable, title.split("\n"))) for title in titles]
    texts = [
        [(screen.printable(text), "" if at else "name") for at, text in enumerate(row)] for row in rows
    ]
    yield from Listing(screen, [heads], texts, left={0}).fit(1, rest=len(shown) + 2).lines()
    if last.norm:
        yield from screen.flow([(screen.printable(word), "") for word in sum_words(last)], " ")


def part_in_words(part: str) -> tuple[str, str, str]:
    """A part in words, and as a formula."""
    return PARTS.get(part, ("another", part, f"Δ{part}"))


def matters(change: Change, name: str) -> bool:
    """True if a part has a column of its own: those beside the heads' only where they do something."""
    part = change.parts.get(name)
    # A rest smaller than this part of the change is rounding, and would read 0.0 %.
    return part is not None and (name in (ELSEWHERE, SAID, BOTH) or part.norm > 5e-4 * change.norm)


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
            words = " ".join(part_in_words(name)[:2]).strip()
            yield f"{'-' if term < 0 else '+'} {four_digits(abs(term))} {words}"
    yield f"= {four_digits(change.b)} in B"
