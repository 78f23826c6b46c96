"""Folders of arrays as .npy, or as .pt that torch writes: the names of files say which call each is of.

sglang's dumper writes a tensor a file (step=0___rank=0___dump_index=7___name=q___layer_id=3.pt), its hooks
all of a pass to one (Pass00000.pt); people number theirs (q_0.npy, layer3_q.npy).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.files import open_found, refuse_os_errors
from attnctl.base.format import function
from attnctl.base.namedtuple import NamedTuple
from attnctl.math import Array, Shape
from attnctl.store import DUMPS
from attnctl.store.header import Arrays, Contents, Stored
from attnctl.store.raw import File, read_npy

MOST_FILES = 10_000
LONE = {".npy", ".pt"}
READERS = {suffix: kind.reader for kind in DUMPS if kind.name in LONE for suffix in kind.suffixes}

NUMBERED = re.compile(
    r"(?:call|layer|pass|step)?_?(?P<first>\d+)[._-]+(?P<after>.+)|(?P<before>.+?)[._-]+(?P<last>\d+)"
)
TAG, VALUE = "___", "value"
"""What parts a name of sglang's, and the tensor in its file, beside what is said of it."""

OF_TENSOR = {"name", "dump_index", "recompute_status"}
"""What such a name says of the tensor alone; the rest is that of its call."""


def read_folder(folder: str) -> list[Contents]:
    """The arrays of a folder, call by call; what its name gives to no call is in every one.

    Other files, and folders in it, are passed over. Raises AttnError where nothing is left, for too many
    files, and for one that cannot be read.
    """
    paths = sorted(list_files(folder), key=in_order)
    numbers = Counter(split_number(Path(path).stem).number for path in paths)

    seen: Counter[tuple[str, str]] = Counter()
    calls: dict[tuple[str, int], dict[str, Array | Stored]] = {}
    for path in paths:
        stem = Path(path).stem
        arrays = read_file(path)
        call, name = place_array(stem, numbers)
        if stem in arrays:
            arrays = {name: arrays[stem]}
        elif TAG in stem and VALUE in arrays:
            arrays = {name: arrays[VALUE]}
        else:  # all of a pass
            call = stem

        seen[call, name] += 1  # sglang may dump one name of a call again
        calls.setdefault((call, seen[call, name]), {}).update(arrays)

    everywhere = calls.pop(("", 1), {})
    in_turn = sorted(calls, key=lambda key: (in_order(key[0]), key[1]))
    members = [calls[key] for key in in_turn] or [{}]
    return [Contents(None, everywhere | of_call, folder) for of_call in members]


def list_files(folder: str) -> list[str]:
    """The paths of the files in a folder that hold arrays. Raises AttnError for none, and for too many."""
    paths: list[str] = []
    with refuse_os_errors(folder), os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number == MOST_FILES:
                raise AttnError(f"{folder}: more than {MOST_FILES:,} files; give a folder with fewer")
            if Path(entry.name).suffix.lower() in READERS and not Path(entry.path).is_dir():
                paths.append(entry.path)
    if not paths:
        raise AttnError(f"{folder}: a folder without a file of arrays ({', '.join(READERS)}); give a dump")
    return paths


def in_order(text: str) -> list[str | int]:
    """A key that sorts numbers in names by their size."""
    parts = re.split(r"(\d+)", text)  # every second one is a number
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


class NumberedName(NamedTuple):
    """The number that a name begins or ends with, if any, and the name without it."""

    number: str
    name: str


def split_number(stem: str) -> NumberedName:
    """("0", "q") of q_0, 0_q and layer0.q."""
    numbered = NUMBERED.fullmatch(stem)
    if numbered is None:
        return NumberedName("", stem)
    number = numbered["first"] or numbered["last"]
    return NumberedName(number, numbered["after"] or numbered["before"])


def place_array(stem: str, numbers: Counter[str]) -> tuple[str, str]:
    """The call of an array, and its name: by sglang's tags, or by a number that other names have, too."""
    if TAG in stem:
        tags = dict(part.partition("=")[::2] for part in stem.split(TAG))
        call = " ".join(f"{tag}={value}" for tag, value in tags.items() if tag not in OF_TENSOR)
        return call, tags.get("name", stem).replace("grad__", "grad_", 1)

    number, name = split_number(stem)
    if number and numbers[number] > 1:
        return number, name
    return "", stem


def read_file(path: str) -> dict[str, Array | Stored]:
    """The arrays of a file, which is closed: one that is still in it is read from it opened again."""
    reader = function(READERS[Path(path).suffix.lower()])
    with refuse_os_errors(path), open_found(path) as stream:
        contents: Contents = reader(File(stream.fileno(), path))

    def load(name: str, shape: Shape, dtype: np.dtype[Any]) -> Array:
        with open_found(path) as stream:
            again = read_npy(File(stream.fileno(), path)).members
        if (again[name].shape, again[name].dtype) != (shape, dtype):
            raise OSError("its shape or type has changed")
        return Arrays(again, path)[name]

    members = dict(contents.members)
    for name, array in contents.members.items():
        if isinstance(array, Stored):
            members[name] = replace(array, load=partial(load, name, array.shape, array.dtype))
    return members
