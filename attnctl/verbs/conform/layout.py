"""The arrays of a call as a target has them, and its answer as we have it.

Axes are letters: b batch, h heads, n rows, d columns, m keys. `bnd` and `nbd` have heads side by side in
their columns, `hnd`, `nhd` and `nd` one member, `nd` one head. `IN:OUT` is said of a target whose output
is laid out in another way than Q, K and V.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.math.names import DELTA, HEAD_OUTPUTS, LOGSUMEXP, OUTPUT, SINK, gradient_of
from attnctl.verbs.conform.call import Answer, TargetCall
from attnctl.verbs.conform.case import COTANGENT, GRADIENTS, INPUTS
from attnctl.verbs.conform.problem import Problem
from attnctl.verbs.conform.profile import (
    AXES,
    HEADS_THEN_SLOTS,
    MASK_SHAPE,
    MASKS,
    PAGE_AXES,
    USUAL,
    is_merged,
    split_axes,
)
from attnctl.verbs.conform.signature import PACKED, PARTS, CallSignature


def in_target_axes(array: Array, axes: str) -> Array:
    """(batch, head, n, d) in a target's axes: of the first member or head, where it has one."""
    index = tuple(slice(None) if letter in split_axes(axes) else slice(1) for letter in "bh")
    return rearrange(array[index], f"b h n d -> {AXES[axes]}")


def packings(axes: str) -> list[str]:
    """The axes of Q, K and V in one array: one after the other, or by head."""
    if axes == USUAL:
        return ["3bhnd", "b3hnd"]
    letters = split_axes(axes)
    return [letters.replace("h", "3h"), letters.replace("d", "3d")] if "h" in letters else []


def read_back(array: Array, axes: str, heads: int) -> Array | None:
    """A target's axes as (batch, head, n, d); None for an array that has not as many."""
    sizes = {letter: 1 for letter in "bh" if letter not in axes}
    if is_merged(axes):
        sizes = {"h": heads}
    try:
        return rearrange(array, f"{AXES[axes]} -> b h n d", **sizes)
    except ValueError:
        return None


def drop_axes(array: Array, axes: str) -> Array:
    """(batch, head, query, key) without the axes that a target's arrays have not."""
    return array[tuple(slice(None) if letter in split_axes(axes) else 0 for letter in "bh")]


def shape_mask(array: Array, shape: str, axes: str) -> Array:
    """(batch, head, query, key) in the shape of a mask, which is the same along what it leaves out."""
    if shape == MASKS[0]:
        return drop_axes(array, axes)
    # A shape of four letters keeps an axis of one place where it leaves one out.
    left_out = slice(0, 1) if len(shape) == len(MASKS[0]) else 0
    return array[tuple(slice(None) if letter in shape else left_out for letter in MASKS[0])]


# --- a call, and its answer ---

WIDE = {LOGSUMEXP, DELTA}
"""Sums of rows that kernels keep in float32 at least."""


def make_call(problem: Problem, signature: CallSignature, **made: Any) -> TargetCall:
    """Everything that one call of the target is given, laid out as it takes it."""
    case = problem.case
    keywords = lay_keywords(problem, signature)
    inputs = lay_inputs(problem, [problem.numbers_of(name) for name in INPUTS])

    buffer = signature.keywords.get("out", "")
    into: tuple[str, ...] = (buffer,) if keywords.get(buffer) is not None else ()
    if signature.handed:
        keywords |= hand_over(problem, signature)
        made["gives"] = GRADIENTS if len(inputs) > 1 else (gradient_of(PACKED),)
        made["wide"] = tuple(signature.handed[name] for name in WIDE & signature.handed.keys())
        into = signature.buffers
        empty = [np.full(input_.shape, np.nan) for input_ in inputs]
        keywords |= dict(zip(signature.buffers, empty, strict=False))
    elif problem.backward:
        made["cotangent"] = lay_row_vectors(problem, problem.arrays[COTANGENT])

    # Broadcast arrays stay views, whose memory is what the case is about.
    passed = inputs if case.memory == "broadcast" else tuple(map(np.ascontiguousarray, inputs))
    return TargetCall(
        passed,
        keywords,
        signature.inputs,
        problem.profile.handed.get(case.dtype, case.dtype),
        stored=problem.profile.stored.get(case.dtype, ""),
        caches=tuple(signature.keywords[part] for part in PARTS if part in signature.keywords),
        memory=case.memory,
        numbers=prod(problem.output_shape),
        into=into,
        **made,
    )


