"""Describe a checkpoint: its shape, its size, and what one layer's trace would take."""

from __future__ import annotations

from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.math.engine.cost import peak
from attnctl.math.engine.tiles import SCRATCH_BYTES
from attnctl.models.attention import blank_rows, prepare_attention
from attnctl.models.description import Description
from attnctl.models.families import FAMILIES
from attnctl.models.source import open_model

LENGTHS = (128, 1024)
"""Tokens of the traces whose size is told."""


@dataclass(frozen=True)
class About:
    name: str
    parts: tuple[Description, ...]
    parameters: int
    bytes: int
    types: str
    trace_bytes: dict[int, int]

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "parts": [describe_stack(part) for part in self.parts],
            "parameters": self.parameters,
            "bytes": self.bytes,
            "types": self.types,
            "trace_bytes": {str(tokens): size for tokens, size in self.trace_bytes.items()},
        }


def describe_stack(d: Description) -> dict[str, Any]:
    """A stack as JSON data: its settings, and what is each layer's own."""
    settings = {
        name: value for name, value in d.settings.items() if not callable(value) and value not in (None, {})
    }
    layers = [
        {
            "window": None if each.window is None else [each.window.left, each.window.right],
            "rope": None
            if each.rope is None
            else {"kind": each.rope.kind, "theta": each.rope.theta, "dims": each.rope.dims},
            "scale": each.scale,
            "experts": each.experts,
        }
        for each in d.layers
    ]
    return {"family": d.family, "part": d.part, **settings, "by_layer": layers}


def about(name: str) -> About:
    """Describe the checkpoint of this name. Raises AttnError for what is not understood."""
    model = open_model(name)
    parts = [part for part in FAMILIES[model.description.family] if part]
    models = [model, *(open_model(name, part) for part in parts)]
    checkpoint = model.checkpoint
    types = sorted({tensor.type_name for tensor in checkpoint.tensors.values()})
    checkpoint.looks = False
    trace_bytes = {}
    for tokens in LENGTHS:  # of layer 0, every step kept
        plan = prepare_attention(model.layer(0), blank_rows(model, tokens))
        trace_bytes[tokens] = peak(plan.costs(), SCRATCH_BYTES)
    return About(
        name,
        tuple(each.description for each in models),
        checkpoint.parameters,
        checkpoint.bytes,
        ", ".join(types),
        trace_bytes,
    )
