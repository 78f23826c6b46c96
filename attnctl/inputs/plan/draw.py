"""Drawing tensors: the same number everywhere, for good.

Streams come from `numpy.random.RandomState`, which NumPy has frozen (NEP 19); everything is drawn
in float64 and cast afterwards. A named tensor has a stream of its own, so that adding a head, a
mask or W_O changes no other tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from math import sqrt

import numpy as np

from attnctl.math import Array, Shape


def stream(seed: int, *name: str) -> np.random.RandomState:
    return np.random.RandomState(key(seed, *name))


def key(seed: int, *name: str) -> Array:
    """What the stream of a named thing begins with: SHA-256 of seed and name, as eight words."""
    digest = sha256("\x1f".join((str(seed), *name)).encode("utf-8", "surrogatepass")).digest()
    return np.frombuffer(digest, dtype="<u4").astype(np.uint32)


def draw(rng: np.random.RandomState, shape: Shape, distribution: str, d_model: int) -> Array:
    """Numbers of this shape: normal is N(0, 1/d_model), standard_normal N(0, 1), uniform [0, 1)."""
    match distribution:
        case "normal":
            return rng.standard_normal(shape) / sqrt(d_model)
        case "standard_normal":
            return rng.standard_normal(shape)
        case "uniform":
            return rng.random_sample(shape)
    raise ValueError(f"unknown distribution {distribution!r}")


def token_rows(seed: int, tokens: Sequence[str], d_model: int, distribution: str) -> Array:
    """A row for each token, (token, d_model), drawn from (seed, token) alone."""
    rows = np.empty((len(tokens), d_model))
    rng = np.random.RandomState(0)  # made once: a new one asks the system for entropy first
    for row, token in zip(rows, tokens, strict=True):
        rng.seed(key(seed, "token", token))
        row[:] = draw(rng, (d_model,), distribution, d_model)
    return rows
