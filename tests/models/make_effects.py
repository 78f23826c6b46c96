"""Freeze what hooks in transformers say of each head: effects.json, of five families with grouped heads.

    python tests/models/make_effects.py

A hook changes what goes into the output projection of one layer, in which a head has columns of its own.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from make_logits import class_of
from test_next import with_head

FROZEN = Path(__file__).parent / "effects.json"
NAMES = sys.argv[1:] or ["llama", "qwen3", "gemma2", "gemma3n_text", "gemma4_text"]
IDS, OTHER, PAIR = [9, 4, 17, 4, 26], [12, 4, 17, 8, 26], (5, 9)


@contextmanager
def hooked(module: torch.nn.Module, change) -> Iterator[None]:
    handle = module.register_forward_pre_hook(lambda _, given: (change(given[0]), *given[1:]))
    try:
        yield
    finally:
        handle.remove()


def difference(model: torch.nn.Module, ids: list[int]) -> float:
    with torch.no_grad():
        last = model(input_ids=torch.tensor([ids])).logits[0, -1]
    return float(last[PAIR[0]] - last[PAIR[1]])


def effects(folder: str) -> dict:
    """The change in the difference by each head, each way."""
    config = json.loads((Path(folder) / "config.json").read_text())
    kind = class_of(config["model_type"])
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    found = {"difference": difference(model, IDS), "other": difference(model, OTHER)}
    layers = [
        of_layer(model, layer.self_attn.o_proj, config["num_attention_heads"])
        for layer in model.model.layers
    ]
    found |= {how: [layer[how] for layer in layers] for how in ("zero", "mean", "patch")}
    return found | {
        f"{by} {how}": list(of_parts(model, by, how)) for by in PARTS for how in ("zero", "patch")
    }


def replaced(new: torch.Tensor | float):
    """A hook that puts other rows in the place of what a module gives, which may be in a tuple."""

    def hook(_, __, out):
        rows = out[0] if isinstance(out, tuple) else out
        other = torch.zeros_like(rows) if isinstance(new, float) else new
        return (other, *out[1:]) if isinstance(out, tuple) else other

    return hook


def taken(module: torch.nn.Module, model: torch.nn.Module) -> torch.Tensor:
    """What a module gives of the other prompt."""
    kept: list[torch.Tensor] = []
    handle = module.register_forward_hook(
        lambda _, __, out: kept.append(out[0] if isinstance(out, tuple) else out)
    )
    difference(model, OTHER)
    handle.remove()
    return kept[0]


PARTS = ("layer", "network")


def of_parts(model: torch.nn.Module, by: str, how: str) -> Iterator[list[float]]:
    """The change by all that each layer adds, or its network."""
    before = difference(model, IDS)
    for layer in model.model.layers:
        modules = [layer.mlp] if by == "network" else [layer.self_attn, layer.mlp]
        new = [taken(module, model) if how == "patch" else 0.0 for module in modules]
        handles = [
            module.register_forward_hook(replaced(rows)) for module, rows in zip(modules, new, strict=True)
        ]
        yield [round(difference(model, IDS) - before, 6)]
        for handle in handles:
            handle.remove()


def positions(folder: str) -> dict:
    """The change by the row of each position that comes into each layer."""
    kind = class_of(json.loads((Path(folder) / "config.json").read_text())["model_type"])
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    before = difference(model, IDS)
    out: dict[str, list[list[float]]] = {"position zero": [], "position patch": []}
    for layer in model.model.layers:
        kept: list[torch.Tensor] = []
        with hooked(layer, lambda x, kept=kept: kept.append(x) or x):
            difference(model, OTHER)
        for how, other in (("zero", torch.zeros_like(kept[0])), ("patch", kept[0])):
            row = []
            for place in range(len(IDS)):

                def change(x: torch.Tensor, place: int = place, other=other) -> torch.Tensor:
                    x = x.clone()
                    x[:, place] = other[:, place]
                    return x

                with hooked(layer, change):
                    row.append(round(difference(model, IDS) - before, 6))
            out[f"position {how}"].append(row)
    return out


def of_layer(model: torch.nn.Module, module: torch.nn.Module, heads: int) -> dict[str, list[float]]:
    """The change by each head of one layer."""
    kept: list[torch.Tensor] = []
    with hooked(module, lambda x: kept.append(x) or x):
        difference(model, OTHER)
    (other,), before = kept, difference(model, IDS)
    size = other.shape[-1] // heads
    out: dict[str, list[float]] = {"zero": [], "mean": [], "patch": []}
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        new = {
            "zero": torch.zeros_like,
            "mean": lambda x: x.mean(dim=1, keepdim=True),
            "patch": lambda x, own=own: other[..., own],
        }
        for how, replace in new.items():

            def change(x: torch.Tensor, own: slice = own, replace=replace) -> torch.Tensor:
                x = x.clone()
                x[..., own] = replace(x[..., own])
                return x

            with hooked(module, change):
                out[how].append(round(difference(model, IDS) - before, 6))
    return out


def main() -> None:
    """Freeze those of each family."""
    made = {"ids": IDS, "other_ids": OTHER, "between": PAIR}
    for name in NAMES:
        with tempfile.TemporaryDirectory() as scratch:
            folder = with_head(name, Path(scratch))
            made[name] = effects(folder)
            if name in {"llama", "qwen3", "gemma2"}:  # the others have rows of several kinds
                made[name] |= positions(folder)
    FROZEN.write_text(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
