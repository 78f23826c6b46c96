"""The forward pass to a layer, written once: embeddings, norms, attention, networks, sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import log
from types import MappingProxyType

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.math.engine import FEWEST_FOR_TILES
from attnctl.math.engine.cost import require, size_text
from attnctl.math.names import RESIDUAL, WEIGHTS, X
from attnctl.math.ops.products import in_tiles
from attnctl.models.attention import prepare_attention
from attnctl.models.description import Description
from attnctl.models.layer import LayerTensors, Model
from attnctl.models.network import feed_forward
from attnctl.models.stream import advance, carry, own_inputs, start_streams, steps_to_keep, stream_width
from attnctl.record import Trace

Run = Callable[[LayerTensors, Array, Array | None, bool], Trace]
"""Carries out the attention of a layer: its tensors, hidden, memory, and whether it is to memory."""

Change = Callable[[Array], Array]
"""From what is computed to what takes its place."""


def attend_plainly(tensors: LayerTensors, hidden: Array, memory: Array | None, cross: bool) -> Trace:
    """Only what the pass goes on with."""
    passing = replace(tensors, passing=True)
    plan = prepare_attention(passing, hidden, None, memory, cross=cross)
    return plan.run(steps_to_keep(tensors, X, RESIDUAL))


@np.errstate(all="ignore")  # what overflows becomes ∞, as in any kernel
def embed_ids(
    model: Model, ids: Sequence[int], segments: Sequence[int] | None = None, start: int = 0
) -> Array:
    """The rows that come into layer 0, of tokens that stand after `start` others.

    Raises AttnError for ids that the model does not take.
    """
    d = model.description
    outer = d.stack.outer
    scale = np.dtype(model.dtype).type(d["embed_scale"])
    width = d["embed_width"]
    x = rows(model, "embed", "token", ids, width) * scale
    if d["masked"] is not None:
        x = drop_masked(x, ids, d["masked"])
    if d["project"] and d["project_first"]:
        x = project_embeddings(model, x)
        width = d["width"]

    if d["positions"]:
        x = x + position_rows(model, places_of_tokens(d, ids, start), width)
    if "segment" in outer and d["segments"] != 0:
        x = x + rows(model, "segment", "segment", segments or [0] * len(ids), width)
    if d["embed_norm"]:
        x = model.norm("embed_norm", x)
    if d["project"] and not d["project_first"]:
        x = project_embeddings(model, x)

    return with_streams(model, ids, x)


SHARE_MASKED = 0.15 * 0.8
"""Of the tokens that ESM was trained on: so many were masked, and their rows 0."""


def drop_masked(x: Array, ids: Sequence[int], masked: int) -> Array:
    """Rows of 0 for masked tokens, all others scaled as if as many were masked as in training (ESM)."""
    is_masked = np.asarray(ids) == masked
    kept = np.where(is_masked[:, None], x.dtype.type(0), x)
    return kept * x.dtype.type((1 - SHARE_MASKED) / (1 - is_masked.mean()))


def position_rows(model: Model, places: Sequence[int], width: int) -> Array:
    """What is added to rows that stand in these places: rows of a table, or waves where there is none."""
    if "position" in model.description.stack.outer:
        return rows(model, "position", "position", places, width)

    waves = sinusoids(np.asarray(places), width)
    padding = model.description["position_start"] - 1
    waves[np.asarray(places) == padding] = 0
    return waves.astype(model.dtype)


def sinusoids(places: Array, width: int) -> Array:
    """All sines, then all cosines, whose frequencies go down from 1 to 1/10,000 (M2M-100)."""
    half = width // 2
    step = np.float32(-log(10000) / (half - 1))
    frequencies = np.exp(np.arange(half, dtype=np.float32) * step)
    angles = places.astype(np.float32)[:, None] * frequencies
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    return np.pad(waves, [(0, 0), (0, width % 2)])


def places_of_tokens(d: Description, ids: Sequence[int], start: int = 0) -> list[int]:
    """The row of the table of positions that is added to each token."""
    first = d["position_start"] + start
    if d["positions"] != "after_pad":
        return [first + index for index in range(len(ids))]

    # Padding is not counted; it is given the row before the first, which has its own id.
    padding = first - 1
    places = []
    counted = 0
    for token in ids:
        if token == padding:
            places.append(padding)
        else:
            counted += 1
            places.append(padding + counted)
    return places


def with_streams(model: Model, ids: Sequence[int], x: Array) -> Array:
    """The embeddings, and behind them the columns of all that flows beside them (see `stream`)."""
    d = model.description
    inputs = [layer_inputs(model, ids, x)] if d["inputs"] else []
    if "altup_project" in d.stack.outer:
        x = start_streams(model, x)

    x = np.concatenate([x, *inputs], axis=-1)
    empty = stream_width(d) - x.shape[-1]  # K and V of earlier layers, which those will fill
    return np.pad(x, [(0, 0), (0, empty)])


def layer_inputs(model: Model, ids: Sequence[int], x: Array) -> Array:
    """What each layer reads of the tokens besides, side by side: of a table, and made of embeddings."""
    d = model.description
    number = np.dtype(model.dtype).type
    size = d["inputs"]
    width = len(d.layers) * size

    looked_up = rows(model, "inputs_embed", "token", ids, width)
    looked_up = looked_up * number(size**0.5)

    matrix = model.outer("inputs_project", ".weight", (width, d["width"]))
    made = x @ matrix.T * number(d["width"] ** -0.5)
    by_layer = made.reshape(-1, size)
    normed = model.norm("inputs_norm", by_layer).reshape(made.shape)
    return (normed + looked_up) * number(2**-0.5)


def rows(model: Model, use: str, noun: str, numbers: Sequence[int], width: int) -> Array:
    """These rows of a table outside of layers. Raises AttnError for those it does not have."""
    count = model.rows(use)
    # A table of no known size (0) is held to its shape when it is read.
    wrong = [number for number in numbers if count and not 0 <= number < count]
    if wrong:
        raise AttnError(f"{model.name}: no {noun} {min(wrong)}; there are {count}, from 0")
    return model.outer(use, ".weight", (count, width), np.asarray(numbers, int))


def project_embeddings(model: Model, x: Array) -> Array:
    width = model.description["width"]
    matrix = model.outer("embed_project", ".weight", (width, x.shape[-1]))
    out = x @ matrix.T
    if not model.description["project_bias"]:
        return out
    return out + model.outer("embed_project", ".bias", (width,))


def states(
    model: Model,
    hidden: Array,
    memory: Array | None = None,
    run: Run = attend_plainly,
    networks: Mapping[int, Change] = MappingProxyType({}),
) -> Iterator[tuple[int, Array]]:
    """The rows that come into each layer, and out of the last; what `run` changes flows on.

    So does what `networks` make of the output of a layer's network, by its number.
    """
    width = model.description["width"]
    for index in range(len(model.description.layers)):
        yield index, hidden[..., :width]
        hidden = through(model.layer(index), hidden, memory, run, networks.get(index))
    yield len(model.description.layers), hidden[..., :width]


@np.errstate(all="ignore")  # what overflows becomes ∞, as in any kernel
def through(
    tensors: LayerTensors, hidden: Array, memory: Array | None, run: Run, network: Change | None = None
) -> Array:
    """What leaves a layer, whose attention `run` carries out, and what flows on beside it.

    `network` changes the output of its network before it is added.
    """
    trace = run(tensors, hidden, memory, False)
    after = trace[RESIDUAL]
    if tensors.d.crosses:
        if memory is None:
            name = tensors.model.name
            raise AttnError(f"{name}: a decoder's layers read what the encoder made; give it too")
        after = run(tensors, tensors.norm("self_sum_norm", after), memory, True)[RESIDUAL]

    out = finish(tensors, hidden, trace[X], after, network)
    return carry(tensors, hidden, out, trace)


def finish(
    tensors: LayerTensors, hidden: Array, x: Array, after: Array, network: Change | None = None
) -> Array:
    """What leaves a layer, of what came into it, what attention read, and their sum with its output."""
    d = tensors.d
    if not tensors.this_layer.has_network:
        tensors.refuse_unread()
        return after

    after = tensors.norm("attention_sum_norm", after)
    if d["laurel"]:
        after = (after + x + learned_residual(tensors, x)) * 0.5**0.5

    read = read_by_network(tensors, hidden, x, after)
    made = tensors.norm("mlp_out_norm", feed_forward(tensors, read, after))
    if tensors.has("mlp_scale"):
        made = made * tensors.read("mlp_scale", "", (d["width"],))
    if network is not None:
        made = network(made)
    start = read if d["from_norm"] else after
    out = tensors.norm("mlp_sum_norm", start + made * made.dtype.type(d["residual"]))

    if tensors.has("altup_router"):
        out = advance(tensors, hidden, out)
    elif d["inputs"]:
        out = out + own_inputs(tensors, hidden, out)
    if tensors.has("layer_scale"):
        out = out * tensors.read("layer_scale", "", (1,))

    # Only now has everything that the layer has been read.
    tensors.refuse_unread()
    return out


def read_by_network(tensors: LayerTensors, hidden: Array, x: Array, after: Array) -> Array:
    """The rows that a layer's network reads."""
    if tensors.this_layer.is_network:
        return x
    if not tensors.d["parallel"]:
        return tensors.norm("mlp_norm", after)
    # Side by side with attention it reads what that read, through a norm of its own if it has one.
    return tensors.norm("mlp_norm", hidden) if tensors.has("mlp_norm") else x


