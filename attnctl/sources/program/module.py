"""A call of torch.nn.MultiheadAttention as steps under our names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnctl.math.names import MASK, MEMORY, OUTPUT, W_O, X
from attnctl.sources.program.attention import Attention
from attnctl.sources.program.graph import Graph
from attnctl.sources.program.named import Steps
from attnctl.sources.program.relations import HIDDEN, Array, is_near, is_same
from attnctl.sources.program.steps import StepReader

FARTHEST = 12
"""Arrays made of an output among which its pooling is sought."""


def read_module(reader: StepReader, attention: Attention) -> Steps:
    """X, the weights, what is hidden, and the output.

    Raises KeyError or ValueError where some of it was not kept.
    """
    steps = Steps(attention)
    graph = reader.graph
    arguments = attention.arguments
    heads = int(str(arguments["num_heads"]))
    steps.options["heads"] = heads

    def given(name: str) -> Array | None:
        argument = arguments.get(name)
        if isinstance(argument, dict):
            return graph.value(argument["event"])
        return None

    query = given("query")
    key = given("key")
    value = given("value")
    output = graph.value(attention.output)
    assert query is not None
    assert key is not None
    assert value is not None
    is_batch_first = bool(arguments.get("batch_first"))
    if not is_batch_first and is_pooled_over_second(graph, attention.output):
        is_batch_first = True
        steps.notes.append(
            "What it gives is pooled over its second axis later, as that of tokens; without "
            "batch_first=True it attends over the first."
        )
    if query.ndim == 3 and not is_batch_first:
        query, key, value, output = (array.swapaxes(0, 1) for array in (query, key, value, output))

    at = {name: argument["event"] for name, argument in arguments.items() if isinstance(argument, dict)}
    put_weights(reader, steps)
    if is_same(key, value):
        steps.put(X, query, [at["query"]])
        if not is_same(query, key):
            steps.put(MEMORY, key, [at["key"]])
    else:
        # Keys that have positions, say, which values have not: no one memory is both.
        put_projected(steps, (query, key, value), heads)
    steps.put(OUTPUT, output, [attention.output])

    batch, queries = (len(query), query.shape[1]) if query.ndim == 3 else (1, len(query))
    shape = (batch, heads, queries, key.shape[-2])
    hidden = hidden_by(given("attn_mask"), given("key_padding_mask"), shape)
    events = [at[name] for name in ("attn_mask", "key_padding_mask") if name in at]
    steps.score_events = events
    steps.triangle = reader.masks.triangle_of_mask(events)
    reader.masks.put_meant(steps, hidden)
    if query.ndim == 2 and MASK in steps.arrays:
        steps.arrays[MASK] = steps.arrays[MASK][0]
    return steps


def put_projected(steps: Steps, rows: Sequence[Array], heads: int) -> None:
    """Q, K and V as the module projects them, of rows of their own, in place of what they are made of."""
    for name, of_name in zip("QKV", rows, strict=True):
        weight = steps.arrays.pop(f"W_{name}", None)
        if weight is None:
            raise ValueError(f"the weight of {name} was not kept")
        made = of_name @ weight
        bias = steps.arrays.pop(f"b_{name}", None)
        if bias is not None:
            made = made + bias
        split = made.reshape(*made.shape[:-1], heads, -1).swapaxes(-3, -2)
        steps.put(name, split, [steps.attention.output])


def is_pooled_over_second(graph: Graph, output: int) -> bool:
    """True if what is made of an output has one row left for each of its first axis: a sentence's."""
    value = graph.value(output)
    if value.ndim != 3 or value.shape[0] == value.shape[1]:
        return False
    edge = [output]
    for _ in range(FARTHEST):
        if not edge:
            return False
        n = edge.pop(0)
        whole = graph.value(n)
        for child in graph.made_from(n):
            made = graph.value(child)
            if made.shape == whole.shape:
                edge.append(child)
            elif made.shape == (whole.shape[0], whole.shape[2]) and is_pool_of(made, whole):
                return True
    return False


def is_pool_of(made: Array, whole: Array) -> bool:
    """True for the mean, the sum or the largest over the second axis, or for its first or last."""
    pools = (whole.mean(1), whole.sum(1), whole.max(1), whole[:, 0], whole[:, -1])
    return any(is_near(made, pool) for pool in pools)


def put_weights(reader: StepReader, steps: Steps) -> None:
    graph = reader.graph
    output = steps.attention.output
    weights = graph.events[output].weights

    def weight(name: str) -> Array | None:
        n = weights.get(name)
        if n is not None and graph.has_value(n):
            return graph.value(n)
        return None

    packed = weight("in_proj_weight")
    bias = weight("in_proj_bias")
    parts = [weight(f"{name}_proj_weight") for name in "qkv"]
    if packed is not None:
        parts = list(np.split(packed, 3))
    biases = [None] * 3 if bias is None else list(np.split(bias, 3))
    for name, part, b in zip("QKV", parts, biases, strict=True):
        steps.put(f"W_{name}", None if part is None else part.T, [output])
        steps.put(f"b_{name}", b, [output])
    out = weight("out_proj.weight")
    steps.put(W_O, None if out is None else out.T, [output])
    steps.put("b_O", weight("out_proj.bias"), [output])


def hidden_by(mask: Array | None, padding: Array | None, shape: tuple[int, ...]) -> Array:
    """True where torch's module hides a key: a boolean is true there, another number is added."""
    hidden = np.zeros(shape, bool)
    if mask is not None:
        off = mask
        if mask.dtype.kind != "b":
            off = mask <= HIDDEN
        if off.ndim == 3:
            off = off.reshape(shape[0], shape[1], *off.shape[-2:])
        hidden = hidden | off
    if padding is not None:
        off = padding
        if padding.dtype.kind != "b":
            off = padding <= HIDDEN
        hidden = hidden | off.reshape(shape[0], 1, 1, -1)
    return hidden
