"""A checkpoint described: its shape, each layer, its size, and what one layer's trace would take."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.words import plural
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.text import cells, pad_right
from attnctl.math.engine.cost import peak, size_text
from attnctl.math.rules import BlockLocal, Window
from attnctl.models.attention import blank_rows, prepare_attention
from attnctl.models.description import Description, Layer
from attnctl.models.families import FAMILIES
from attnctl.models.forward import most_tokens
from attnctl.models.layer import Model
from attnctl.models.source import open_model


@dataclass(frozen=True)
class About:
    name: str
    parts: tuple[Description, ...]
    parameters: int
    bytes: int
    types: str
    trace_bytes: dict[int, int]
    by_use: tuple[dict[str, int], ...]
    """For each part the parameters of its first layer by what they are for, in their order there."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "parts": [
                describe_stack(part) | {"layer_parameters": sizes}
                for part, sizes in zip(self.parts, self.by_use, strict=True)
            ],
            "parameters": self.parameters,
            "bytes": self.bytes,
            "types": self.types,
            "trace_bytes": {str(tokens): size for tokens, size in self.trace_bytes.items()},
        }


def describe_stack(d: Description) -> dict[str, Any]:
    settings = {
        name: value for name, value in d.settings.items() if not callable(value) and value not in (None, {})
    }
    layers = []
    for layer in d.layers:
        ends = isinstance(layer.window, Window) and [layer.window.left, layer.window.right]
        window = ends or (layer.window and layer.window.plain())
        turned, scale, own = layer.rope, layer.scale, layer.overrides
        rope = turned and {"kind": turned.kind, "theta": turned.theta, "dims": turned.dims}
        layers.append({"window": window, "rope": rope, "scale": scale, "experts": layer.has_experts, **own})
    return {"family": d.family, "part": d.part, **settings, "by_layer": layers}


def describe_checkpoint(name: str) -> About:
    """Raises AttnError for what is not understood."""
    model = open_model(name)
    parts = [part for part in FAMILIES[model.description.family] if part]
    models = [model, *(open_model(name, part) for part in parts)]
    tensors = model.checkpoint.tensors.values()
    types = ", ".join(sorted({tensor.type_name for tensor in tensors}))
    model.checkpoint.looks = False
    trace_bytes = {}
    most = most_tokens(model) or 1024
    for tokens in sorted({min(128, most), min(1024, most)}):  # of layer 0, every step kept
        first = model.layer(next(iter(model.description.attending), 0))
        plan = prepare_attention(first, blank_rows(model, tokens))
        trace_bytes[tokens] = peak(plan.costs())
    return About(
        name,
        tuple(model.description for model in models),
        sum(prod(tensor.shape) for tensor in tensors),
        sum(tensor.nbytes for tensor in tensors),
        types,
        trace_bytes,
        tuple(map(parameters_by_use, models)),
    )


def parameters_by_use(model: Model) -> dict[str, int]:
    start, tensors = model.layer(0).prefix, model.checkpoint.tensors
    own = [name.removeprefix(start) for name in model.checkpoint.under(start)]
    sizes = {}
    for use, name in model.description.inner.items():
        module = re.compile(re.sub(r"\\{\w\\}", r"\\d+", re.escape(name.removesuffix("!"))) + r"(\.\w+)?")
        sizes[use] = sum(prod(tensors[start + name].shape) for name in filter(module.fullmatch, own))
    return {use: size for use, size in sizes.items() if size}


LAYER_HEADINGS = ("layer", "window", "rope", "scale", "network")


def model_lines(found: About, screen: Screen) -> Iterator[Line]:
    for d in found.parts:
        yield [(screen.printable(stack_name(d)), "sentence")]
        yield from screen.flow([(screen.printable(fact), "dim") for fact in facts_of(d)], screen.dot)
        yield from layer_table(d, screen)
        yield []
    for line in size_lines(found):
        yield [(line, "")]


def stack_name(d: Description) -> str:
    return f"{d.family} {d.part}".rstrip()