def learned_residual(tensors: LayerTensors, x: Array) -> Array:
    """What LAuReL adds beside attention: rows through two matrices of a low rank (Gemma 3n)."""
    low = tensors.multiply("laurel_down", x, tensors.d["laurel"])
    return tensors.norm("laurel_norm", tensors.multiply("laurel_up", low, tensors.d["width"]))


@np.errstate(all="ignore")  # what overflows becomes ∞, as in any kernel
def final_norm(model: Model, hidden: Array) -> Array:
    """What leaves the last layer as the model gives it away: normed, and in OPT as wide as embeddings."""
    d = model.description
    out = hidden[..., : d["width"]]
    if d["final_norm"]:
        out = model.norm("final_norm", out)
    if not d["project"] or "final_project" not in d.stack.outer:
        return out

    matrix = model.outer("final_project", ".weight", (d["embed_width"], d["width"]))
    return out @ matrix.T


def require_rows(model: Model, tokens: int) -> None:
    """Refuse a sequence whose rows do not fit memory, before anything is made."""
    d = model.description
    # As many arrays as live at once in a layer, in float32: of the stream, of the network, of heads.
    of_stream = stream_width(d) * 6
    of_network = d["intermediate"] * 2
    of_heads = d["heads"] * d["d_k"] * 4
    size = 4 * tokens * (of_stream + of_network + of_heads)
    require(size, f"{tokens} tokens through {d.family} ({size_text(size)})", model.max_memory)


