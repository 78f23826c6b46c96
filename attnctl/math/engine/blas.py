"""The threads of BLAS: one while tiles run on every core, and as the caller had them afterwards."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class SingleThread:
    """BLAS held to one thread from the first user to the last, who gives the caller's setting back.

    Users overlap where several threads attend at once: if each restored what it found, the last
    one would restore the one thread of another.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.limits: Any = None

    def __enter__(self) -> None:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # no stubs

        with self.lock:
            if not self.users:
                self.limits = threadpool_limits(limits=1, user_api="blas")
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.limits.restore_original_limits()


single_thread = SingleThread()


@contextmanager
def alone() -> Iterator[bool]:
    """Hold BLAS to one thread; yields whether it is held, so that tiles may run on every core.

    The command line asks for one thread from the start. In a library the caller's setting stands,
    and threadpoolctl, where it is installed, changes it for this long.
    """
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        yield True
        return
    try:
        import threadpoolctl  # noqa: F401  whether it is there at all
    except ImportError:
        yield False
        return
    with single_thread:
        yield True
