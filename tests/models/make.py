"""Make the tiny checkpoints, and what transformers computes from them in float32. The tests run it
for a family of which none is checked in.

    pip install torch==2.13.0 transformers==5.24.0
    python tests/models/make.py [--in FOLDER] [NAME ...]

Every parameter is drawn (norms, biases and sinks too: ones and zeros would hide what is
forgotten). `checkpoints/NAME/` then holds config.json, model.safetensors and expected.npz: the
ids, `hidden_L` that came into layer L, and `weights_L`, its attention weights. A case that only
configures another one's tensors differently (`of`) has a config and expected numbers, no tensors.
"""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tiny import EVERY_CASE
from transformers.models.timm_wrapper import modeling_timm_wrapper as timm_wrapper

HERE = Path(__file__).parent / "checkpoints"


def leave_out_towers() -> None:
    """Make models whose part for images is of timm without that part: no image is given to them."""

    def begin(self: Any, config: Any) -> None:
        super(timm_wrapper.TimmWrapperModel, self).__init__(config)
        self.timm_model = torch.nn.Identity()
        self.post_init()

    timm_wrapper.TimmWrapperModel.__init__ = begin


def draw(model: torch.nn.Module, seed: int) -> None:
    """Draw every parameter and persistent buffer from a stream of its own."""
    stream = torch.Generator().manual_seed(seed)
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point() or name.endswith("inv_freq"):
            continue
        noise = torch.randn(tensor.shape, generator=stream)
        if tensor.ndim == 1 and name.endswith("weight"):
            tensor.copy_(1 + 0.3 * noise)  # a norm
        elif tensor.ndim < 2:
            tensor.copy_(0.3 * noise)
        else:
            tensor.copy_(noise * (1.5 / tensor.shape[-1] ** 0.5 if "emb" not in name else 1.0))


def build(case: dict) -> torch.nn.Module:
    """The model of a case, drawn; in eager attention unless the case says otherwise."""
    attention = case.get("attention", "eager")
    if "model" in case:
        config = getattr(transformers, case["config"])(**case["settings"])
        model_class = getattr(transformers, case["model"])
        model = model_class._from_config(config, attn_implementation=attention).eval()
    else:
        config = transformers.AutoConfig.for_model(case["name"], **case["settings"])
        model = transformers.AutoModel.from_config(config, attn_implementation=attention).eval()
    with torch.no_grad():
        draw(model, sum(map(ord, case.get("of", case["name"]))))
    return model


def rows_read(model: torch.nn.Module, name: str) -> list[torch.Tensor]:
    """What the module of this name reads in each layer, once the model is called."""
    found: list[torch.Tensor] = []
    for path, module in model.named_modules():
        if path.endswith(f".{name}"):
            module.register_forward_pre_hook(lambda module, args: found.append(args[0]))
    return found


def expected(model: torch.nn.Module, case: dict) -> dict[str, np.ndarray]:
    """Ids, hidden states and attention weights of every layer."""
    stream = np.random.RandomState(0)
    length = case.get("length", 7)
    out: dict[str, np.ndarray] = {}
    inputs: dict[str, torch.Tensor] = {}
    for name, shape in case.get("inputs", {"input_ids": None}).items():
        if shape is None:
            out[name] = stream.randint(3, 30, size=length if name == "input_ids" else length + 2)
            inputs[name] = torch.tensor(out[name])[None]
        elif isinstance(shape, list):  # numbers that are given
            out[name] = np.array(shape)
            inputs[name] = torch.tensor(shape)[None]
        else:
            out[name] = stream.standard_normal(shape).astype(np.float32)
            inputs[name] = torch.tensor(out[name])[None]
    if case.get("pair"):
        out["token_type_ids"] = np.array([0] * (length - 3) + [1] * 3)
        inputs["token_type_ids"] = torch.tensor(out["token_type_ids"])[None]
    with torch.no_grad():
        called = attrgetter(case["called"])(model) if "called" in case else model
        read = rows_read(model, case["reads"]) if "reads" in case else None
        result = called(**inputs, output_attentions="attention" not in case, output_hidden_states=True)
    if read is not None:
        result.hidden_states = [*read, result.last_hidden_state]
    fields = {"hidden": "hidden_states", "weights": "attentions"}
    parts = case.get("parts", {"": ""})
    for ours, theirs in parts.items():
        for kind, field in fields.items():
            values = result
            for name in (theirs + field).split("."):
                values = getattr(values, name, None)
            own = range(len(values or ()))
            types = getattr(model.config.get_text_config(), "layer_types", None) or ()
            if kind == "weights" and {"linear_attention", "conv"} & {*types}:
                own = [at for at, name in enumerate(types) if name == "full_attention"]
            for layer, value in zip(own, values or (), strict=True):
                if value is not None:
                    out[f"{ours}{kind}_{layer}"] = value[0].float().numpy()
        left = attrgetter(f"{theirs}last_hidden_state")
        with suppress(AttributeError):  # that of CLIP's text and of ViT is normed, as their states are not
            out[max(name for name in out if name.startswith(f"{ours}hidden"))] = left(result)[0].numpy()
    if case.get("cross"):
        for layer, value in enumerate(result.cross_attentions):
            out[f"cross_weights_{layer}"] = value[0].numpy()
    return out


def make(case: dict, root: Path) -> None:
    """Write one case into its folder below."""
    folder = root / case["name"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = build(case).to(getattr(torch, case.get("dtype", "float32")))
    model.save_pretrained(folder, **case.get("save", {}))
    for extra in folder.glob("generation_config.json"):
        extra.unlink()
    if case.get("old"):  # as transformers 4 wrote it
        config = json.loads((folder / "config.json").read_text())
        for key in case.get("old_without", ()):
            config.pop(key, None)
        (folder / "config.json").write_text(json.dumps({**config, **case["old"]}, indent=1))
    if "of" in case:
        (folder / "model.safetensors").unlink()
        config = json.loads((folder / "config.json").read_text())
        (folder / "of").write_text(case["of"])
    if model.dtype != torch.float32:  # its parameters, and what is no parameter in float32
        options = {"dtype": torch.float32, "attn_implementation": case.get("attention", "eager")}
        model = type(model).from_pretrained(folder, **options).eval()
    np.savez_compressed(folder / "expected.npz", **expected(model, case))


def main() -> None:
    """Make the named cases, or all."""
    leave_out_towers()
    wanted, root = sys.argv[1:], HERE
    if wanted[:1] == ["--in"]:
        root, wanted = Path(wanted[1]), wanted[2:]
    for case in EVERY_CASE:
        if not wanted or case["name"] in wanted:
            make(case, root)
            print(case["name"], sum(path.stat().st_size for path in (root / case["name"]).iterdir()))


if __name__ == "__main__":
    main()
