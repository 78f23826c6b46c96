"""Files elsewhere, by their address: s3://…, gs://…, hdfs://…, memory://…, what fsspec opens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import BinaryIO, Literal

from attnctl.base.errors import AttnError


def is_address(path: str) -> bool:
    return "://" in path


def require_fsspec(path: str) -> None:
    if find_spec("fsspec") is None:
        raise AttnError(f"{path}: fsspec opens it, and is not installed; pip install 'attnctl[remote]'")


@contextmanager
def open_address(path: str, mode: Literal["rb", "wb"]) -> Iterator[BinaryIO]:
    """A file elsewhere as bytes. Raises AttnError where it cannot be opened, or nothing opens such."""
    require_fsspec(path)
    import fsspec

    try:
        with fsspec.open(path, mode) as stream:
            yield stream
    except (OSError, ValueError, ImportError) as error:
        raise AttnError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def expand_address(path: str) -> list[str]:
    """The addresses that one with a * in it stands for, in order; itself where it stands for none."""
    if not is_address(path) or "*" not in path:
        return [path]
    require_fsspec(path)
    from fsspec.core import url_to_fs

    try:
        files, pattern = url_to_fs(path)
        found = [str(files.unstrip_protocol(name)) for name in sorted(files.glob(pattern))]
    except (OSError, ValueError, ImportError) as error:
        raise AttnError(f"{path}: {error}") from None
    if not found:
        raise AttnError(f"{path}: no such file there")
    return found
