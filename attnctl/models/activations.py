"""The functions between the two matrices of a feed-forward network."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, pi, sqrt

import numpy as np

from attnctl.math import Array

SINGLE = (
    (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
     -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
    (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
     -1.42647390514189e-02),
)  # fmt: skip
"""Coefficients of erf(x) / x in x² for float32 (Eigen, MathFunctionsImpl.h)."""

error_function = np.vectorize(erf, otypes=[np.float64])

PIECE = 2**15
"""Numbers that a function is applied to at a time, so that what it makes on the way stays in cache."""


def activate(act: Callable[[Array], Array], x: Array) -> Array:
    """The function of every number, in pieces of an array that is in one piece."""
    if not x.flags.c_contiguous or x.size <= PIECE:
        return act(x)

    out = np.empty_like(x)
    source = x.reshape(-1)
    target = out.reshape(-1)
    for start in range(0, x.size, PIECE):
        piece = slice(start, start + PIECE)
        target[piece] = act(source[piece])
    return out


def erf_single(x: Array) -> Array:
    """The error function of float32, to its last digits: a fraction of polynomials, from −4 to 4."""
    above, below = SINGLE
    x = np.clip(x, np.float32(-4), np.float32(4))
    square = x * x
    out = horner(above, square)
    out *= x
    out /= horner(below, square)
    return out


def horner(coefficients: tuple[float, ...], x: Array) -> Array:
    """The polynomial at x, the highest power first, with no array made on the way."""
    out = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        out *= x
        out += x.dtype.type(coefficient)
    return out


def gelu(x: Array) -> Array:
    """x Φ(x) (Hendrycks & Gimpel 2016)."""
    if x.dtype == np.float32:
        half = x * np.float32(0.5)
        return half * (1 + erf_single(x * np.float32(1 / sqrt(2))))

    half = x * 0.5
    error = error_function(x.astype(np.float64) / sqrt(2))
    return half * (1 + error.astype(x.dtype))


def gelu_tanh(x: Array) -> Array:
    """x Φ(x) with Φ by a tanh."""
    inner = x + 0.044715 * x**3
    return 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * inner))


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(−x)), without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * x))


def xielu(
    x: Array, above: float = 0.8, below: float = 0.8, slope: float = 0.5, most: float = -1e-6
) -> Array:
    """A parabola above 0, α · (exp(x) − 1 − x) below it, and `slope` · x (Huang & Schlag 2024).

    The curves `above` and `below` are those that it begins with; each layer learns its own. `most` keeps
    exp(x) − 1 from 0.
    """
    number = x.dtype.type
    parabola = number(above) * x * x
    curve = number(below) * (np.expm1(np.minimum(x, number(most))) - x)
    return np.where(x > 0, parabola, curve) + number(slope) * x


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    **dict.fromkeys(("gelu", "gelu_python"), gelu),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), gelu_tanh),
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    **dict.fromkeys(("silu", "swish"), lambda x: x * sigmoid(x)),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "linear": lambda x: x,
    "xielu": xielu,
}
"""By the names that config.json gives them."""
