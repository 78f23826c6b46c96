"""The forward pass to a layer, written once: embeddings, norms, attention, networks, sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.math.engine import FEWEST_FOR_TILES
from attnctl.math.engine.cost import require, size_text
from attnctl.math.names import RESIDUAL, WEIGHTS, X
from attnctl.math.ops.products import in_tiles
from attnctl.models.attention import prepare_attention
from attnctl.models.layer import LayerTensors, Model
from attnctl.models.network import feed_forward
from attnctl.models.stream import advance, carry, own_inputs, start_streams, steps_to_keep, stream_width
from attnctl.record import Trace

Run = Callable[[LayerTensors, Array, Array | None, bool], Trace]
"""Carries out the attention of a layer: its tensors, hidden, memory, and whether it is to memory."""


def attend_plainly(tensors: LayerTensors, hidden: Array, memory: Array | None, cross: bool) -> Trace:
    """Only what the pass goes on with."""
    passing = replace(tensors, passing=True)
    return prepare_attention(passing, hidden, None, memory, cross=cross).run(
        steps_to_keep(tensors, X, RESIDUAL)
    )


@np.errstate(all="ignore")  # what overflows becomes ∞, as in any kernel
def embed_ids(model: Model, ids: Sequence[int], segments: Sequence[int] | None = None) -> Array:
    """The rows that come into layer 0. Raises AttnError for ids that the model does not take."""
    d = model.description
    width = d["embed_width"]
    x = rows(model, "embed", "token", ids, width) * np.dtype(model.dtype).type(d["embed_scale"])
    if d["project"] and d["project_first"]:
        x, width = project_embeddings(model, x), d["width"]
    if d["positions"]:
        places = [index + d["position_start"] for index in range(len(ids))]
        if d["positions"] == "after_pad":  # those of padding are not counted
            padding = d["position_start"] - 1
            seen = np.cumsum([row != padding for row in ids]).tolist()
            places = [padding + n * (row != padding) for row, n in zip(ids, seen, strict=True)]
        x = x + rows(model, "position", "position", places, width)
    if "segment" in d.stack.outer:
        x = x + rows(model, "segment", "segment", segments or [0] * len(ids), width)
    if "embed_norm" in d.stack.outer:
        x = model.norm("embed_norm", x)
    if d["project"] and not d["project_first"]:
        x = project_embeddings(model, x)
    inputs = [layer_inputs(model, ids, x)] if d["inputs"] else []
    x = start_streams(model, x) if "altup_project" in d.stack.outer else x
    x = np.concatenate([x, *inputs], axis=-1)
    return np.pad(x, [(0, 0), (0, stream_width(d) - x.shape[-1])])


def layer_inputs(model: Model, ids: Sequence[int], x: Array) -> Array:
    """What each layer reads of the tokens besides, side by side: of a table, and made of embeddings."""
    d, number = model.description, np.dtype(model.dtype).type
    size, width = d["inputs"], len(d.layers) * d["inputs"]
    known = rows(model, "inputs_embed", "token", ids, width) * number(size**0.5)
    made = x @ model.outer("inputs_project", ".weight", (width, d["width"])).T * number(d["width"] ** -0.5)
    normed = model.norm("inputs_norm", made.reshape(-1, size)).reshape(made.shape)
    return (normed + known) * number(2**-0.5)


def rows(model: Model, use: str, noun: str, numbers: Sequence[int], width: int) -> Array:
    """These rows of a table outside of layers. Raises AttnError for those it does not have."""
    count = model.rows(use)
    wrong = sorted({number for number in numbers if not 0 <= number < count}) if count else []
    if wrong:
        raise AttnError(f"{model.name}: no {noun} {wrong[0]}; there are {count}, from 0")
    return model.outer(use, ".weight", (count, width), np.asarray(numbers, int))


def project_embeddings(model: Model, x: Array) -> Array:
    width = model.description["width"]
    out = x @ model.outer("embed_project", ".weight", (width, x.shape[-1])).T
    biased = model.description["project_bias"]
    return out + model.outer("embed_project", ".bias", (width,)) if biased else out


def states(
    model: Model, hidden: Array, memory: Array | None = None, run: Run = attend_plainly
) -> Iterator[tuple[int, Array]]:
    """The rows that come into each layer, and out of the last; what `run` changes flows on."""
    width = model.description["width"]
    for index in range(len(model.description.layers)):
        yield index, hidden[..., :width]
        hidden = through(model.layer(index), hidden, memory, run)
    yield len(model.description.layers), hidden[..., :width]


@np.errstate(all="ignore")  # what overflows becomes ∞, as in any kernel
def through(tensors: LayerTensors, hidden: Array, memory: Array | None, run: Run) -> Array:
    d = tensors.d
    trace = run(tensors, hidden, memory, False)
    x, after = trace[X], trace[RESIDUAL]
    if d.crosses:
        if memory is None:
            name = tensors.model.name
            raise AttnError(f"{name}: a decoder's layers read what the encoder made; give it too")
        after = run(tensors, tensors.norm("self_sum_norm", after), memory, True)[RESIDUAL]
    return carry(tensors, hidden, finish(tensors, hidden, x, after), trace)


def finish(tensors: LayerTensors, hidden: Array, x: Array, after: Array) -> Array:
    """What leaves a layer, of what came into it, what attention read, and their sum with its output."""
    d = tensors.d
    after = tensors.norm("attention_sum_norm", after)
    if d["laurel"]:
        low = tensors.multiply("laurel_up", tensors.multiply("laurel_down", x, d["laurel"]), d["width"])
        after = (after + x + tensors.norm("laurel_norm", low)) * 0.5**0.5
    source = hidden if d["parallel"] else after
    read = x if d["parallel"] and not tensors.has("mlp_norm") else tensors.norm("mlp_norm", source)
    made = tensors.norm("mlp_out_norm", feed_forward(tensors, read, after))
    if tensors.has("mlp_scale"):
        made = made * tensors.read("mlp_scale", "", (d["width"],))
    start = read if d["from_norm"] else after
    out = tensors.norm("mlp_sum_norm", start + made * made.dtype.type(d["residual"]))
    if tensors.has("altup_router"):
        out = advance(tensors, hidden, out)
    elif d["inputs"]:
        out = out + own_inputs(tensors, hidden, out)
    if tensors.has("layer_scale"):
        out = out * tensors.read("layer_scale", "", (1,))
    tensors.refuse_unread()
    return out


@np.errstate(all="ignore")  # what overflows becomes ∞, as in any kernel
def final_norm(model: Model, hidden: Array) -> Array:
    """What leaves the last layer as the model gives it away: normed, and in OPT as wide as embeddings."""
    d = model.description
    hidden = hidden[..., : d["width"]]
    out = model.norm("final_norm", hidden) if d["final_norm"] else hidden
    if not (d["project"] and "final_project" in d.stack.outer):
        return out
    return out @ model.outer("final_project", ".weight", (d["embed_width"], d["width"])).T


def require_rows(model: Model, tokens: int) -> None:
    """Refuse a sequence whose rows do not fit memory, before anything is made."""
    d = model.description
    rows = 4 * tokens * (stream_width(d) * 6 + d["intermediate"] * 2 + d["heads"] * d["d_k"] * 4)
    require(rows, f"{tokens} tokens through {d.family} ({size_text(rows)})", model.max_memory)


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
    if any(layer.experts for layer in d.layers):
        return 1
    return max(1, min(MOST_ROWS // tokens, FEWEST_FOR_TILES // (d["heads"] * tokens * tokens)))


def require_length(model: Model, tokens: int) -> None:
    """Raise AttnError for more tokens than the model has places for, or fit memory."""
    require_rows(model, tokens)
    if 0 < (longest := most_tokens(model)) < tokens:
        raise AttnError(f"{tokens:,} tokens; {model.description.family} takes {longest:,}")


def most_tokens(model: Model) -> int:
    """The number of places that a model has learned; 0 where it takes texts of any length."""
    d = model.description
    learned = d["positions"] and "position" in d.stack.outer
    return max(0, model.rows("position") - d["position_start"]) if learned else 0


def weights_of_layers(model: Model, starts: Sequence[Array]) -> Iterator[Array]:
    """The weights of each layer in turn, (sentence, head, query, key)."""
    last = len(model.description.layers) - 1
    if len(model.description.attending) <= last:
        raise AttnError(
            f"{model.name}: layers that carry a state have no weights to count; see run --model"
        )
    traces: list[Trace] = []

    def run(tensors: LayerTensors, hidden: Array, memory: Array | None, cross: bool) -> Trace:
        keep = [WEIGHTS] if tensors.index == last else steps_to_keep(tensors, X, RESIDUAL, WEIGHTS)
        traces.append(prepare_attention(tensors, hidden).run(keep))
        return traces[-1]

    hidden = np.stack(starts)
    for index in range(last + 1):
        with in_tiles():
            if index == last:
                run(model.layer(index), hidden, None, False)
            else:
                hidden = through(model.layer(index), hidden, None, run)
        yield traces.pop()[WEIGHTS]
