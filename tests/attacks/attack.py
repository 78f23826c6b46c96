"""What an attack is: a command line, the files it finds, and how it may end."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

OK, REFUSED = frozenset({0}), frozenset({2})


class Attack(NamedTuple):
    """One command line, run in a folder of its own."""

    tries: str
    args: tuple[str | bytes, ...]
    codes: frozenset[int] = REFUSED
    files: Mapping[str, Callable[[], bytes]] = {}
    stdin: bytes = b""
    makes: tuple[str, ...] = ()
    """Files that may appear; no other may, and none that was there may change."""
    says: str = ""
    """What stdout or stderr must hold."""
