"""A step laid out as matrices: which of its axes are rows and columns, what is said of it, and marks.

Marks are what cells have beyond their numbers: how large a weight is, which rule hid a score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import raise_all
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.words import number_repeats
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.grid import NUMBER, CellStyle, Codes, all_numbers
from attnctl.drawing.screen.text import token_text
from attnctl.math import Array, Shape
from attnctl.math.derivation import Step
from attnctl.math.names import MASK, SINK_WEIGHTS, TABLE, WEIGHTS, Q, matrix_of, result_in, shares_in
from attnctl.math.ops import Block, Hide
from attnctl.record import Trace

Index = tuple[int, ...]

ASKED = 8  # heads that are named when more than this are left out


class Sheet(NamedTuple):
    """The matrices of one step: `array` (…, row, column), where in it each is, and what labels it.

    Labels are safe to show and tell repeated tokens apart; "" is no label. `ask` is the head to
    ask for to see each matrix, where matrices are heads.
    """

    array: Array
    indices: tuple[Index, ...]
    captions: tuple[str, ...]
    rows: Sequence[str]
    columns: Sequence[str]
    column_axis: str
    ask: tuple[int, ...] = ()

    def left_out(self, shown: int) -> str:
        rest = len(self.indices) - shown
        if not self.ask:
            return f"… {rest} more, {self.captions[shown]} and on"

        heads = ",".join(map(str, self.ask[shown : shown + ASKED]))
        if rest > ASKED:
            heads += ",…"
        return f"… {rest} more {'head' if rest == 1 else 'heads'} (--head {heads} shows them)"


def load_sheet(trace: Trace, name: str) -> Trace:
    """One step, what hid its cells and what stands beside them, loaded once."""
    step = trace.steps[name]
    masks = step.inputs[1:] if isinstance(step.op, Hide) else ()
    beside = (SINK_WEIGHTS,) if name == WEIGHTS else ()
    arrays = {mask: trace.arrays[mask] for mask in (name, *masks, *beside) if mask in trace.arrays}
    return Trace({name: step}, arrays, trace.header)


def with_sink(trace: Trace, name: str) -> Array:
    """The numbers of a step; attention weights with the share of the sink as a column more."""
    array = trace[name]
    if name != WEIGHTS or SINK_WEIGHTS not in trace.arrays:
        return array
    sink = trace.arrays[SINK_WEIGHTS]
    if sink.shape != array.shape[:-1]:
        return array
    return np.concatenate([array, sink[..., None]], axis=-1)


def heads_of(trace: Trace) -> int:
    """Count the heads of a trace, by its config or by the first step that has heads of queries."""
    stated = None if trace.kept_heads else trace.config.get("heads")
    if isinstance(stated, int) and stated > 0:
        return stated

    with_heads = [step for step in trace.steps.values() if "head" in step.axes]
    of_queries = [step for step in with_heads if step.name == matrix_of(Q) or "query" in step.axes]
    candidates = of_queries or with_heads
    if not candidates:
        return 0
    first = candidates[0]
    return trace[first.name].shape[first.axes.index("head")]


def count_heads(trace: Trace, heads: Sequence[int] | None) -> int:
    """Count the heads of a trace. Raises AttnError naming each of `heads` that is not there."""
    total = heads_of(trace)
    missing = [head for head in heads or () if not 0 <= head < total]
    raise_all(f"no head {head} in this trace; it has {heads_present(total)}" for head in missing)
    return total


def heads_present(total: int) -> str:
    if total > 1:
        return f"heads 0 to {total - 1}"
    return "head 0 only" if total else "none"


def places_along(
    axes: Sequence[str], shape: Shape, total: int, heads: Sequence[int] | None
) -> list[Sequence[int]]:
    """The places that are shown along each axis: all, or of an axis of heads those of these heads."""
    chosen: list[Sequence[int]] = []
    for axis, size in zip(axes, shape, strict=True):
        if axis == "head" and heads is not None:
            chosen.append(places_of_heads(heads, size, total))
        else:
            chosen.append(range(size))
    return chosen


def sheet_of(
    trace: Trace,
    name: str,
    total: int,
    heads: Sequence[int] | None = None,
    encoding: str = "utf-8",
    *,
    joined: bool = False,
) -> Sheet:
    """The matrices of a step, of these heads only (None: all `total`); `joined` keeps emoji whole."""
    array = trace[name]
    axes = trace.steps[name].axes
    chosen = places_along(axes, array.shape, total, heads)

    def word(axis: int, place: int) -> str:
        if axes[axis] == "head":
            place = int(trace.labels(name, axis)[place])
        return place_word(axes, axis, place, few=array.shape[axis] < total)

    def labels(axis: int) -> Sequence[str]:
        tokens = trace.tokens_along(name, axis)
        if tokens is not None:
            return number_repeats(token_text(token, encoding, joined=joined) for token in tokens)
        if axes[axis] == "head":
            return [word(axis, place) for place in chosen[axis]]
        digits = len(str(array.shape[axis] - 1))
        return [str(place).rjust(digits) for place in chosen[axis]]

    def caption(index: Index) -> str:
        return " · ".join(word(axis, place) for axis, place in enumerate(index))

    if array.ndim < 2:
        columns = labels(0) if array.ndim == 1 else [""]
        column_axis = axes[0] if array.ndim == 1 else ""
        row = array.reshape(1, -1)
        return Sheet(row, ((),), ("",), rows=[""], columns=columns, column_axis=column_axis)

    indices = tuple(product(*chosen[:-2]))
    row_axis = array.ndim - 2
    columns = labels(row_axis + 1)
    matrices = with_sink(trace, name)
    if matrices is not array:
        columns = [*columns, "sink"]

    # Rows are left out where they are of heads; else the array stays as it is, which may be a file.
    rows = list(chosen[row_axis])
    if len(rows) != array.shape[row_axis]:
        matrices = matrices[..., rows, :]
    return Sheet(
        array=matrices,
        indices=indices,
        captions=tuple(map(caption, indices)),
        rows=labels(row_axis),
        columns=columns,
        column_axis=axes[-1],
        ask=heads_to_ask_for(indices, array.shape[0], total) if axes[:-2] == ("head",) else (),
    )


def heads_to_ask_for(indices: Sequence[Index], count: int, total: int) -> tuple[int, ...]:
    """The head to ask for each of `count` matrices by: the first of those of `total` that share it."""
    return tuple(-(-place * total // count) for (place,) in indices)


def places_of_heads(heads: Sequence[int], size: int, total: int) -> tuple[int, ...]:
    """Where these of `total` heads stand along an axis of this size; neighbours may share a place."""
    return tuple(dict.fromkeys(head * size // total for head in heads))


def place_word(axes: Sequence[str], axis: int, place: int, *, few: bool) -> str:
    """`batch 2`, `head 1`; where heads are few, they share: `kv head 0`, or `every head` of a mask."""
    if axes[axis] != "head" or not few:
        return f"{axes[axis]} {place}"
    return "every head" if axes[-1] == "key" else f"kv head {place}"


@dataclass(frozen=True)
class View:
    """The part of a trace to show: which steps (None: all) and heads, how many decimals, how much of it.

    `brief` is attention weights and result only; `full` shortens nothing on a terminal. `heat` draws
    heat maps instead of numbers, by logarithm or without the first key if asked.
    """

    steps: tuple[str, ...] | None = None
    heads: tuple[int, ...] | None = None
    precision: int = 4
    brief: bool = False
    full: bool = False
    heat: bool = False
    log: bool = False
    without_first: bool = False
    cell: tuple[str, Index] | None = None  # the step, and the cell of it, that a page opens at
    query: str | None = None  # of a picture: the token whose weights are laid over it


def steps_of(trace: Trace, view: View) -> list[Step]:
    """The steps to show, in order. Raises AttnError naming each that is not there."""
    if view.steps is not None:
        return list(trace.select(view.steps).steps.values())
    if view.brief:
        return [trace.steps[name] for name in (*shares_in(trace), *result_in(trace))]
    return list(trace.steps.values())


def formula_of(step: Step) -> str:
    """`A = softmax over keys`; a formula that begins with its own symbol says it all."""
    if step.formula.startswith(f"{step.symbol} "):
        return step.formula
    return f"{shown_symbol(step)} = {step.formula}".removesuffix(" = ")


def shown_symbol(step: Step) -> str:
    """The symbol of a step in its title: its own, where others with the same symbol are shown beside it."""
    row = TABLE.get(step.name)
    return row.shown if row and row.shown else step.symbol


def shape_of(trace: Trace, step: Step) -> str:
    """`2 × 3 × 3 (head, query, key)`."""
    shape = trace[step.name].shape
    if not shape:
        return "a single number"
    return f"{' × '.join(map(str, shape))} ({', '.join(step.axes)})"


# --- marks ---

BOX = "____"  # what stands where a number is still to be filled in


class Marks(NamedTuple):
    kinds: tuple[CellStyle, ...] = (NUMBER,)
    codes: Callable[[Index], Codes] = lambda _: all_numbers
    notes: tuple[str, ...] = ()


def marks(trace: Trace, name: str, sample: Array, screen: Screen) -> Marks:
    """The marks of a step; `sample` holds every number that will be shown."""
    array = trace[name]
    op = trace.steps[name].op
    if array.dtype == bool:
        return mark_truths(array, screen)

    blank = trace.header.get("blank")
    if isinstance(blank, list) and name in blank and np.isnan(array).any():
        codes = codes_by(array, lambda block: np.isnan(block).astype(int))
        return Marks((NUMBER, (BOX, "aside")), codes)

    if isinstance(op, Hide):
        return mark_hidden(trace, name, op, screen)
    if name != WEIGHTS:
        return Marks()

    shaded = shade_weights(with_sink(trace, name), sample) if screen.colours else Marks()
    return shaded._replace(notes=blind_notes(trace.header.get("empty_rows")))


def mark_truths(array: Array, screen: Screen) -> Marks:
    """A mask: a word where a query may attend, a dot where not."""
    dot = "." if screen.ascii_only else "·"
    codes = codes_by(array, lambda seen: np.where(seen, 1, 2))
    return Marks((NUMBER, ("see", ""), (dot, "aside")), codes, (f"see = may attend, {dot} = hidden",))


def blind_notes(blind: object) -> tuple[str, ...]:
    """The note on the rows that see nothing, as a header lists them."""
    if not isinstance(blind, list) or not blind:
        return ()
    if len(blind) == 1:
        return ("1 row sees nothing: its weights are zero",)
    return (f"{len(blind)} rows see nothing: their weights are zero",)


def codes_by(array: Array, kind: Callable[[Array], Array]) -> Callable[[Index], Codes]:
    """The kind of each cell, where its number alone tells it."""
    return lambda index: lambda rows, columns: kind(part(np.atleast_2d(array[index]), rows, columns))


def shade_weights(array: Array, sample: Array) -> Marks:
    """A background by the share of the largest weight that is shown."""
    from attnctl.drawing.screen.heat import levels_of
    from attnctl.drawing.screen.palette import STEPS

    positive = sample[np.isfinite(sample) & (sample > 0)]
    top = float(positive.max(initial=0.0)) or 1.0

    def levels(block: Array) -> Array:
        shares = np.nan_to_num(block.astype(float) / top)
        return np.maximum(levels_of(shares), 0)

    heat = [(None, f"heat{level}") for level in range(1, STEPS + 1)]
    return Marks((NUMBER, *heat), codes_by(array, levels))


def mark_hidden(trace: Trace, name: str, op: Hide, screen: Screen) -> Marks:
    """The name of the first rule that hid a score, or `mask`, in its place."""
    array = trace[name]
    inputs = trace.steps[name].inputs[1:]
    kept = [trace.arrays[input_] for input_ in inputs if input_ in trace.arrays]
    masks = [mask for mask in kept if spreads(mask.shape, array.shape)]

    words = [rule.label for rule in op.rules]
    if inputs:
        words.append(MASK)
    kinds = [(screen.printable(word), "aside") for word in words]

    def codes(index: Index) -> Codes:
        member = index[0] if len(index) > 1 else 0

        def block(rows: range, columns: range) -> Array:
            scores = part(array[index], rows, columns)
            block_masks = [part(mask_of_matrix(mask, index, array.shape), rows, columns) for mask in masks]
            placed = op.block(Block(member=member, query=rows.start, key=columns.start))
            assert isinstance(placed, Hide)
            reason = placed.hidden_by((1, *scores.shape), *block_masks)[0]
            if inputs:  # what no rule hides, the mask did, even where the mask itself was not kept
                reason = np.where(reason < 0, len(op.rules), reason)
            return np.where(np.isneginf(scores), reason + 1, 0)

        return block

    return Marks((NUMBER, *kinds), codes)


def spreads(mask: tuple[int, ...], scores: tuple[int, ...]) -> bool:
    """True for a mask of the shape of one of these scores, which in anyone's dump it need not have."""
    ends = zip(reversed(mask), reversed(scores), strict=False)
    return len(mask) <= len(scores) and all(size in {1, whole} for size, whole in ends)


def mask_of_matrix(mask: Array, index: Index, scores: tuple[int, ...]) -> Array:
    """The mask of one head of one member, (query, key), whatever axes it lacks or has once."""
    lead = mask.shape[:-2]
    places = zip(lead, index[len(index) - len(lead) :], strict=True)
    of_matrix = tuple(0 if size == 1 else place for size, place in places)
    return np.broadcast_to(mask[of_matrix], scores[-2:])


def part(matrix: Array, rows: range, columns: range) -> Array:
    return matrix[rows.start : rows.stop, columns.start : columns.stop]
