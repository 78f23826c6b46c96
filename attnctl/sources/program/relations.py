"""What the numbers of two arrays have to do with each other, whatever program made them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Labels = tuple[str, ...]
"""The axes of an array, a letter or a word for each."""

HIDDEN = -5e3
"""A score below this stands for a key that is hidden: BERT adds −10,000 to scores of any sign."""

HIDDEN_IN_EFFECT = -60
"""What may be added to a score to hide its key, as Swin's −100: no sum notices such a weight."""

RELATIVE = 1e-4
"""How far numbers of one array may be off those of another that they are said to be, in float32."""


def is_same(a: Array, b: Array) -> bool:
    """True if two arrays hold the same numbers, NaN in the same places."""
    if a.shape != b.shape:
        return False
    with_nan = a.dtype.kind == "f" and b.dtype.kind == "f"
    return bool(np.array_equal(a, b, equal_nan=with_nan))


def is_near(a: Array, b: Array, tolerance: float = RELATIVE) -> bool:
    """True if two arrays are the same but for rounding, measured by their largest number."""
    if a.shape != b.shape:
        return False
    a = a.astype(float)
    b = b.astype(float)
    known = np.isfinite(a)
    if not (known == np.isfinite(b)).all():
        return False
    largest = np.abs(b[known]).max(initial=0.0)
    return bool(np.abs(a[known] - b[known]).max(initial=0.0) <= tolerance * largest)


def has_same_numbers(a: Array, b: Array) -> bool:
    """True if two arrays hold the same numbers in any order."""
    if a.size != b.size:
        return False
    return is_same(np.sort(a, None), np.sort(b, None))


def ratio(a: Array, b: Array) -> float:
    """The constant by which a becomes b; 0 where there is none."""
    if a.shape != b.shape:
        return 0.0
    half = np.float16 in (a.dtype, b.dtype)
    known = np.isfinite(a) & np.isfinite(b) & (np.abs(a) > 1e-12) & (np.abs(b) < -HIDDEN)
    if not known.any():
        return 0.0
    a = a[known].astype(float)
    b = b[known].astype(float)
    factor = float(np.median(b / a))
    relative = RELATIVE
    if half:
        relative = 2e-3
    slack = relative / 100 * np.abs(b).max()
    if factor and np.allclose(a * factor, b, rtol=relative, atol=slack):
        return factor
    return 0.0


def hidden_in_effect(added: Array) -> Array | None:
    """Where a mask of 0 and one large negative number hides keys; None for what is no such mask."""
    off = added <= HIDDEN_IN_EFFECT
    if not off.any() or off.all() or not np.isfinite(added).all():
        return None
    is_two_valued = np.ptp(added[off]) <= 1e-3 and np.abs(added[~off]).max() <= 1e-3
    return off if is_two_valued else None


def rows_sum_to_one(value: Array, axis: int = -1) -> bool:
    if value.dtype.kind != "f":
        return False
    if not value.size:
        return False
    if not value.min() >= 0:
        return False
    return bool(np.allclose(value.sum(axis), 1, atol=1e-3 if value.dtype == np.float16 else RELATIVE))


def softmax(scores: Array) -> Array:
    """Rows of which all is hidden get zeros."""
    largest = scores.max(-1, keepdims=True)
    largest = np.where(np.isneginf(largest), 0, largest)
    exponentials = np.exp(scores - largest)
    return exponentials / np.maximum(exponentials.sum(-1, keepdims=True), 1e-300)


def is_softmax_of(weights: Array, scores: Array) -> bool:
    """True if each row of weights is the softmax of some of these scores, times one constant."""
    weights = np.atleast_2d(weights)
    scores = np.atleast_2d(scores)
    with np.errstate(all="ignore"):
        logs = np.log(weights)

    from_scores: list[float] = []
    from_weights: list[float] = []
    for log_row, score_row in zip(logs, scores, strict=True):
        seen = np.isfinite(log_row) & np.isfinite(score_row)
        if seen.sum() > 1:
            from_scores += list(score_row[seen] - score_row[seen].mean())
            from_weights += list(log_row[seen] - log_row[seen].mean())

    a = np.array(from_scores)
    b = np.array(from_weights)
    if len(a) < min(5, weights.size):
        return False
    if not (a @ b) > 0:
        return False
    factor = (a @ b) / (a @ a)
    return bool(np.allclose(a * factor, b, rtol=1e-4, atol=1e-5 * np.abs(b).max()))


# --- products ---


