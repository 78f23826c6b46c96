"""Drawing tensors: the same number everywhere, for good.

Streams come from `numpy.random.RandomState`, which NumPy has frozen (NEP 19); everything is drawn
in float64 and cast afterwards. A named tensor has a stream of its own, so that adding a head, a
mask or W_O changes no other tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from math import sqrt

import numpy as np

from attnctl.array import Array, Shape


def stream(seed: int, *name: str) -> np.random.RandomState:
    """The random stream of one named thing: SHA-256 of seed and name, as RandomState's key."""
    digest = sha256("\x1f".join((str(seed), *name)).encode("utf-8", "surrogatepass")).digest()
    return np.random.RandomState(np.frombuffer(digest, dtype="<u4").astype(np.uint32))


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


def token_rows(seed: int, tokens: Iterable[str], d_model: int, distribution: str) -> Array:
    """A row for each token, (token, d_model), drawn from (seed, token) alone."""
    rows = [token_row(seed, token, d_model, distribution) for token in dict.fromkeys(tokens)]
    return np.array(rows).reshape(len(rows), d_model)


@lru_cache(maxsize=1024)
def token_row(seed: int, token: str, d_model: int, distribution: str) -> Array:
    """The row of one token, (d_model,); many sentences have the same words."""
    row = draw(stream(seed, "token", token), (d_model,), distribution, d_model)
    row.flags.writeable = False
    return row
