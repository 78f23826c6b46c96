"""Reading and writing dumps."""

from attnctl.store.dump_json import write_json, write_jsonl
from attnctl.store.files import write, write_all, write_text
from attnctl.store.long_csv import write_csv
from attnctl.store.source import arrays, read, read_one

__all__ = [
    "arrays",
    "read",
    "read_one",
    "write",
    "write_all",
    "write_csv",
    "write_json",
    "write_jsonl",
    "write_text",
]
