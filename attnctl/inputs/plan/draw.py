"""Drawing tensors: the same number everywhere, for good.

Streams are those of `numpy.random.RandomState`, which NumPy has frozen (NEP 19); everything is drawn
in float64 and cast afterwards. A named tensor has a stream of its own, so that adding a head, a
mask or W_O changes no other tensor.
"""

from __future__ import annotations

from _random import Random  # that of `random`, which imports hashing besides
from collections.abc import Sequence
from importlib import import_module
from math import log, prod, sqrt
from sys import version_info
from typing import TypeAlias

import numpy as np

from attnctl.math import Array, Shape

try:  # hashlib loads OpenSSL for the same digest: 4 MB and 4 ms of every run
    sha256 = import_module("_sha2" if version_info >= (3, 12) else "_sha256").sha256
except ImportError:
    sha256 = import_module("hashlib").sha256

FEW = 2**11
"""Up to so many numbers, 2 ms, a tensor is drawn without `numpy.random`, whose import takes 10 ms and 3 MB.

Their number alone decides, so that a tensor is drawn in one way whatever was imported before.
"""


class FewNumbers:
    """The numbers of `RandomState`, one by one: Python has the same Mersenne Twister, seeded alike."""

    def seed(self, words: Array) -> None:
        # Of an integer Python leaves out leading words of zeros, which NumPy counts.
        number = int.from_bytes(words.astype("<u4").tobytes(), "little")
        same = Random(number).random
        self.random = same if words[-1] else np.random.RandomState(words).random_sample
        self.spare: float | None = None

    def random_sample(self, shape: Shape) -> Array:
        """Uniform on [0, 1)."""
        return np.array([self.random() for _ in range(prod(shape))]).reshape(shape)

    def standard_normal(self, shape: Shape) -> Array:
        """N(0, 1)."""
        return np.array([self.normal() for _ in range(prod(shape))]).reshape(shape)

    def normal(self) -> float:
        """Two points at a time, by the polar method (Marsaglia & Bray 1964)."""
        if self.spare is not None:
            number, self.spare = self.spare, None
            return number
        r2 = 0.0
        while not 0 < r2 < 1:
            x, y = 2 * self.random() - 1, 2 * self.random() - 1
            r2 = x * x + y * y
        factor = sqrt(-2 * log(r2) / r2)
        self.spare = factor * x
        return factor * y


Numbers: TypeAlias = "np.random.RandomState | FewNumbers"


def generator_of(count: int) -> Numbers:
    """The quicker of the two for so many numbers; it wants a seed yet."""
    return FewNumbers() if count <= FEW else np.random.RandomState(0)


def stream(seed: int, *name: str, count: int) -> Numbers:
    """The generator of a named tensor with so many numbers."""
    rng = generator_of(count)
    rng.seed(key(seed, *name))
    return rng


def key(seed: int, *name: str) -> Array:
    """SHA-256 of seed and name, as eight words: the stream of a named thing begins with them."""
    digest = sha256("\x1f".join((str(seed), *name)).encode("utf-8", "surrogatepass")).digest()
    return np.frombuffer(digest, dtype="<u4").astype(np.uint32)


def draw(rng: Numbers, shape: Shape, distribution: str, d_model: int) -> Array:
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
    rng = generator_of(rows.size)  # made once: a new RandomState asks the system for entropy first
    for row, token in zip(rows, tokens, strict=True):
        rng.seed(key(seed, "token", token))
        row[:] = draw(rng, (d_model,), distribution, d_model)
    return rows
