"""What the explorer says about where one stands, as lines of spans."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.text import fold_text
from attnctl.drawing.show import heads_of, place_word
from attnctl.verbs.explain.view import Page
from attnctl.verbs.explore.walk import ExplorerState, share_text, summary


def title(walk: ExplorerState, screen: Screen) -> Line:
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
    return [(said[0], "sentence"), *((screen.dot + text, "aside") for text in said[1:])]


def heading(walk: ExplorerState, screen: Screen) -> list[Line]:
    """The step that is shown; then which matrix of it, and what edits did to it."""
    line = walk.trace.steps[walk.step]
    axes, shape, total = walk.axes, walk.array.shape, heads_of(walk.trace)
    where = [
        place_word(axes, axis, at, few=shape[axis] < total) + f" of {shape[axis]}"
        for axis, at in enumerate(walk.lead)
    ]
    where += ["heat"] * walk.heat
    where.append(summary(walk) or f"{' x '.join(axes[-2:])}, {' x '.join(map(str, shape[-2:]))}")
    return [
        [(screen.printable(walk.step), "name"), (screen.printable(f" = {line.formula}"), "")],
        [(screen.printable(screen.dot.join(where)), "aside")],
    ]


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


def arithmetic_lines(walk: ExplorerState, screen: Screen, precision: int = 4) -> Iterator[Line]:
    """The explanation of the cell, as `explain` has it."""
    node, page = walk.node, Page(walk.layer.explainer, screen, precision)
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
    if old is not None:
        before = float(old[walk.place.cell])
        if not np.array_equal(before, node.value, equal_nan=True):
            yield [(f"was {screen.printable(page.number(before))} before the edits", "aside")]
