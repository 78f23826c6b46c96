"""Reading and writing dumps, and the formats that they are read from: a line here and a file for each."""

from __future__ import annotations

from collections.abc import Callable

from attnctl.base.namedtuple import NamedTuple


class DumpFormat(NamedTuple):
    name: str  # as messages list it
    suffixes: tuple[str, ...]
    starts: Callable[[bytes], bool]  # true of the first bytes of such a file, whatever its suffix
    reader: str
    """``module:function``, imported when it is first used; `header.Contents` from a `raw.File`."""
    text: bool = False  # its reader takes all bytes and the place, and gives several


TORCH_NUMBER = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The pickled number that torch's files began with before 1.6."""


def is_safetensors(head: bytes) -> bool:
    """A length of eight bytes, and then JSON."""
    return head[8:9] == b"{" and b"\0" in head[:8]


def is_json(head: bytes) -> bool:
    return not is_safetensors(head) and head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[", b"")


def is_torch(head: bytes) -> bool:
    """An archive that begins with the pickle of what it holds, or what torch wrote before 1.6."""
    name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
    return (head.startswith(b"PK") and name.endswith(b"/data.pkl")) or head.startswith(TORCH_NUMBER)


DUMPS = (
    DumpFormat("JSON", (".json", ".jsonl"), is_json, "attnctl.store.json_file:read_json", text=True),
    DumpFormat(".pt", (".pt", ".pth"), is_torch, "attnctl.store.torch_file:read_torch"),
    DumpFormat(".npz", (".npz",), lambda head: head.startswith(b"PK"), "attnctl.store.npz:read_npz"),
    DumpFormat(".npy", (".npy",), lambda head: head.startswith(b"\x93NUMPY"), "attnctl.store.raw:read_npy"),
    DumpFormat(
        "safetensors", (".safetensors",), is_safetensors, "attnctl.store.safetensors:read_safetensors"
    ),
    DumpFormat(
        "a page of attnctl",
        (".html",),
        lambda head: head.startswith(b"<!doctype html>"),
        "attnctl.store.page:read_page",
        text=True,
    ),
)
"""A line for each format that dumps are read from; suffixes, completion and messages follow."""
