"""What stands around an attention that is right by itself: the residual, the cache."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from attnctl.math.names import CONCAT, HEAD_OUTPUTS, OUTPUT
from attnctl.sources.program.graph import SUMS, Graph
from attnctl.sources.program.handed import Handing, defaults_of
from attnctl.sources.program.meant import MOST_OF_NORM, is_normalized
from attnctl.sources.program.named import Steps
from attnctl.sources.program.place import Expression, place_of, place_of_node
from attnctl.verbs.check.report import BrokenLaw, StepPlace

FILLING = frozenset({"append", "extend", "insert", "update", "setdefault"})

MOST_MOVED = 6
"""Arrays between an output and the sum that it is added in: dropout, and what only moves it."""


def broken_around(handing: Handing, steps: Steps, earlier: Sequence[Steps]) -> Iterator[BrokenLaw]:
    """What is wrong beside the attention."""
    graph = handing.graph
    residual = residual_of_normed(graph, steps)
    if residual is not None:
        words = "the output is added to what the norm gave, and what came before the norm is lost"
        yield broken_at(place_of(graph, residual), words, "write x = x + attention(norm(x))")

    if has_one_head_again(steps):
        words = "all heads are one and the same, with the same weights"
        yield broken_at(place_of_heads(handing, steps), words, "make one for each head")

    shared = list_of_all_calls(handing, steps)
    if shared is not None and begins_with_another(steps, earlier):
        words = f"{shared.name} is one list for all calls, and keys of another sequence are still in it"
        yield broken_at(shared.place, words, f"write {shared.name}=None, and make a list where it is None")


def broken_at(place: Expression, words: str, fix: str) -> BrokenLaw:
    return BrokenLaw(words, fix, StepPlace(str(place), span=place.to_dict()))


# --- heads that are one ---


def has_one_head_again(steps: Steps) -> bool:
    """True if all heads project the same rows by the same weights, which are no constants."""
    heads = steps.options.get("heads", 1)
    weights = [steps.arrays.get(f"W_{name}") for name in "QKV"]
    if heads < 2:
        return False
    for weight in weights:
        if weight is None or weight.shape[1] % heads or (weight == weight.flat[0]).all():
            return False
        of_heads = weight.reshape(len(weight), heads, -1)
        if (of_heads != of_heads[:, :1]).any():
            return False
    return True


def place_of_heads(handing: Handing, steps: Steps) -> Expression:
    """Where a list holds one object several times, [Head(d)] * heads; else where Q and K are multiplied."""
    graph = handing.graph
    product = steps.attention.product
    file = graph.site(product).file
    for node in ast.walk(graph.tree(file)):
        match node:
            case ast.BinOp(left=ast.List(elts=[ast.Call()]), op=ast.Mult()):
                return place_of_node(graph, file, node)
    return place_of(graph, product)


# --- a cache that is a default ---


class SharedDefault(NamedTuple):
    name: str
    place: Expression


def list_of_all_calls(handing: Handing, steps: Steps) -> SharedDefault | None:
    """A parameter whose default is a list or a dict that its function fills: def step(x, keys=[])."""
    graph = handing.graph
    for caller in graph.events[steps.attention.product].callers:
        function = handing.function_at(caller)
        if function is None:
            continue
        filled = names_filled(function)
        for name, default in defaults_of(function.args):
            if name in filled and isinstance(default, (ast.List, ast.Dict)):
                return SharedDefault(name, place_of_node(graph, caller.file, default))
    return None


def names_filled(function: ast.AST) -> set[str]:
    """The variables that a function appends to, or writes into by key."""
    filled = set()
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in FILLING:
                filled.add(name)
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                filled.add(name)
    return filled


def begins_with_another(steps: Steps, earlier: Sequence[Steps]) -> bool:
    """True if the keys begin with all those of an attention before, and other ones follow."""
    keys = steps.attention.arrays["K"]
    queries = steps.attention.arrays["Q"].shape[-2]
    for other in earlier:
        before = other.attention.arrays["K"]
        count = before.shape[-2]
        is_shorter = before.shape[:-2] == keys.shape[:-2] and count + queries <= keys.shape[-2]
        if is_shorter and np.array_equal(before, keys[..., :count, :]):
            return True
    return False


# --- a residual ---


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
    made = [steps.events[name][-1] for name in (OUTPUT, CONCAT, HEAD_OUTPUTS) if name in steps.events]
    if not made:
        return None
    last = made[0]
    edge = [last]
    for _ in range(MOST_MOVED):
        children = [child for n in edge for child in graph.made_from(n)]
        for child in children:
            if graph.op(child) in SUMS and x in graph.parents(child):
                return child
        edge = [child for child in children if graph.value(child).size == graph.value(last).size]
    return None


def is_residual_stream(graph: Graph, n: int) -> bool:
    """True for rows that another sum reads as they are."""
    shape = graph.value(n).shape
    return any(
        graph.op(child) in SUMS and graph.value(child).shape == shape for child in graph.made_from(n)
    )
