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
from attnctl.verbs.diff import Change, Difference, StepDifference
from attnctl.verbs.diff.difference import ABSENT
from attnctl.verbs.diff.split import BOTH, ELSEWHERE, SAID

PARTS = {
    "attended_elsewhere": ("attended", "elsewhere", "ΔA·V"),
    "said_something_else": ("said", "something else", "A·ΔV"),
    "both": ("both", "", "ΔA·ΔV"),
    "projection": ("another", W_O, "Z·ΔW_O"),
    "lines": ("other", "lines", ""),
    "rest": ("none of", "these", ""),
}
"""Parts of a change in words, on two lines, and as a formula; others have the name of what is another."""


def lines_of_pairs(found: Sequence[Difference], screen: Screen) -> Iterator[Element]:
    """Each difference; of several pairs with the pair's number before it."""
    for number, difference in enumerate(found):
        if number:
            yield []
        if len(found) > 1:
            yield [(f"pair {number}", "name")]
        yield from difference_lines(difference, screen)


def difference_lines(found: Difference, screen: Screen) -> Iterator[Element]:
    yield from screen.flow([(screen.ours(verdict(found)), "name")], " ")
    yield from notes(found, screen)
    if found.first is None:
        return
    yield []
    titles = ["step", "differ", "max abs", "max rel", "largest at", "A", "B"]
    rows = [step_row(name, step, screen) for name, step in found.steps.items()]
    yield from Listing(screen, [titles], rows, left={0, 4}).fit(4).lines()
    yield from oddities(found, screen)
    if found.no_split:
        beyond = " beyond the heads" * bool(found.split)
        said = f"Why the outputs differ cannot be said{beyond}: {found.no_split}."
        yield from screen.flow([(screen.ours(said), "aside")], " ")
    if found.split:
        yield []
        yield from split_lines(found, screen)


# --- the verdict and what stands beside it ---


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


def notes(found: Difference, screen: Screen) -> Iterator[Line]:
    """Lines on what differs beside the numbers, and on what could not be compared."""
    yield from configs(found, screen)
    for side, tokens in zip("AB", found.left_out, strict=True):
        if tokens:
            yield from fact(f"tokens only in {side}", ", ".join(map(screen.token, tokens)), screen)
    for side, names in (("A", found.only_in_a), ("B", found.only_in_b)):
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
    words = [(word, "") for word in screen.ours(text).split(" ")]
    return screen.flow([(f"{label}:", "aside"), *words], " ")


def configs(found: Difference, screen: Screen) -> Iterator[Line]:
    """The paths at which the configs differ, a line each; a terminal gets the first, with short values."""
    most = 8 if screen.fits else len(found.configs)
    for path, values in islice(found.configs.items(), most):
        dumped = [json.dumps(value, ensure_ascii=False, default=str) for value in values]
        told = ("–" if value is ABSENT else text for value, text in zip(values, dumped, strict=True))
        texts = [screen.ours(text) for text in told]
        if screen.fits:
            room = max(8, (screen.width - len(path) - 14) // 2)
            texts = [screen.short(text, room) for text in texts]
        yield from fact("config", f"{path}: {' → '.join(texts)}", screen)
    if len(found.configs) > most:
        rest = screen.left_out(len(found.configs) - most)
        yield from fact("config", f"{rest} (--full shows them)", screen)


# --- the steps ---


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
    return [(screen.ours(name), style or "name"), *((screen.ours(text), style) for text in texts)]


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


# --- the split ---


def split_lines(found: Difference, screen: Screen) -> Iterator[Element]:
    """The parts of the outputs' change: shares by head, and the number that changed most."""
    last = found.split[-1]
    shown = [name for name in last.parts if any(matters(change, name) for change in found.split)]
    title = [("why the outputs differ", "name"), ("shares of the change, adding up to 100 %", "aside")]
    yield from screen.flow([(screen.ours(text), style) for text, style in title], "   ")
    titles = ["", "change", *("\n".join(part_in_words(name)) for name in shown)]
    rows = []
    for change in found.split:
        label = change.step if change.head is None else f"head {change.head}"
        parts = (change.parts.get(name) if change.norm else None for name in shown)
        shares = (signed_percent(part.share) if part else "" for part in parts)
        rows.append([label, four_digits(change.norm), *shares])
    if last.head is None:
        titles.append(f"share of\nthe change\nof {last.step}")
        rows = [
            [*row, signed_percent(change.of_output)] for row, change in zip(rows, found.split, strict=True)
        ]
    yield from (
        Listing(
            screen,
            [["\n".join(map(screen.ours, title.split("\n"))) for title in titles]],
            [[(screen.ours(text), "" if at else "name") for at, text in enumerate(row)] for row in rows],
            left={0},
        )
        .fit(1, rest=len(shown) + 2)
        .lines()
    )
    if last.norm:
        yield from screen.flow([(screen.ours(word), "") for word in sum_words(last)], " ")


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
