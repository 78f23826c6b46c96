"""Outputs of several queries that were written into rows which are one list: [[0.0] * d] * n."""

from __future__ import annotations

from dataclasses import replace

from attnctl.sources.program.attention import Attention
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.relations import Array, is_near


def of_all_queries(graph: Graph, attention: Attention) -> Attention:
    """The attention of all queries, where what came out for the last one stands in every row.

    Only the last row was still there to be read, and is right. What was meant are as many rows as Q has.
    """
    if attention.batch or not attention.lines or attention.arrays["Q"].shape[-2] != 1:
        return attention
    queries = queries_behind(graph, attention)
    if queries is None:
        return attention
    row = attention.arrays["head_outputs"].reshape(-1)
    written = rows_that_are_one(graph, attention.product, len(queries), row)
    if written is None:
        return attention

    arrays = {**attention.arrays, "Q": queries, "head_outputs": graph.value(written)}
    return replace(attention, arrays=arrays, output=written, lines=[])


def queries_behind(graph: Graph, attention: Attention) -> Array | None:
    """The matrix of which the query is a row."""
    for n in attention.origins["Q"][0].path:
        value = graph.value(n)
        if value.ndim == 2 and len(value) > 1:
            return value
    return None


def rows_that_are_one(graph: Graph, begin: int, count: int, row: Array) -> int | None:
    """The list of lists, changed since an attention began, each row of which is this one."""
    for n in graph.events:
        if n < begin and graph.events[n].function != "in place":
            continue
        if not graph.has_value(n) or not graph.is_opaque(n) or n in graph.superseded:
            continue
        value = graph.value(n)
        if value.shape != (count, row.size) or not (value == value[:1]).all():
            continue
        if is_near(value[0], row):
            return n
    return None
