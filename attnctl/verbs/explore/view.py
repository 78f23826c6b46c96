"""The lines of the explorer: plain spans, some of which act when they are clicked; and its keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.text import cells, fold_text, take
from attnctl.drawing.show import heads_of, place_word
from attnctl.verbs.explain.view import Page
from attnctl.verbs.explore.walk import NUMBERS, ExplorerState, summary


class TextSpan(NamedTuple):
    """Text of a line, the name of its style, and the action of a click on it ("" for none)."""

    text: str
    style: str = ""
    action: str = ""


Parts = list[TextSpan]

OPERAND, CHOSEN = "operand", "chosen"  # the styles of what can be followed, and of what Enter follows


def title(walk: ExplorerState, screen: Screen) -> Parts:
    header = walk.trace.header
    made = walk.layer.made
    words = made.source.words if made else walk.layer.words
    said = [screen.printable(walk.trace.sentence or " ".join(words) or "arrays")]
    if "model" in header:
        said.append(screen.printable(f"{header['model']}, layer {header.get('layer')}"))
    if len(walk.layers) > 1:
        said.append(f"{walk.place.layer + 1} of {len(walk.layers)} traces (l)")
    if made is not None and not made.source.no_seed:
        said.append(f"seed {made.settings.seed}")
    if made is not None and made.settings.rules:
        said.append(", ".join(rule.name for rule in made.settings.rules))
    if walk.layer.edits:
        count = len(walk.layer.edits)
        said.append(f"{count} edit{'s' * (count != 1)} (u undoes)")
    return [TextSpan(said[0], "sentence"), *(TextSpan(screen.dot + text, "aside") for text in said[1:])]


def heading(walk: ExplorerState, screen: Screen) -> list[Parts]:
    """The step that is shown, and what its edits did; then which matrix and which cell of it."""
    line = walk.trace.steps[walk.step]
    axes, total = walk.axes, heads_of(walk.trace)
    where = [
        place_word(axes, axis, at, few=size < total) + f" of {size}"
        for axis, (at, size) in enumerate(zip(walk.lead, walk.array.shape, strict=False))
    ]
    where += [walk.mode] * (walk.mode != NUMBERS)
    changed = summary(walk)
    if not changed:
        where += [f"{' x '.join(axes[-2:])}, {' x '.join(map(str, walk.array.shape[-2:]))}"]
    second = [TextSpan(screen.printable(screen.dot.join(where)), "aside")]
    if changed:
        second += [TextSpan(screen.dot if where else ""), TextSpan(screen.printable(changed), "name")]
    step, formula = screen.printable(walk.step), screen.printable(f" = {line.formula}")
    return [[TextSpan(step, "name"), TextSpan(formula)], second]


def arithmetic_lines(walk: ExplorerState, screen: Screen, precision: int = 4) -> Iterator[Parts]:
    """The explanation of the cell, as `explain` has it; operands that are named in it can be clicked."""
    node, page = walk.node, Page(walk.layer.explainer, screen, precision)
    if node is None:
        yield [TextSpan(f"{screen.printable(walk.step)} has no cells", "aside")]
        return
    if node.explanation is None:
        value = screen.printable(page.number(node.value))
        yield [TextSpan(screen.printable(node.name), "label"), TextSpan(f" = {value}")]
        for text in fold_text(screen.printable(node.why_not), screen.width):
            yield [TextSpan(text, "aside")]
        return
    yield chosen_operand(walk, page)
    spell = walk.layer.explainer.spell
    numbers = {screen.printable(spell(*operand)): number for number, operand in enumerate(walk.operands)}
    for line in list(page.lines(node))[2:]:  # the step and its formula stand above the matrix
        yield from wrap_parts(link_operands(line, numbers, walk.operand), screen.width)
    old = walk.layer.old(walk.step)
    if old is not None:
        before = float(old[walk.place.cell])
        if not np.array_equal(before, node.value, equal_nan=True):
            yield [TextSpan(f"was {screen.printable(page.number(before))} before the edits", "aside")]


def chosen_operand(walk: ExplorerState, page: Page) -> Parts:
    back = [TextSpan("  Backspace goes back", "aside", "go('back')")] if walk.history else []
    if not walk.operands:
        return [TextSpan("nothing was read for this cell", "aside"), *back]
    step, cell = walk.operands[walk.operand]
    count, value = len(walk.operands), page.number(float(walk.trace[step][cell]))
    name = page.screen.printable(page.explainer.spell(step, cell))
    return [
        TextSpan("Enter follows ", "aside"),
        TextSpan(name, CHOSEN, f"follow({walk.operand})"),
        TextSpan(f" = {page.screen.printable(value)}"),
        *[TextSpan(f"  {walk.operand + 1} of {count}: Tab", "aside", "operand(1)")] * (count > 1),
        *back,
    ]


def link_operands(line: Line, numbers: Mapping[str, int], chosen: int) -> Parts:
    parts: Parts = []
    for text, style in line:
        at = 0
        # the longest names first; of a long sum few are shown
        names = sorted((name for name in numbers if name in text), key=len, reverse=True)
        any_name = r"(?<![\w])(?:" + "|".join(map(re.escape, names)) + ")" if names else r"(?!)"
        for found in re.finditer(any_name, text):
            number = numbers[found[0]]
            parts += [TextSpan(text[at : found.start()], style)] if found.start() > at else []
            parts.append(TextSpan(found[0], CHOSEN if number == chosen else OPERAND, f"follow({number})"))
            at = found.end()
        parts += [TextSpan(text[at:], style)] if at < len(text) else []
    return parts


def wrap_parts(parts: Parts, width: int) -> Iterator[Parts]:
    """The line, going on below where it is wider than this."""
    line: Parts = []
    used = 0
    for part in parts:
        text = part.text
        while used + cells(text) > width:
            first = take(text, width - used)
            if not first and not used:
                break
            yield [*line, part._replace(text=first)] if first else line
            line, used, text = [], 0, text[len(first) :]
        line.append(part._replace(text=text))
        used += cells(text)
    yield line


# --- the keys: for the program, for the line at its foot and for its help ---


class Hotkey(NamedTuple):
    """A key's names, its action, and its words in the help and in the foot."""

    keys: str
    action: str
    sign: str = ""
    help: str = ""
    foot: str = ""


