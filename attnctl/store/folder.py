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
from attnctl.math import Array, Shape
from attnctl.store import DUMPS
from attnctl.store.files import function
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
    numbers = Counter(split_number(Path(path).stem)[0] for path in paths)
    seen: Counter[tuple[str, str]] = Counter()
    calls: dict[tuple[str, int], dict[str, Array | Stored]] = {}
    for path in paths:
        stem = Path(path).stem
        call, name = place_array(stem, numbers)
        found = read_file(path)
        if stem in found or (TAG in stem and VALUE in found):
            found = {name: found[stem if stem in found else VALUE]}
        else:  # all of a pass
            call = stem
        seen[call, name] += 1  # sglang may dump one name of a call again
        calls.setdefault((call, seen[call, name]), {}).update(found)
    everywhere = calls.pop(("", 1), {})
    own = [calls[call] for call in sorted(calls, key=lambda call: (in_order(call[0]), call[1]))]
    return [Contents(None, everywhere | members, folder) for members in own or [{}]]


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
    return [int(part) if at % 2 else part for at, part in enumerate(re.split(r"(\d+)", text))]


def split_number(stem: str) -> tuple[str, str]:
    """The number that a name begins or ends with, and the name without it: q_0, 0_q, layer0.q."""
    found = NUMBERED.fullmatch(stem)
    parts = found.groupdict() if found else {}
    return parts.get("first") or parts.get("last") or "", parts.get("after") or parts.get("before") or stem


def place_array(stem: str, numbers: Counter[str]) -> tuple[str, str]:
    """The call of an array, and its name: by sglang's tags, or by a number that other names have, too."""
    if TAG in stem:
        tags = dict(part.partition("=")[::2] for part in stem.split(TAG))
        call = " ".join(f"{tag}={value}" for tag, value in tags.items() if tag not in OF_TENSOR)
        return call, tags.get("name", stem).replace("grad__", "grad_", 1)
    number, name = split_number(stem)
    return (number, name) if number and numbers[number] > 1 else ("", stem)


def read_file(path: str) -> dict[str, Array | Stored]:
    """The arrays of a file, which is closed: one that is still in it is read from it opened again."""
    with refuse_os_errors(path), open_found(path) as stream:
        found: Contents = function(READERS[Path(path).suffix.lower()])(File(stream.fileno(), path))

    def load(name: str, shape: Shape, dtype: np.dtype[Any]) -> Array:
        with open_found(path) as stream:
            again = read_npy(File(stream.fileno(), path)).members
        if (again[name].shape, again[name].dtype) != (shape, dtype):
            raise OSError("its shape or type has changed")
        return Arrays(again, path)[name]

    stored = {name: array for name, array in found.members.items() if isinstance(array, Stored)}
    again = {
        name: replace(own, load=partial(load, name, own.shape, own.dtype)) for name, own in stored.items()
    }
    return {**found.members, **again}