def size_lines(found: About) -> list[str]:
    sizes = found.trace_bytes.items()
    traces = [f"one layer's trace of {tokens} tokens: {size_text(size)}" for tokens, size in sizes]
    return [f"{found.parameters:,} parameters in {size_text(found.bytes)}, {found.types}", *traces]


def facts_of(d: Description) -> list[str]:
    """A stack in a few words each: its sizes, and what attention has besides (norms, sinks, latents)."""
    sizes = dict.fromkeys(str(layer.overrides.get("d_k", d["d_k"])) for layer in d.layers)
    norm = "LayerNorm" if d["norm"] == "layer" else "RMSNorm"
    facts = [
        plural(len(d.layers), "layer"),
        plural(d["heads"], "head"),
        *([plural(d["kv_heads"], "kv head")] if d["kv_heads"] != d["heads"] else []),
        f"width {d['width']}",
        f"head size {' or '.join(sizes)}" + (f", values {d['d_v']}" if d["d_v"] != d["d_k"] else ""),
        f"{d['act']} {'gated ' if d['gated'] else ''}network of {d['intermediate']}",
        "causal" if d["causal"] else "sees both ways",
        f"{norm} {norm_places(d)}",
    ]
    facts += [f"{norm} of Q and K"] if d["qk_norm"] else []
    facts += [f"soft cap {d['softcap']:g}"] if d["softcap"] else []
    facts += ["a sink for each head"] if d["sink"] else []
    facts += [f"{d['buckets']} buckets of distance"] if d["buckets"] else []
    facts += ["ALiBi"] if d["alibi"] else []
    facts += [f"latent rows of {d['kv_rank']}"] if d["kv_rank"] else []
    facts += ["attention and network side by side"] if d["parallel"] else []
    facts += ["also attends to an encoder"] if d.crosses else []
    shared = sum("source" in layer.overrides for layer in d.layers)
    facts += [f"the last {shared} layers read K and V of earlier ones"] if shared else []
    return facts


def norm_places(d: Description) -> str:
    if "attention_sum_norm" in d.inner:
        return "after each sum"
    if "attention_norm" not in d.inner:
        return "after each part"
    return "before and after each part" if "attention_out_norm" in d.inner else "before each part"


def layer_rows(d: Description) -> list[list[str]]:
    """A row for each run of layers that are alike, below `LAYER_HEADINGS`."""
    rows, start = [], 0
    for index in range(1, len(d.layers) + 1):
        if index == len(d.layers) or d.layers[index] != d.layers[start]:
            span = str(start) if index - start == 1 else f"{start}-{index - 1}"
            rows.append([span, *layer_cells(d, d.layers[start])])
            start = index
    return rows


def layer_table(d: Description, screen: Screen) -> Iterator[Line]:
    rows = [[*LAYER_HEADINGS], *layer_rows(d)]
    widths = [max(cells(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        padded = (pad_right(screen.printable(text), width) for text, width in zip(row, widths, strict=True))
        yield [("  ".join(padded).rstrip(), "label" if number == 0 else "")]


def layer_cells(d: Description, layer: Layer) -> list[str]:
    window = "full"
    if isinstance(layer.window, BlockLocal):
        window = f"chunks of {layer.window.size}"
    elif layer.window:
        left, right = layer.window.left, layer.window.right
        window = f"{(left or 0) + 1} keys" if right is None else f"{left} each side"
    rope = "none"
    if layer.rope:
        share = "" if layer.rope.dims == (d["d_rope"] or d["d_k"]) else f", {layer.rope.dims} columns"
        pairs = ", neighbours" if layer.rope.interleaved else ""
        rope = f"{layer.rope.kind}, theta {layer.rope.theta:g}{share}{pairs}"
    scale = "1/√d_k" if layer.scale is None else f"{layer.scale:g}"
    network = f"{d['chosen']} of {d['experts']} experts" if layer.has_experts else "dense"
    if layer.is_linear:
        return ["a state", "none", "none", network]
    return [window, rope, scale, network]
