"""Mistakes of programs that go through the keys block by block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnctl.math import Array
from attnctl.math.ops import MatMul, Softmax
from attnctl.mistakes import wrong
from attnctl.mistakes.fit import blocks, planted_best
from attnctl.mistakes.mistake import Mistake, Plant, WrongStep

WEIGHTS = "attention_weights"
OUTPUTS = "head_outputs"

FORMS: tuple[tuple[str, wrong.Kept | None, wrong.Kept | None], ...] = (
    ("the output is not rescaled", wrong.LEFT_ALONE, wrong.RESCALED),
    ("the sum is not rescaled", wrong.RESCALED, wrong.LEFT_ALONE),
    ("neither output nor sum is rescaled", wrong.LEFT_ALONE, wrong.LEFT_ALONE),
    ("output and sum are rescaled by exp(new − old)", wrong.BACKWARDS, wrong.BACKWARDS),
    ("output and sum are rescaled by a power of 2", wrong.BASE_TWO, wrong.BASE_TWO),
    ("the sum is overwritten", wrong.RESCALED, None),
    ("the output is overwritten", None, wrong.RESCALED),
)
"""What happens when the running maximum grows; None forgets all blocks but the last."""


def plant_online(case: WrongStep) -> Iterator[Plant]:
    """Softmax summed block by block, its running maximum not carried through."""
    if not isinstance(case.op(WEIGHTS), Softmax):
        return
    ways = [(form, block) for form in FORMS for block in blocks(case.size("key") or 0)]

    def make(way: tuple[tuple[str, wrong.Kept | None, wrong.Kept | None], int]) -> wrong.By:
        (_, output, total), block = way
        return wrong.By(lambda s: wrong.online(s, block, output, total))

    yield from planted_best(
        case,
        lambda way: case.put(WEIGHTS, make(way)),
        ways,
        lambda way: f"{way[0][0]} (blocks of {way[1]})",
    )
    yield from planted_best(
        case,
        lambda block: case.put(WEIGHTS, wrong.By(lambda s: wrong.averaged_blocks(s, block))),
        blocks(case.size("key") or 0),
        lambda block: f"the outputs of the blocks (of {block}) are averaged",
    )


def plant_read_twice(case: WrongStep) -> Iterator[Plant]:
    """The last block of keys counted twice."""
    keys = case.size("key") or 0
    if isinstance(case.op(WEIGHTS), Softmax):

        def repeat_last(count: int) -> wrong.By:
            late = np.where(np.arange(keys) >= keys - count, np.log(2.0), 0.0)
            return wrong.By(lambda s: wrong.softmax(s + late, -1))

        yield from planted_best(
            case, lambda count: case.put(WEIGHTS, repeat_last(count)), range(1, min(keys, 256)), str
        )


def plant_without_rows(case: WrongStep) -> Iterator[Plant]:
    """Zeros for the last queries, from the first one that is wrong."""
    queries, axes = case.size("query") or 0, case.derivation[case.first].axes
    if isinstance(case.op(OUTPUTS), MatMul) and axes[-2] == "query" and case.differs.any():
        start = int(np.argwhere(case.differs)[:, -2].min())
        kept = (np.arange(queries) < start)[:, None]
        yield Plant(case.then(OUTPUTS, wrong.By(lambda z: z * kept)), f"{queries - start}")


def plant_shifts(case: WrongStep) -> Iterator[Plant]:
    """Weights applied to the values of other keys."""
    op, keys = case.op(OUTPUTS), case.size("key") or 0
    if isinstance(op, MatMul):

        def move(by: int) -> wrong.Arranged:
            return wrong.Arranged(op, (wrong.keep_positions, lambda v: np.roll(v, by, axis=-2)))

        ways = [by for by in range(-min(keys // 2, 64), min(keys // 2, 64) + 1) if by]
        yield from planted_best(case, lambda by: case.put(OUTPUTS, move(by)), ways, count_places)


def count_places(by: int) -> str:
    """One place before, 4 places after."""
    return f"{abs(by)} place{'s' * (abs(by) > 1)} {'before' if by > 0 else 'after'}"


def plant_other_values(case: WrongStep) -> Iterator[Plant]:
    """Weights applied to K, or to Q."""
    op = case.op(OUTPUTS)
    if isinstance(op, MatMul) and "scores" in case.derivation:
        weights, _ = case.derivation[OUTPUTS].inputs
        read = [case.source(name) for name in reversed(case.derivation["scores"].inputs)]
        for name in dict.fromkeys([*read, "K", "Q"]):
            if name in case.derivation:
                yield Plant(case.put(OUTPUTS, op, (weights, name)), name)


def plant_transposed_weights(case: WrongStep) -> Iterator[Plant]:
    """Aᵀ V."""
    op = case.op(OUTPUTS)
    if isinstance(op, MatMul) and case.size("query") == case.size("key"):
        yield Plant(case.put(OUTPUTS, wrong.Arranged(op, (turn_weights,))))


def turn_weights(weights: Array) -> Array:
    """Queries and keys exchanged."""
    return weights.swapaxes(-1, -2)


KERNELS = (
    Mistake(
        "weights-applied-to-wrong",
        (OUTPUTS,),
        "the weights are applied to {} rather than V",
        "take weights @ V",
        plant_other_values,
        why="K and V have one shape, and stand beside each other in every call.",
        example="head_outputs = attention_weights @ K",
    ),
    Mistake(
        "weights-transposed",
        (OUTPUTS,),
        "the weights are transposed before they are applied to V",
        "take weights @ V: each row is one query's",
        plant_transposed_weights,
        across=True,
        why="einsum with its indices exchanged fits wherever there are as many queries as keys.",
        example="head_outputs = attention_weights.swapaxes(-1, -2) @ V",
    ),
    Mistake(
        "online-not-rescaled",
        (WEIGHTS,),
        "{} when the running maximum grows",
        "multiply both by exp(old maximum − new maximum) before a block is added",
        plant_online,
        fitted=True,
        subject="softmax",
        why="When a later block has a larger maximum, what was summed before must shrink with it.",
        meant="loud",
        example=(
            "first, last = np.exp(scaled_scores[..., :4] - scaled_scores[..., :4].max(-1, "
            "keepdims=True)), None\n"
            "top = scaled_scores.max(-1, keepdims=True)\n"
            "e = np.concatenate([first, np.exp(scaled_scores[..., 4:] - top)], axis=-1)\n"
            "attention_weights = e / e.sum(axis=-1, keepdims=True)"
        ),
    ),
    Mistake(
        "keys-twice",
        (WEIGHTS,),
        "the last {} keys are counted twice",
        "let the last block begin where the one before ends, and hide what is past the last key",
        plant_read_twice,
        fitted=True,
        subject="softmax",
        why="The last block is moved back so that it fits, and overlaps the one before.",
        example=(
            "e = np.exp(scaled_scores)\n"
            "e[..., -2:] *= 2\n"
            "attention_weights = e / e.sum(axis=-1, keepdims=True)"
        ),
    ),
    Mistake(
        "queries-dropped",
        (OUTPUTS,),
        "the last {} queries are left at 0",
        "round the number of blocks of queries up",
        plant_without_rows,
        fitted=True,
        across=True,
        why="The grid has n // block blocks: the rest is never written.",
        example="head_outputs[..., 4:, :] = 0",
    ),
    Mistake(
        "values-shifted",
        (OUTPUTS,),
        "each weight is applied to the value {} its key",
        "take keys and values of the same block",
        plant_shifts,
        fitted=True,
        why="Keys and values are loaded with different offsets.",
        example="head_outputs = attention_weights @ np.roll(V, 1, axis=-2)",
    ),
)
