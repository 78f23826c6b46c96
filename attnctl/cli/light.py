"""A light start: OpenSSL is left where it is, a tenth of the memory of a run and 3 ms.

`numpy.random` takes one function of `secrets`, to seed generators nobody gave a seed, and the
rest of that module loads OpenSSL for its digests. attnctl gives every generator a seed.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class Secrets(ModuleType):
    """`secrets` with the one function; whoever asks for another gets the module itself."""

    @staticmethod
    def randbits(k: int) -> int:
        """A whole number of k random bits, from the system, as `secrets.randbits` makes it."""
        return int.from_bytes(os.urandom((k + 7) // 8), "big") >> (-k % 8)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get("secrets") is self:
            del sys.modules["secrets"]
        return getattr(import_module("secrets"), name)


def start_lightly() -> None:
    """Let `import secrets` find the light one, unless somebody has the module already."""
    sys.modules.setdefault("secrets", Secrets("secrets"))
