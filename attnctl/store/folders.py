"""The folders in which attnctl keeps files of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def data_folder(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """The folder where this system keeps a user's data."""
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or Path("~").expanduser())
    given = environ.get("XDG_DATA_HOME", "")
    if given and Path(given).is_absolute():
        base = Path(given)
    elif platform == "win32":
        base = Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        base = home / ".local" / "share"
    return base / "attnctl"
