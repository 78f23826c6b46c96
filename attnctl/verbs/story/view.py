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
from attnctl.verbs import story as claims
from attnctl.verbs.story import Chapter, Story, is_slope

WIDEST = 80
"""Columns of a story, as longer lines are hard to read."""

NARROWEST = 36
"""Columns of the words beside a table, at least."""

LEAST_SHARE = 0.00005
"""A share that is less is not said: it would read as 0.0 %."""

OF_ROWS = {
    claims.BLIND: "{} may look at nothing, and all weights are 0",
    claims.EMPTY: "All weights of {} are 0",
    claims.UNMIXED: "{} {} not what the weights make of the values",
}


def story_lines(story: Story, screen: Screen) -> Iterator[Element]:
    yield from opening(story, screen)
    for number in range(len(story.chapters)):
        yield []
        yield from chapter_lines(story, number, screen)


def opening(story: Story, screen: Screen) -> Iterator[Element]:
    yield from headline(story.trace, screen._replace(fits=True, width=min(WIDEST, screen.width)))
    if story.trace.tokens:
        yield []
        yield from wrap_sentence(say_tokens(story.trace, screen), screen)


def say_tokens(trace: Trace, screen: Screen) -> str:
    tokens = trace.tokens or []
    words = [quoted_token(screen.token(token)) for token in tokens[:WIDEST]]
    if trace.ids and len(trace.ids) == len(tokens):
        words = [f"{word} ({number})" for word, number in zip(words, trace.ids, strict=False)]

    listed = ", ".join(words)
    if len(tokens) > WIDEST:
        listed = f"{listed} and {len(tokens) - WIDEST} more"
    count = plural(len(tokens), "token")
    with_ids = ", each with its id" if trace.ids else ""
    return f"{count}{with_ids}: {listed}."


def chapter_lines(story: Story, number: int, screen: Screen) -> Iterator[Element]:
    chapter = story.chapters[number]
    yield from title_lines(story, number, screen)

    # In a pipe or a file a story is words alone.
    tables = tables_of(story.trace, chapter.steps, screen) if screen.fits else []
    width = max((table.width for table in tables), default=0)

    if len(tables) == 1 and width + GAP + NARROWEST <= screen.width:
        room = screen._replace(width=screen.width - width - GAP)
        words = list(sentence_lines(story, chapter, room, indent=""))
        widest = max(cells(text) for ((text, _),) in words)
        yield from lines_beside([tables, words], [width, widest])
    else:
        yield from tables
        yield from sentence_lines(story, chapter, screen, indent="  ")


def title_lines(story: Story, number: int, screen: Screen) -> Iterator[Line]:
    """`3/9 scores   S = Q Kᵀ   3 × 3 (query, key)`: steps made alike are named without the rest."""
    steps = story.chapters[number].steps
    count = f"{number + 1}/{len(story.chapters)} "
    title = ", ".join(step.name for step in steps)
    about = ""
    if len(steps) == 1:
        about = f"   {formula_of(steps[0])}   {shape_of(story.trace, steps[0])}"

    first, *rest = fold_text(screen.printable(count + title + about), min(WIDEST, screen.width))
    title_start = len(count)
    title_end = title_start + len(screen.printable(title))
    yield [
        (first[:title_start], "aside"),
        (first[title_start:title_end], "name"),
        (first[title_end:], ""),
    ]
    for line in rest:
        yield [(line, "")]


def sentence_lines(story: Story, chapter: Chapter, screen: Screen, *, indent: str) -> Iterator[Line]:
    """What happens, what came out, and how much is not told."""
    name = Namer(story.trace, screen)
    sentences = [chapter.happens]
    sentences += [sentence_of(claim, name) for claim in chapter.claims]
    if chapter.left_out:
        sentences.append(f"… and {plural(chapter.left_out, 'row')} more.")

    for sentence in sentences:
        yield from wrap_sentence(sentence, screen, indent)


def tables_of(trace: Trace, steps: Sequence[Step], screen: Screen) -> list[Frame]:
    """One for all of these steps, or one each where they do not fit beside each other."""
    whole = one_table(trace, steps, screen, heads_of(trace))
    if whole is not None:
        return [whole]
    if len(steps) == 1:
        return []

    tables = []
    for step in steps:
        tables += tables_of(trace, [step], screen)
    return tables


def wrap_sentence(text: str, screen: Screen, indent: str = "  ") -> Iterator[Line]:
    """A sentence in lines of at most 80 columns, or as wide as a narrow terminal."""
    width = min(WIDEST, screen.width) - len(indent)
    unbroken = screen.printable(text).replace(" %", f"{UNBROKEN}%")  # a number stays beside its %
    for line in fold_text(unbroken, width):
        yield [(f"{indent}{line.replace(UNBROKEN, ' ')}", "")]


