"""What a run would cost, without running it: shapes, bytes, operations, growth."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import NamedTuple

from attnctl.derivation import Derivation
from attnctl.names import MASK
from attnctl.ops import Given

Shape = tuple[int, ...]


class Cost(NamedTuple):
    """One step's share: its shape, bytes where it is kept, floating-point operations, and growth."""

    name: str
    shape: Shape
    bytes: int
    flops: int
    growth: str
    kept: bool


def cost(
    derivation: Derivation, given: Mapping[str, Shape], itemsize: int, keep: Collection[str] | None = None
) -> list[Cost]:
    """What each step takes, from the shapes of what is given alone."""
    shapes: dict[str, Shape] = {}
    out = []
    for step in derivation:
        inputs = [shapes[name] for name in step.inputs]
        leaf = isinstance(step.op, Given)
        shapes[step.name] = shape = given[step.name] if leaf else step.op.shape(*inputs)
        flops = 0 if leaf else step.op.cost(shape, *inputs)
        size = prod(shape) * (1 if step.name == MASK else itemsize)
        growth = " · ".join(step.axes)
        out.append(Cost(step.name, shape, size, flops, growth, keep is None or step.name in keep))
    return out


def peak(costs: Collection[Cost], scratch: int) -> int:
    """Bytes a run holds at most: all that is kept and what is not n × n, or all where it is small.

    Steps whose axes end in (query, key) are n × n; where they are not kept they live in `scratch`.
    """
    held = sum(each.bytes for each in costs if each.kept or not each.growth.endswith("query · key"))
    return held + min(scratch, sum(each.bytes for each in costs if not each.kept))
