"""Positions of tokens: sinusoids added to X, rotations of Q and K."""

from __future__ import annotations

import numpy as np

from attnctl.math import Array


def sinusoid_angles(length: int, d_model: int, start: int = 0) -> Array:
    """pos / 10000^(2⌊c/2⌋/d_model) -> (token, d_model) (Vaswani et al. 2017, section 3.5)."""
    pos = np.arange(start, start + length)[:, None]
    pair = np.arange(d_model) // 2
    return pos / 10000.0 ** (2 * pair / d_model)


def sinusoids(length: int, d_model: int, start: int = 0) -> Array:
    """sin of the angle in even columns, cos in odd ones -> (token, d_model)."""
    angle = sinusoid_angles(length, d_model, start)
    even = np.arange(d_model) % 2 == 0
    return np.where(even, np.sin(angle), np.cos(angle))


def rotary_angles(positions: Array, dims: int, theta: float = 10000.0) -> Array:
    """m · theta^(−2i/dims) for positions (..., token) -> (..., token, dims/2).

    Source: Su et al. 2021, "RoFormer", equation 15.
    """
    pair = np.arange(dims // 2)
    return np.asarray(positions)[..., None] * theta ** (-2.0 * pair / dims)


def rotary_pairs(dims: int, *, interleaved: bool, start: int = 0) -> tuple[Array, Array]:
    """The columns (first, second) of each rotated pair from `start` on: neighbours, or a half apart."""
    pair = np.arange(dims // 2)
    if interleaved:
        return start + 2 * pair, start + 2 * pair + 1
    return start + pair, start + pair + dims // 2


def rotate(x: Array, cos: Array, sin: Array, *, interleaved: bool = False, start: int = 0) -> Array:
    """Turn each pair of columns of x (..., token, d) by its angle, (..., token, dims/2).

    Pairs begin at column `start`; columns before it and beyond 2 · (dims/2) pass through (partial
    rotary). Half-split pairs are Llama's and GPT-NeoX's; interleaved pairs are GPT-J's and the
    RoFormer paper's.
    """
    first, second = rotary_pairs(2 * cos.shape[-1], interleaved=interleaved, start=start)
    a, b = x[..., first], x[..., second]
    out = x.copy()
    out[..., first] = a * cos - b * sin
    out[..., second] = a * sin + b * cos
    return out
