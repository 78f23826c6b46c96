"""A trace as tables: what was run, then a frame for each step.

On a terminal the first screen has matrices that belong together side by side, and a line for each copy.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnctl.drawing.screen import GAP, Frame, Line, Screen, element_lines, join, side_by_side
from attnctl.drawing.screen.output import Element, plain_text, screen_of
from attnctl.drawing.screen.text import cells
from attnctl.drawing.show import View, count_heads, load_sheet, steps_of
from attnctl.drawing.show.frames import frames, id_frames, step_lines
from attnctl.drawing.show.headline import headline
from attnctl.math.derivation import Step
from attnctl.math.names import WEIGHTS, is_gradient, result_in
from attnctl.math.ops import Copy, Merge
from attnctl.math.ops.base import AddAll
from attnctl.math.ops.scores import Hide
from attnctl.math.ops.vectors import Split
from attnctl.record import Trace

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.measure import Measurement


def lines_of_all(traces: Iterable[Trace], screen: Screen, view: View) -> Iterator[Element]:
    for number, trace in enumerate(traces):
        if number:
            yield []
        yield from trace_lines(trace, screen, view)


def trace_lines(trace: Trace, screen: Screen, view: View) -> Iterator[Element]:
    """Tables side by side on a terminal, fitted to its width, with the count of what is left out.

    Elsewhere, and with `full`, each stands alone and is whole. Raises AttnError for a step or head that is
    not there.
    """
    chosen = steps_of(trace, view)
    heads = count_heads(trace, view.heads)
    asked = view.steps is not None or view.full or view.heat or view.brief
    draw = first_screen if screen.fits and len(chosen) > 1 and not asked else column
    whole = yield from draw(trace, chosen, screen, view, heads)
    if not whole:
        yield []
        words = "Fitted to this terminal: --full leaves nothing out, nor does a pipe or a file."
        yield from screen.flow([(words, "aside")], " ")


def first_screen(
    trace: Trace, chosen: Sequence[Step], screen: Screen, view: View, heads: int
) -> Generator[Element, None, bool]:
    """Print the headline, steps side by side, a sentence a head; returns whether all is shown."""
    from attnctl.drawing.show.headline import look_lines

    whole = yield from opening(trace, screen)
    first = of_gradients(trace, chosen)
    blocks, small, all_there = glance(trace, first, screen, view, heads)
    if any(step.name == WEIGHTS for step in chosen):
        blocks.append(list(look_lines(trace, screen, view.heads)))
    # Blank lines between them where there is room, or where it goes on below the screen anyway.
    used = OPENING + sum(1 + sum(1 for _ in plain_text(block)) for block in blocks) if small else 0
    for block in blocks:
        yield from [[]] * (used < screen.height or not small)
        yield from block
    return whole and len(first) == len(chosen) and all_there


def of_gradients(trace: Trace, chosen: Sequence[Step]) -> Sequence[Step]:
    """The steps to look at first in a run with gradients, all of one without.

    They are weights, result and gradients, each as the sum of the ways that lead to it.
    """
    back = [step for step in chosen if is_gradient(step.name)]
    if not back:
        return chosen
    ways = {name for step in back if isinstance(step.op, AddAll) for name in step.inputs}
    named = {WEIGHTS, *result_in(trace), *(step.name for step in back)} - ways
    return [step for step in chosen if step.name in named]


def column(
    trace: Trace, chosen: Sequence[Step], screen: Screen, view: View, heads: int
) -> Generator[Element, None, bool]:
    """Print the headline and one step below the other; returns whether all is shown."""
    lines = list(headline(trace, screen, full=view.full))
    yield from lines
    whole = yield from id_frames(trace, screen, full=view.full)
    for number, step in enumerate(chosen):
        if number or lines or trace.tokens:
            yield []
        whole &= yield from step_lines(load_sheet(trace, step.name), step, screen, view, heads)
    return whole


# --- side by side ---

CORNERS = 4  # the least that a caption leaves of its border: a dash and a blank before it, and after it
OPENING = 4  # lines of the headline, and of the prompt that follows

FEW = 8  # rows or columns without names that need no numbers beside them: so many are counted at a glance

GlanceBlock = tuple[Sequence[Line | Frame], int]
"""The formulas of some steps, a table of them, and which steps are copies; and how wide that is."""

Copies = Mapping[str, Sequence[Step]]  # by the name of a step those that only repeat its numbers


class Small(NamedTuple):
    """A step whose matrices are shown whole, those of heads one below the other."""

    step: Step
    frame: Frame
    labels: Sequence[str]
    notes: Sequence[str]


Drawn = tuple[list[Small] | Step, GlanceBlock | None]
"""A run of steps, and the table of it; a step that stands alone has none."""


def opening(trace: Trace, screen: Screen) -> Generator[Element, None, bool]:
    """The headline, the ids beside the sentence where they fit; returns whether all is shown."""
    lines = list(headline(trace, screen))
    tokens, numbers, ids = trace.tokens or [], trace.ids or [], ""
    if tokens and len(numbers) == len(tokens) and not trace.header.get("key_ids"):
        pairs = (f"{screen.token(token)} {at}" for token, at in zip(tokens, numbers, strict=True))
        ids = f"ids: {screen.dot.join(pairs)}"
    if cells(ids) > screen.width:
        yield from lines
        return (yield from id_frames(trace, screen, full=False))
    if ids and lines and cells(lines[0][0][0]) + 3 + cells(ids) <= screen.width:
        lines[0] = [*lines[0], ("   ", ""), (ids, "aside")]
    elif ids:
        lines.append([(ids, "aside")])
    yield from lines
    return True


def glance(
    trace: Trace, steps: Sequence[Step], screen: Screen, view: View, heads: int
) -> tuple[list[list[Element]], bool, bool]:
    """The steps in blocks; whether all can be taken in at a glance, and whether each is shown whole."""
    copies = copies_of(trace, steps)
    copied = {step.name for found in copies.values() for step in found}
    blocks: list[list[Element]] = []
    row: list[GlanceBlock] = []
    small = whole = True
    runs = runs_of(trace, [step for step in steps if step.name not in copied], screen, view, heads)
    for run, block in beside_readers([(run, block_of(run, copies, screen)) for run in runs], screen):
        if row and (block is None or sum(width + GAP for _, width in row) + block[1] > screen.width):
            blocks.append(on_shelf(row))
            row = []
        if isinstance(run, Step):
            lines, shown = drain(step_lines(load_sheet(trace, run.name), run, screen, view, heads))
            small, whole = False, whole and shown
            blocks.append([*lines, *copy_lines(run, copies, screen)])
        elif block:
            row.append(block)
    return [*blocks, *([on_shelf(row)] if row else [])], small, whole


def drain(lines: Generator[Element, None, bool]) -> tuple[list[Element], bool]:
    """The lines that it yields, and what it returns."""
    drawn: list[Element] = []
    try:
        while True:
            drawn.append(next(lines))
    except StopIteration as end:
        return drawn, end.value


def copies_of(trace: Trace, steps: Sequence[Step]) -> dict[str, list[Step]]:
    first = {step.name: step.name for step in steps}
    out: dict[str, list[Step]] = {}
    for step in steps:
        if step.inputs and step.inputs[0] in first and repeats_input(trace, step):
            first[step.name] = first[step.inputs[0]]
            out.setdefault(first[step.name], []).append(step)
    return out


def repeats_input(trace: Trace, step: Step) -> bool:
    """True where a step has just the numbers of its input: a copy, one head put side by side or back."""
    hides_nothing = isinstance(step.op, Hide) and is_gradient(step.name)
    if not (hides_nothing or isinstance(step.op, Copy | Merge | Split)):
        return False
    own, other = trace[step.name], trace[step.inputs[0]]
    return own.size == other.size and np.array_equal(own, other.reshape(own.shape), equal_nan=True)


def runs_of(
    trace: Trace, steps: Sequence[Step], screen: Screen, view: View, heads: int
) -> Iterator[list[Small] | Step]:
    """Steps that stand in one table, as many as fit; a step that is too large stands alone.

    What Q, K and V are made of comes first; of the rest, matrices that are given stand by themselves
    where they are used, steps with a column for each key together, and so do others.
    """
    scores = next((at for at, step in enumerate(steps) if step.axes[-1:] == ("key",)), len(steps))
    late = {step.name for step in steps[scores:]}
    in_order = sorted(steps, key=lambda step: bool(step.inputs) or step.name in late)
    for _, group in groupby(in_order, lambda step: (bool(step.inputs), step.axes[-1:] == ("key",))):
        run: list[Small] = []
        for step in group:
            item = glance_step(trace, step, screen, view, heads)
            if run and (item is None or not fits_beside(run, item, screen)):
                yield run
                run = []
            if item is None:
                yield step
            else:
                run.append(item)
        if run:
            yield run


def fits_beside(run: Sequence[Small], item: Small, screen: Screen) -> bool:
    """True where rows are the same tokens, or count along the same axis, for as many heads, and all fit."""
    first = run[0]
    alike = any(item.labels) or item.step.axes[-2:-1] == first.step.axes[-2:-1]
    level = len(first.frame.bands) == len(item.frame.bands)
    width = first.frame.width + sum(other.frame.widths[-1] + 1 for other in [*run[1:], item])
    return alike and item.labels == first.labels and level and width <= screen.width


def glance_step(trace: Trace, step: Step, screen: Screen, view: View, heads: int) -> Small | None:
    """A step that can be taken in at a glance; None where it cannot."""
    if max(trace[step.name].shape[-2:], default=0) > screen.width // 2:  # a digit and a blank each
        return None
    drawn = frames(load_sheet(trace, step.name), step.name, screen, view, heads)
    several = max(trace[step.name].shape[:-2], default=1) > 1

    def hide_counts(axis: int, labels: Sequence[str]) -> Sequence[str]:
        counted = len(step.axes) > 1 and len(labels) <= FEW and trace.tokens_along(step.name, axis) is None
        return [""] * len(labels) if counted else labels

    rows, columns = hide_counts(-2, drawn.grid.row_labels), hide_counts(-1, drawn.grid.column_labels)
    indices = [f"[{','.join(map(str, index))}]" * several for index in drawn.sheet.indices]
    own = replace(
        drawn,
        grid=replace(drawn.grid, row_labels=rows, column_labels=columns, gap=1),
        panels=tuple(
            panel._replace(caption=screen.printable(step.name + index))
            for panel, index in zip(drawn.panels, indices, strict=True)
        ),
    )
    if not (own.panels and own.at_a_glance):
        return None
    frame = own.grid.frame([[panel] for panel in own.panels], own.blocks()[0])
    return Small(step, frame, own.grid.row_labels, own.notes) if frame.width <= screen.width else None


def with_formulas(run: Sequence[Small], screen: Screen) -> list[Small] | None:
    """The steps with their formulas in the borders above them; None where one has no room there."""
    out = []
    for item in run:
        (rows, captions), *bands = item.frame.bands
        caption = screen.printable(f"{captions[-1]} = {item.step.formula}")
        if not item.step.formula or cells(caption) + CORNERS > item.frame.widths[-1]:
            return None
        titled = [(rows, [*captions[:-1], caption]), *bands]
        out.append(item._replace(frame=replace(item.frame, bands=titled)))
    return out


def one_table(trace: Trace, steps: Sequence[Step], screen: Screen, heads: int) -> Frame | None:
    run: list[Small] = []
    for step in steps:
        item = glance_step(trace, step, screen, View(), heads)
        if item is None or (run and not fits_beside(run, item, screen)):
            return None
        run.append(item)
    return table_of(run) if run else None


def table_of(run: Sequence[Small]) -> Frame:
    return join([item.frame for item in run], labels=int(any(run[0].labels)))


def beside_readers(runs: Sequence[Drawn], screen: Screen) -> list[Drawn]:
    """The runs, those of given matrices moved to the first that reads them where both fit in a row."""
    moved: dict[int, list[Drawn]] = {}
    for at, (run, block) in enumerate(runs):
        given = {item.step.name for item in small_steps(run) if not item.step.inputs}
        inputs = [{name for item in small_steps(other) for name in item.step.inputs} for other, _ in runs]
        reader = next((to for to, names in enumerate(inputs) if given & names), at)
        beside = runs[reader][1]
        fits = block and beside and block[1] + GAP + beside[1] <= screen.width
        moved.setdefault(reader if fits else at, []).append((run, block))
    return [drawn for at in sorted(moved) for drawn in moved[at]]


def small_steps(run: list[Small] | Step) -> list[Small]:
    return run if isinstance(run, list) else []


def block_of(run: Sequence[Small] | Step, copies: Copies, screen: Screen) -> GlanceBlock | None:
    """The steps of a run as one table; None of a step that stands alone."""
    if isinstance(run, Step):
        return None
    titled = with_formulas(run, screen)
    frame = table_of(titled or run)
    titles: dict[str, list[str]] = {}
    for item in run:
        name, symbol = item.step.name, item.step.symbol
        both = item.step.inputs and symbol != name
        title = symbol if both and len(run) == 1 else f"{name} {symbol}" if both else name  # `Q_rotated Q`
        titles.setdefault(item.step.formula, []).append(title)
    said = [(f"{', '.join(names)} = {formula}", "name") for formula, names in titles.items() if formula]
    notes = [(note, "aside") for item in run for note in item.notes]
    above = (over_each(run, screen) if 1 < len(said) == len(run) else []) or flow(said, screen)
    above = [*([] if titled else above), *flow(notes, screen)]
    below = [line for item in run for line in copy_lines(item.step, copies, screen)]
    widths = [sum(cells(text) for text, _ in line) for line in above + below]
    return [*above, frame, *below], max([frame.width, *widths])


def over_each(run: Sequence[Small], screen: Screen) -> list[Line]:
    """A line with each formula above its own matrix; none where there is no room for one."""
    widths = [item.frame.widths[-1] + 1 for item in run]
    labels = run[0].frame.width - widths[0]
    line: Line = [(" " * labels, "")]
    for item, width in zip(run, [*widths[:-1], screen.width - labels - sum(widths[:-1])], strict=True):
        text = screen.printable(f"{item.step.symbol} = {item.step.formula}")
        if cells(text) >= width:
            return []
        line += [(text, "name"), (" " * (width - cells(text)), "")]
    return [line[:-1]]


def copy_lines(step: Step, copies: Copies, screen: Screen) -> list[Line]:
    same = copies.get(step.name, ())
    return flow([(f"{copy.name} = {copy.inputs[0]}", "formula") for copy in same], screen)


def flow(spans: Line, screen: Screen) -> list[Line]:
    words = [(screen.printable(text), style) for text, style in spans]
    return screen.flow(words, screen.dot) if words else []


def on_shelf(row: Sequence[GlanceBlock]) -> list[Element]:
    if len(row) > 1:
        return list(side_by_side([lines for lines, _ in row], [width for _, width in row]))
    return [line for lines, _ in row for line in lines]


# --- a step by itself, for anyone's console or layout: Rich is imported by whoever shows it ---


class StepTable:
    """The title of a step and its matrices.

    Rich prints it fitted to the console, or to the place in a layout; as a
    string it is the text that a pipe gets, where nothing is left out.
    """

    def __init__(self, trace: Trace, step: str, view: View) -> None:
        (self.step,) = trace.select([step]).steps.values()
        self.heads = count_heads(trace, view.heads)
        self.trace, self.view = load_sheet(trace, step), view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from attnctl.drawing.screen.palette import segments, styles_of

        styles = styles_of(console)
        for element in self.elements(screen_in(console, options)):
            yield segments(element_lines(element), styles)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        width = max(map(cells, plain_text(self.elements(screen_in(console, options)))))
        return Measurement(width, width)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from rich.jupyter import JupyterMixin

        return JupyterMixin._repr_mimebundle_(self, include, exclude)

    def __str__(self) -> str:
        return "\n".join(plain_text(self.elements(Screen())))

    __repr__ = __str__

    def elements(self, screen: Screen) -> Iterator[Element]:
        return step_lines(self.trace, self.step, screen, self.view, self.heads)


def screen_in(console: Console, options: ConsoleOptions) -> Screen:
    return screen_of(console)._replace(width=options.max_width, fits=True)


def table(
    trace: Trace, step: str, *, heads: Sequence[int] | None = None, precision: int = 4, full: bool = False
) -> StepTable:
    """A step for any Rich console: `rich.print(table(trace, "scores"))`.

    `full` leaves out no rows, columns or heads, however many there are. Raises AttnError for a
    step or head that is not there.
    """
    chosen = None if heads is None else tuple(heads)
    return StepTable(trace, step, View(heads=chosen, precision=precision, full=full))
