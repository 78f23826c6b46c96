"""What comes after the second product: heads side by side, and the output."""

from __future__ import annotations

from attnctl.math.names import (
    CONCAT,
    HEAD_OUTPUTS,
    OUTPUT,
    W_O,
)
from attnctl.sources.program.attention import Attention
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.meant import Meaning
from attnctl.sources.program.named import LEFT_AS_IT_IS, Layout, Steps
from attnctl.sources.program.origin import Origins, Projection
from attnctl.sources.program.relations import (
    Array,
    has_same_numbers,
    is_same,
)

MOST_BETWEEN = 40
"""Expressions between the heads and their projection that are looked at."""


class OutputReader:
    """Reads concat and output."""

    def __init__(self, graph: Graph, origins: Origins, meaning: Meaning) -> None:
        self.graph = graph
        self.origins = origins
        self.meaning = meaning

    def read(self, steps: Steps, layout: Layout) -> None:
        """Heads side by side, and projected."""
        attention = steps.attention
        graph = self.graph
        outputs = layout.four(attention.arrays[HEAD_OUTPUTS])
        batch, heads, queries, width = outputs.shape
        n, moves = self.follow_moves(attention)

        merged = outputs.swapaxes(1, 2).reshape(batch, queries, heads * width)
        value = graph.value(n)
        is_turned = value.shape == (heads * width, queries) != (queries, heads * width)
        if is_turned:
            value = value.T
        tokens_first = stands_tokens_first(value, merged)
        if moves and value.size == outputs.size and value.shape[-1] == heads * width:
            if tokens_first:
                value = value.swapaxes(0, 1)
            concat = value.reshape(batch, queries, heads * width)
            if heads == 1 and has_same_numbers(concat, merged) and not is_same(concat, merged):
                return  # no heads to merge: rows go elsewhere, as windows of a picture do
            steps.put(CONCAT, concat, moves)

        projection = self.output_projection(n)
        if projection is not None and projection.matrix.shape[0] == heads * width:
            matrix = projection.matrix
            if self.meaning.is_left_as_torch_has_it(steps, projection):
                matrix = matrix.T
                steps.note(LEFT_AS_IT_IS)
            steps.put(W_O, matrix, [projection.weight])
            steps.put("b_O", projection.bias, [projection.weight])
            output = graph.value(projection.n)
            if tokens_first:
                output = output.swapaxes(0, 1)
            steps.put(OUTPUT, output.reshape(batch, queries, -1), [projection.n])
        elif projection is None:
            unused = self.meaning.unused_output_weight(steps, heads * width)
            if unused is not None and CONCAT in steps.arrays and not self.is_read_later(unused, n):
                matrix = self.meaning.matrix_of(unused, (heads * width,))
                steps.put(W_O, matrix, [unused])
                steps.put(OUTPUT, steps.arrays.pop(CONCAT), steps.events.pop(CONCAT))

    def is_read_later(self, weight: int, concat: int) -> bool:
        """True if something that was made of the heads is projected by it: gated first, or normed."""
        graph = self.graph
        return any(concat in graph.ancestors(child, most=MOST_BETWEEN) for child in graph.children[weight])

    def follow_moves(self, attention: Attention) -> tuple[int, list[int]]:
        """The last array that only moves what the second product gave, and those on the way to it."""
        graph = self.graph
        n = attention.output
        moves: list[int] = []
        if attention.joined is not None:
            n = attention.joined
            moves.append(n)

        for _ in range(8):
            if self.output_projection(n) is not None:
                break
            value = graph.value(n)
            moved = [
                child
                for child in graph.made_from(n)
                if graph.value(child).size == value.size
                and graph.value(child).ndim > 1
                and not graph.product(child)
                and has_same_numbers(graph.value(child), value)
            ]
            if not moved:
                break
            n = moved[0]
            moves.append(n)
        return n, moves

    def output_projection(self, n: int) -> Projection | None:
        """The projection that reads this array, with its bias where one is added."""
        found: Projection | None = None
        for child in self.graph.made_from(n):
            projection = self.origins.projection(child)
            if projection is None:
                continue
            if projection.x != n:
                continue
            found = projection
            for further in self.graph.made_from(child):
                with_bias = self.origins.projection(further)
                if projection.bias is None and with_bias is not None and with_bias.bias is not None:
                    found = with_bias
        return found


def stands_tokens_first(value: Array, merged: Array) -> bool:
    """True if an array has (token, batch, d) where we have (batch, token, d)."""
    batch, queries, width = merged.shape
    if batch == 1:
        return False
    if value.shape != (queries, batch, width):
        return False
    if batch != queries:
        return True
    return is_same(value.swapaxes(0, 1), merged)
