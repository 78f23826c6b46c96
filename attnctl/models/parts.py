"""What is read of a layer's tensors in several ways: norms, projections, and several in one matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from attnctl.inputs.plan import Plan
from attnctl.inputs.plan.tensors import Named, arrays_of
from attnctl.math import Array, Shape
from attnctl.math.derivation import Variant
from attnctl.models.layer import LayerTensors, Model, split


def plan_on(model: Model, kind: Variant, named: Named, header: Mapping[str, Any] | None) -> Plan:
    return Plan(
        kind,
        arrays_of(named),
        dict(header or {}),
        dtype=model.dtype,
        max_memory=model.max_memory,
    )


def norm_factors(tensors: LayerTensors, use: str, name: str, shape: Shape) -> Named:
    return {
        f"{name}_{suffix[1:]}": tensors.read_with_origin(use, suffix, shape)
        for suffix in tensors.d.norm_suffixes
    }


def read_projection(
    tensors: LayerTensors, use: str, symbol: str, shape: Shape, *, has_bias: bool, heads: int = 0
) -> Named:
    """The matrix (in, out) of a projection and its bias, if there is one; split where it has heads."""
    rows, columns = shape
    named: Named = {f"W_{symbol}": (tensors.projection(use, rows, columns, heads), tensors.origin(use))}
    if has_bias:
        bias, origin = tensors.read_with_origin(use, ".bias", (columns,))
        named[f"b_{symbol}"] = split(bias, heads) if heads else bias, origin
    return named


class Fused(NamedTuple):
    """A matrix (in, out) of several projections, or their bias, which has the same columns."""

    letter: str
    """What stands before the names of its parts: W or b."""
    columns: Array
    origin: str


def read_fused(tensors: LayerTensors, use: str, rows: int, columns: int) -> Iterator[Fused]:
    """The matrix of several projections, and their bias if they have one."""
    yield Fused("W", tensors.matrix(use, rows, columns), tensors.origin(use))
    if tensors.d["bias"]:
        yield Fused("b", *tensors.read_with_origin(use, ".bias", (columns,)))
