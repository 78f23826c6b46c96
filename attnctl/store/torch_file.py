"""Dumps as torch saves them: a tensor, or a dict of tensors, in dicts and lists of any depth.

torch itself reads them, with `weights_only`: nothing in the file is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from math import prod
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.math import Array
from attnctl.store.header import DEEPEST, DTYPES, Contents, check_shape, require_bytes, show_value
from attnctl.store.npz import open_archive
from attnctl.store.raw import File


def read_torch(file: File) -> Contents:
    """A file's tensors, under their path in it: model.layers.0.weight.

    Numbers and texts beside them are passed over. Raises AttnError where torch is not installed, and for
    a file that holds anything but plain data.
    """
    found = load_torch(file)
    torch: Any = import_module("torch")
    arrays: dict[str, Array] = {}
    for path, tensor in list(tensors_in(found, "", torch.Tensor, file.place)):
        name = path or Path(file.place).stem
        if name in arrays:
            raise AttnError(f"{file.place}: two tensors would be called {show_value(name)}")
        arrays[name] = array_of(name, tensor, file.place)
    return Contents(None, arrays, file.place)


def load_torch(file: File) -> Any:
    """What torch reads of a file: tensors and plain data, nothing of which is run."""
    try:
        torch: Any = import_module("torch")  # no import statement: it is not installed with attnctl
    except ImportError:
        instead = "pip install torch, or save it as .safetensors or .npz"
        raise AttnError(f"{file.place}: torch's own file, and torch is not installed; {instead}") from None
    if file.read(0, 2) == b"PK":
        with open_archive(file, ".pt") as archive:
            require_bytes(sum(info.file_size for info in archive.infolist()), f"{file.place}: reading it")
    try:
        with file.stream() as stream:
            return torch.load(stream, map_location="cpu", weights_only=True)
    except UnpicklingError:
        instead = "save a dict of tensors, like torch.save(model.state_dict(), FILE)"
        what = "it holds more than tensors, and nothing of that is run here"
        raise AttnError(f"{file.place}: {what}; {instead}") from None
    except Exception as error:  # whatever torch finds in a damaged file
        why = str(error).strip().partition("\n")[0]
        raise AttnError(f"{file.place}: torch cannot read it: {why or type(error).__name__}") from error


def tensors_in(
    value: Any, path: str, kind: type, place: str, left: int = DEEPEST
) -> Iterator[tuple[str, Any]]:
    """Every tensor in nested dicts and lists, by its path with dots. Raises AttnError where they go on."""
    if isinstance(value, kind):
        yield path, value
        return
    if not left:
        raise AttnError(f"{place}: nested deeper than {DEEPEST} levels")
    children = dict(enumerate(value)) if isinstance(value, (list, tuple)) else value
    for name, child in children.items() if isinstance(children, Mapping) else ():
        yield from tensors_in(child, f"{path}.{name}" if path else str(name), kind, place, left - 1)


def array_of(name: str, tensor: Any, place: str) -> Array:
    """A tensor's numbers, of types that NumPy lacks as float32; endless views are refused before that."""
    check_shape(tuple(tensor.shape), f"{place}: {show_value(name)}")
    require_bytes(8 * prod(tensor.shape), f"{place}: {show_value(name)}: reading it")
    try:
        own = tensor.detach()
        dtype = str(own.dtype).removeprefix("torch.")
        array: Array = (own.float() if dtype.startswith(("bfloat", "float8")) else own).numpy()
    except (AttributeError, RuntimeError, TypeError) as error:
        why = str(error).partition("\n")[0]
        raise AttnError(f"{place}: {show_value(name)}: no plain array of numbers: {why}") from None
    if array.dtype.name not in DTYPES:
        raise AttnError(f"{place}: {show_value(name)}: type {dtype}: only numbers, true and false are read")
    return np.ascontiguousarray(array)
