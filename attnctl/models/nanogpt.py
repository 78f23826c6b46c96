"""nanoGPT's ckpt.pt as a GPT-2: a state dict with `model_args`, its matrices the other way round."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.files import note_input, open_found, refuse_os_errors
from attnctl.math import Array
from attnctl.models.tensors import in_memory
from attnctl.store.header import Stored
from attnctl.store.raw import File
from attnctl.store.torch_file import array_of, load_torch

SUFFIXES = (".pt", ".pth", ".ckpt")
COMPILED = "_orig_mod."
"""What torch.compile puts before each name."""

SIZES = {
    "n_layer": "n_layer",
    "n_head": "n_head",
    "n_embd": "n_embd",
    "block_size": "n_positions",
    "vocab_size": "vocab_size",
}
"""Its arguments, and what config.json of a GPT-2 calls them."""

MATRICES = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
MASK = ".attn.bias"
"""The end of the name of a buffer that hides later keys, where no kernel does."""


class NanoGPT(NamedTuple):
    config: dict[str, Any]
    tensors: dict[str, Stored]


def is_torch_file(path: Path) -> bool:
    return path.suffix in SUFFIXES and path.is_file()


def open_nanogpt(path: Path) -> NanoGPT:
    """Raises AttnError where torch is not installed, and for what is no checkpoint of nanoGPT."""
    note_input(path)
    with refuse_os_errors(f"{path}: cannot be read"), open_found(path) as stream:
        found = load_torch(File(stream.fileno(), str(path)))
    args = found.get("model_args") if isinstance(found, Mapping) else None
    state = found.get("model") if isinstance(found, Mapping) else None
    if not isinstance(args, Mapping) or not isinstance(state, Mapping):
        raise AttnError(
            f"{path}: no checkpoint of nanoGPT, which has `model` and `model_args`; give the folder of "
            "save_pretrained, with config.json"
        )

    config: dict[str, Any] = {"model_type": "gpt2", "activation_function": "gelu"}
    for name, ours in SIZES.items():
        size = args.get(name)
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise AttnError(f"{path}: model_args.{name} is {size}, expected a whole number from 1")
        config[ours] = size
    return NanoGPT(config, in_memory(arrays_of_state(state, str(path))))


def arrays_of_state(state: Mapping[str, Any], place: str) -> dict[str, Array]:
    """The arrays under GPT-2's names, biases of 0 where it has none."""
    arrays: dict[str, Array] = {}
    for key, tensor in state.items():
        name = str(key).removeprefix(COMPILED)
        if name.endswith(MASK):
            continue
        if not hasattr(tensor, "detach"):
            raise AttnError(f"{place}: {name} is no tensor")
        array = array_of(name, tensor, place)
        module = name.removesuffix(".weight")
        if name.endswith(".weight") and module.endswith(MATRICES):
            array = array.T
        arrays[name] = array

    for name in [*arrays]:
        module = name.removesuffix(".weight")
        is_norm = ".ln_" in module
        if name.endswith(".weight") and (is_norm or module.endswith(MATRICES)):
            arrays.setdefault(f"{module}.bias", np.zeros(arrays[name].shape[-1:], arrays[name].dtype))
    return arrays
