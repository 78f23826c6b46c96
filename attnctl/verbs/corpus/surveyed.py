"""A survey that is kept in a file, so that each of many shards reads its own bytes alone.

It has of each block of a corpus how many bytes and lines it has, and their hash. Where they begin follows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnctl.base.errors import AttnError
from attnctl.base.files import announce_output, open_input, refuse_os_errors
from attnctl.store.elsewhere import is_address, open_address
from attnctl.store.files import encode_json, json_text, open_output
from attnctl.store.json_file import header_of
from attnctl.verbs.corpus import (
    LEAST_BYTES,
    MOST_BYTES,
    CorpusBlock,
    CorpusSurvey,
    is_plain,
    refuse_unreadable,
    survey_blocks,
)

SCHEMA = "attnctl/corpus-survey/1"
LONGEST = 2**28  # bytes of a survey; what is longer is none
BLOCKS = 2**16  # of a file: a shard reads whole blocks, and there may be thousands of shards


def survey_kept(corpus: str, path: str) -> CorpusSurvey:
    """The survey of a corpus that a file holds; where there is none it is made, and kept there.

    Raises AttnError where the file holds something else, or the survey of another corpus.
    """
    data = read_if_there(path)
    if data is not None:
        surveyed = survey_of_bytes(data, path, corpus)
        require_size(surveyed, path, corpus)
        return surveyed

    # Said before the corpus is read: a file of -o in its place would be written over it in the end.
    if not is_address(path):
        announce_output(path, "--survey")
    surveyed = survey_blocks(corpus, block_size(corpus))
    with open_address(path, "wb") if is_address(path) else open_output(path) as stream:
        stream.write(bytes_of(surveyed))
    return surveyed


def block_size(corpus: str) -> int:
    size = size_of(corpus)
    if size is None:
        return MOST_BYTES
    return max(LEAST_BYTES, min(size // BLOCKS, MOST_BYTES))


def size_of(corpus: str) -> int | None:
    """The bytes of a file that lies here; None of what is packed, or elsewhere."""
    if not is_plain(corpus):
        return None
    with refuse_unreadable(corpus):
        return os.path.getsize(corpus)  # noqa: PTH202  (any text)


def read_if_there(path: str) -> bytes | None:
    if is_address(path):
        return read_elsewhere(path)
    if not Path(path).is_file():
        return None
    with refuse_os_errors(path), open_input(path) as stream:
        return stream.read(LONGEST)


def read_elsewhere(path: str) -> bytes | None:
    try:
        with open_address(path, "rb") as stream:
            return stream.read(LONGEST)
    except AttnError:
        return None  # what writes it says what is wrong with the address


def bytes_of(surveyed: CorpusSurvey) -> bytes:
    data = {
        "schema": SCHEMA,
        "sha256": surveyed.sha256,
        "lines": surveyed.lines,
        "blocks": {
            "bytes": [block.length for block in surveyed.blocks],
            "lines": [block.lines for block in surveyed.blocks],
            "sha256": [block.sha256 for block in surveyed.blocks],
        },
    }
    return encode_json(f"{json_text(data)}\n")


def survey_of_bytes(data: bytes, path: str, corpus: str) -> CorpusSurvey:
    """Read back what `bytes_of` wrote. Raises AttnError for anything else."""
    is_none = f"{path}: not a survey of a corpus; remove it, or name another file, and one is made"
    header = header_of(data, path)
    if header.get("schema") != SCHEMA:
        raise AttnError(is_none)
    try:
        surveyed = survey_from(header, corpus)
        is_same = (
            bytes_of(surveyed) == data and sum(block.lines for block in surveyed.blocks) == surveyed.lines
        )
    except (LookupError, TypeError, ValueError):
        raise AttnError(is_none) from None
    if not is_same:
        raise AttnError(is_none)
    return surveyed


def survey_from(data: Mapping[str, Any], corpus: str) -> CorpusSurvey:
    columns = data["blocks"]
    blocks = []
    offset = first = 0
    for length, lines, digest in zip(columns["bytes"], columns["lines"], columns["sha256"], strict=True):
        blocks.append(CorpusBlock(corpus, offset, length, first=first, lines=lines, sha256=digest))
        offset += length
        first += lines
    return CorpusSurvey(data["sha256"], data["lines"], blocks)


def require_size(surveyed: CorpusSurvey, path: str, corpus: str) -> None:
    """Refuse the survey of a corpus of another size; other bytes are found where they are read."""
    size = size_of(corpus)
    total = sum(block.length for block in surveyed.blocks)
    if size is not None and total != size:
        raise AttnError(
            f"{path}: the survey of a corpus of {total:,} bytes, and {corpus} has {size:,}; "
            "remove it, and one is made"
        )
