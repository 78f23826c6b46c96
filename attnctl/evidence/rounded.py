"""A derivation carried out in one run of Monte Carlo arithmetic: each step rounded, scores in blocks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

import numpy as np

from attnctl.evidence.rounding import noise, run_rounded
from attnctl.evidence.rows import begin_at, change_ops, cut
from attnctl.math import Array
from attnctl.math.engine import steps_needed, stretch_of
from attnctl.math.ops import Given, Slope
from attnctl.math.steps import Derivation, Step

BLOCK = 2**20
"""Numbers of scores in a block of queries."""


def carry_out_rounded(
    derivation: Derivation, given: Mapping[str, Array], keep: Collection[str], unit: float, number: int
) -> dict[str, Array]:
    """The steps to keep as a program has them that rounds each to this unit, in run `number`.

    What is given is exact. No step with a number for each query and key is ever whole.
    """
    steps = steps_needed(derivation, keep)
    values = {step.name: given[step.name] for step in steps if isinstance(step.op, Given)}
    stretch = stretch_of(steps)
    for step in steps:
        if stretch and step is stretch[0]:
            values |= carry_out_in_blocks(
                stretch, {step.name: step for step in steps}, values, unit, number
            )
        if step.name not in values and step not in stretch:
            inputs = [values[name] for name in step.inputs]
            values[step.name] = run_rounded(step.op, inputs, unit, step.name, number)
    return {name: values[name] for name in keep}


def carry_out_in_blocks(
    stretch: Sequence[Step],
    steps: Mapping[str, Step],
    values: Mapping[str, Array],
    unit: float,
    number: int,
) -> dict[str, Array]:
    """What a stretch from scores on leaves behind: its steps without keys."""
    q, k = (values[name] for name in stretch[0].inputs)
    queries, size = q.shape[-2], max(1, BLOCK // (prod(q.shape[:-2]) * k.shape[-2]))
    left: dict[str, list[Array]] = {step.name: [] for step in stretch if step.axes[-1] != "key"}
    for start in range(0, queries, size):
        rows = {"query": slice(start, start + size)}
        block: dict[str, Array] = {}
        for step in stretch:
            inputs = [
                block[name] if name in block else cut(values[name], steps[name].axes, rows)
                for name in step.inputs
            ]
            op = change_ops(step.op, begin_at(start))
            name = f"{step.name} {start}"
            block[step.name] = run_rounded(op, inputs, unit, name, number)
            if isinstance(op, Slope):
                block[step.name] += of_shifted(op, block[step.name], unit, name, number)
        for name, blocks in left.items():
            blocks.append(block[name])
    return {name: np.concatenate(blocks, axis=-2) for name, blocks in left.items()}


def of_shifted(op: Slope, scores: Array, unit: float, name: str, number: int) -> Array:
    """The rounding of programs that add slope · key: softmax takes no notice of what a row gets besides.

    The product is rounded, and the sum.
    """
    added = op.slopes(scores.shape) * np.arange(scores.shape[-1])
    return 2 * unit * added * noise(f"{name} shifted", number, scores.shape)
