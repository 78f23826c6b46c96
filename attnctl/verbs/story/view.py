"""A story as text: each claim in a sentence, chapter by chapter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnctl.base.words import all_of, plural
from attnctl.drawing.screen import GAP, Frame, Line, Screen, lines_beside
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.text import cells, fold_text
from attnctl.drawing.show import formula_of, heads_of, shape_of
from attnctl.drawing.show.headline import MOST_KEYS, UNBROKEN, Namer, headline, percent, quoted_token
from attnctl.drawing.show.tables import one_table
from attnctl.math import Cell
from attnctl.math.derivation import Step
from attnctl.record import Trace
from attnctl.record.cells import spell_cell
from attnctl.verbs import story as told
from attnctl.verbs.story import Story, is_slope

WIDEST, NARROWEST = 80, 36
"""Columns of a story, as longer lines are hard to read; of the words beside a table, at least."""

OF_ROWS = {
    told.BLIND: "{} may look at nothing, and all weights are 0",
    told.EMPTY: "All weights of {} are 0",
    told.UNMIXED: "{} {} not what the weights make of the values",
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
    chapter, name = story.chapters[number], Namer(story.trace, screen)
    step = chapter.steps[0]
    about = "" if len(chapter.steps) > 1 else f"   {formula_of(step)}   {shape_of(story.trace, step)}"
    title = ", ".join(step.name for step in chapter.steps)
    count = f"{number + 1}/{len(story.chapters)} "
    first, *rest = fold_text(screen.printable(count + title + about), min(WIDEST, screen.width))
    head, tail = len(count), len(count) + len(screen.printable(title))
    yield [(first[:head], "aside"), (first[head:tail], "name"), (first[tail:], "")]
    yield from ([(line, "")] for line in rest)
    tables = tables_of(story.trace, chapter.steps, screen) if screen.fits else []
    width = max((table.width for table in tables), default=0)
    beside = len(tables) == 1 and width + GAP + NARROWEST <= screen.width
    room = screen._replace(width=screen.width - width - GAP) if beside else screen
    more = [f"… and {plural(chapter.left_out, 'row')} more."] * bool(chapter.left_out)
    sentences = (chapter.happens, *(sentence_of(claim, name) for claim in chapter.claims), *more)
    words = [
        line for sentence in sentences for line in wrap_sentence(sentence, room, "" if beside else "  ")
    ]
    if beside:
        yield from lines_beside([tables, words], [width, max(cells(text) for ((text, _),) in words)])
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


def sentence_of(claim: told.Claim, name: Namer) -> str:
    match claim:
        case told.TopKeys():
            return say_look(claim, name)
        case told.Mix(step, row, mixed, rest):
            parts = [f"{percent(share)} of {name.key(key)}" for key, share in mixed]
            if rest >= 0.00005:  # what is less is not said
                parts.append(f"{percent(rest)} of others")
            return f"{name.row(step, row)} is {all_of(parts)}."
        case told.Hidden(_, by, of):
            return say_hidden(by, of)
        case told.OddRows(step, kind, rows):
            be = "is" if len(rows) == 1 else "are"
            named = [name.row(step, row) for row in rows[:MOST_KEYS]]
            more = len(rows) - len(named)
            said = "; ".join([*named, f"{plural(more, 'row')} more"] if more else named)
            return f"{OF_ROWS[kind].format(plural(len(rows), 'row'), be)}: {said}."
        case told.Extremes():
            return say_extremes(claim, name)
        case told.NotFinite(_, count):
            return f"{count} of its numbers {'is' if count == 1 else 'are'} not finite."


def say_hidden(by: Sequence[tuple[str, int]], of: int) -> str:
    total = sum(count for _, count in by)
    if not total:
        return f"None of the {of} scores is hidden."
    said = f"by {by[0][0]}" if len(by) == 1 else all_of(f"{count} by {rule}" for rule, count in by)
    return f"{total} of {of} scores {'is' if total == 1 else 'are'} hidden, {said}."


def say_look(claim: told.TopKeys, name: Namer) -> str:
    who, share = name.row(claim.step, claim.row), percent(claim.share)
    keys, each = name.seen(claim.row, claim.keys), " each" * (claim.seen != 1 and len(claim.keys) > 1)
    hides = "; ".join(f"{rule} hides {name.keys(hidden)}" for rule, hidden in claim.hidden)
    scores = list(dict.fromkeys(map(four_digits, claim.scores)))
    if claim.seen == 1:
        said, why = f"sees only {keys}", ""
    elif len(claim.keys) == claim.seen and claim.seen > 1:
        said = f"looks at {keys} alike"
        why = ", because their scores are the same" if len(scores) == 1 else ""
    else:
        said = f"looks most{', and alike,' * bool(each)} at {keys}"
        why = because(claim, scores) if scores else ""
    return f"{who} {said}: {share}{each}{why}{f' ({hides})' * bool(hides)}."


def because(claim: told.TopKeys, scores: Sequence[str]) -> str:
    among = f"of the {claim.seen} it sees" if claim.hidden else "of its row"
    if len(claim.scores) == 1:
        return f", because its score {scores[0]} is the largest {among}"
    return f", because their scores ({all_of(scores)}) are the largest {among}"


def say_extremes(claim: told.Extremes, name: Namer) -> str:
    of_all = "number" if claim.whole else "finite number"
    if claim.most == claim.least:
        return f"Every {of_all} is {four_digits(claim.most)}."
    if is_slope(claim.step):
        return say_slopes(claim, name)
    high, low = (cell_name(name, claim.step, at) for at in (claim.largest, claim.smallest))
    reach = f"The largest {of_all} is {four_digits(claim.most)} at {high}"
    return f"{reach}, the smallest {four_digits(claim.least)} at {low}."


def say_slopes(claim: told.Extremes, name: Namer) -> str:
    step, _, through = claim.step.removeprefix("d_").partition("_through_")
    said = [
        f"raising {cell_name(name, step, at)} by a little {'raises' if slope > 0 else 'lowers'} "
        f"the loss by {four_digits(abs(slope))} times as much"
        for at, slope in ((claim.largest, claim.most), (claim.smallest, claim.least))
        if slope
    ]
    text = f"through {through}, " * bool(through) + f"{'; '.join(said)}."
    return text[0].upper() + text[1:]


def cell_name(name: Namer, step: str, cell: Cell) -> str:
    return name.screen.printable(spell_cell(name.trace, step, cell))


def four_digits(value: float) -> str:
    """Four digits that count, with a true minus."""
    return f"{value:.4g}".replace("-", "−", 1)
