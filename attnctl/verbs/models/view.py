"""The map of a model's heads, and the table of its layers, on a screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnctl.base.words import plural
from attnctl.drawing.screen.screen import Line, Screen
from attnctl.drawing.screen.text import cells, pad_left, pad_right
from attnctl.math.engine.cost import size_text
from attnctl.models.description import Description, Layer
from attnctl.verbs.models.about import About
from attnctl.verbs.models.heads import DRAWS, ENOUGH, KINDS, LENGTH, RULE, SCORES, SPREAD, HeadProfile

SHORT = {
    "sink": "sink",
    "previous": "prev",
    "first": "first",
    "self": "self",
    "same word": "same",
    "induction": "induc",
}
DOT = "·"

LAYER_HEADINGS = ("layer", "window", "rope", "scale", "network")


def map_lines(
    heads: Sequence[HeadProfile], tokens: Sequence[str], model: str, screen: Screen
) -> Iterator[Line]:
    """Layers down, heads across, what each head does; then the rule and how to go on."""
    yield from screen.flow([(screen.token(token), "token") for token in tokens], "  ")
    yield []
    layers = sorted({head.layer for head in heads})
    count = 1 + max(head.head for head in heads)
    first = max(cells(f"layer {layers[-1]}"), 8)
    width = 6
    block = max(1, (screen.width - first) // width) if screen.fits else count
    for start in range(0, count, block):
        numbers = range(start, min(start + block, count))
        yield [
            (pad_right("", first), ""),
            ("".join(pad_left(str(number), width) for number in numbers), "label"),
        ]
        for layer in layers:
            row = [head for head in heads if head.layer == layer and head.head in numbers]
            yield [
                (pad_right(f"layer {layer}", first), "label"),
                *(cell(head, width, screen) for head in row),
            ]
        yield []
    for kind, meaning in KINDS.items():
        yield [(f"{pad_right(SHORT[kind], first)}{screen.ours(meaning)}", "dim")]
    yield [(f"{pad_right(screen.ours(DOT), first)}{SPREAD}: nothing of these", "dim")]
    yield [(RULE, "dim")]
    busy = max(
        heads, key=lambda head: max(head.shares.values()) if head.name not in {"first", "sink"} else 0
    )
    yield []
    yield [(f"One layer, number by number: add --layer {busy.layer} --head {busy.head}", "")]


def cell(head: HeadProfile, width: int, screen: Screen) -> tuple[str, str]:
    if head.name == SPREAD:
        return pad_left(screen.ours(DOT), width), "dim"
    return pad_left(SHORT[head.name], width), "strong" if head.name == "induction" else ""


def battery_lines(found: list[HeadProfile], screen: Screen) -> Iterator[Line]:
    title = f"{LENGTH} random tokens twice in a row, {DRAWS} draws; heads with {ENOUGH:.0%} or more"
    yield [(screen.ours(title), "label")]
    for name, meaning in SCORES.items():
        named = sorted((each for each in found if name in each.names), key=lambda each: -each.shares[name])
        text = ", ".join(f"{each.layer}.{each.head} ({each.shares[name]:.2f})" for each in named) or "none"
        yield [(pad_right(name, 11), "label"), (text, "")]
        yield [(f"{pad_right('', 11)}{screen.ours(meaning)}", "dim")]


def model_lines(about: About, screen: Screen) -> Iterator[Line]:
    for d in about.parts:
        yield [(screen.ours(stack_name(d)), "sentence")]
        yield from screen.flow([(screen.ours(fact), "dim") for fact in facts_of(d)], screen.dot)
        yield from layer_table(d, screen)
        yield []
    for line in size_lines(about):
        yield [(line, "")]


def stack_name(d: Description) -> str:
    return f"{d.family} {d.part}".rstrip()


def size_lines(about: About) -> list[str]:
    traces = [
        f"one layer's trace of {tokens} tokens: {size_text(size)}"
        for tokens, size in about.trace_bytes.items()
    ]
    return [f"{about.parameters:,} parameters in {size_text(about.bytes)}, {about.types}", *traces]


def facts_of(d: Description) -> list[str]:
    """A stack in a few words each: its sizes, and what attention has besides (norms, sinks, latents)."""
    facts = [
        plural(len(d.layers), "layer"),
        plural(d["heads"], "head"),
        *([f"{d['kv_heads']} kv heads"] if d["kv_heads"] != d["heads"] else []),
        f"width {d['width']}",
        f"head size {d['d_k']}" + (f", values {d['d_v']}" if d["d_v"] != d["d_k"] else ""),
        f"{d['act']} {'gated ' if d['gated'] else ''}network of {d['intermediate']}",
        "causal" if d["causal"] else "sees both ways",
        f"{d.norm_kind} {norm_places(d)}",
    ]
    facts += [f"{d.norm_kind} of Q and K"] if d["qk_norm"] else []
    facts += [f"soft cap {d['softcap']:g}"] if d["softcap"] else []
    facts += ["a sink for each head"] if d["sink"] else []
    facts += [f"{d['buckets']} buckets of distance"] if d["buckets"] else []
    facts += ["ALiBi"] if d["alibi"] else []
    facts += [f"latent rows of {d['kv_rank']}"] if d["kv_rank"] else []
    facts += ["attention and network side by side"] if d["parallel"] else []
    facts += ["also attends to an encoder"] if d.crosses else []
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
        text = "  ".join(
            pad_right(screen.ours(each), width) for each, width in zip(row, widths, strict=True)
        )
        yield [(text.rstrip(), "label" if number == 0 else "")]


def layer_cells(d: Description, layer: Layer) -> list[str]:
    window = "full"
    if layer.window:
        left, right = layer.window.left, layer.window.right
        window = f"{(left or 0) + 1} keys" if right is None else f"{left} each side"
    rope = "none"
    if layer.rope:
        share = "" if layer.rope.dims == (d["d_rope"] or d["d_k"]) else f", {layer.rope.dims} columns"
        pairs = ", neighbours" if layer.rope.interleaved else ""
        rope = f"{layer.rope.kind}, theta {layer.rope.theta:g}{share}{pairs}"
    scale = "1/√d_k" if layer.scale is None else f"{layer.scale:g}"
    network = f"{d['chosen']} of {d['experts']} experts" if layer.experts else "dense"
    return [window, rope, scale, network]