def lay_keywords(problem: Problem, signature: CallSignature) -> dict[str, Any]:
    """The options of a call by the target's names, arrays among them in its axes."""
    axes = problem.profile.axes
    parts = {signature.keywords.get(part) for part in PARTS}
    masks = {signature.keywords.get(mask) for mask in ("mask", "float_mask")}

    def lay(name: str, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.ndim < 4:
            return value
        if name == signature.keywords.get("out"):
            return lay_row_vectors(problem, value)
        if name in parts:
            laid = in_target_axes(value, axes)
        elif name in masks:
            laid = shape_mask(value, problem.profile[MASK_SHAPE], axes)
        else:
            laid = drop_axes(value, axes)
        return np.ascontiguousarray(laid)

    return {name: lay(name, value) for name, value in signature.with_options(problem).items()}


def lay_inputs(problem: Problem, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Lay arrays like Q, K and V out as the target takes them: three, or one in which 3 is their axis."""
    axes = problem.profile.axes
    packed = problem.profile.packed
    if problem.gather:
        q, k, v = arrays
        pages = [problem.in_pages(array) for array in (k, v)]
        if problem.profile[PAGE_AXES] == HEADS_THEN_SLOTS:
            pages = [array.swapaxes(1, 2) for array in pages]
        return in_target_axes(q, axes), *pages

    laid = tuple(in_target_axes(array, axes) for array in arrays)
    if not packed:
        return laid
    if problem.profile.is_packed_in_columns:
        return (np.concatenate(laid, axis=-1),)

    # The letters as axes of einops, heads side by side in parentheses.
    packed_axes = " ".join(packed)
    if is_merged(axes):
        packed_axes = f"{packed_axes[:4]}({packed_axes[4:]})"
    if "b" not in packed_axes:
        packed_axes = packed_axes.replace("h", "(b h)")
    return (rearrange(np.stack(arrays), f"3 b h n d -> {packed_axes}"),)


def lay_row_vectors(problem: Problem, array: Array) -> Array:
    """Lay an array of the shape of the output out as the target returns it."""
    return np.ascontiguousarray(in_target_axes(array, problem.profile.axes_out))


def hand_over(problem: Problem, signature: CallSignature) -> dict[str, Array]:
    """Make what a backward pass is handed of the forward: the output as it was stored, and sums of rows."""
    values = dict(problem.plan.run())
    if SINK in values:  # what softmax divides by has it
        values[LOGSUMEXP] = np.logaddexp(values[LOGSUMEXP], values[SINK][:, None])
    values[OUTPUT] = problem.in_type(values[HEAD_OUTPUTS])
    values[gradient_of(OUTPUT)] = values[COTANGENT]

    handed: dict[str, Array] = {}
    for name, keyword in signature.handed.items():
        if name in WIDE:
            handed[keyword] = np.ascontiguousarray(drop_axes(values[name], problem.profile.axes))
        else:
            handed[keyword] = lay_row_vectors(problem, values[name])
    return handed


def read_answer(problem: Problem, answer: Answer) -> dict[str, Array]:
    """Return the outputs that are there in the shape asked for, over (batch, head, row, column)."""
    if answer.error:
        return {}
    outputs = read_gradients(problem, answer.gradients)
    array = answer.output()
    if array is not None:
        output = read_back(array, problem.profile.axes_out, problem.case.heads)
        if output is not None and output.shape == problem.output_shape:
            outputs[HEAD_OUTPUTS] = output
    return outputs


def read_gradients(problem: Problem, gradients: Sequence[Any]) -> dict[str, Array]:
    """Return gradients by Q, K and V, each number at the place of the number that it is the gradient by."""
    if not gradients:
        return {}

    # Cells are numbered and laid out as the inputs are, which tells where each gradient belongs.
    cells = number_inputs(problem)
    numbers = np.zeros(sum(array.size for array in cells))
    is_there = np.zeros(numbers.shape, dtype=bool)
    for laid, gradient in zip(lay_inputs(problem, cells), gradients, strict=False):
        if gradient is not None and gradient.shape == laid.shape and gradient.dtype.kind in "fiu":
            numbers[laid] = gradient
            is_there[laid] = True

    named = zip(GRADIENTS, cells, strict=True)
    return {name: numbers[array] for name, array in named if is_there[array].all()}


def number_inputs(problem: Problem) -> list[Array]:
    """Number the cells of Q, K and V, from Q on: arrays of their shapes."""
    numbered = []
    first = 0
    for name in INPUTS:
        array = problem.arrays[name]
        numbered.append(np.arange(first, first + array.size).reshape(array.shape))
        first += array.size
    return numbered


def shapes_beside(problem: Problem, answer: Answer, name: str) -> tuple[Array | None, tuple[int, ...]]:
    """The array that came for an output, and the shape that was meant."""
    if name not in GRADIENTS:
        meant = lay_row_vectors(problem, np.zeros(problem.output_shape))
        return answer.output(), meant.shape

    laid = lay_inputs(problem, number_inputs(problem))
    place = GRADIENTS.index(name) if len(laid) > 1 else 0  # one for all where they are packed
    gradient = answer.gradients[place] if place < len(answer.gradients) else None
    return gradient, laid[place].shape


def read_output(problem: Problem, answer: Answer) -> Array | None:
    """Return the output over (batch, head, query, d_v), None where there is none of that shape."""
    return read_answer(problem, answer).get(HEAD_OUTPUTS)


def is_readable(problem: Problem, answer: Answer) -> bool:
    return set(problem.outputs) <= read_answer(problem, answer).keys()
