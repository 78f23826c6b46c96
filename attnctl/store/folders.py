"""The folders in which attnctl keeps files of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def data_folder(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """The folder where this system keeps a user's data."""
    return own_folder("XDG_DATA_HOME", "share", environ, platform)


def state_folder(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """The folder where this system keeps what a program did last."""
    return own_folder("XDG_STATE_HOME", "state", environ, platform)


def own_folder(variable: str, usual: str, environ: Mapping[str, str], platform: str) -> Path:
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or Path("~").expanduser())
    given = environ.get(variable, "")
    if given and Path(given).is_absolute():
        base = Path(given)
    elif platform == "win32":
        base = Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        base = home / ".local" / usual
    return base / "attnctl"