def sentence_of(claim: claims.Claim, name: Namer) -> str:
    match claim:
        case claims.TopKeys():
            return say_look(claim, name)
        case claims.Mix():
            return say_mix(claim, name)
        case claims.Hidden(_, by, of):
            return say_hidden(by, of)
        case claims.OddRows():
            return say_odd_rows(claim, name)
        case claims.Extremes():
            return say_extremes(claim, name)
        case claims.NotFinite(_, count):
            return f"{count} of its numbers {'is' if count == 1 else 'are'} not finite."


def say_mix(claim: claims.Mix, name: Namer) -> str:
    parts = [f"{percent(share)} of V[{name.key(key)}]" for key, share in claim.parts]
    if claim.rest >= LEAST_SHARE:
        parts.append(f"{percent(claim.rest)} of other rows")
    return f"{name.row(claim.step, claim.row)} gets {all_of(parts)}."


def say_odd_rows(claim: claims.OddRows, name: Namer) -> str:
    rows = claim.rows
    named = [name.row(claim.step, row) for row in rows[:MOST_KEYS]]
    if len(rows) > len(named):
        named.append(f"{plural(len(rows) - len(named), 'row')} more")

    verb = "is" if len(rows) == 1 else "are"
    sentence = OF_ROWS[claim.kind].format(plural(len(rows), "row"), verb)
    return f"{sentence}: {'; '.join(named)}."


def say_hidden(by: Sequence[tuple[str, int]], of: int) -> str:
    total = sum(count for _, count in by)
    if not total:
        return f"None of the {of} scores is hidden."

    if len(by) == 1:
        only_rule, _ = by[0]
        causes = f"by {only_rule}"
    else:
        causes = all_of(f"{count} by {rule}" for rule, count in by)
    return f"{total} of {of} scores {'is' if total == 1 else 'are'} hidden, {causes}."


def say_look(claim: claims.TopKeys, name: Namer) -> str:
    keys = name.seen(claim.row, claim.keys)
    scores = list(dict.fromkeys(map(four_digits, claim.scores)))
    several_tie = claim.seen != 1 and len(claim.keys) > 1

    reason = ""
    if claim.seen == 1:
        look = f"sees only {keys}"
    elif len(claim.keys) == claim.seen and claim.seen > 1:
        look = f"looks at {keys} alike"
        if len(scores) == 1:
            reason = ", because their scores are the same"
    else:
        look = f"looks most, and alike, at {keys}" if several_tie else f"looks most at {keys}"
        if scores:
            reason = because(claim, scores)

    row = name.row(claim.step, claim.row)
    share = percent(claim.share)
    each = " each" if several_tie else ""
    hides = "; ".join(f"{rule} hides {name.keys(hidden)}" for rule, hidden in claim.hidden)
    aside = f" ({hides})" if hides else ""
    return f"{row} {look}: {share}{each}{reason}{aside}."


def because(claim: claims.TopKeys, scores: Sequence[str]) -> str:
    among = f"of the {claim.seen} it sees" if claim.hidden else "of its row"
    if len(claim.scores) == 1:
        return f", because its score {scores[0]} is the largest {among}"
    return f", because their scores ({all_of(scores)}) are the largest {among}"


def say_extremes(claim: claims.Extremes, name: Namer) -> str:
    number = "number" if claim.whole else "finite number"
    if claim.most == claim.least:
        return f"Every {number} is {four_digits(claim.most)}."
    if is_slope(claim.step):
        return say_slopes(claim, name)

    largest = (
        f"The largest {number} is {four_digits(claim.most)} at {cell_name(name, claim.step, claim.largest)}"
    )
    smallest = f"the smallest {four_digits(claim.least)} at {cell_name(name, claim.step, claim.smallest)}"
    return f"{largest}, {smallest}."


def say_slopes(claim: claims.Extremes, name: Namer) -> str:
    step, _, through = claim.step.removeprefix("d_").partition("_through_")

    effects = []
    for cell, slope in ((claim.largest, claim.most), (claim.smallest, claim.least)):
        if not slope:
            continue
        moves = "raises" if slope > 0 else "lowers"
        effects.append(
            f"a small increase of {cell_name(name, step, cell)} {moves} "
            f"the loss by {four_digits(abs(slope))} × that increase"
        )

    text = f"{'; '.join(effects)}."
    if through:
        text = f"through {through}, {text}"
    return text[0].upper() + text[1:]


def cell_name(name: Namer, step: str, cell: Cell) -> str:
    return name.screen.printable(spell_cell(name.trace, step, cell))


def four_digits(value: float) -> str:
    """Four digits that count, with a true minus."""
    return f"{value:.4g}".replace("-", "−", 1)
