"""Opening a model: a folder, or the id of one on the hub that is in the local cache or can be fetched."""

from __future__ import annotations

from pathlib import Path

from attnctl.errors import AttnError
from attnctl.models.description import describe
from attnctl.models.layer import Model
from attnctl.models.tensors import LONGEST_CONFIG, Checkpoint, inside, json_file

CONFIG = "config.json"


def open_model(
    name: str, part: str = "", dtype: str = "float32", max_memory: int | None = None
) -> Model:
    """The model of a folder that holds config.json and safetensors.

    Raises AttnError for what is not there, and with everything of the config that is not understood.
    """
    folder = folder_of(name)
    path = inside(folder, CONFIG)
    description = describe(json_file(path, LONGEST_CONFIG), part, str(path))
    return Model(name, description, Checkpoint(folder), dtype, max_memory)


def folder_of(name: str) -> Path:
    """The folder of a model: a path, or the snapshot of a hub id."""
    folder = Path(name)
    if "\0" in name:
        raise AttnError(f"{name!r}: not the name of a folder")
    if (folder / CONFIG).is_file():
        return folder
    if folder.exists():
        raise AttnError(f"{name}: no {CONFIG} in it; a model is what save_pretrained writes")
    raise AttnError(f"{name}: no such folder")
