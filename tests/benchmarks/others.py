"""The tasks of `models.py` with transformers and hooks, with TransformerLens, and with nnsight.

    pip install transformer-lens==4.3.0 nnsight==0.8.1
    python tests/benchmarks/others.py LIBRARY MODEL TASK

LIBRARY is transformers, lens or nnsight. A library says how a pass is run, what of it is kept and what is
changed; the tasks are written once. Each prints one line, by which answers are held to each other.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import ClassVar

import numpy as np
import torch
from models import OTHER, PROMPT, prompts_of_places

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
PAIR = (" Mary", " John")

Change = Callable[[torch.Tensor], torch.Tensor]
Changes = dict[tuple[str, int], Change]
"""What is made of a place's numbers: "heads", "attention", "network" or "stream", and the layer."""


class Transformers:
    """Hooks on transformers' own modules."""

    def __init__(self, model: str) -> None:
        import transformers

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            model, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        self.layers = len(self.model.model.layers)
        self.heads = self.model.config.num_attention_heads

    def ids(self, text: str) -> torch.Tensor:
        return self.tokenizer(text, return_tensors="pt").input_ids

    def id(self, word: str) -> int:
        return self.tokenizer(word, add_special_tokens=False).input_ids[0]

    def text(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)

    def places(self, place: str, layer: int) -> tuple[torch.nn.Module, bool]:
        """The module, and whether its input is meant."""
        block = self.model.model.layers[layer]
        return {
            "heads": (block.self_attn.o_proj, True),
            "attention": (block.self_attn, False),
            "network": (block.mlp, False),
            "stream": (block, True),
        }[place]

    @torch.no_grad()
    def run(
        self, ids: torch.Tensor, changes: Changes | None = None, keep: Sequence[tuple[str, int]] = ()
    ) -> tuple[torch.Tensor, dict]:
        """The logits of all positions, and what was kept."""
        kept: dict = {}
        changes = changes or {}
        with ExitStack() as stack:
            for place in {*changes, *keep} - {("weights", layer) for layer in range(self.layers)}:
                module, is_input = self.places(*place)

                def hook(array: torch.Tensor, place: tuple[str, int] = place) -> torch.Tensor:
                    array = changes[place](array) if place in changes else array
                    kept[place] = array
                    return array

                stack.callback(add_hook(module, hook, is_input=is_input).remove)
            wants_weights = any(name == "weights" for name, _ in keep)
            out = self.model(ids, output_attentions=wants_weights)
        if wants_weights:
            kept |= {("weights", layer): array for layer, array in enumerate(out.attentions)}
        return out.logits[0], kept

    @torch.no_grad()
    def unembed(self, rows: torch.Tensor) -> torch.Tensor:
        return self.model.lm_head(self.model.model.norm(rows))

    def generate(self, ids: torch.Tensor, count: int) -> list[int]:
        made = self.model.generate(ids, max_new_tokens=count, do_sample=False)
        return made[0, ids.shape[-1] :].tolist()

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        return self.model.named_parameters()


def add_hook(
    module: torch.nn.Module, change: Change, *, is_input: bool
) -> torch.utils.hooks.RemovableHandle:
    if is_input:

        def before(_: object, given: tuple) -> tuple:
            return (change(given[0]), *given[1:])

        return module.register_forward_pre_hook(before)

    def after(_: object, __: object, out: object) -> object:
        if isinstance(out, tuple):
            return (change(out[0]), *out[1:])
        return change(out)

    return module.register_forward_hook(after)


class Lens(Transformers):
    """TransformerLens' bridge and its hook points."""

    NAMES: ClassVar = {
        "heads": "blocks.{}.attn.o.hook_in",
        "attention": "blocks.{}.hook_attn_out",
        "network": "blocks.{}.hook_mlp_out",
        "stream": "blocks.{}.hook_resid_pre",
        "weights": "blocks.{}.attn.hook_pattern",
    }

    def __init__(self, model: str) -> None:
        from transformer_lens.model_bridge import TransformerBridge
        from transformers import AutoTokenizer

        self.bridge = TransformerBridge.boot_transformers(model, device="cpu")
        # The bridge's own is made to begin with a token that the model's has not.
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.model = self.bridge.original_model
        self.layers = self.bridge.cfg.n_layers
        self.heads = self.bridge.cfg.n_heads

    @torch.no_grad()
    def run(
        self, ids: torch.Tensor, changes: Changes | None = None, keep: Sequence[tuple[str, int]] = ()
    ) -> tuple[torch.Tensor, dict]:
        kept: dict = {}
        changes = changes or {}
        hooks = []
        for place in {*changes, *keep}:
            name, layer = place

            def hook(array: torch.Tensor, hook: object, place: tuple[str, int] = place) -> torch.Tensor:
                flat = array.reshape(*array.shape[:2], -1) if place[0] == "heads" else array
                made = changes[place](flat) if place in changes else flat
                kept[place] = made
                return made.reshape(array.shape)

            hooks.append((self.NAMES[name].format(layer), hook))
        return self.bridge.run_with_hooks(ids, fwd_hooks=hooks)[0], kept