FAR = 10**9  # more rows and columns than a matrix has: a move of so many ends at its edge

KEYS = (
    Hotkey("up", "go('move',(-1,0))", "arrows", "move from cell to cell"),
    Hotkey("down", "go('move',(1,0))"),
    Hotkey("left", "go('move',(0,-1))"),
    Hotkey("right", "go('move',(0,1))"),
    Hotkey("pageup", "page(-1)", "PgUp PgDn", "a page of rows up or down"),
    Hotkey("pagedown", "page(1)"),
    Hotkey("home", f"go('move',(0,-{FAR}))", "Home End", "the first or the last column of the row"),
    Hotkey("end", f"go('move',(0,{FAR}))"),
    Hotkey(
        "ctrl+home",
        f"go('move',(-{FAR},-{FAR}))",
        "Ctrl-Home Ctrl-End",
        "the first or the last cell of the matrix",
    ),
    Hotkey("ctrl+end", f"go('move',({FAR},{FAR}))"),
    Hotkey(
        "enter",
        "follow",
        "Enter",
        "go to the cell of the chosen operand: where its number came from",
        "follow",
    ),
    Hotkey("backspace", "go('back')", "Backspace", "go back to where you were", "back"),
    Hotkey("tab", "operand(1)", "Tab", "choose the next operand (Shift-Tab: the one before)", "operand"),
    Hotkey("shift+tab", "operand(-1)"),
    Hotkey("1,2,3,4,5,6,7,8,9", "nth", "1-9", "choose an operand by its number"),
    Hotkey("left_square_bracket", "go('go_step',(-1,))"),
    Hotkey("right_square_bracket", "go('go_step',(1,))", "[ ]", "the step before, the next step", "step"),
    Hotkey("h", "go('along',('head',1))", "h", "the next head (H: the one before)", "head"),
    Hotkey("H", "go('along',('head',-1))"),
    Hotkey("b", "go('along',('batch',1))", "b", "the next member of a batch (B: the one before)"),
    Hotkey("B", "go('along',('batch',-1))"),
    Hotkey(
        "l",
        "go('to_layer',(1,))",
        "l",
        "the next layer or trace, where there are several (L: the one before)",
    ),
    Hotkey("L", "go('to_layer',(-1,))"),
    Hotkey(
        "slash",
        "ask('find')",
        "/",
        "find a token: love, or love,AI for row and column, or a whole cell",
        "find",
    ),
    Hotkey(
        "e",
        "ask('edit')",
        "e",
        "edit the number: 0.5, +=1, *=2; every later step shows what changed",
        "edit",
    ),
    Hotkey("u", "undo", "u", "take the last edit back"),
    Hotkey(
        "d",
        "go('show_mode',('difference',))",
        "d",
        "show what the edits added to each number, and the numbers again",
    ),
    Hotkey("m", "rules", "m", "switch rules on and off: causal, window, ...", "rules"),
    Hotkey("s", "ask('seed')", "s", "draw everything from another seed", "seed"),
    Hotkey("t", "go('show_mode',('heat',))", "t", "a heat map, and the numbers again", "heat"),
    Hotkey(
        "w",
        "write",
        "w",
        "write the shell commands that give what is seen; they are printed at the end, too",
        "shell",
    ),
    Hotkey("shift+up", "scroll(-1)", "Shift-Up Shift-Down", "scroll the arithmetic"),
    Hotkey("shift+down", "scroll(1)"),
    Hotkey("question_mark", "help", "?", "this help", "help"),
    Hotkey("q", "quit", "q", "leave", "quit"),
)
"""Every key, in the order of the help."""


def foot(width: int) -> Parts:
    """The keys that fit, each of which can be clicked; Enter, Backspace, help and quit go last."""
    shown = [key for key in KEYS if key.foot]
    while sum(cells(f" {key.sign} {key.foot}") for key in shown) > width and len(shown) > 2:
        del shown[2 if len(shown) > 4 else 0]
    return [
        part
        for key in shown
        for part in (TextSpan(f" {key.sign}", "key", key.action), TextSpan(f" {key.foot}", "", key.action))
    ]


def help_lines(width: int) -> Iterator[Parts]:
    signs = [key for key in KEYS if key.help]
    widest = max(cells(key.sign) for key in signs)
    for key in signs:
        first, *rest = fold_text(key.help, max(12, width - widest - 3))
        yield [TextSpan(f" {key.sign.ljust(widest)}  ", "key"), TextSpan(first)]
        yield from ([TextSpan(" " * (widest + 3) + text)] for text in rest)
    yield []
    mouse = (
        "The mouse does it too: click a cell, a step, an operand in the arithmetic, or a key at the foot."
    )
    yield from ([TextSpan(f" {text}")] for text in fold_text(mouse, max(12, width - 2)))
