"""How far rounding may have put a step off: an error for every number, by the arithmetic that made it.

Each rule takes the errors of the inputs through the op to first order and adds what the op itself
rounds. `unit` is the relative error of one rounding. A sum of n terms gets 4·√n units of Σ|terms|
(n where that is less): rounding errors of a sum wander rather than add up (Higham and Mary 2019),
and no sum that was rounded honestly comes near it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from math import sqrt

import numpy as np

from attnctl.array import Array
from attnctl.ops import (
    Add,
    Append,
    Copy,
    Hide,
    MatMul,
    MatMulT,
    Merge,
    Op,
    Project,
    Repeat,
    Rotate,
    Scale,
    Sinusoid,
    Slope,
    Softmax,
    Squeeze,
)
from attnctl.ops.positions import rotary_pairs, sinusoid_angles
from attnctl.verbs.check import wrong
from attnctl.verbs.check.precision import FLOAT32

ANYTHING = 1e200
"""The error of a number that could be anything."""

FUNCTION = 4
"""Units that exp, tanh, sin, cos and division may be off."""


@dataclass(frozen=True)
class Known:
    """A value, and how far off rounding may have put each number of it."""

    value: Array
    error: Array


Inputs = Sequence[Known]


def carried(op: Op, inputs: Inputs, unit: float) -> Known:
    """The result of an op on numbers that are known so well."""
    with np.errstate(all="ignore"):
        value = op.apply(*(each.value for each in inputs))
        error = np.broadcast_to(bound(op, value, [without_nan(each) for each in inputs], unit), value.shape)
        unbounded = np.where(np.isfinite(value), ANYTHING, 0.0)
        return Known(value, np.where(np.isfinite(error), np.minimum(error, ANYTHING), unbounded))


def without_nan(known: Known) -> Known:
    """The same with zeros for NaN, which would hide how well the numbers beside it are known."""
    nan = np.isnan(known.value)
    return Known(np.where(nan, 0.0, known.value), known.error) if nan.any() else known


def free(error: Array) -> Array:
    """Which numbers could be anything, or come from some that could."""
    return error > sqrt(ANYTHING)


def growth(terms: int) -> float:
    """How many units of Σ|terms| a sum may be off, the products in it included."""
    return min(terms, 4 * sqrt(terms)) + 1


@singledispatch
def bound(op: Op, value: Array, inputs: Inputs, unit: float) -> Array:
    """The error of an op's result. An op without a rule of its own is tried out.

    Its inputs are moved by their errors, up and down at random: four times as far as the result
    then moves is taken for its error.
    """
    moves = np.random.RandomState(0)
    moved: Array = np.zeros(value.shape)
    for _ in range(4):
        signs = (moves.choice((-1.0, 1.0), each.value.shape) for each in inputs)
        shifted = (
            each.value if each.value.dtype == bool else each.value + sign * each.error
            for each, sign in zip(inputs, signs, strict=True)
        )
        moved = np.fmax(moved, np.abs(op.apply(*shifted) - value))
    return 4 * moved + FUNCTION * unit * np.abs(value)


# --- the same numbers in other places ---


@bound.register(Copy)
@bound.register(Append)
@bound.register(Repeat)
@bound.register(Merge)
def moved(op: Op, value: Array, inputs: Inputs, unit: float) -> Array:
    """The errors move with the numbers."""
    return op.apply(*(each.error for each in inputs))


@bound.register
def arranged(op: wrong.Arranged, value: Array, inputs: Inputs, unit: float) -> Array:
    """The errors are arranged as the numbers are."""
    before = [
        Known(move(each.value), move(each.error))
        for move, each in zip(op.moves(len(inputs)), inputs, strict=True)
    ]
    return op.after(carried(op.op, before, unit).error)


@bound.register
def chained(op: wrong.Then, value: Array, inputs: Inputs, unit: float) -> Array:
    """The error of one, through the other."""
    return carried(op.then, [carried(op.op, inputs, unit)], unit).error


@bound.register(Hide)
def hidden(op: Hide, value: Array, inputs: Inputs, unit: float) -> Array:
    """−∞ is exact, and so is what stands for it."""
    s, *mask = inputs
    return np.where(op.allowed(value.shape, *(each.value for each in mask)), s.error, 0.0)


@bound.register
def filled(op: wrong.Filled, value: Array, inputs: Inputs, unit: float) -> Array:
    """A large number added to a score swallows its digits."""
    swallowed = unit * np.abs(value) if op.added else 0.0
    return np.where(value <= op.fill / 2, inputs[0].error + swallowed, inputs[0].error)


# --- arithmetic, cell by cell ---


@bound.register
def added(op: Add, value: Array, inputs: Inputs, unit: float) -> Array:
    """The errors add up."""
    a, b = inputs
    return a.error + b.error + unit * np.abs(value)


@bound.register
def scaled(op: Scale, value: Array, inputs: Inputs, unit: float) -> Array:
    """A factor that is rounded, and a product."""
    factor = 1 / sqrt(op.d_k) if op.factor is None else abs(op.factor)
    return inputs[0].error * factor + FUNCTION * unit * np.abs(value)


@bound.register
def squeezed(op: Squeeze, value: Array, inputs: Inputs, unit: float) -> Array:
    """tanh never widens an error."""
    (s,) = inputs
    return s.error + FUNCTION * unit * np.abs(value) + unit * np.minimum(np.abs(s.value), op.cap)


@bound.register
def sloped(op: Slope, value: Array, inputs: Inputs, unit: float) -> Array:
    """A product and a difference."""
    (s,) = inputs
    return s.error + FUNCTION * unit * (np.abs(s.value) + np.abs(value))


@bound.register
def sinusoidal(op: Sinusoid, value: Array, inputs: Inputs, unit: float) -> Array:
    """A function of a rounded angle, which nobody rounds more coarsely than float32."""
    angles = sinusoid_angles(op.length, op.d_model, op.start)
    return FUNCTION * (unit + min(unit, FLOAT32.unit) * angles)


@bound.register
def rotated(op: Rotate, value: Array, inputs: Inputs, unit: float) -> Array:
    """Both numbers of a pair go into each: their errors, and that of the angle."""
    (x,) = inputs
    angles = op.angles(x.value)
    sine, cosine = np.abs(np.sin(angles)), np.abs(np.cos(angles))
    turned = FUNCTION * (2 * unit + min(unit, FLOAT32.unit) * np.abs(angles))
    out = x.error.copy()
    first, second = rotary_pairs(2 * angles.shape[-1], interleaved=op.interleaved)
    a, b = x.error[..., first], x.error[..., second]
    both = turned * (np.abs(x.value[..., first]) + np.abs(x.value[..., second]))
    out[..., first] = a * cosine + b * sine + both
    out[..., second] = a * sine + b * cosine + both
    return out


# --- sums ---


def product(a: Known, b: Known, unit: float) -> Array:
    """The error of a b."""
    own = growth(a.value.shape[-1]) * unit
    return (a.error + own * np.abs(a.value)) @ np.abs(b.value) + np.abs(a.value) @ b.error


def plus_bias(error: Array, value: Array, bias: Array | None, unit: float) -> Array:
    """The error of a sum and a bias."""
    return error if bias is None else error + bias + unit * np.abs(value)


@bound.register
def multiplied(op: MatMul, value: Array, inputs: Inputs, unit: float) -> Array:
    """Σ a·b (+ bias)."""
    a, b, *bias = inputs
    return plus_bias(product(a, b, unit), value, bias[0].error if bias else None, unit)


@bound.register
def compared(op: MatMulT, value: Array, inputs: Inputs, unit: float) -> Array:
    """Σ q·k."""
    q, k = inputs
    return product(q, Known(k.value.swapaxes(-1, -2), k.error.swapaxes(-1, -2)), unit)


@bound.register
def projected(op: Project, value: Array, inputs: Inputs, unit: float) -> Array:
    """Σ x·w (+ b), for every head."""
    x, w, *b = inputs
    by_head = Known(x.value[..., None, :, :], x.error[..., None, :, :])
    return plus_bias(product(by_head, w, unit), value, b[0].error[:, None, :] if b else None, unit)


# --- softmax ---


def softmax_error(weights: Array, s: Known, axis: int, unit: float) -> Array:
    """A weight moves by the factor exp(its score's error + the errors of the others, weighted)."""
    top = s.value.max(axis=axis, keepdims=True)
    steps = np.where(np.isfinite(s.value), s.error + unit * np.abs(s.value - top), 0.0)
    others = (np.where(np.isfinite(weights), weights, 0.0) * steps).sum(axis=axis, keepdims=True)
    sums = (growth(weights.shape[axis]) + FUNCTION) * unit
    error: Array = np.minimum(np.abs(weights) * np.expm1(np.minimum(steps + others + sums, 30.0)), 1.0)
    return error


@bound.register
def softmax(op: Softmax, value: Array, inputs: Inputs, unit: float) -> Array:
    """Softmax over keys."""
    return softmax_error(value, inputs[0], -1, unit)


@bound.register
def softmax_over(op: wrong.SoftmaxOver, value: Array, inputs: Inputs, unit: float) -> Array:
    """Softmax over another axis; where nothing along it is seen, a program may have anything."""
    error = softmax_error(value, inputs[0], op.axis, unit)
    seen = ~np.isneginf(inputs[0].value).all(axis=op.axis, keepdims=True)
    return np.where(seen, error, ANYTHING)


@bound.register
def softmax_then_hide(op: wrong.SoftmaxThenHide, value: Array, inputs: Inputs, unit: float) -> Array:
    """Softmax, then zeros."""
    s = inputs[0]
    return np.where(value == 0, 0.0, softmax_error(Softmax().apply(s.value), s, -1, unit))


@bound.register
def dropped(op: wrong.Dropped, value: Array, inputs: Inputs, unit: float) -> Array:
    """Softmax, then survivors times a factor."""
    error = softmax_error(Softmax().apply(inputs[0].value), inputs[0], -1, unit)
    return np.where(op.kept, op.factor * error + FUNCTION * unit * np.abs(value), 0.0)


@bound.register(wrong.Bare)
@bound.register(wrong.NaNWhereNothingIsSeen)
def plain_softmax(op: Op, value: Array, inputs: Inputs, unit: float) -> Array:
    """Softmax over keys, written another way."""
    return softmax_error(np.where(np.isnan(value), 0.0, value), inputs[0], -1, unit)


@bound.register
def coarse(op: wrong.Coarse, value: Array, inputs: Inputs, unit: float) -> Array:
    """The op in fewer digits, its result rounded to them."""
    return bound(op.op, value, inputs, max(unit, op.unit)) + op.unit * np.abs(value)
