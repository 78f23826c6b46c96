"""Which keys an attention hides, as its numbers show, and which it was meant to hide.

A mask means what it does, whatever it is called and in whichever sense it is written. What was meant is
what was asked for; where nothing was, it is what the program made: a triangle, keys that end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attnctl.sources.program.graph import SOFT, Graph
from attnctl.sources.program.relations import HIDDEN, Array

TRIANGLES = frozenset({"tril", "triu", "tri", "tril_", "triu_", "generate_square_subsequent_mask"})

OF_DOCUMENTS = "Each text of several in a row sees itself alone, as the program has them."

NEAR = 6
"""Expressions between a triangle and the scores that it hides some of."""


class Meant(NamedTuple):
    """What an attention was meant to hide, as options and arrays of a check."""

    options: dict[str, Any]
    arrays: dict[str, Array]
    note: str = ""


def hidden_keys(scores: Array | None, weights: Array) -> Array:
    """True where a query does not see a key: its score is like −∞, or its weight is 0."""
    hidden = np.zeros(weights.shape, bool)
    if scores is not None and scores.shape == weights.shape:
        hidden = (scores <= HIDDEN) | np.isneginf(scores)
    if not hidden.any():
        hidden = weights == 0
    return hidden


def causal_hides(queries: int, keys: int, offset: int = 0) -> Array:
    return ~np.tri(queries, keys, offset, dtype=bool)


def what_was_meant(
    hidden: Array,
    asked: dict[str, Any],
    *,
    causal: bool,
    is_newest: bool = False,
    first_query: int | None = None,
) -> Meant:
    """Read what was meant off the keys that are hidden, (batch, head, query, key).

    `causal` says that a causal mask was asked for, or that the program made one; `is_newest` that the
    queries are the last tokens of a cache; `first_query` where the first stands among the keys, if known.
    """
    around = width_around(hidden)
    if around is not None and not asked.get("causal"):
        return Meant({} if "window" in asked else {"window": (around, around)}, {})

    queries, keys = hidden.shape[-2:]
    begins_anew = is_newest and keys > queries and (hidden == causal_hides(queries, keys)).all()
    # Newest tokens that are masked as if they were the first ones are meant to be causal, too.
    if causal or begins_anew:
        return causal_meant(hidden, asked, is_newest=is_newest, first_query=first_query)
    if shows_triangle(hidden):
        meant = causal_meant(hidden, asked, is_newest=is_newest, first_query=first_query)
        if "window" in asked or not hides_more(hidden, meant):
            return meant
    return padding_meant(hidden, asked)


def causal_meant(
    hidden: Array, asked: dict[str, Any], *, is_newest: bool, first_query: int | None
) -> Meant:
    """What was meant of a causal mask, and beside it: padding, texts in a row, a window."""
    queries, keys = hidden.shape[-2:]
    if first_query is not None:
        offset = first_query
    else:
        offset = keys - queries if is_newest else offset_shown(hidden)
    options: dict[str, Any] = {"causal": True}
    if offset:
        options["causal_offset"] = offset
    later = causal_hides(queries, keys, offset)
    more = hidden & ~later
    if not more.any() or (hidden & later).any() < later.any():
        return Meant(options, {})
    rows = np.arange(queries)
    if is_newest and hidden[..., rows, rows + offset].any():
        return Meant(options, {})  # a token that does not see itself is no padding

    # Keys that no query sees are padding; a band is a window, which is taken as it is.
    padded = (hidden | later).all(-2, keepdims=True) & more.any(-2, keepdims=True)
    is_padding = (more == (padded & ~later)).all()
    if is_padding and not padded.all():
        return Meant(options, {"mask": ~np.broadcast_to(padded, hidden.shape)})
    documents = documents_shown(hidden)
    if documents is not None:
        return Meant(options, {"mask": documents}, OF_DOCUMENTS)
    return window_meant(hidden, offset, asked, options)


def hides_more(hidden: Array, meant: Meant) -> bool:
    """True if more is hidden than a causal mask would hide, and nothing explains what: a graph, say."""
    if meant.arrays or "window" in meant.options:
        return False
    queries, keys = hidden.shape[-2:]
    later = causal_hides(queries, keys, meant.options.get("causal_offset", 0))
    return bool((hidden & ~later).any())


def documents_shown(hidden: Array) -> Array | None:
    """Which keys are of the query's own text, if texts stand in a row and each sees itself alone."""
    queries, keys = hidden.shape[-2:]
    if queries != keys:
        return None
    rows = np.arange(queries)
    start = np.argmin(hidden, axis=-1)  # the first key that a query sees
    columns = np.arange(keys)
    is_span = (columns >= start[..., None]) & (columns <= rows[:, None])
    if (hidden != ~is_span).any():
        return None

    # A text goes on, or begins with the query.
    goes_on = start[..., 1:] == start[..., :-1]
    begins = start[..., 1:] == rows[1:]
    if not (goes_on | begins).all() or start.max() == 0 or begins.all():
        return None
    return start[..., :, None] == start[..., None, :]


def window_meant(hidden: Array, offset: int, asked: dict[str, Any], options: dict[str, Any]) -> Meant:
    """A band beside a causal mask: a window, as wide as it is where none was asked for."""
    width = window_shown(hidden, offset)
    if width is None:
        return Meant(options, {})
    if "window" not in asked:
        return Meant(options | {"window": width}, {})
    left = left_of(asked["window"])
    if width + 1 == left:
        # Both are called a window of so many: flash attention counts keys before, configs of models all.
        note = (
            f"A query sees {left} keys, its own among them: that is how sliding_window of a model counts; "
            f"--window {left} is {left} keys before its own."
        )
        return Meant(options | {"window": (width, 0)}, {}, note)
    return Meant(options, {})


