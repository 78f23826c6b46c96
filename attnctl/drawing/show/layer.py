"""A layer of a model on a terminal: the head that says most, its weights, and what to type for the rest.

A layer has hundreds of columns and a dozen heads: every number of it is for a file, a pipe or `--full`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from attnctl.base.words import plural
from attnctl.drawing.screen import Line, Screen, element_lines
from attnctl.drawing.screen.output import Element, plain_text
from attnctl.drawing.screen.text import cells, pad_right
from attnctl.drawing.show import View, load_sheet
from attnctl.drawing.show.frames import frames, step_lines
from attnctl.drawing.show.headline import headline
from attnctl.drawing.show.telling import Look, look_words
from attnctl.math.names import WEIGHTS
from attnctl.record import Trace

OTHERS = 3
"""Heads that have a sentence each besides the one that is shown."""


def layer_lines(trace: Trace, screen: Screen, view: View, looks: Sequence[Look]) -> Iterator[Element]:
    """The layer as its most telling head; `looks` are those of all heads, the most telling first."""
    first, *others = looks
    opening: list[Element] = list(headline(trace, screen))
    opening += screen.sentence(
        f"{place_words(trace, first)}: {look_words(trace, screen, first)}.", "sentence"
    )

    # As lines: the rows of a frame can be read once, and these are counted before they are printed.
    drawn = weights_of_head(trace, screen, view, head=first.head, heads=len(looks))
    weights = [line for element in drawn for line in element_lines(element)]
    more = list(other_heads(trace, screen, others))
    flags = list(next_lines(trace, screen, first, heads=len(looks)))

    spaced = [*opening, [], *weights, *more, [], *flags]
    if len(list(plain_text(spaced))) < screen.height or not screen.height:
        yield from spaced
        return

    yield from opening
    yield from weights
    yield from screen.sentence(
        f"Add --head {first.head}, --step {WEIGHTS} or --full for the rest.", "aside"
    )


def place_words(trace: Trace, look: Look) -> str:
    layer = trace.header.get("layer")
    return f"Layer {layer}, head {look.head}" if isinstance(layer, int) else f"Head {look.head}"


def weights_of_head(
    trace: Trace, screen: Screen, view: View, *, head: int, heads: int
) -> Iterator[Element]:
    """The weights of one head: their numbers where all of them fit, else a heat map."""
    sheet = load_sheet(trace, WEIGHTS)
    step = sheet.steps[WEIGHTS]
    of_head = replace(view, heads=(head,))

    framed = frames(sheet, WEIGHTS, screen, of_head, heads)
    if not framed.at_a_glance:
        of_head = replace(of_head, heat=True)
    yield from step_lines(sheet, step, screen, view=of_head, heads=heads)


def other_heads(trace: Trace, screen: Screen, others: Sequence[Look]) -> Iterator[Line]:
    telling = [look for look in others if look.tells][:OTHERS]
    for look in telling:
        yield from screen.sentence(f"head {look.head}: {look_words(trace, screen, look)}")

    rest = len(others) - len(telling)
    if rest > 0:
        yield [(screen.printable(f"… and {plural(rest, 'head')} more"), "aside")]


def next_lines(trace: Trace, screen: Screen, look: Look, heads: int) -> Iterator[Line]:
    """What to add to the command for the rest of the layer."""
    first_flag = f"--head {look.head}"
    more = {
        first_flag: "every step of this head",
        f"--step {WEIGHTS}": f"the weights of {plural(heads, 'head')}",
        "--full": f"all {plural(len(trace.steps), 'step')}, nothing left out",
    }
    width = max(map(cells, more)) + 2
    for flag, what in more.items():
        word = "Add " if flag == first_flag else "    "
        yield [(word, "aside"), (pad_right(flag, width), "name"), (what, "aside")]
