"""What stands around an attention that is right by itself: the residual that its output is added to."""

from __future__ import annotations

from attnctl.math.names import CONCAT, HEAD_OUTPUTS, OUTPUT
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.meant import is_normalized
from attnctl.sources.program.named import Steps
from attnctl.sources.program.place import place_of

ADDED = frozenset({"+", "add", "in place +"})

MOST_OF_NORM = 12
"""Arrays between rows and their norm."""

MOST_MOVED = 6
"""Arrays between an output and the sum that it is added in: dropout, and what only moves it."""


def broken_around(graph: Graph, steps: Steps) -> tuple[str, ...]:
    """What is wrong beside the attention, in sentences that begin with its place."""
    residual = residual_of_normed(graph, steps)
    if residual is None:
        return ()
    words = "the output is added to what the norm gave, and what came before the norm is lost"
    return (f"{place_of(graph, residual)}: {words}: write x = x + attention(norm(x)).",)


def residual_of_normed(graph: Graph, steps: Steps) -> int | None:
    """The sum of a pre-norm block that adds the output to the rows that were normalized for it.

    In a post-norm block these are the residual, and the sum goes into a norm and nowhere else. In a
    pre-norm block the sum is read by a norm and by the next sum, and so is what it begins with.
    """
    projected = steps.inputs.get("Q")
    if projected is None or not is_normalized(graph.value(projected.event)):
        return None
    added = sum_with(graph, steps, projected.event)
    if added is None or not is_residual_stream(graph, added):
        return None

    for before in graph.ancestors(projected.event, most=MOST_OF_NORM):
        value = graph.value(before)
        if value.shape != graph.value(projected.event).shape or is_normalized(value):
            continue
        return None if is_residual_stream(graph, before) else added
    return None


def sum_with(graph: Graph, steps: Steps, x: int) -> int | None:
    """The sum of an output and the rows that it was projected of."""
    last = next(steps.events[name][-1] for name in (OUTPUT, CONCAT, HEAD_OUTPUTS) if name in steps.events)
    edge = [last]
    for _ in range(MOST_MOVED):
        children = [child for n in edge for child in graph.made_from(n)]
        for child in children:
            if graph.op(child) in ADDED and x in graph.parents(child):
                return child
        edge = [child for child in children if graph.value(child).size == graph.value(last).size]
    return None


def is_residual_stream(graph: Graph, n: int) -> bool:
    """True for rows that another sum reads as they are."""
    shape = graph.value(n).shape
    return any(
        graph.op(child) in ADDED and graph.value(child).shape == shape for child in graph.made_from(n)
    )
