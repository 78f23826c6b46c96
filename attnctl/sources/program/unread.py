"""Operands that were made and not read, while another is read in their place: p @ k for p @ v.

Two operands with one weight may be meant. They are not, where a third one was projected for one of them, is
called so, and nothing reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from attnctl.sources.program.called import is_called
from attnctl.sources.program.graph import MADE, Graph
from attnctl.sources.program.meant import Meaning
from attnctl.sources.program.named import Steps
from attnctl.sources.program.origin import Origins, Projection
from attnctl.sources.program.projected import match_columns, side_by_side
from attnctl.sources.program.relations import Array, has_same_numbers, is_same


class UnreadOperand(NamedTuple):
    event: int
    matrix: Array
    bias: Array | None


class UnreadReader:
    """Puts the weights of operands that nothing reads in the place of those that are read twice."""

    def __init__(self, graph: Graph, origins: Origins, meaning: Meaning) -> None:
        self.graph = graph
        self.origins = origins
        self.meaning = meaning

    def settle(self, steps: Steps) -> None:
        for pair in combinations("VKQ", 2):
            weights = [steps.arrays.get(f"W_{name}") for name in pair]
            if weights[0] is None or weights[1] is None or not is_same(weights[0], weights[1]):
                continue
            unread = {name: self.unread(name, steps, weights[0].shape) for name in pair}
            made = [(name, operand) for name, operand in unread.items() if operand is not None]
            if len(made) == 1:
                self.put(steps, *made[0])

    def put(self, steps: Steps, name: str, operand: UnreadOperand) -> None:
        steps.put(f"W_{name}", operand.matrix, [operand.event])
        steps.arrays.pop(f"b_{name}", None)
        steps.put(f"b_{name}", operand.bias, [operand.event])
        steps.unused.append(operand.event)
        steps.in_vain.append(name)

    def unread(self, name: str, steps: Steps, shape: tuple[int, ...]) -> UnreadOperand | None:
        """What was projected for an operand, is called so, and is not read."""
        read = [rows.array for rows in steps.inputs.values()]
        for n in self.called(name, steps.attention.output):
            projection = self.origins.origin(n).projection
            if projection is None:
                continue
            x = self.origins.tokens(projection)
            if not any(has_same_numbers(x, rows) for rows in read):
                continue
            operand = self.laid_out(n, projection)
            if operand is not None and operand.matrix.shape == shape:
                return operand
        return None

    def called(self, name: str, before: int) -> Iterator[int]:
        """The arrays that are called as an operand is, and that nothing reads."""
        graph = self.graph
        for n in [*graph.events]:
            if n > before or not graph.has_value(n) or not graph.is_float(n):
                continue
            if graph.events[n].function == MADE:
                continue  # a part of another one, made here
            is_unread = all(self.meaning.ends(child, n) for child in graph.children[n])
            if is_unread and any(is_called(name, word) for word in self.meaning.names(n)):
                yield n
            yield from self.parts_called(name, n)

    def parts_called(self, name: str, n: int) -> Iterator[int]:
        """Of q, k, v = array the part that is called so, where nothing has its numbers."""
        graph = self.graph
        words = [word.strip() for word in graph.site(n).target.strip("()").split(",")]
        value = graph.value(n)
        if len(words) < 2 or value.ndim < 2 or len(value) != len(words):
            return
        for number, word in enumerate(words):
            if not is_called(name, word):
                continue
            part = value[number]
            if not any(is_same(graph.value(child), part) for child in graph.made_from(n)):
                yield graph.make_event(n + 1 + number, n, part, [n])

    def laid_out(self, n: int, projection: Projection) -> UnreadOperand | None:
        """The columns of a projection that an array holds: all, where it has all of its numbers."""
        value = self.graph.value(n)
        if has_same_numbers(value, projection.rows):
            return UnreadOperand(n, projection.matrix, projection.bias)
        flat = side_by_side(value) if value.ndim == 4 else value.reshape(-1, value.shape[-1])
        columns = match_columns(projection.rows, flat)
        if columns is None:
            return None
        bias = None if projection.bias is None else projection.bias[columns]
        return UnreadOperand(n, projection.matrix[:, columns], bias)
