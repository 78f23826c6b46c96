"""A checkpoint described: its shape, each layer, its size, and what one layer's trace would take."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
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
from attnctl.models.families import stacks_of
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
                {**describe_stack(part), "layer_parameters": sizes}
                for part, sizes in zip(self.parts, self.by_use, strict=True)
            ],
            "parameters": self.parameters,
            "bytes": self.bytes,
            "types": self.types,
            "trace_bytes": {str(tokens): size for tokens, size in self.trace_bytes.items()},
        }


def describe_stack(d: Description) -> dict[str, Any]:
    settings = {name: value for name, value in d.settings.items() if is_described(value)}
    layers = [describe_layer(layer) for layer in d.layers]
    return {"family": d.family, "part": d.part, **settings, "by_layer": layers}


def is_described(value: Any) -> bool:
    """Whether a setting says something, and not by a rule for each layer."""
    return not callable(value) and value not in (None, {})


def describe_layer(layer: Layer) -> dict[str, Any]:
    if isinstance(layer.window, Window):
        window: Any = [layer.window.left, layer.window.right]
    else:
        window = layer.window and layer.window.plain()
    rope = layer.rope and {"kind": layer.rope.kind, "theta": layer.rope.theta, "dims": layer.rope.dims}
    return {
        "window": window,
        "rope": rope,
        "scale": layer.scale,
        "experts": layer.has_experts,
        **layer.overrides,
    }


def describe_checkpoint(name: str) -> About:
    """Raises AttnError for what is not understood."""
    model = open_model(name)
    parts = [part for part in stacks_of(model.description.family) if part]
    models = [model, *(open_model(name, part) for part in parts)]
    tensors = model.checkpoint.tensors.values()
    return About(
        name=name,
        parts=tuple(each.description for each in models),
        parameters=sum(prod(tensor.shape) for tensor in tensors),
        bytes=sum(tensor.nbytes for tensor in tensors),
        types=", ".join(sorted({tensor.type_name for tensor in tensors})),
        trace_bytes=cost_traces(model),
        by_use=tuple(map(parameters_by_use, models)),
    )


def cost_traces(model: Model) -> dict[int, int]:
    """The memory of the first trace that a layer has, every step kept, by the number of tokens."""
    model.checkpoint.looks = False  # nothing is computed of what is read
    attending = model.description.attending
    layer = model.layer(attending[0] if attending else 0)
    most = most_tokens(model) or 1024

    sizes = {}
    for tokens in sorted({min(128, most), min(1024, most)}):
        plan = prepare_attention(layer, blank_rows(model, tokens))
        sizes[tokens] = peak(plan.costs())
    return sizes


def parameters_by_use(model: Model) -> dict[str, int]:
    """The numbers in the tensors of layer 0 by what they are for; nothing for what it does not have."""
    prefix = model.layer(0).prefix
    tensors = model.checkpoint.tensors
    names = [name.removeprefix(prefix) for name in model.checkpoint.under(prefix)]
    sizes = {}
    for use, module in model.description.inner.items():
        escaped = re.escape(module.removesuffix("!"))
        with_numbers = re.sub(r"\\{\w\\}", r"\\d+", escaped)  # {e} and {h}
        pattern = re.compile(with_numbers + r"(\.\w+)?")
        size = sum(prod(tensors[prefix + name].shape) for name in names if pattern.fullmatch(name))
        if size:
            sizes[use] = size
    return sizes


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
    lines = [f"{found.parameters:,} parameters in {size_text(found.bytes)}, {found.types}"]
    for tokens, size in found.trace_bytes.items():
        lines.append(f"one layer's trace of {tokens} tokens: {size_text(size)}")
    return lines


def facts_of(d: Description) -> list[str]:
    """A stack in a few words each: its sizes, and what attention has besides (norms, sinks, latents)."""
    norm = "LayerNorm" if d["norm"] == "layer" else "RMSNorm"
    facts = [plural(len(d.layers), "layer"), plural(d["heads"], "head")]
    if d["kv_heads"] != d["heads"]:
        facts.append(plural(d["kv_heads"], "kv head"))
    facts += [
        f"width {d['width']}",
        head_sizes(d),
        f"{d['act']} {'gated ' if d['gated'] else ''}network of {d['intermediate']}",
        "causal" if d["causal"] else "sees both ways",
        f"{norm} {norm_places(d)}",
    ]
    if d["qk_norm"]:
        facts.append(f"{norm} of Q and K")
    return [*facts, *special_facts(d)]


def special_facts(d: Description) -> list[str]:
    """What few families have."""
    facts = []
    if d["softcap"]:
        facts.append(f"soft cap {d['softcap']:g}")
    if d["sink"]:
        facts.append("a sink for each head")
    if d["buckets"]:
        facts.append(f"{d['buckets']} buckets of distance")
    if d["alibi"]:
        facts.append("ALiBi")
    if d["kv_rank"]:
        facts.append(f"latent rows of {d['kv_rank']}")
    if d["parallel"]:
        facts.append("attention and network side by side")
    if d.crosses:
        facts.append("also attends to an encoder")
    if sharing := sum("source" in layer.overrides for layer in d.layers):
        facts.append(f"the last {sharing} layers read K and V of earlier ones")
    return facts


def head_sizes(d: Description) -> str:
    by_layer = [layer.overrides.get("d_k", d["d_k"]) for layer in d.layers]
    sizes = " or ".join(map(str, dict.fromkeys(by_layer)))
    if d["d_v"] == d["d_k"]:
        return f"head size {sizes}"
    return f"head size {sizes}, values {d['d_v']}"


def norm_places(d: Description) -> str:
    if "attention_sum_norm" in d.inner:
        return "after each sum"
    if "attention_norm" not in d.inner:
        return "after each part"
    return "before and after each part" if "attention_out_norm" in d.inner else "before each part"


def layer_rows(d: Description) -> list[list[str]]:
    """A row for each run of layers that are alike, below `LAYER_HEADINGS`."""
    rows = []
    first = 0
    for layer, run in groupby(d.layers):
        last = first + len([*run]) - 1
        numbers = str(first) if first == last else f"{first}-{last}"
        rows.append([numbers, *layer_cells(d, layer)])
        first = last + 1
    return rows


def layer_table(d: Description, screen: Screen) -> Iterator[Line]:
    rows = [[*LAYER_HEADINGS], *layer_rows(d)]
    columns = zip(*rows, strict=True)
    widths = [max(map(cells, column)) for column in columns]
    for number, row in enumerate(rows):
        padded = []
        for text, width in zip(row, widths, strict=True):
            padded.append(pad_right(screen.printable(text), width))
        yield [("  ".join(padded).rstrip(), "label" if number == 0 else "")]


def layer_cells(d: Description, layer: Layer) -> list[str]:
    network = f"{d['chosen']} of {d['experts']} experts" if layer.has_experts else "dense"
    if not layer.has_network:
        network = "none"
    if layer.is_network:
        return ["nothing is mixed", "none", "none", network]
    if layer.is_linear:
        mixer = "a convolution" if d["convolution"] else "a state"
        return [mixer, "none", "none", network]

    scale = "1/√d_k" if layer.scale is None else f"{layer.scale:g}"
    return [window_cell(layer), rope_cell(d, layer), scale, network]


def window_cell(layer: Layer) -> str:
    window = layer.window
    if window is None:
        return "full"
    if isinstance(window, BlockLocal):
        return f"chunks of {window.size}"
    if window.right is None:
        return f"{(window.left or 0) + 1} keys"  # those before the query, and its own
    return f"{window.left} each side"


def rope_cell(d: Description, layer: Layer) -> str:
    rope = layer.rope
    if rope is None:
        return "none"

    text = f"{rope.kind}, theta {rope.theta:g}"
    if rope.dims != (d["d_rope"] or d["d_k"]):
        text += f", {rope.dims} columns"
    if rope.interleaved:
        text += ", neighbours"
    return text
