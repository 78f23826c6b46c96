"""What was done with a projection before it was read: normalized, turned by its position, or both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from attnctl.math.derivation import Rotary
from attnctl.math.kind import HeadNorm
from attnctl.sources.program.relations import Array, is_near

EPSILONS = (1e-6, 1e-5, float(np.finfo(np.float32).eps), 1e-8, 1e-12, 0.0)
"""What is added to a mean square, the usual one first; torch's RMSNorm adds the eps of its type."""

CLOSE = 1e-3
"""How far lengths may be apart that are the same, as a share of the largest: half precision has that."""

USUAL_THETA = 1e4


class Turn(NamedTuple):
    """Rotary positions as the numbers show them."""

    interleaved: bool
    dims: int | None
    """The columns of a head that are turned; None for all."""
    frequencies: tuple[float, ...] | None
    """The angle of each pair from one position to the next; None where one row cannot tell."""
    is_broken: bool = False
    """True where angles were used that turn nothing: lengths are not kept."""

    def at_base(self, theta: float, width: int) -> Turn:
        """The same with the frequencies of a base, where its own are of rows that skip positions."""
        half = (self.dims or width) // 2
        frequencies = theta ** (-np.arange(half) / half)
        return self._replace(frequencies=tuple(frequencies.tolist()))

    def rotary(self) -> Rotary:
        assert self.frequencies is not None
        theta = theta_of(self.frequencies)
        return Rotary(
            theta=theta or USUAL_THETA,
            dims=self.dims,
            interleaved=self.interleaved,
            frequencies=() if theta else self.frequencies,
        )


class Stage(NamedTuple):
    """One change of an operand."""

    name: str
    """The end of the step's name: rotated, normed."""
    array: Array
    """(batch, head, rows, d), as it is afterwards."""
    event: int
    options: dict[str, Any]
    gains: Array | None = None
    """The weight of a norm."""
    turn: Turn | None = None


class Changed(NamedTuple):
    """What was done with a projection, in order."""

    before: Array
    """(batch, head, rows, d), as the projection gave it."""
    stages: list[Stage]


class Between(NamedTuple):
    """An array on the way from a projection to the operand, laid out as (batch, head, rows, d)."""

    event: int
    array: Array


def changes(
    before: Array, after: Between, between: Sequence[Between], vectors: Sequence[Array]
) -> list[Stage] | None:
    """The one or two changes that make an operand of its projection; None where these do not tell."""
    whole = change(before, after, vectors)
    if whole is not None:
        return [whole]
    for middle in between:
        first = change(before, middle, vectors)
        if first is None:
            continue
        second = change(middle.array, after, vectors)
        if second is None or second.name == first.name:
            continue
        if first.name == "rotated":
            norm = second.options["qk_norm"]
            behind = HeadNorm(kind=norm.kind, eps=norm.eps, after_rotation=True)
            second = second._replace(options={"qk_norm": behind})
        return [first, second]
    return None


def change(before: Array, after: Between, vectors: Sequence[Array]) -> Stage | None:
    if is_near(before, after.array):
        return None
    turn = turn_of(before, after.array)
    if turn is not None:
        return Stage("rotated", after.array, after.event, {}, turn=turn)
    return normalization(before, after, vectors)


def broken_turn(before: Array, after: Between) -> list[Stage] | None:
    """What was meant to turn an operand and does not: position 0 stays, others change in length."""
    if not is_near(before[..., 0, :], after.array[..., 0, :], CLOSE):
        return None
    lengths_before = np.linalg.norm(before, axis=-1)
    lengths_after = np.linalg.norm(after.array, axis=-1)
    if is_near(lengths_before, lengths_after, CLOSE):
        return None
    turn = Turn(interleaved=False, dims=None, frequencies=None, is_broken=True)
    return [Stage("rotated", after.array, after.event, {}, turn=turn)]


# --- rotary positions ---


