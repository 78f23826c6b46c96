"""Find why arrays cannot be attended over: missing, not finite, or of shapes that do not go together."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from math import prod

import numpy as np

from attnctl.base.namedtuple import NamedTuple
from attnctl.base.words import dims, plural
from attnctl.inputs.arrays.layout import axes_among
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.config.sizes import OPTIONS, adds_positions, stated_sizes, unmeant_cache, unrotatable
from attnctl.math import Array, Shape, Sizes
from attnctl.math.axes import Group, Groups
from attnctl.math.names import (
    B_O,
    KEY_LENGTHS,
    MASK,
    MEMORY,
    NORM_BIASES,
    NORM_WEIGHTS,
    PAGE_TABLE,
    PAGES,
    PAST_KEY,
    PAST_VALUE,
    POSITION_IDS,
    PROJECTED,
    TABLE,
    W_O,
    K,
    Q,
    X,
    matrix_of,
    shown_axis,
    where,
)
from attnctl.math.ops.pages import Gather

FROM_X = (X, *map(matrix_of, PROJECTED))
MAKERS = (*map(matrix_of, PROJECTED), "b_Q", "b_K", "b_V")  # the weights that make Q, K and V


def from_x(found: Container[str]) -> bool:
    """True if Q, K and V are to be computed: X and its weights are there."""
    return all(name in found for name in FROM_X)


def inputs_among(found: Container[str]) -> list[str]:
    """The arrays that attention reads here: X and what makes Q, K and V of it, or these alone."""
    needless = PROJECTED if from_x(found) else (X, MEMORY, *MAKERS)
    return [name for name in where(lambda row: row.input) if name in found and name not in needless]


def missing(found: Container[str], settings: Settings) -> Iterator[str]:
    wanted = FROM_X if X in found and Q not in found else PROJECTED
    lacking = [name for name in wanted if name not in found]
    if lacking and not from_x(found):
        needs = "attention needs Q, K and V, or X with W_Q, W_K and W_V (--name THEIRS=OURS renames)"
        yield f"no {', '.join(lacking)} in the arrays; {needs}"

    if adds_positions(settings) and not from_x(found):
        yield "sinusoidal and learned positions are added to X; give X, W_Q, W_K and W_V"
    if (PAST_KEY in found) != (PAST_VALUE in found):
        yield "past_key and past_value go together; give both"
    if B_O in found and W_O not in found:
        yield "b_O is added to concat W_O; give W_O too"

    yield from unmeant_norms(found, settings)
    yield from unmeant_cache(found, settings)


def unmeant_norms(found: Container[str], settings: Settings) -> Iterator[str]:
    """Weights of norms of Q and K of which nobody says what they are, or that are not all there."""
    recorded = [name for name in (*NORM_WEIGHTS, *NORM_BIASES) if name in found]
    place = settings.where(("qk_norm",))
    if recorded and settings.qk_norm is None:
        names = " ".join(recorded)
        yield f"{names}: Q and K are normed, but how? {place} rms (Qwen3, OLMo2) or layer says it"

    for pair in (NORM_WEIGHTS, NORM_BIASES):
        present = [name for name in pair if name in recorded]
        if len(present) == 1:
            yield f"{' and '.join(pair)} go together; give both"

    weight = NORM_WEIGHTS[0]
    bias = NORM_BIASES[0]
    if bias in recorded and weight not in recorded:
        yield f"{bias} is added to what a weight multiplies; give {weight} too"


def unusable(name: str, array: Array, dtype: str) -> Iterator[str]:
    """What is wrong with the numbers of an array: their type, their range, or that there are none."""
    kinds = "fiub" if name == MASK else "fiu"  # floats and whole numbers; of a mask truth values, too
    if array.dtype.kind not in kinds:
        yield f"{name}: numbers of type {array.dtype}, expected floats"
        return

    if not array.size:
        # A cache begins empty.
        if name not in {PAST_KEY, PAST_VALUE}:
            yield f"{name}: {dims(array.shape)}, nothing to attend with"
        return

    low, high, words = limits(name, array, dtype)
    # Two passes without a copy decide almost always. Of NaN both are false, so it is looked for below.
    if low <= float(array.min()) and float(array.max()) <= high:
        return

    numbers = array.astype(np.float64)
    is_within = (numbers >= low) & (numbers <= high)
    outside = np.argwhere(~is_within).tolist()
    first = outside[0]
    more = f" (and {len(outside) - 1} more)" if len(outside) > 1 else ""
    yield f"{name}: {array[tuple(first)]} at {first}{more}; {words}"


class Limits(NamedTuple):
    """The least and the greatest number that an array may hold, and how to say so."""

    low: float
    high: float
    words: str


def limits(name: str, array: Array, dtype: str) -> Limits:
    if name == MASK and array.dtype.kind in "iu":
        return Limits(0, 1, "write 0 (hidden) or 1 (may attend), or floats to be added to the scores")
    if name == KEY_LENGTHS:
        return Limits(0, np.inf, "write how many keys are real")
    if name == POSITION_IDS:
        return Limits(-(2**31), 2**31, "write the position of each token")

    greatest = float(np.finfo(dtype).max)
    least = -np.inf if TABLE[name].of_scores else -greatest  # −∞ hides scores
    return Limits(least, greatest, f"every number must be finite and within ±{greatest:.5g} ({dtype})")


def has_batch(shapes: Mapping[str, Shape], settings: Settings, name: str = Q) -> bool:
    """True if X, or else one of Q, K and V, has a batch axis; with --heads (batch, n, heads·d) has."""
    if settings.layout is not None:
        return settings.layout.startswith("b")
    if X in shapes:
        return len(shapes[X]) == 3
    return len(shapes[name]) > (3 if settings.heads is None else 2)


def has_vectors(name: str) -> bool:
    """True if an array has a vector for each head and token, as Q, K, V and a cache have."""
    row = TABLE[name]
    return row.by_head and not (row.is_weight or row.broadcasts or row.of_scores or "chunk" in row.own)


def unlike_layout(shapes: Mapping[str, Shape], settings: Settings) -> Iterator[str]:
    """Arrays that have not the axes of the layout that is asked for, or whose layout has to be."""
    layout = settings.layout
    if layout is None:
        yield from ambiguous(shapes, settings)
        return

    place = settings.where(("layout",))
    if X in shapes and "h" in layout:
        yield f"{place}: {layout}, but X has no heads; write nd or bnd"
        return

    sources = [X, MEMORY] if X in shapes else PROJECTED
    for name in sources:
        if name in shapes and len(shapes[name]) != len(layout):
            yield f"{name}: {dims(shapes[name])} has not the {len(layout)} axes of {place} {layout}"


def ambiguous(shapes: Mapping[str, Shape], settings: Settings) -> Iterator[str]:
    """Q, K and V of three axes that may be one sentence by head, or a batch with heads side by side."""
    if X in shapes or (settings.heads or 1) == 1:
        return

    heads = {name: heads_asked(name, settings) for name in PROJECTED}
    if all(reads_both_ways(shapes[name], heads[name]) for name in PROJECTED):
        place = settings.where(("layout",))
        may_be = "may be (head, n, d) or (batch, n, heads·d)"
        yield f"Q: {dims(shapes[Q])} with {heads[Q]} heads {may_be}; write {place} hnd or {place} bnd"


def reads_both_ways(shape: Shape, heads: int) -> bool:
    """True for a shape that (head, n, d) has and that (batch, n, heads·d) may have as well."""
    return len(shape) == 3 and shape[0] == heads and shape[2] % heads == 0


def array_misfits(shapes: Mapping[str, Shape], settings: Settings) -> Iterator[str]:
    """Why shapes do not go together: columns that heads do not divide, or else sizes that disagree."""
    if X in shapes:
        shapes = with_linear_turned(shapes)

    by_head: dict[str, Shape] = {}
    unsplit: list[str] = []
    for name, shape in shapes.items():
        split = shape_by_head(name, shape, shapes, settings)
        if split is None:
            unsplit.append(refuse_split(name, shape, settings))
        else:
            by_head[name] = split

    yield from unsplit or unlike_axes(by_head) or disagreements(by_head, settings)


def with_linear_turned(shapes: Mapping[str, Shape]) -> Mapping[str, Shape]:
    """The shapes with W_Q, W_K and W_V turned from (out, in), where none of them can be (in, out)."""
    turned = dict(shapes)
    for name in PROJECTED:
        source = MEMORY if name != Q and MEMORY in shapes else X
        columns = shapes[source][-1:]

        matrix = matrix_of(name)
        shape = shapes[matrix]
        if shape[1:] != columns or shape[:1] == columns:
            return shapes
        turned[matrix] = shape[::-1]

    return turned


def shape_by_head(name: str, shape: Shape, shapes: Mapping[str, Shape], settings: Settings) -> Shape | None:
    """The shape of an array by head, as documented; None where its columns cannot be split so."""
    row = TABLE[name]
    if not row.by_head:
        return shape

    axes = len(row.axes)
    if not row.is_weight:
        like = name if name in PROJECTED else K  # a cache has a batch axis where K has one
        if has_batch(shapes, settings, like):
            axes += 1
    if len(shape) == axes:
        return shape

    heads = heads_asked(name, settings)
    if len(shape) != axes - 1 or shape[-1] % heads:
        return None
    *rest, columns = shape
    return (*rest[:-1], heads, *rest[-1:], columns // heads)


def heads_asked(name: str, settings: Settings) -> int:
    """The number of heads that an array has by the options: those of queries, or of keys and values."""
    heads = settings.heads
    if not TABLE[name].own.startswith("head"):
        heads = settings.kv_heads or settings.heads
    return heads or 1


def refuse_split(name: str, shape: Shape, settings: Settings) -> str:
    heads = heads_asked(name, settings)
    if TABLE[name].is_weight:
        expected = "(d_model, heads·d)" if TABLE[name].linear else "(heads·d,)"
        return f"{name}: {dims(shape)}, expected {expected} with {heads} heads, or by head"
    if len(shape) in {2, 3, 4} and shape[-1] % heads:
        hint = "; for (head, n, d) say --layout hnd" if shape[0] == heads else ""
        return f"{name}: {dims(shape)}, but {heads} heads do not divide {shape[-1]} columns{hint}"
    return (
        f"{name}: {dims(shape)}, expected (n, d), (head, n, d), (batch, head, n, d), "
        "or (batch, n, heads·d) with --heads (--layout says which)"
    )


def unlike_axes(shapes: Mapping[str, Shape]) -> list[str]:
    """X and memory, or Q, K and V, that are no rows of vectors, or not all in a batch."""
    flat = [name for name in (X, MEMORY) if name in shapes and len(shapes[name]) not in {2, 3}]
    if flat:
        expected = "expected (n, d_model) or (batch, n, d_model)"
        return [f"{name}: {dims(shapes[name])}, {expected}" for name in flat]

    if MEMORY in shapes and shapes[MEMORY][:-2] != shapes[X][:-2]:
        x = dims(shapes[X])
        memory = dims(shapes[MEMORY])
        return [f"X is {x}, memory {memory}: give both with the same batch, or neither with one"]

    if X not in shapes and len({len(shapes[name]) for name in PROJECTED}) > 1:
        q, k, v = (dims(shapes[name]) for name in PROJECTED)
        return [f"Q is {q}, K {k}, V {v}: give all with the same axes"]

    return []


def disagreements(shapes: Mapping[str, Shape], settings: Settings) -> Iterator[str]:
    """Arrays in our layout whose sizes are not those that earlier ones show, or that were asked for."""
    axes = axes_among(shapes)
    is_batched = len(shapes[X]) == 3 if X in shapes else len(shapes[Q]) == 4
    sizes: dict[str, int] = {}
    shown_by: dict[str, str] = {}  # by axis the array that shows its size

    for name in where(lambda row: row.name in shapes and not row.gradient):
        layout = axes(name, TABLE[name].own)
        if is_batched and not TABLE[name].once:
            layout = (("batch",), *layout)

        wrong = take_sizes(layout, shapes[name], sizes)
        for axis in sizes:
            shown_by.setdefault(axis, name)

        if wrong:
            axis = wrong[0][-1]
            other = shown_by.get(axis, name)
            yield disagreement(name, axis, shapes, layout=layout, sizes=sizes, other=other)

    if not sizes["kv_head"] or sizes["head"] % sizes["kv_head"]:
        yield f"{sizes['kv_head']} kv heads do not divide {sizes['head']} heads"

    for axis, size in stated_sizes(settings).items():
        if sizes.get(axis, size) != size:
            yield f"{settings.where((OPTIONS[axis],))}: {size}, but the arrays have {sizes[axis]}"

    yield from unrotatable(settings, sizes["d_k"])


def take_sizes(layout: Groups, shape: Shape, sizes: dict[str, int]) -> list[Group]:
    """Add to `sizes` those that a shape is the first to show; returns the axes where it shows others."""
    wrong: list[Group] = []
    if len(shape) != len(layout):
        wrong.append(layout[0])

    for group, size in zip(layout, shape, strict=False):
        for axis in group:
            sizes.setdefault(axis, size)
        if prod(sizes[axis] for axis in group) != size:
            wrong.append(group)

    return wrong


def disagreement(
    name: str, axis: str, shapes: Mapping[str, Shape], *, layout: Groups, sizes: Sizes, other: str
) -> str:
    """The message that the size of an axis is not what another array, an earlier one, shows."""
    row = TABLE[name]
    shape = dims(shapes[name])
    expected = [prod(sizes.get(axis, 1) for axis in group) for group in layout]

    if axis == "past":
        lengths = sorted((shapes[other][-2], shapes[name][-2]))
        return f"{other} and {name} hold different numbers of keys: {lengths}"
    if name in {PAST_KEY, PAST_VALUE}:
        expected[-2] = sizes.get("new", sizes["query"])
        return f"{name}: {shape} does not continue in {dims(expected)}; all but the key axis must agree"
    if row.of in {X, MEMORY} and axis in {"d_model", "d_memory"}:
        return f"{name}: {shapes[name][-2]} rows, but {other} has {sizes[axis]} columns"
    if name == W_O:
        return f"{name}: {shape}, expected {expected[0]} rows (heads·d_v)"
    if row.is_weight and not row.drawn:
        columns = f"{'head × ' if row.is_split else 'the '}columns of W{name[1:]}"
        return f"{name}: {shape}, expected {dims(expected)} ({columns})"
    if axis == "batch":
        return f"{other} has a batch of {sizes[axis]} but {name} of {shapes[name][0]}"
    if axis == "d_k":
        return f"{other} has d_k {sizes[axis]} but {name} has {shapes[name][-1]}; they must be equal"
    if row.is_weight and not row.is_split:
        return f"{name}: {shape}, expected {dims(expected)} ({dims(map(shown_axis, layout))})"
    return f"{other} is {dims(shapes[other])} but {name} is {shape}; they must agree in all but d_k and d_v"


# --- keys and values in pages ---

TOGETHER = (*PAGES, PAGE_TABLE, KEY_LENGTHS)


def unreadable_slots(found: Mapping[str, Array], gather: Gather, dtype: str) -> Iterator[str]:
    """Numbers that are no keys or values; a free slot may hold anything."""
    slots = found[PAGES[0]].shape[1]
    page, slot, is_key = gather.rows(slots)

    for name in PAGES:
        is_free = np.ones(found[name].shape[:2], bool)
        is_free[page[is_key], slot[is_key]] = False
        numbers = np.where(is_free[..., None, None], 0, found[name])
        yield from unusable(name, numbers, dtype)


def page_misfits(found: Mapping[str, Array]) -> Iterator[str]:
    """Why a table reads no pages: their axes, its numbers, or too few of them."""
    k, v, table, lengths = (found[name] for name in TOGETHER)
    flat = [name for name in PAGES if found[name].ndim != 4 or not found[name].size]
    for name in flat:
        yield f"{name}: {dims(found[name].shape)}, expected (page, slot, head, d)"
    if not flat and k.shape[:3] != v.shape[:3]:
        agree = "they must agree in all but d_k and d_v"
        yield f"{PAGES[0]} is {dims(k.shape)} but {PAGES[1]} is {dims(v.shape)}; {agree}"

    if table.ndim not in {1, 2} or not is_whole(table):
        expected = "whole numbers, (batch, page) or (page,)"
        yield f"{PAGE_TABLE}: {dims(table.shape)} of {table.dtype}, expected {expected}"
        return
    if not is_whole(lengths):
        yield f"{KEY_LENGTHS}: {lengths.reshape(-1).tolist()}, expected how many keys each sequence has"
        return

    sequences = len(np.atleast_2d(table))
    if lengths.size != sequences:
        rows = plural(sequences, "row")
        yield f"{KEY_LENGTHS}: {plural(lengths.size, 'number')}, but {PAGE_TABLE} has {rows}; give one each"
        return

    if not flat:
        pages, slots = k.shape[:2]
        yield from find_misread(table, lengths.reshape(-1), pages, slots)


def is_whole(numbers: Array) -> bool:
    return numbers.dtype.kind in "iuf" and bool(numbers.size) and not (numbers % 1).any()


def find_misread(table: Array, lengths: Array, pages: int, slots: int) -> Iterator[str]:
    """Sequences that are longer than their pages, and pages that there are not."""
    for member, (row, length) in enumerate(zip(np.atleast_2d(table), lengths, strict=True)):
        needed = -(-int(length) // slots)  # rounded up
        if needed > len(row):
            held = f"{plural(len(row), 'page')} of {slots} slots hold {plural(len(row) * slots, 'key')}"
            yield f"{PAGE_TABLE}: {held}, but sequence {member} has {length:g}; give it {needed} pages"

        for column, page in enumerate(row[:needed]):
            if not 0 <= page < pages:
                place = [column] if table.ndim == 1 else [member, column]
                yield f"{PAGE_TABLE}: page {page:g} at {place}, but there are pages 0 to {pages - 1}"
                break  # one of a sequence is enough
