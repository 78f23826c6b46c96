"""What the explorer says about where one stands, as lines of spans; the matrix around the cursor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnctl.base.words import number_repeats, plural
from attnctl.drawing.screen import Line, Screen, Span
from attnctl.drawing.screen.grid import matrix_format
from attnctl.drawing.screen.heat import levels_of
from attnctl.drawing.screen.text import fold_text
from attnctl.drawing.show import heads_of, marks, place_word
from attnctl.drawing.show.frames import shorten_labels
from attnctl.math import Array, Cell
from attnctl.verbs.explain.view import Page
from attnctl.verbs.explore import ExplorerState, share_text, summary


def title(walk: ExplorerState, screen: Screen) -> Line:
    header = walk.trace.header
    made = walk.layer.made
    words = made.source.words if made else walk.layer.words

    facts = [screen.printable(walk.trace.sentence or " ".join(words) or "arrays")]
    if "model" in header:
        facts.append(screen.printable(f"{header['model']}, layer {header.get('layer')}"))
    if len(walk.layers) > 1:
        facts.append(f"{walk.place.layer + 1} of {len(walk.layers)} traces (l)")
    if made is not None and not made.source.no_seed:
        facts.append(f"seed {made.settings.seed}")
    if made is not None and made.settings.rules:
        facts.append(", ".join(rule.name for rule in made.settings.rules))
    if walk.layer.edits:
        facts.append(f"{plural(len(walk.layer.edits), 'edit')} (u undoes)")

    sentence, *others = facts
    return [(sentence, "sentence"), *((screen.dot + text, "aside") for text in others)]


def heading(walk: ExplorerState, screen: Screen) -> list[Line]:
    """The step that is shown; then which matrix of it, and what edits did to it."""
    line = walk.trace.steps[walk.step]
    axes = walk.axes
    shape = walk.array.shape
    heads = heads_of(walk.trace)

    words = []
    for axis, place in enumerate(walk.lead):
        name = place_word(axes, axis, place, few=shape[axis] < heads)
        words.append(f"{name} of {shape[axis]}")
    if walk.heat:
        words.append("heat")
    axes_words = " x ".join(axes[-2:])
    sizes = " x ".join(map(str, shape[-2:]))
    words.append(summary(walk) or f"{axes_words}, {sizes}")

    name = screen.printable(walk.step)
    formula = screen.printable(f" = {line.formula}")
    aside = screen.printable(screen.dot.join(words))
    return [[(name, "name"), (formula, "")], [(aside, "aside")]]


def step_lines(walk: ExplorerState, screen: Screen) -> Iterator[Line]:
    """The name of each step, bold where the arithmetic reads it, and how much of it edits changed."""
    read = {step for step, _ in walk.operands}
    for step in walk.layer.steps:
        changed, total, _ = walk.layer.changed(step) or (0, 0, 0.0)
        note = f" {share_text(changed, total)}" if changed else ""
        yield [(screen.printable(step), "name" if step in read else ""), (note, "aside")]


def operand_lines(walk: ExplorerState, screen: Screen) -> Iterator[Line]:
    for step, cell in walk.operands:
        yield [(screen.printable(walk.layer.explainer.spell(step, cell)), "")]


def result_lines(walk: ExplorerState, screen: Screen, precision: int = 4) -> Iterator[Line]:
    """The cell and its number, which stand below the arithmetic and may be further down than the screen."""
    node = walk.node
    if node is None or node.explanation is None:
        return
    page = Page(walk.layer.explainer, screen, precision)
    yield [(screen.printable(node.name), "label"), (f" = {screen.printable(page.number(node.value))}", "")]


def arithmetic_lines(walk: ExplorerState, screen: Screen, precision: int = 4) -> Iterator[Line]:
    """The explanation of the cell, as `explain` has it."""
    node = walk.node
    page = Page(walk.layer.explainer, screen, precision)
    if node is None:
        yield [(f"{screen.printable(walk.step)} has no cells", "aside")]
        return
    if node.explanation is None:
        value = screen.printable(page.number(node.value))
        yield [(screen.printable(node.name), "label"), (f" = {value}", "")]
        for text in fold_text(screen.printable(node.why_not), screen.width):
            yield [(text, "aside")]
        return

    yield from list(page.lines(node))[2:]  # the step and its formula stand above the matrix
    old = walk.layer.old(walk.step)
    if old is None:
        return
    before = float(old[walk.place.cell])
    if not np.array_equal(before, node.value, equal_nan=True):
        yield [(f"was {screen.printable(page.number(before))} before the edits", "aside")]


# --- the matrix, read for the cells around the cursor ---

ROW_LABEL = 14  # cells of the label of a row, at most
COLUMN_LABEL = 10  # cells of the label of a column, at most

SHADES = " ░░▒▒▓▓██"  # what stands for a level without colours

MOST = 64  # rows and columns of a table: of a larger matrix those around the cursor are shown


def matrix_at(array: Array, lead: Cell) -> Array:
    """The matrix of a head (and member of a batch); a vector is a row, a number a matrix of one cell."""
    if array.ndim < 2:
        return array.reshape(1, -1)
    return array[lead] if array.ndim > 2 else array


def window(at: int, size: int, shown: range) -> range:
    """The places that are shown: those that were while the cursor is among them, else those around it."""
    if at in shown and len(shown) == min(size, MOST) and shown.stop <= size:
        return shown
    start = max(0, min(at - MOST // 2, size - MOST))
    return range(start, min(size, start + MOST))


def labels(walk: ExplorerState, axis: int, places: range, screen: Screen) -> list[str]:
    """The label of each of these places along an axis: tokens, told apart and visible, or numbers."""
    at = walk.array.ndim + axis
    if at < 0:
        return [""]
    tokens = walk.trace.tokens_along(walk.step, at)
    if tokens is None:
        return list(map(str, places))
    width = ROW_LABEL if axis == -2 else COLUMN_LABEL
    shown = shorten_labels(number_repeats(map(screen.token, tokens)), screen, width)
    return shown[places.start : places.stop]


def table_cells(
    walk: ExplorerState, rows: range, columns: range, screen: Screen, precision: int
) -> list[list[Span]]:
    """The text of each of these cells, a number or a shade, and the name of its style."""
    values = matrix_at(walk.array, walk.lead)
    if walk.heat:
        return heat_cells(values, rows, columns, screen)

    difference = walk.layer.difference(walk.step)
    changed = np.zeros(values.shape, dtype=bool)
    if difference is not None:
        changed = matrix_at(difference, walk.lead) != 0
    write = str if values.dtype == bool else matrix_format(values, precision)
    # Hidden scores have the name of their rule, weights a shade.
    marked = marks(walk.trace, walk.step, values, screen)
    codes = marked.codes(walk.lead)(rows, columns)

    def cell(row: int, column: int) -> Span:
        kind = 0 if codes is None else codes[row - rows.start, column - columns.start]
        word, style = marked.kinds[kind]
        text = write(values[row, column].item()) if word is None else word
        return text, f"{style}+changed" if changed[row, column] else style

    return [[cell(row, column) for column in columns] for row in rows]


def heat_cells(values: Array, rows: range, columns: range, screen: Screen) -> list[list[Span]]:
    """A shade for each number by its share of the largest; a minus before it where it is below zero."""
    sizes = np.abs(values.astype(np.float64))
    top = float(sizes[np.isfinite(sizes)].max(initial=0.0)) or 1.0

    def cell(value: float) -> Span:
        if not np.isfinite(value):
            return infinite_text(value), "aside"

        level = int(levels_of(np.array(value / top)))
        if screen.shades:
            return "  ", f"shade {level}" if level else ""
        filled = SHADES[abs(level)]
        return f"{'-' if level < 0 else filled}{filled}", ""

    part = values[rows.start : rows.stop, columns.start : columns.stop].astype(np.float64)
    return [[cell(value) for value in row] for row in part.tolist()]


def infinite_text(value: float) -> str:
    """What stands for a number that is not finite."""
    if np.isnan(value):
        return "?"
    return "-∞" if value < 0 else "∞"