def left_of(window: Any) -> int:
    """How many keys before its own a query sees."""
    left = window
    if isinstance(window, (tuple, list)):
        left = window[0]
    return int(left)


def padding_meant(hidden: Array, asked: dict[str, Any]) -> Meant:
    """Keys that are hidden from all queries, or whatever else is hidden: taken as it is."""
    if not hidden.any() or "window" in asked:
        return Meant({}, {})
    rows_whole = hidden.all(-1) | ~hidden.any(-1)
    if rows_whole.all() and hidden.shape[-1] == hidden.shape[-2]:
        # Whole queries are hidden: the padding of keys was meant.
        of_queries = hidden[..., 0]
        return Meant({}, {"mask": ~np.broadcast_to(of_queries[..., None, :], hidden.shape)})
    return Meant({}, {"mask": ~hidden})


def shows_triangle(hidden: Array) -> bool:
    """True if just the later keys are hidden, or those and more."""
    queries, keys = hidden.shape[-2:]
    if queries < 2:
        return False
    if keys < queries:
        return False
    later = causal_hides(queries, keys, keys - queries)
    alone = hidden & ~later
    return bool((hidden | ~later).all() and alone[..., -1, :].mean() < 1 and alone.mean() < 0.4)


def offset_shown(hidden: Array) -> int:
    """How many keys stand before query 0: none, where there are as many keys as queries."""
    queries, keys = hidden.shape[-2:]
    if keys <= queries:
        return 0
    for offset in (keys - queries, 0):
        if (hidden == causal_hides(queries, keys, offset)).all():
            return offset
    return keys - queries


def width_around(hidden: Array) -> int | None:
    """How many keys a query sees on either side, if it sees as many on both and no others."""
    queries, keys = hidden.shape[-2:]
    if queries != keys or not hidden.any():
        return None
    first = hidden.reshape(-1, queries, keys)[0, 0]
    width = int((~first).sum()) - 1
    distance = np.abs(np.arange(queries)[:, None] - np.arange(keys))
    return width if width > 0 and (hidden == (distance > width)).all() else None


def window_shown(hidden: Array, offset: int) -> int | None:
    """The width to the left of a window, if besides later keys just those before it are hidden."""
    queries, keys = hidden.shape[-2:]
    last = hidden.reshape(-1, queries, keys)[0, -1]
    width = int((~last).sum()) - 1
    distance = np.arange(queries)[:, None] + offset - np.arange(keys)
    banded = (distance < 0) | (distance > width)
    if width >= 0 and (hidden == banded).all():
        return width
    return None


def triangle_of(graph: Graph, n: int, depth: int = NEAR) -> int | None:
    """Where the triangle was made that hides some of these scores, or was dropped beside them."""
    near = list(graph.parents(n))
    if depth == NEAR:
        for child in graph.made_from(n):
            if not graph.children[child]:
                near += graph.parents(child)
    for parent in near:
        if is_triangle(graph, parent):
            return first_triangle(graph, parent)
    for parent in near:
        # What a triangle becomes on its way to hide scores is still a mask; a bias of many values is none.
        is_scores = depth == NEAR and graph.value(parent).size == graph.value(n).size
        if not is_scores and not is_mask(graph.value(parent)):
            continue
        if depth and parent != n and not graph.product(parent) and graph.op(parent) not in SOFT:
            made = triangle_of(graph, parent, depth - 1)
            if made is not None:
                return made
    return None


def is_triangle(graph: Graph, n: int) -> bool:
    return graph.op(n) in TRIANGLES or is_written_triangle(graph, n)


def first_triangle(graph: Graph, n: int) -> int:
    """What a triangle was first: before it was negated, cast, compared, or filled with −∞."""
    for _ in range(NEAR):
        before = [parent for parent in graph.parents(n) if is_triangle(graph, parent)]
        if not before:
            break
        n = before[0]
    return n


def is_mask(value: Array) -> bool:
    """True for an array of two values, of which one may stand for −∞."""
    if value.dtype.kind == "b":
        return True
    return len(np.unique(value[:64])) <= 2


def is_written_triangle(graph: Graph, n: int) -> bool:
    """True for a triangle that a comparison of positions gave, or a loop."""
    value = graph.value(n)
    if value.ndim < 2:
        return False
    if value.dtype.kind not in "bif":
        return False
    if value.shape[-1] != value.shape[-2]:
        return False
    if value.shape[-1] < 3:
        return False
    if value.dtype.kind != "b" and graph.product(n):
        return False

    square = value.reshape(-1, *value.shape[-2:])
    if len(square) > 1 and not (square == square[:1]).all():
        return False

    matrix = square[0]
    corner = matrix[0, -1]
    other = matrix[-1, 0]
    if corner == other:
        return False
    if len(np.unique(matrix)) != 2:
        return False
    size = len(matrix)
    above = matrix == corner
    return any((above == causal_hides(size, size, k)).all() for k in (-1, 0, 1))


def unused_triangles(graph: Graph) -> list[int]:
    """Triangles that were made and never read."""
    return [
        n
        for n in graph.events
        if graph.has_value(n)
        and (graph.op(n) in TRIANGLES or is_written_triangle(graph, n))
        and not graph.children[n]
    ]