class Nnsight(Transformers):
    """nnsight's traces of the same modules."""

    def __init__(self, model: str) -> None:
        from nnsight import LanguageModel

        self.wrapped = LanguageModel(
            model, device_map="cpu", dispatch=True, dtype=torch.float32, attn_implementation="eager"
        )
        self.tokenizer = self.wrapped.tokenizer
        self.model = self.wrapped._module
        self.layers = len(self.wrapped.model.layers)
        self.heads = self.model.config.num_attention_heads

    def run(
        self, ids: torch.Tensor, changes: Changes | None = None, keep: Sequence[tuple[str, int]] = ()
    ) -> tuple[torch.Tensor, dict]:
        kept: dict = {}
        changes = changes or {}
        # In the order in which the pass comes by: a trace cannot go back.
        order = {"stream": 0, "heads": 1, "attention": 2, "weights": 3, "network": 4}
        wanted = sorted({*changes, *keep}, key=lambda place: (place[1], order[place[0]]))
        with torch.no_grad(), self.wrapped.trace(ids):
            for place in wanted:
                name, layer = place
                block = self.wrapped.model.layers[layer]
                if name == "stream":
                    if place in changes:
                        block.input = changes[place](block.input)
                    kept[place] = block.input.save()
                elif name == "heads":
                    if place in changes:
                        block.self_attn.o_proj.input = changes[place](block.self_attn.o_proj.input)
                    kept[place] = block.self_attn.o_proj.input.save()
                elif name == "weights":
                    kept[place] = block.self_attn.output[1].save()
                elif name == "attention":
                    out = block.self_attn.output
                    if place in changes:
                        block.self_attn.output = (changes[place](out[0]), *out[1:])
                    kept[place] = block.self_attn.output[0].save()
                else:
                    if place in changes:
                        block.mlp.output = changes[place](block.mlp.output)
                    kept[place] = block.mlp.output.save()
            logits = self.wrapped.lm_head.output.save()
        return logits[0], kept


LIBRARIES = {"transformers": Transformers, "lens": Lens, "nnsight": Nnsight}


# --- the tasks ---


def difference(library: Transformers, logits: torch.Tensor, pair: Sequence[str] = PAIR) -> float:
    first, second = (library.id(word) for word in pair)
    return float(logits[-1, first] - logits[-1, second])


def zero_head(library: Transformers, head: int) -> Change:
    def change(rows: torch.Tensor) -> torch.Tensor:
        size = rows.shape[-1] // library.heads
        rows = rows.clone()
        rows[..., head * size : (head + 1) * size] = 0
        return rows

    return change


def next_tokens(library: Transformers, changes: Changes | None = None) -> str:
    logits, _ = library.run(library.ids(PROMPT), changes)
    best = logits[-1].softmax(-1).topk(5)
    return " ".join(
        f"{library.text([i])!r} {p:.4f}" for p, i in zip(*map(torch.Tensor.tolist, best), strict=True)
    )


def weights_of_head(library: Transformers) -> str:
    _, kept = library.run(library.ids(PROMPT), keep=[("weights", 2)])
    return f"{kept['weights', 2][0, 1, -1].tolist()[:3]}"


def map_of_heads(library: Transformers) -> str:
    """The share of each head's attention to the first, the one before and itself."""
    every = [("weights", layer) for layer in range(library.layers)]
    _, kept = library.run(library.ids(PROMPT), keep=every)
    named = 0
    for place in every:
        weights = kept[place][0][:, 2:]
        rows = torch.arange(2, weights.shape[-1])
        shares = [weights[..., 0], weights[:, rows - 2, rows], weights[:, rows - 2, rows - 1]]
        named += int((torch.stack([share.mean(-1) for share in shares]).max(0).values > 0.4).sum())
    return f"{named} heads"