def contractions(
    a: Sequence[int], b: Sequence[int], out: Sequence[int]
) -> Iterator[tuple[Labels, Labels, Labels]]:
    """The ways in which two arrays of these shapes may be multiplied, the usual ones first.

    The last two axes hold rows and what is summed over, in either order; those before are the same.
    """
    if len(a) == 1 or len(b) == 1:
        yield from contractions_of_vectors(a, b, out)
        return
    axes = max(len(a), len(b))
    if len(out) != axes:
        return
    lead = tuple(f"{i}" for i in range(axes - 2))
    # (batch, head, token, d), and (batch, token, head, d), where the head stands behind the tokens.
    for count in dict.fromkeys((len(lead), max(len(lead) - 1, 0))):
        before = lead[:count]
        behind = lead[count:]
        for rows in (("n", "d"), ("d", "n")):
            for columns in (("d", "m"), ("m", "d")):
                left = (*before[axes - len(a) :], *with_behind(rows, behind))
                right = (*before[axes - len(b) :], *with_behind(columns, behind))
                labels = (left, right, (*lead, "n", "m"))
                if fits(labels, (a, b, out)):
                    yield labels


def with_behind(axes: Sequence[str], behind: Labels) -> Labels:
    """(n, h, d) of (n, d) and a head that stands behind the tokens."""
    return (axes[0], *behind, axes[1])


def contractions_of_vectors(
    a: Sequence[int], b: Sequence[int], out: Sequence[int]
) -> Iterator[tuple[Labels, Labels, Labels]]:
    """A vector with matrices, summed over the last axis of the left and the first of the right as usual."""
    lead = tuple(f"{i}" for i in range(max(len(a), len(b)) - 2))
    vector = ("d",)
    rows_first = (*lead, "m", "d")
    columns_last = (*lead, "d", "m")
    kept = (*lead, "m")
    ways = (
        (vector, columns_last, kept),
        (rows_first, vector, kept),
        (vector, rows_first, kept),
        (columns_last, vector, kept),
    )
    for labels in ways:
        if fits(labels, (a, b, out)):
            yield labels


def fits(labels: Sequence[Labels], shapes: Sequence[Sequence[int]]) -> bool:
    """True if arrays of these shapes can have these axes."""
    sizes: dict[str, int] = {}
    for axes, shape in zip(labels, shapes, strict=True):
        if len(axes) != len(shape):
            return False
        for axis, size in zip(axes, shape, strict=True):
            if axis not in "nmd" and size == 1:
                continue  # it is repeated
            if sizes.setdefault(axis, size) != size:
                return False
    return True


def multiply(a: Array, b: Array, labels: tuple[Labels, Labels, Labels]) -> Array:
    """The product of two arrays along these axes."""
    letters: dict[str, str] = {}
    for axes in labels:
        for axis in axes:
            letters.setdefault(axis, "abcdefghijklmnopqrstuvwxyz"[len(letters)])
    first, second, result = ("".join(letters[axis] for axis in axes) for axes in labels)
    # einsum wants the full size of an axis that is repeated.
    sizes: dict[str, int] = {}
    for axes, array in zip(labels, (a, b), strict=False):
        for axis, size in zip(axes, array.shape, strict=True):
            sizes[axis] = max(size, sizes.get(axis, 1))
    a, b = (
        np.broadcast_to(array, [sizes[axis] for axis in axes]).astype(float)
        for axes, array in zip(labels, (a, b), strict=False)
    )
    return np.einsum(f"{first},{second}->{result}", a, b, optimize=True)


def factor_of_product(value: Array, product: Array) -> float:
    """The factor by which an array is this product, wherever it is not hidden; 0 where it is not."""
    if value.shape != product.shape:
        return 0.0
    known = np.isfinite(value) & (value > HIDDEN) & (value != 0)
    if known.sum() < min(3, value.size):
        return 0.0
    if known.mean() < 0.4:
        return 0.0
    if not np.isfinite(product).all():
        return 0.0
    made = product[known]
    there = value[known].astype(float)
    factor = float(made @ there) / max(float(made @ made), 1e-300)
    close = np.allclose(factor * made, there, rtol=1e-5, atol=1e-6 * float(np.abs(there).max()))
    if factor > 0 and close:
        return as_whole(factor)
    return 0.0


def as_whole(factor: float) -> float:
    """A factor of 1 that is one but for rounding."""
    return 1.0 if abs(factor - 1) < 1e-6 else factor


def orders(shape: Sequence[int], into: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The orders of axes that bring an array of one shape to another, as it is first."""
    if len(shape) == len(into):
        for order in permutations(range(len(shape))):
            if tuple(shape[axis] for axis in order) == tuple(into):
                yield order
