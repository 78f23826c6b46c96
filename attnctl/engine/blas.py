"""The threads of BLAS: one while ours run, and as the caller had them afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def alone() -> Iterator[bool]:
    """BLAS with one thread, and whether it is so: tiles on every core are then ours to start.

    The command line asks for one from the start. In a library the caller's setting stands, and
    threadpoolctl, where it is installed, changes it for this long.
    """
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        yield True
        return
    try:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # no stubs
    except ImportError:
        yield False
        return
    with threadpool_limits(limits=1, user_api="blas"):
        yield True
