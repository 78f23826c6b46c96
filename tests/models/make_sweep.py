"""Hold every key of every family's config.json, moved one at a time, to transformers; write sweep.json.gz.

    pip install torch==2.13.0 transformers==5.24.0
    python tests/models/make_sweep.py [--dry] [NAME ...]

A key is one of the family's config class in transformers, another name of one, or one that the family
reads here. A move is refused by name, or its hidden states are those of transformers to 1e-5; where one
is neither, it is printed and its family is not written. The tests run it --dry for a family that is not in
it yet.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import torch
import transformers
from make import leave_out_towers, rows_read
from safetensors import safe_open
from sweep import (
    DECODER_IDS,
    FROZEN,
    IDS,
    LEFT_OUT,
    SEGMENTS,
    bases,
    figures,
    hidden_states,
    moved,
    named,
    read_frozen,
    sections,
    start_of,
    write_checkpoint,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from attnctl.base.errors import AttnError
from attnctl.models.description import INERT, describe
from attnctl.models.families import FAMILIES

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

EVERYWHERE = {
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "partial_rotary_factor": 1.0,
    "is_causal": True,
}
"""Keys that no config class has, and all understand."""

SKIPPED = {"model_type", "text_config", "vision_config", "return_dict", "dtype"}
"""Keys that choose another class or part, what a call returns, or the type of numbers alone."""

SOUNDS = "wav2vec2", "hubert", "data2vec-audio", "unispeech", "unispeech-sat"
"""Families that take a sound."""

IMAGES = "vit", "deit", "dinov2", "dinov2_with_registers", "siglip_vision_model"
"""Families that take an image."""

NAMED_WITH_HEAD = {"exaone"}
"""Families whose tensors have the names of their files only where they are saved with their head."""

IN_FLOAT32 = {"qwen3_next", "qwen3_5", "qwen3_5_text", "gemma4", "gemma4_text"}
IN_FLOAT32 |= {"qwen3_5_moe", "qwen3_5_moe_text", "gemma3n", "gemma3n_text", "t5gemma"}
"""Families whose delta rule, or norms of small rows, transformers carries out in float32 all the same."""

Outcome = tuple[str, Any]


def moves(key: str, value: Any, annotation: Any, own: dict[str, Any]) -> Iterator[Any]:
    """Other values of a key; `value` is what it is by default, `own` what the config says."""
    value = own.get(key, value)
    if key in ROPES:
        yield from ROPES[key](own)
    elif key in LISTS:
        yield from LISTS[key](layers_of(own))
    elif words := [word for kind in (annotation, *get_args(annotation)) for word in literals(kind)]:
        yield from (word for word in words if word != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (2 * value, value + 1, value - 1, -1)
    elif isinstance(value, float):
        yield from (2 * value or 0.5, -value or -0.5)
    elif isinstance(value, str):
        yield from (word for word in ("relu", "gelu_new", "quick_gelu", "silu") if word != value)
    else:
        kinds = str(annotation)
        yield from (True,) if "bool" in kinds else ()
        yield from (1, 2, 3) if "int" in kinds else ()
        yield from (0.3, 2.0) if "float" in kinds else ()
        yield from ("relu", [1], {"1": 1}) if "int" not in kinds and "float" not in kinds else ()
    if "None" in str(annotation) and value is not None:
        yield None
    if key in own:
        yield LEFT_OUT


def literals(kind: Any) -> tuple[Any, ...]:
    """The values of a Literal."""
    return get_args(kind) if get_origin(kind) is Literal else ()


def layers_of(own: dict[str, Any]) -> int:
    """The number of layers."""
    names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers")
    said = next((own[name] for name in names if name in own), None)
    return len(own["hybrid_override_pattern"]) if said is None else int(said)


def ropes(own: dict[str, Any]) -> list[dict[str, Any]]:
    """Rotary positions of every kind, whole and by type of layer."""
    heads = own.get("num_attention_heads") or own.get("n_head") or own.get("n_heads") or 1
    width = own.get("hidden_size") or own.get("n_embd") or own.get("d_model") or own.get("dim")
    pairs = int((own.get("qk_rope_head_dim") or own.get("head_dim") or width // heads) // 2)
    first = {"original_max_position_embeddings": 8}
    whole = [
        {"rope_type": "default", "rope_theta": 300.0},
        {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.5},
        {"rope_type": "linear", "rope_theta": 300.0, "factor": 4.0},
        {"rope_type": "linear", "factor": 4.0, "partial_rotary_factor": 0.5},
        {"rope_type": "dynamic", "rope_theta": 300.0, "factor": 2.0},
        {"rope_type": "yarn", "rope_theta": 300.0, "factor": 8.0, **first},
        {"rope_type": "yarn", "factor": 8.0, "attention_factor": 0.5},
        {"rope_type": "llama3", "rope_theta": 50.0, "factor": 8.0, "low_freq_factor": 1.0}
        | {"high_freq_factor": 4.0, **first},
        {"rope_type": "longrope", "short_factor": [1.5] * pairs, "long_factor": [3.0] * pairs}
        | {"original_max_position_embeddings": 4, "factor": 4.0, "rope_theta": 300.0},
        {"rope_type": "longrope", "short_factor": [1.5] * pairs, "long_factor": [3.0] * pairs}
        | {"short_mscale": 1.2, "long_mscale": 1.4, "original_max_position_embeddings": 4}
        | {"rope_theta": 300.0},
        {"rope_type": "proportional", "rope_theta": 300.0, "partial_rotary_factor": 0.5},
    ]
    sections = (own.get("rope_parameters") or {}).get("mrope_section")
    whole = [{**rope, **({"mrope_section": sections} if sections else {})} for rope in whole]
    return [
        *whole,
        {"full_attention": whole[2], "sliding_attention": whole[0]},
        {"full_attention": whole[1]},
    ]


def scalings(own: dict[str, Any]) -> list[dict[str, Any]]:
    """The same as transformers 4 wrote them."""
    whole = [each for each in ropes(own) if "rope_type" in each]
    for each in whole:
        each.pop("rope_theta", None)
    return [
        *whole[2:6],
        *({"type" if key == "rope_type" else key: each[key] for key in each} for each in whole),
    ]


ROPES = {"rope_parameters": ropes, "rope_scaling": scalings}
LISTS = {
    "layer_types": lambda count: [
        [("full_attention", "sliding_attention")[index % 2] for index in range(count)],
        ["sliding_attention"] * count,
        ["full_attention"] * count,
    ],
    "layers_block_type": lambda count: [
        ["attention", "mamba", "moe", "mlp"],
        ["linear_attention", "full_attention", "full_attention"],
        ["mlp", "moe"] * 2,
        ["attention", "sliding_attention"],
    ],
    "hybrid_override_pattern": lambda count: ["M-*E*", "EM*", "M*X-"],
    "per_layer_config": lambda count: [
        {str(count - 1): {"head_dim": 4}, "1": {"head_dim": 4}},
        {str(count - 1): {"head_dim": 4, "num_key_value_heads": 1}, "1": {"intermediate_size": 4}},
        {"0": {"head_dim": 4}, "2": {"head_dim": 4}, "3": {"head_dim": 4, "num_key_value_heads": 2}},
        {},
    ],
    "activation_sparsity_pattern": lambda count: [[0.5] * count, [0.5], [1.0] * count],
    "mlp_only_layers": lambda count: [[0], [1], []],
    "no_rope_layers": lambda count: [[0] + [1] * (count - 1), [0] * count, []],
    "feed_forward_proj": lambda count: ["relu", "gelu", "gated-gelu", "gated-silu", "silu-x"],
    "id2label": lambda count: [{"0": "a", "1": "b", "2": "c"}],
    "problem_type": lambda count: ["regression"],
    "text": lambda count: ["relu"],
}


def keys(kind: str, section: str, own: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Every key of a config class, or that is read here: its name, what it is by default, its type."""
    config_class = CONFIG_MAPPING[own.get("model_type", f"clip_{section.removesuffix('_config')}_model")]
    config = config_class.from_dict(json.loads(json.dumps(own)))
    config.allow_global_per_layer_attribute_access = True
    found = {each.name: (getattr(config, each.name, None), each.type) for each in fields(config_class)}
    for other, name in config_class.attribute_map.items():
        found.setdefault(other, (getattr(config, name, None), ""))
    stacks = sections(kind)[section]
    for each in (each for stack in stacks for each in stack.keys):
        default = each.default if each.default is not None else EXAMPLES.get(each.kind.expected)
        for name in each.names:
            found.setdefault(name, (getattr(config, name, default), ""))
    for name in sorted({name for stack in stacks for name in (*stack.only, *stack.inert)}):
        found.setdefault(name, (getattr(config, name, None), "int | str | bool"))
    found |= {name: (value, "") for name, value in EVERYWHERE.items() if name not in found}
    for name in sorted(found.keys() - SKIPPED):
        yield name, *found[name]


