"""Freeze the logits that transformers computes: logits.npz, for each family that has a head.

    python tests/models/make_logits.py [NAME ...]

The checkpoint is the one beside the tests; of its head, which most of them lack, every tensor is drawn as
the test draws it. What bends logits is moved away from its default.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from checkpoints import NAMES, ROOT, expected_of
from make import leave_out_towers
from sweep import drawn
from tiny import EVERY_CASE
from transformers.models.auto import modeling_auto as auto

FROZEN = Path(__file__).parent / "logits.npz"
MOVED = {"logit_scale": 0.3, "logits_scaling": 3.0, "final_logit_softcapping": 2.5, "lm_head_bias": True}
KINDS = ("MASKED_LM", "CAUSAL_LM", "IMAGE_TEXT_TO_TEXT")
OF_TEXT = {"qwen3_5", "qwen3_5_moe"}
"""Models of images too, whose causal class takes the configuration of their text alone."""
LEFT_OUT = {"bart", "blenderbot", "pegasus", "m2m_100", "marian", "mbart", "whisper"}
"""Decoders that read an encoder."""
BODIES = {"llama4_text": {r"^(layers|embed_tokens|norm)\.": r"model.\1."}}
"""Where the class with a head has a body that it does not look for under its own prefix."""


def class_of(kind: str) -> type | None:
    """transformers' class of a model with its head."""
    names = KINDS[2:] if kind in OF_TEXT else KINDS
    tables = [getattr(auto, f"MODEL_FOR_{name}_MAPPING_NAMES") for name in names]
    found = next((table[kind] for table in tables if kind in table), None)
    return None if found is None or kind in LEFT_OUT else getattr(transformers, found)


def moved(settings: dict, kind: type, *, tied: bool) -> dict:
    """The settings with a head away from its default, and its matrix tied to the embeddings or not."""
    own = {key: value for key, value in MOVED.items() if hasattr(kind.config_class(), key)}
    whole = {**settings, **own, "tie_word_embeddings": tied}
    text = settings.get("text_config")
    return whole | ({"text_config": {**text, "tie_word_embeddings": tied}} if text else {})


def logits_of(name: str, number: int) -> dict[str, np.ndarray]:
    """The config.json of a case, the tensors of its head, and its logits."""
    config = json.loads((ROOT / name / "config.json").read_text())
    kind = class_of(config["model_type"])
    if kind is None or (ROOT / name / "of").exists():
        return {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        shutil.copytree(ROOT / name, folder)
        own = moved(config, kind, tied=number % 3 == 0)
        (folder / "config.json").write_text(json.dumps(own))
        attention = next(case.get("attention", "eager") for case in EVERY_CASE if case["name"] == name)
        how = {"dtype": torch.float32, "attn_implementation": attention, "output_loading_info": True}
        how["key_mapping"] = BODIES.get(config["model_type"])
        model, said = kind.from_pretrained(folder, **how)
        model, lacking = model.eval(), set(said["missing_keys"])
        body = {tensor.data_ptr() for tensor in model.base_model.state_dict().values()}
        state = model.state_dict()
        head = {key: state[key] for key in state if key in lacking or state[key].data_ptr() not in body}
        assert lacking <= head.keys()
        assert len(head) < len(state) / 2, sorted(head)
        with torch.no_grad():
            for key, tensor in head.items():
                tensor.copy_(torch.tensor(drawn(key, tuple(tensor.shape))))
            ids = torch.tensor(expected_of(name)["input_ids"])[None]
            logits = model(input_ids=ids).logits[0].numpy()
    made = {"config": own, "head": {key: list(tensor.shape) for key, tensor in head.items()}}
    return {name: logits, f"{name}.json": np.array(json.dumps(made))}


def main() -> None:
    """Freeze those of the named cases, or of every one."""
    leave_out_towers()
    found: dict[str, np.ndarray] = {}
    if wanted := sys.argv[1:]:
        with np.load(FROZEN) as there:
            found = dict(there)
    for number, name in enumerate(NAMES):
        if not wanted or name in wanted:
            found |= logits_of(name, number)
            print(name, file=sys.stderr)
    np.savez_compressed(FROZEN, **found)


if __name__ == "__main__":
    main()
