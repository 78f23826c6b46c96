"""A seal: it tells the sheet that a teacher made from one that only says so of itself."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.files import note_input, open_own
from attnctl.base.trace import Trace
from attnctl.math import Array
from attnctl.store.folders import data_folder
from attnctl.store.strict_json import json_text
from attnctl.verbs.exercise.make import Exercise

SEALED = ("config", "sentence", "student", "blank", "decimals", "rounded")
"""What a sheet says of itself that decides how it is graded."""

KEY = "exercise.key"
"""The file of the key, in the user's data folder."""

KEY_BYTES = 32
SEAL_DIGITS = 32


def seal_exercise(exercise: Exercise, key: bytes) -> Exercise:
    trace = exercise.trace
    header = {**trace.header, "seal": seal(trace.header, given(trace, exercise.blank), key)}
    return replace(exercise, trace=Trace(trace.steps, trace.arrays, header))


def is_sealed(trace: Trace, key: bytes | None) -> bool:
    """True for a sheet that holds the seal of this key, and of which nothing but blanks was changed."""
    told, blank = trace.header.get("seal"), trace.header.get("blank")
    if key is None or not isinstance(told, str) or not isinstance(blank, list):
        return False
    return hmac.compare_digest(told.encode(), seal(trace.header, given(trace, blank), key).encode())


def given(trace: Trace, blank: tuple[str, ...] | list[Any]) -> dict[str, Array]:
    """The steps that are not to be filled in."""
    return {name: np.asarray(trace[name]) for name in sorted(trace) if name not in blank}


def seal(header: Mapping[str, Any], numbers: Mapping[str, Array], key: bytes) -> str:
    """The seal of a sheet: HMAC-SHA256 of what decides how it is graded, and of the numbers it gives."""
    said = [header.get(name) for name in SEALED]
    text = json_text([said, [[name, str(array.tolist())] for name, array in numbers.items()]])
    return hmac.new(key, text.encode("utf-8", "backslashreplace"), hashlib.sha256).hexdigest()[:SEAL_DIGITS]


def own_key() -> bytes | None:
    """The key of this user, None where there is none yet. Raises AttnError for a broken file."""
    path = data_folder() / KEY
    try:
        with open_own(path) as stream:
            text = stream.read(2 * KEY_BYTES + 2)
        note_input(path)
        key = bytes.fromhex(text.decode("ascii"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AttnError(f"{path}: {error.strerror or error}") from None
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise AttnError(f"{path}: no key; remove it, and sheets get the seal of a new one")
    return key


def own_or_new_key() -> bytes:
    """The key of this user, drawn where there is none yet. Raises AttnError where it cannot be kept."""
    key, path = own_key(), data_folder() / KEY
    while key is None:
        try:
            make_key(path)
        except OSError as error:
            raise AttnError(f"{path}: cannot be written: {error.strerror or error}") from None
        key = own_key()
    return key


def make_key(path: Path) -> None:
    """Write a new key, for this user alone; one that another process has just written stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{secrets.token_hex(8)}.tmp")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as stream:
            stream.write(f"{secrets.token_hex(KEY_BYTES)}\n")
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
