"""A story as text: each claim in a sentence, chapter by chapter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnctl.base.words import all_of, plural
from attnctl.drawing.screen import GAP, Frame, Line, Screen, Shelf
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.text import cells, fold_text
from attnctl.drawing.show import formula_of, heads_of, shape_of
from attnctl.drawing.show.headline import MOST_KEYS, UNBROKEN, Namer, headline, percent, quoted_token
from attnctl.drawing.show.tables import one_table
from attnctl.math.derivation import Step
from attnctl.record import Trace
from attnctl.record.cells import Speller
from attnctl.verbs.story import (
    BLIND,
    EMPTY,
    UNMIXED,
    Claim,
    Extremes,
    Hidden,
    Mix,
    NotFinite,
    OddRows,
    Story,
    TopKeys,
    is_slope,
)

WIDEST, NARROWEST = 80, 36
"""Columns of a story, as longer lines are hard to read; of the words beside a table, at least."""

OF_ROWS = {
    BLIND: "{} may look at nothing, and all weights are 0",
    EMPTY: "All weights of {} are 0",
    UNMIXED: "{} {} not what the weights make of the values",
}


def story_lines(story: Story, screen: Screen) -> Iterator[Element]:
    yield from opening(story, screen)
    for number in range(len(story.chapters)):
        yield []
        yield from chapter_lines(story, number, screen)


def opening(story: Story, screen: Screen) -> Iterator[Element]:
    yield from headline(story.trace, screen._replace(fits=True, width=min(WIDEST, screen.width)))
    tokens, ids = story.trace.tokens, story.trace.ids
    if tokens:
        words = [quoted_token(screen.token(token)) for token in tokens[:WIDEST]]
        if ids and len(ids) == len(tokens):
            words = [f"{word} ({number})" for word, number in zip(words, ids, strict=False)]
        more = f" and {len(tokens) - WIDEST} more" if len(tokens) > WIDEST else ""
        of = ", each with its id" if ids else ""
        yield []
        yield from wrap_sentence(f"{plural(len(tokens), 'token')}{of}: {', '.join(words)}{more}.", screen)


def chapter_lines(story: Story, number: int, screen: Screen) -> Iterator[Element]:
    chapter, writer = story.chapters[number], Writer(story, screen)
    step = chapter.steps[0]
    about = "" if len(chapter.steps) > 1 else f"   {formula_of(step)}   {shape_of(story.trace, step)}"
    title = ", ".join(step.name for step in chapter.steps)
    count = f"{number + 1}/{len(story.chapters)} "
    first, *rest = fold_text(screen.printable(count + title + about), min(WIDEST, screen.width))
    head, name = len(count), len(screen.printable(title))
    yield [(first[:head], "aside"), (first[head : head + name], "name"), (first[head + name :], "")]
    yield from ([(line, "")] for line in rest)
    tables = tables_of(story.trace, chapter.steps, screen) if screen.fits else []
    width = max((table.width for table in tables), default=0)
    beside = len(tables) == 1 and width + GAP + NARROWEST <= screen.width
    room = screen._replace(width=screen.width - width - GAP) if beside else screen
    more = [f"… and {plural(chapter.left_out, 'row')} more."] * bool(chapter.left_out)
    told = (chapter.happens, *map(writer.sentence, chapter.claims), *more)
    words = [line for sentence in told for line in wrap_sentence(sentence, room, "" if beside else "  ")]
    if beside:
        yield Shelf([tables, words], [width, max(cells(text) for ((text, _),) in words)])
    else:
        yield from tables
        yield from words


def tables_of(trace: Trace, steps: Sequence[Step], screen: Screen) -> list[Frame]:
    """One for all of these steps, or one each where they do not fit beside each other."""
    whole = one_table(trace, steps, screen, heads_of(trace))
    if whole is not None or len(steps) == 1:
        return [whole] if whole is not None else []
    return [table for step in steps for table in tables_of(trace, [step], screen)]


def wrap_sentence(text: str, screen: Screen, indent: str = "  ") -> Iterator[Line]:
    """A sentence in lines of at most 80 columns, or as wide as a narrow terminal."""
    width = min(WIDEST, screen.width) - len(indent)
    for line in fold_text(screen.printable(text).replace(" %", f"{UNBROKEN}%"), width):
        yield [(f"{indent}{line.replace(UNBROKEN, ' ')}", "")]


class Writer(Namer):
    def __init__(self, story: Story, screen: Screen) -> None:
        super().__init__(story.trace, screen)
        self.spell = Speller(story.trace)

    def sentence(self, claim: Claim) -> str:
        match claim:
            case TopKeys():
                return self.look(claim)
            case Mix():
                return self.mix(claim)
            case Hidden():
                return self.hidden(claim)
            case OddRows(step, kind, rows):
                be = "is" if len(rows) == 1 else "are"
                return f"{OF_ROWS[kind].format(plural(len(rows), 'row'), be)}: {self.rows(step, rows)}."
            case Extremes():
                return self.extremes(claim)
            case NotFinite(_, count):
                return f"{count} of its numbers {'is' if count == 1 else 'are'} not finite."

    def hidden(self, claim: Hidden) -> str:
        total = sum(count for _, count in claim.by)
        if not total:
            return f"None of the {claim.of} scores is hidden."
        by = all_of(f"{count} by {rule}" for rule, count in claim.by)
        if len(claim.by) == 1:
            by = f"by {claim.by[0][0]}"
        return f"{total} of {claim.of} scores {'is' if total == 1 else 'are'} hidden, {by}."

    def look(self, claim: TopKeys) -> str:
        who, share = self.row(claim.step, claim.row), percent(claim.share)
        keys = self.seen(claim.row, claim.keys)
        if claim.seen == 1:
            return f"{who} sees only {keys}: {share}{self.hiding(claim)}."
        if len(claim.keys) == claim.seen and claim.seen > 1:
            alike = f"{who} looks at {keys} alike: {share} each"
            equal = len(set(map(four_digits, claim.scores))) == 1
            same = ", because their scores are the same" if equal else ""
            return f"{alike}{same}{self.hiding(claim)}."
        if len(claim.keys) > 1:
            why = self.because(claim) + self.hiding(claim)
            return f"{who} looks most, and alike, at {keys}: {share} each{why}."
        return f"{who} looks most at {keys}: {share}{self.because(claim)}{self.hiding(claim)}."

    def because(self, claim: TopKeys) -> str:
        if not claim.scores:
            return ""
        scores = list(dict.fromkeys(map(four_digits, claim.scores)))
        among = f"of the {claim.seen} it sees" if claim.hidden else "of its row"
        if len(claim.scores) == 1:
            return f", because its score {scores[0]} is the largest {among}"
        return f", because their scores ({all_of(scores)}) are the largest {among}"

    def hiding(self, claim: TopKeys) -> str:
        said = [f"{rule} hides {self.keys(keys)}" for rule, keys in claim.hidden]
        return f" ({'; '.join(said)})" if said else ""

    def mix(self, claim: Mix) -> str:
        parts = [f"{percent(share)} of {self.key(key)}" for key, share in claim.parts]
        if claim.rest >= 0.00005:  # what is less is not said
            parts.append(f"{percent(claim.rest)} of others")
        return f"{self.row(claim.step, claim.row)} is {all_of(parts)}."

    def extremes(self, claim: Extremes) -> str:
        of_all = "number" if claim.whole else "finite number"
        if claim.most == claim.least:
            return f"Every {of_all} is {four_digits(claim.most)}."
        if is_slope(claim.step):
            return self.slopes(claim)
        high, low = self.cell(claim.step, claim.largest), self.cell(claim.step, claim.smallest)
        reach = f"The largest {of_all} is {four_digits(claim.most)} at {high}"
        return f"{reach}, the smallest {four_digits(claim.least)} at {low}."

    def slopes(self, claim: Extremes) -> str:
        name, _, through = claim.step.removeprefix("d_").partition("_through_")
        ends = ((claim.largest, claim.most), (claim.smallest, claim.least))
        said = [f"raising {self.cell(name, at)} by a little {moves(slope)}" for at, slope in ends if slope]
        text = f"through {through}, " * bool(through) + f"{'; '.join(said)}."
        return text[0].upper() + text[1:]

    def cell(self, step: str, cell: tuple[int, ...]) -> str:
        """scores[0,love,AI], as `explain` takes it."""
        return self.screen.printable(self.spell(step, cell))

    def rows(self, step: str, rows: Sequence[tuple[int, ...]]) -> str:
        named = [self.row(step, row) for row in rows[:MOST_KEYS]]
        more = len(rows) - len(named)
        return "; ".join([*named, f"{plural(more, 'row')} more"] if more else named)


def moves(slope: float) -> str:
    if not slope:
        return "leaves the loss as it is"
    return f"{'raises' if slope > 0 else 'lowers'} the loss by {four_digits(abs(slope))} times as much"


def four_digits(value: float) -> str:
    """Four digits that count, with a true minus."""
    return f"{value:.4g}".replace("-", "−", 1)
