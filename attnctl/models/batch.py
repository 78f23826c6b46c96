"""The attention of every layer on sentences of one length at once.

A row's products with a matrix are in tiles (`math/products.py`), those of a sentence's rows with each
other are its own, and all else is local to a row: a sentence's numbers do not depend on which others stand
beside it, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.math.engine.execute import FEWEST_FOR_TILES
from attnctl.math.names import RESIDUAL, WEIGHTS, X
from attnctl.math.products import in_tiles
from attnctl.models.attention import prepare_attention
from attnctl.models.forward import embed_ids, through
from attnctl.models.layer import LayerTensors, Model
from attnctl.models.run import require_rows
from attnctl.models.tokens import Tokens
from attnctl.record.trace import Trace

MOST_ROWS = 2**10
"""Tokens that are taken through a model at a time."""


def together(model: Model, tokens: int) -> int:
    """The number of sentences of so many tokens that go through a model at once.

    One where they would not be kept apart: experts take their rows from all, and with many scores
    they are computed in tiles.
    """
    d = model.description
    if any(layer.experts for layer in d.layers):
        return 1
    return max(1, min(MOST_ROWS // tokens, FEWEST_FOR_TILES // (d["heads"] * tokens * tokens)))


def require_length(model: Model, tokens: int) -> None:
    """Raise AttnError for more tokens than the model has places for, or fit memory."""
    require_rows(model, tokens)
    d = model.description
    longest = model.rows("position") - d["position_start"] if d["positions"] else 0
    if 0 < longest < tokens:
        raise AttnError(f"{tokens:,} tokens; {d.family} takes {longest:,}")


def starts_of(model: Model, tokens: Tokens) -> Array:
    """The rows that come into the first layer for one sentence, (token, width).

    Raises AttnError for ids that the model does not have.
    """
    return embed_ids(model, tokens.ids, tokens.segments)


def weights_of_layers(model: Model, starts: Sequence[Array]) -> Iterator[Array]:
    """The weights of each layer in turn, (sentence, head, query, key)."""
    hidden = np.stack(starts)
    last = len(model.description.layers) - 1
    for index in range(last + 1):
        kept: list[Array] = []
        keep = [WEIGHTS] if index == last else [X, RESIDUAL, WEIGHTS]

        def run(
            tensors: LayerTensors,
            hidden: Array,
            memory: Array | None,
            cross: bool,
            kept: list[Array] = kept,
            keep: Sequence[str] = keep,
        ) -> Trace:
            trace = prepare_attention(tensors, hidden).run(keep)
            kept.append(trace[WEIGHTS])
            return trace

        with in_tiles():
            if index == last:
                run(model.layer(index), hidden, None, False)
            else:
                hidden = through(model.layer(index), hidden, None, run)
        yield kept[0]