def lens(library: Transformers) -> str:
    every = [("stream", layer) for layer in range(library.layers)]
    logits, kept = library.run(library.ids(PROMPT), keep=every)
    rows = torch.stack([kept[place][0, -1] for place in every])
    best = library.unembed(rows).argmax(-1).tolist()
    return library.text([*best[-3:], int(logits[-1].argmax())])


def effects_of_heads(library: Transformers) -> str:
    ids = library.ids(PROMPT)
    before = difference(library, library.run(ids)[0])
    found = np.zeros((library.layers, library.heads))
    for layer, head in np.ndindex(*found.shape):
        logits, _ = library.run(ids, {("heads", layer): zero_head(library, head)})
        found[layer, head] = difference(library, logits) - before
    layer, head = divmod(int(np.abs(found).argmax()), library.heads)
    return f"{layer}.{head} {found[layer, head]:.4f}"


def patching_by_layer(library: Transformers) -> str:
    ids = library.ids(PROMPT)
    before = difference(library, library.run(ids)[0])
    places = [(name, layer) for layer in range(library.layers) for name in ("attention", "network")]
    _, other = library.run(library.ids(OTHER), keep=places)
    found = []
    for layer in range(library.layers):
        changes = {(name, layer): constant(other[name, layer]) for name in ("attention", "network")}
        found.append(difference(library, library.run(ids, changes)[0]) - before)
    most = int(np.abs(found).argmax())
    return f"{most} {found[most]:.4f}"


def constant(rows: torch.Tensor) -> Change:
    return lambda _: rows


def by_position(library: Transformers, count: int) -> str:
    """Over so many prompts: the row of each position into each layer from the other prompt."""
    sums: np.ndarray | float = 0.0
    prompts = prompts_of_places()[:count]
    for line in prompts:
        ids = library.ids(line["prompt"])
        pair = (line["a"], line["b"])
        before = difference(library, library.run(ids)[0], pair)
        every = [("stream", layer) for layer in range(library.layers)]
        _, other = library.run(library.ids(line["other"]), keep=every)
        found = np.zeros((library.layers, ids.shape[-1]))
        for layer, place in np.ndindex(*found.shape):
            rows = other["stream", layer]

            def change(own: torch.Tensor, rows: torch.Tensor = rows, place: int = place) -> torch.Tensor:
                own = own.clone()
                own[:, place] = rows[:, place]
                return own

            logits, _ = library.run(ids, {("stream", layer): change})
            found[layer, place] = difference(library, logits, pair) - before
        sums = sums + found
    mean = np.asarray(sums) / len(prompts)
    layer, place = np.unravel_index(int(np.abs(mean).argmax()), mean.shape)
    return f"layer {layer} position {place} {mean[layer, place]:.4f} over {len(prompts)}"


def compare(library: Transformers, other: Transformers) -> str:
    """The change of each tensor, the cosine after each layer, the divergence of the next token."""
    ids = library.ids(PROMPT)
    every = [("stream", layer) for layer in range(library.layers)]
    logits, ours = library.run(ids, keep=every)
    theirs_logits, theirs = other.run(ids, keep=every)
    moved = 0.0
    for (_, a), (_, b) in zip(library.parameters(), other.parameters(), strict=True):
        moved = max(moved, float((b - a).norm() / a.norm()))
    cosines = [torch.cosine_similarity(ours[place], theirs[place], dim=-1).mean() for place in every]
    p, q = logits[-1].log_softmax(-1), theirs_logits[-1].log_softmax(-1)
    return f"{moved:.3g} {float(min(cosines)):.5f} {float((p.exp() * (p - q)).sum()):.3g}"


def main() -> None:
    name, model, task, *more = sys.argv[1:]
    library = LIBRARIES[name](model)
    tasks: dict[str, Callable[[], str]] = {
        "next tokens": lambda: next_tokens(library),
        "weights of a head": lambda: weights_of_head(library),
        "map of heads": lambda: map_of_heads(library),
        "lens": lambda: lens(library),
        "a head left out": lambda: next_tokens(library, {("heads", 2): zero_head(library, 1)}),
        "a network left out": lambda: next_tokens(library, {("network", 2): torch.zeros_like}),
        "effects of heads": lambda: effects_of_heads(library),
        "patching by layer": lambda: patching_by_layer(library),
        "by position over 20 prompts": lambda: by_position(library, int(more[0]) if more else 20),
        "compare two models": lambda: compare(library, LIBRARIES[name](model)),
        "generate 20 tokens": lambda: library.text(library.generate(library.ids(PROMPT), 20)),
    }
    print(json.dumps(tasks[task]()))


if __name__ == "__main__":
    main()
