"""Chunks of keys: so many, or ranges; and the setting that asks for them. NumPy is not imported."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from attnctl.base.setting import Flag, Setting
from attnctl.base.values import BadValueError, Json, Plain, Reader, whole

Chunks = int | tuple[tuple[int, int], ...]
"""So many, as equal as can be, the longer ones first; or the range of keys of each."""

COUNT, KEY = whole(1, 2**16), whole(0)


def spans(chunks: Chunks, keys: int) -> tuple[tuple[int, int], ...]:
    """The first key of each chunk and the one after its last: (0, 2), (2, 3) of 2 chunks of 3 keys."""
    if not isinstance(chunks, int):
        return chunks
    least, longer = divmod(keys, chunks)
    ends = list(accumulate(least + (at < longer) for at in range(chunks)))
    return tuple(zip([0, *ends], ends, strict=False))


def where_broken(chunks: Chunks) -> str:
    """The first range that does not go on where the one before it ended; nothing where all do."""
    last = 0
    for each in () if isinstance(chunks, int) else chunks:
        if len(each) != 2 or each[0] != last or each[1] <= last:
            return f"{':'.join(map(str, each))} does not go on from key {last}"
        last = each[1]
    return ""


def read_chunks(value: Any) -> Chunks:
    """A number of chunks; or ranges, one behind the other: 0:64,64:128 or [[0, 64], [64, 128]]."""
    if isinstance(value, str) and ":" in value:
        value = [[Plain(key.strip()) for key in each.split(":")] for each in value.split(",")]
    if not isinstance(value, list):
        return int(COUNT(value))
    if not value or not all(isinstance(each, list) and len(each) == 2 for each in value):
        raise BadValueError("expected ranges of keys; write them like 0:64,64:128")
    chunks = tuple((KEY(start), KEY(stop)) for start, stop in value)
    if broken := where_broken(chunks):
        raise BadValueError(f"{broken}; write ranges one behind the other, like 0:64,64:128")
    return chunks


PAIR: Json = {"type": "array", "items": KEY.schema, "minItems": 2, "maxItems": 2}
CHUNKS = Setting(
    "chunks",
    Reader(
        read_chunks,
        {"anyOf": [COUNT.schema, {"type": "string"}, {"type": "array", "items": PAIR, "minItems": 1}]},
        "N|0:64,64:128",
    ),
    "Attention over chunks of keys, merged by log-sum-exp: so many, or ranges like 0:64,64:128.",
    2,
    Flag("--chunks"),
)