def turn_of(before: Array, after: Array) -> Turn | None:
    """Whether pairs of dimensions were turned, and how fast.

    Pairs stand half a head apart (Llama) or side by side (GPT-J). Some models turn only the first
    columns of a head; what is not turned is as it was.
    """
    width = before.shape[-1]
    for dims in dict.fromkeys((width, width // 2, width // 4, width * 3 // 4)):
        if dims < 2 or dims % 2:
            continue
        if not is_near(before[..., dims:], after[..., dims:], CLOSE):
            continue
        for interleaved in (False, True):
            start = pairs_of(before[..., :dims], interleaved=interleaved)
            end = pairs_of(after[..., :dims], interleaved=interleaved)
            if is_near(np.abs(start), np.abs(end), CLOSE):
                return Turn(interleaved, None if dims == width else dims, frequencies_of(start, end))
    return None


def pairs_of(rows: Array, *, interleaved: bool) -> Array:
    """Pairs of columns as complex numbers."""
    if interleaved:
        return rows[..., 0::2] + 1j * rows[..., 1::2]
    half = rows.shape[-1] // 2
    return rows[..., :half] + 1j * rows[..., half:]


def lengths_of_pairs(rows: Array, heads: int, *, interleaved: bool) -> Array:
    """What turning leaves as it is: of (rows, head · d) the length of each pair."""
    split = rows.reshape(len(rows), heads, -1)
    return np.abs(pairs_of(split, interleaved=interleaved)).reshape(len(rows), -1)


def frequencies_of(start: Array, end: Array) -> tuple[float, ...] | None:
    """The angle by which each pair turns from one position to the next; None for a single one."""
    count = start.shape[-2]
    if count < 2:
        return None
    turned = end * np.conj(start)
    by_pair = (turned[..., 1:, :] * np.conj(turned[..., :-1, :])).sum(axis=(0, 1))
    # The median over positions: one that begins again, as a wrong cache has it, does not count.
    angles = np.angle(by_pair)
    return tuple(float(angle) for angle in np.median(angles, axis=0))


def places_shown(before: Array, after: Array, turn: Turn) -> Array | None:
    """(batch, row): by how many positions each row was turned; None unless all its pairs say so."""
    if turn.frequencies is None or min(turn.frequencies) <= 0:
        return None
    dims = turn.dims or before.shape[-1]
    start, end = (pairs_of(rows[..., :dims], interleaved=turn.interleaved) for rows in (before, after))
    turned = (end * np.conj(start)).sum(axis=1)
    frequencies = np.array(turn.frequencies)

    # The slowest pair has not gone round yet; the others have to bear out what it says.
    places = np.round(np.angle(turned[..., -1]) / frequencies[-1])
    expected = np.exp(1j * places[..., None] * frequencies)
    if (np.abs(expected - turned / np.abs(turned)) > CLOSE).any():
        return None
    return places.astype(int)


def theta_of(frequencies: Sequence[float]) -> float | None:
    """The base whose powers these frequencies are, in three digits; None where there is none."""
    half = len(frequencies)
    if half < 2 or min(frequencies) <= 0:
        if half == 1 and abs(frequencies[0] - 1) < 1e-3:
            return USUAL_THETA
        return None
    last = frequencies[-1]
    theta = float(f"{last ** (-half / (half - 1)):.3g}")
    powers = theta ** (-np.arange(half) / half)
    if np.allclose(powers, frequencies, rtol=5e-3):
        return theta
    return None


# --- norms ---


def normalization(before: Array, after: Between, vectors: Sequence[Array]) -> Stage | None:
    """Whether each row was normalized, and perhaps multiplied by one of these vectors."""
    return normalized_over(-1, before, after, vectors) or normalized_over(-2, before, after, vectors)


def normalized_over(axis: int, before: Array, after: Between, vectors: Sequence[Array]) -> Stage | None:
    """A norm over one axis: over the numbers of a head, as it is meant, or by mistake over its tokens."""
    rows = before.astype(float)
    width = rows.shape[-1]
    if rows.shape[axis] < 2:
        return None
    for kind, centered in (("rms", rows), ("layer", rows - rows.mean(axis, keepdims=True))):
        square = (centered**2).mean(axis, keepdims=True)
        best: tuple[float, float, Array | None] = (np.inf, 0.0, None)
        for eps in EPSILONS:
            normed = centered / np.sqrt(np.maximum(square + eps, 1e-30))
            for gains in (None, *(vector for vector in vectors if vector.shape == (width,))):
                made = normed
                if gains is not None:
                    made = normed * gains
                off = float(np.abs(made - after.array).max())
                best = min(best, (off, eps, gains), key=lambda way: way[0])
        off, eps, gains = best
        if off <= CLOSE * float(np.abs(after.array).max()):
            return Stage("normed", after.array, after.event, {"qk_norm": HeadNorm(kind, eps)}, gains)
    return None
