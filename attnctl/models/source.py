"""Opening a model: a folder, or the id of one on the hub that is in the local cache or can be fetched."""

from __future__ import annotations

import os
import re
from pathlib import Path

from attnctl.base.errors import AttnError
from attnctl.base.files import note_input, open_found
from attnctl.base.words import quote
from attnctl.models.description import describe
from attnctl.models.layer import Model
from attnctl.models.tensors import INDEX, LONGEST_CONFIG, PICKLES, WHOLE, Checkpoint, inside, json_file
from attnctl.models.tokens import TOKENIZER

CONFIG = "config.json"
OWN = (
    *(CONFIG, TOKENIZER, WHOLE, INDEX, *PICKLES, "README.md"),
    *("generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "tokenizer.model"),
)
"""The files of a folder that are the model's, beside its shards."""

HUB_ID = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?")


def open_model(name: str, part: str = "", dtype: str = "float32", max_memory: int | None = None) -> Model:
    """The model of a folder that holds config.json and safetensors.

    Raises AttnError for what is not there, and with everything of the config that is not understood.
    """
    folder = folder_of(name)
    path = inside(folder, CONFIG)
    description = describe(json_file(path, LONGEST_CONFIG), part, str(path))
    model = Model(name, description, Checkpoint(folder), dtype, max_memory)
    model.refuse_layers()
    return model


def folder_of(name: str) -> Path:
    """The folder of a model: a path, or the snapshot of a hub id, in the local cache or fetched.

    Raises AttnError where there is none.
    """
    folder = Path(name)
    if "\0" in name:
        raise AttnError(f"{quote(name)}: not the name of a folder")
    if folder.exists():
        if (folder / CONFIG).is_file():
            return note_folder(folder)
        raise AttnError(f"{name}: no {CONFIG} in it; a model is what save_pretrained writes")
    if not HUB_ID.fullmatch(name):
        raise AttnError(f"{name}: no such file or folder")
    return note_folder(find_cached(name) or fetch_snapshot(name))


def note_folder(folder: Path) -> Path:
    """The folder of a model: what belongs to it is not overwritten, whether it is opened or not."""
    for name in OWN:
        note_input(folder / name)
    return folder


def find_cached(name: str) -> Path | None:
    """The snapshot of a hub id that huggingface_hub left on this machine."""
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    cache = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    repository = cache / f"models--{name.replace('/', '--')}"
    try:
        with open_found(repository / "refs" / "main") as stream:
            revision = stream.read().decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    snapshot = repository / "snapshots" / revision
    whole = re.fullmatch(r"[\w.-]+", revision) and (snapshot / CONFIG).is_file()
    return snapshot if whole and (snapshot / WHOLE).exists() | (snapshot / INDEX).exists() else None


def fetch_snapshot(name: str) -> Path:
    """The snapshot of a hub id, fetched through huggingface_hub."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise AttnError(
            f"{name}: no such file or folder, nor in the local cache; pip install 'attnctl[hf]' to fetch it"
        ) from None
    try:
        return Path(
            snapshot_download(name, allow_patterns=[CONFIG, WHOLE, INDEX, "*.safetensors", TOKENIZER])
        )
    except Exception as error:  # noqa: BLE001  (the hub raises what its transport raises)
        first = str(error).strip().splitlines()
        why = first[0] if first else type(error).__name__
        raise AttnError(f"{name}: no such file or folder, and the hub does not give it: {why}") from None