EXAMPLES = {
    "a whole number from 1": 4,
    "a whole number from 0": 1,
    "a number above 0": 2.0,
    "true or false": True,
}


class Reference:
    """What transformers makes of a config.json, and the tensors that it asks for."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind
        self.shapes: dict[Any, dict[str, list[int]]] = {}

    def shapes_of(self, config: dict[str, Any]) -> dict[str, list[int]]:
        """Names and shapes of the tensors, as save_pretrained writes them."""
        made = CONFIG_MAPPING[self.kind].from_dict(json.loads(json.dumps(config)))
        with_head = self.kind in NAMED_WITH_HEAD
        model = (transformers.AutoModelForCausalLM if with_head else transformers.AutoModel).from_config(
            made
        )
        found = tuple((name, tuple(each.shape)) for name, each in model.state_dict().items())
        if found not in self.shapes:
            model.save_pretrained(self.folder / "shapes")
            with safe_open(self.folder / "shapes" / "model.safetensors", "pt") as tensors:
                self.shapes[found] = {
                    name: tensors.get_slice(name).get_shape() for name in list(tensors.keys())
                }
        return self.shapes[found]

    @torch.no_grad()
    def hidden_states(self) -> dict[str, list[np.ndarray]]:
        """What `sweep.hidden_states` is held to, of the checkpoint in the folder."""
        alibi = json.loads((self.folder / "config.json").read_text()).get("alibi")
        model = transformers.AutoModel.from_pretrained(
            self.folder,
            dtype=torch.float64,
            experts_implementation="eager",
            attn_implementation="sdpa" if alibi else "eager",
        ).eval()
        translators = ("t5", "mt5", "umt5", "bart", "mbart", "marian", "m2m_100", "pegasus", "blenderbot")
        translators += ("t5gemma",)
        calls = dict.fromkeys(translators, both) | {"whisper": speech} | dict.fromkeys(SOUNDS, sound)
        calls |= dict.fromkeys(("clip", "siglip"), pair) | dict.fromkeys(IMAGES, image)
        calls |= {"dinov3_vit": column, "siglip2_vision_model": patches}
        calls["siglip2"] = lambda whole: {
            **tokens(whole.text_model),
            "vision": patches(whole.vision_model)[""],
        }
        calls["llama4"] = lambda whole: tokens(whole.language_model.model)
        found = calls.get(self.kind, image if self.kind == "clip_vision_model" else tokens)(model)
        return {part: [each[0].double().numpy() for each in every] for part, every in found.items()}


States = dict[str, list[torch.Tensor]]


def tokens(model: Any) -> States:
    """A stack that takes tokens."""
    more = {}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        more["token_type_ids"] = torch.tensor([SEGMENTS])
    read = rows_read(model, "input_layernorm") if "gemma3n" in model.config.model_type else None
    out = model(input_ids=torch.tensor([IDS]), output_hidden_states=True, **more)
    return {"": [*(out.hidden_states[:-1] if read is None else read), out.last_hidden_state]}


def both(model: Any) -> States:
    """An encoder and a decoder."""
    inputs = {"input_ids": torch.tensor([IDS]), "decoder_input_ids": torch.tensor([DECODER_IDS])}
    out = model(**inputs, output_hidden_states=True)
    return {"": list(out.encoder_hidden_states), "decoder": list(out.decoder_hidden_states)}


def speech(model: Any) -> States:
    """Whisper."""
    sound = torch.zeros(1, model.config.num_mel_bins, 2 * model.config.max_source_positions)
    encoder = started(model.encoder, model.config.d_model, sound.double())
    out = model.decoder(
        input_ids=torch.tensor([DECODER_IDS]), encoder_hidden_states=encoder[-1], output_hidden_states=True
    )
    return {"": encoder, "decoder": list(out.hidden_states)}


def image(model: Any) -> States:
    """A stack that takes an image."""
    config = model.config
    pixels = torch.zeros(1, config.num_channels, config.image_size, config.image_size)
    return {"": started(model, config.hidden_size, pixels.double())}


def sound(model: Any) -> States:
    """A stack that takes a sound."""
    samples = torch.zeros(1, 400).double()
    return {"": started(model, model.config.hidden_size, samples, model.encoder.layers)}


def column(model: Any) -> States:
    """DINOv3, on patches that stand below each other: as many as there are rows without its own tokens."""
    config = model.config
    rows = len(IDS) - 1 - config.num_register_tokens
    pixels = torch.zeros(1, config.num_channels, rows * config.patch_size, config.patch_size)
    return {"": started(model, config.hidden_size, pixels.double())}


def patches(model: Any) -> States:
    """SigLIP 2, on so many patches."""
    config = model.config
    count = len(IDS)
    values = torch.zeros(1, count, config.num_channels * config.patch_size**2)
    shape = torch.tensor([[count, 1]])
    mask = torch.ones(1, count, dtype=torch.long)
    more = {"pixel_attention_mask": mask, "spatial_shapes": shape}
    return {"": started(model, config.hidden_size, values.double(), **more)}


def pair(model: Any) -> States:
    """CLIP."""
    return {"": tokens(model.text_model)[""], "vision": image(model.vision_model)[""]}


def started(
    model: Any, width: int, inputs: torch.Tensor, layers: Any = None, **more: torch.Tensor
) -> list[torch.Tensor]:
    """The hidden states of a stack of layers that begins from a drawn one instead of these inputs."""
    start = torch.tensor(start_of(width))[None]
    if layers is None:
        layers = next(each for each in model.modules() if isinstance(each, torch.nn.ModuleList))

    def replaced(module: Any, args: Any, kwargs: Any) -> Any:
        return ((start, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": start})

    layers[0].register_forward_pre_hook(replaced, with_kwargs=True)
    out = model(inputs, **more, output_hidden_states=True)
    return [start, *out.hidden_states[1:-1], out.last_hidden_state]


def outcome(config: dict[str, Any], kind: str, reference: Reference) -> Outcome:
    """What comes of a config: "refused" and how, "alone" (transformers fails), "differs", or "agrees"."""
    try:
        for part in FAMILIES[kind]:
            describe(config, part)
    except AttnError as error:
        return "refused", str(error)
    folder = reference.folder
    try:
        shapes = reference.shapes_of(config)
        write_checkpoint(folder, config, shapes)
        expected = reference.hidden_states()
    except Exception as error:  # noqa: BLE001  (whatever it raises, there is nothing to hold to)
        return "alone", f"{type(error).__name__}: {error}".splitlines()[0][:100]
    try:
        found = hidden_states(folder, kind)
    except AttnError as error:
        return "differs", f"refused late: {error}"
    for part, every in expected.items():
        for index, array in enumerate(every):
            gap = np.abs(found[part][index] - array).max() / max(1, np.abs(array).max())
            if len(every) != len(found[part]) or not gap <= (5e-5 if kind in IN_FLOAT32 else 1e-5):
                return "differs", f"{part} {index}: {gap:.2g}"
    return "agrees", (figures(found), shapes)


def sweep(base: dict[str, Any], folder: Path) -> tuple[dict[str, Any], int]:
    """What sweep.json.gz says of a family, and how many moves are neither refused nor agree."""
    kind = base["model_type"]
    reference = Reference(folder, kind)
    word, detail = outcome(base, kind, reference)
    assert word == "agrees", (kind, word, detail)
    numbers, shapes = detail
    found: dict[str, Any] = {"figures": numbers, "shapes": shapes, "moves": {}}
    wrong = 0
    for section in sections(kind):
        own = base[section] if section else base
        for key, value, annotation in keys(kind, section, own):
            inert = INERT.fullmatch(key) and not any(
                key in stack.understood for stack in FAMILIES[kind].values()
            )
            values = list(dict.fromkeys(map(json.dumps, moves(key, value, annotation, own))))
            rows = found["moves"].setdefault(section, {}).setdefault(key, [])
            for new in map(json.loads, values[:1] if inert else values):
                word, detail = outcome(moved(base, section, key, new), kind, reference)
                if word == "differs" or (word == "alone" and not inert):
                    wrong += word == "differs"
                    print(f"{kind} {section} {key} {new}: {word}, {detail}", flush=True)
                elif word == "refused":
                    rows.append([new, word])
                    if not named(detail, key, own):
                        print(f"{kind} {section} {key} {new}: not by name, {detail}", flush=True)
                elif word == "agrees":
                    changes = difference(shapes, detail[1])
                    same = detail[0] == numbers and not changes
                    if not changes:
                        rows.append([new, "same" if same else detail[0]])
                    elif all(len(row) < 3 for row in rows):  # one other size is enough
                        rows.append([new, detail[0], changes])
    return found, wrong


def difference(base: dict[str, list[int]], shapes: dict[str, list[int]]) -> dict[str, list[int] | None]:
    """The tensors that are other than the base's; None for those that are not there."""
    gone = dict.fromkeys(base.keys() - shapes.keys())
    return gone | {name: shape for name, shape in shapes.items() if base.get(name) != shape}


def main() -> int:
    """Sweep the cases that are named, or all; --dry writes nothing."""
    dry, names = sys.argv[1:2] == ["--dry"], [each for each in sys.argv[1:] if each != "--dry"]
    frozen = read_frozen() if names else {}
    total = 0
    leave_out_towers()
    with tempfile.TemporaryDirectory() as folder:
        for name, base in bases().items():
            if names and name not in names:
                continue
            found, wrong = sweep(base, Path(folder))
            print(name, "wrong:", wrong, flush=True)
            total += wrong
            if not wrong and not dry:  # at once: a family that is right need not wait for one that is not
                frozen[name] = found
                FROZEN.write_bytes(
                    gzip.compress(json.dumps(frozen, separators=(",", ":")).encode(), mtime=0)
                )
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
