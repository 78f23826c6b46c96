"""Freeze what transformers computes of a text by models of images and sounds whose text is a family's.

    pip install torch==2.13.0 transformers==5.24.0
    python tests/models/make_towers.py [NAME ...]

Each is as `make.py` makes a checkpoint, in `towers/NAME`: every parameter is drawn. Of its other towers the
tensors stay in the file, as far as they are small: their names are like those of the text.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from cases import GEMMA3, LLAMA
from make import draw, leave_out_towers
from transformers.models.auto import modeling_auto as auto

from attnctl.models.families import FAMILIES, TOWERS
from attnctl.models.tensors import Checkpoint
from attnctl.store.safetensors import write_tensors

HERE = Path(__file__).parent / "towers"
SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "embed_dim", "projection_dim", "output_dim", "dim"), 8),
    **dict.fromkeys(("width", "qformer_hidden_size", "encoder_hidden_size", "proj_dim", "mlp_dim"), 8),
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "ffn_dim", "dim_feedforward"), 8),
    **dict.fromkeys(("num_hidden_layers", "encoder_layers", "num_layers", "depth", "layers"), 1),
    **dict.fromkeys(
        ("num_attention_heads", "encoder_attention_heads", "num_heads", "num_key_value_heads"), 1
    ),
    "image_size": 8,
    "patch_size": 4,
    "num_mel_bins": 8,
    "max_source_positions": 8,
    "head_dim": 8,
    "vocab_size": 32,
    "num_query_tokens": 2,
    "input_dim": 8,
    "max_position_embeddings": 16,
}
OTHERS = (
    "vision_config",
    "audio_config",
    "encoder_config",
    "qformer_config",
    "projector_config",
    "vq_config",
)
OPT = {"vocab_size": 32, "hidden_size": 16, "ffn_dim": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
OPT |= {"word_embed_proj_dim": 16, "max_position_embeddings": 64, "pad_token_id": 0}
MOST_BYTES = 60_000
IDS = [3, 7, 4, 11, 19, 5]


def text_settings(kind: str) -> dict[str, Any]:
    if kind == "opt":
        return OPT
    own = GEMMA3 if kind == "gemma3_text" else LLAMA
    return {**own, **({"head_dim": 8} if "head_dim" in str(FAMILIES[kind][""].keys) else {})}


def class_of(kind: str) -> type:
    names = ("IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SPEECH_SEQ_2_SEQ", "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM")
    for name in names:
        table = getattr(auto, f"MODEL_FOR_{name}_MAPPING_NAMES", {})
        if kind in table:
            return getattr(transformers, table[kind])
    raise KeyError(kind)


def shrink(config: Any) -> None:
    for name, size in SMALL.items():
        if isinstance(getattr(config, name, None), int):
            setattr(config, name, size)


def config_of(kind: str) -> Any:
    whole = transformers.AutoConfig.for_model(kind)
    text = whole.text_config.model_type
    found = transformers.AutoConfig.for_model(text, **text_settings(text))
    settings: dict[str, Any] = {"text_config": found}
    for name in OTHERS:
        part = getattr(whole, name, None)
        if part is not None and not isinstance(part, dict):
            shrink(part)
            settings[name] = part
    whole = type(whole)(**settings)
    for name in ("image_token_index", "image_token_id", "audio_token_id", "video_token_id"):
        if isinstance(getattr(whole, name, None), int):
            setattr(whole, name, 31)
    return whole


def make(kind: str) -> None:
    config = config_of(kind)
    model = class_of(kind)._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        draw(model, sum(map(ord, kind)))
    folder = HERE / kind
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        out = model(input_ids=torch.tensor([IDS]), output_hidden_states=True, output_attentions=True)
    inner = getattr(out, "language_model_outputs", None) or out
    expected = {"input_ids": np.array(IDS), "logits": out.logits[0].float().numpy()}
    for layer, hidden in enumerate(inner.hidden_states[:-1]):
        expected[f"hidden_{layer}"] = hidden[0].float().numpy()
    for layer, weights in enumerate(inner.attentions or ()):
        expected[f"weights_{layer}"] = weights[0].float().numpy()
    np.savez_compressed(folder / "expected.npz", **expected)
    del model, out, inner  # whose numbers are still in the file
    keep_small(folder, TOWERS[kind])


def keep_small(folder: Path, within: str) -> None:
    """Leave out large tensors of other towers."""
    tensors = {name: np.array(tensor.load()) for name, tensor in Checkpoint(folder).tensors.items()}
    kept = {
        name: array
        for name, array in tensors.items()
        if within in name or "lm_head" in name or array.nbytes < MOST_BYTES // 30
    }
    (folder / "model.safetensors").unlink()
    with (folder / "model.safetensors").open("wb") as stream:
        write_tensors(kept, stream, {})


def main() -> None:
    transformers.logging.set_verbosity_error()
    leave_out_towers()
    for kind in sys.argv[1:] or TOWERS:
        try:
            make(kind)
            size = sum(path.stat().st_size for path in (HERE / kind).iterdir())
            print(kind, size, flush=True)
        except Exception as error:  # noqa: BLE001  (what a class of transformers raises)
            shutil.rmtree(HERE / kind, ignore_errors=True)
            print(kind, "not made:", type(error).__name__, str(error)[:200], flush=True)


if __name__ == "__main__":
    main()
