"""The functions between the two matrices of a feed-forward network."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

import numpy as np

from attnctl.math import Array

NEAR = (
    (9.60497373987051638749e0, 9.00260197203842689217e1, 2.23200534594684319226e3, 7.00332514112805075473e3,
     5.55923013010394962768e4),
    (1.0, 3.35617141647503099647e1, 5.21357949780152679795e2, 4.59432382970980127987e3,
     2.26290000613890934246e4, 4.92673942608635921086e4),
)  # fmt: skip
FAR = (
    (2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0,
     4.86371970985681366614e1, 1.96520832956077098242e2, 5.26445194995477358631e2,
     9.34528527171957607540e2, 1.02755188689515710272e3, 5.57535335369399327526e2),
    (1.0, 1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2,
     9.75708501743205489753e2, 1.82390916687909736289e3, 2.24633760818710981792e3,
     1.65666309194161350182e3, 5.57535340817727675546e2),
)  # fmt: skip
"""Coefficients of erf below 1 and of erfc · exp(x²) beyond (Moshier, Cephes, ndtr.c)."""

SINGLE = (
    (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
     -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
    (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
     -1.42647390514189e-02),
)  # fmt: skip
"""Coefficients of erf(x) / x in x² for float32 (Eigen, MathFunctionsImpl.h)."""


PIECE = 2**15
"""Numbers that a function is applied to at a time, so that what it makes on the way stays in cache."""


def activate(act: Callable[[Array], Array], x: Array) -> Array:
    """The function of every number, in pieces of an array that is in one piece."""
    if not x.flags.c_contiguous or x.size <= PIECE:
        return act(x)
    out = np.empty_like(x)
    source, target = x.reshape(-1), out.reshape(-1)
    for start in range(0, x.size, PIECE):
        target[start : start + PIECE] = act(source[start : start + PIECE])
    return out


def erf(x: Array) -> Array:
    """The error function to full digits; NumPy has none."""
    size = np.minimum(np.abs(x), 6.0)
    square = size * size
    near = size * np.polyval(NEAR[0], square) / np.polyval(NEAR[1], square)
    beyond = np.maximum(size, 1.0)
    far = 1 - np.exp(-beyond * beyond) * np.polyval(FAR[0], beyond) / np.polyval(FAR[1], beyond)
    return np.copysign(np.where(size < 1, near, far), x)


def erf_single(x: Array) -> Array:
    """The error function of float32, to its last digits: a fraction of polynomials, from −4 to 4."""
    x = np.clip(x, np.float32(-4), np.float32(4))
    square = x * x
    above, below = horner(SINGLE[0], square), horner(SINGLE[1], square)
    above *= x
    above /= below
    return above


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
        return x * np.float32(0.5) * (1 + erf_single(x * np.float32(1 / sqrt(2))))
    return x * 0.5 * (1 + erf(x.astype(np.float64) / sqrt(2)).astype(x.dtype))


def gelu_tanh(x: Array) -> Array:
    """x Φ(x) with Φ by a tanh."""
    return 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(−x)), without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * x))


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    **dict.fromkeys(("gelu", "gelu_python"), gelu),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), gelu_tanh),
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "relu": relu,
    "relu2": lambda x: relu(x) ** 2,
    **dict.fromkeys(("silu", "swish"), lambda x: x * sigmoid(x)),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "linear": lambda x: x,
}
"""By the names that config.json gives them."""
