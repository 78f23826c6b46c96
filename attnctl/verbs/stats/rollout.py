"""Attention rollout: how much of each token of the sentence has reached each place after some layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.trace import Trace
from attnctl.math import Array
from attnctl.verbs.stats.measure import weights_of


def rollout(layers: Sequence[Trace]) -> Array:
    """Attention through all the layers, first one first, (token, token); rows sum to 1.

    Each layer is (A + I) / 2, A the mean over its heads and I the residual connection, its rows
    made to sum to 1; layers multiply: R = Ã_L … Ã_2 Ã_1 (Abnar & Zuidema 2020, section 3).

    Raises AttnError where layers are not all of one sentence, or queries are not its tokens.
    """
    out = None
    for number, trace in enumerate(layers):
        weights = weights_of(trace)
        members, _, queries, keys = weights.shape
        if members != 1 or queries != keys:
            raise AttnError(
                f"layer {number}: {members} × {queries} × {keys} (batch, query, key); rollout needs one "
                "sentence that attends to itself"
            )
        if trace.tokens != layers[0].tokens or (out is not None and len(out) != queries):
            raise AttnError(f"layer {number}: not the sentence of layer 0; give the layers of one sentence")
        layer = (weights[0].mean(axis=0, dtype=np.float64) + np.eye(queries)) / 2
        layer /= layer.sum(axis=-1, keepdims=True)
        out = layer if out is None else layer @ out
    if out is None:
        raise AttnError("no layers to roll attention out over")
    return out