# --- several sentences of one length at once ---
#
# A row's products with a matrix are in tiles (`math/products.py`), those of a sentence's rows with each
# other are its own, and all else is local to a row: a sentence's numbers do not depend on which others
# stand beside it, to the last bit.

MOST_ROWS = 2**10
"""Tokens that are taken through a model at a time."""


def together(model: Model, tokens: int) -> int:
    """How many sentences of so many tokens go through at once: one where experts or tiles mix them."""
    d = model.description
    if any(layer.has_experts for layer in d.layers):
        return 1

    by_rows = MOST_ROWS // tokens
    by_scores = FEWEST_FOR_TILES // (d["heads"] * tokens * tokens)
    return max(1, min(by_rows, by_scores))


def require_length(model: Model, tokens: int) -> None:
    """Raise AttnError for more tokens than the model has places for, or fit memory."""
    require_rows(model, tokens)
    longest = most_tokens(model)
    if longest and tokens > longest:
        raise AttnError(f"{tokens:,} tokens; {model.description.family} takes {longest:,}")


def most_tokens(model: Model) -> int:
    """The number of places that a model has learned; 0 where it takes texts of any length."""
    d = model.description
    if not d["positions"] or "position" not in d.stack.outer:
        return 0
    return max(0, model.rows("position") - d["position_start"])


def weights_of_layers(model: Model, starts: Sequence[Array]) -> Iterator[Array]:
    """The weights of each layer in turn, (sentence, head, query, key)."""
    last = len(model.description.layers) - 1
    if len(model.description.attending) <= last:
        raise AttnError(
            f"{model.name}: layers that carry a state have no weights to count; see run --model"
        )

    traces: list[Trace] = []

    def run(tensors: LayerTensors, hidden: Array, memory: Array | None, cross: bool) -> Trace:
        # Nothing reads what leaves the last layer: its weights are all that is computed.
        is_last = tensors.index == last
        steps = [WEIGHTS] if is_last else steps_to_keep(tensors, X, RESIDUAL, WEIGHTS)
        traces.append(prepare_attention(tensors, hidden).run(steps))
        return traces[-1]

    hidden = np.stack(starts)
    for index in range(last + 1):
        tensors = model.layer(index)
        with in_tiles():
            if index == last:
                run(tensors, hidden, None, False)
            else:
                hidden = through(tensors, hidden, None, run)
        yield traces.pop()[WEIGHTS]
