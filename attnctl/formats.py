"""Every format that traces are written in: a line here for each, and a file that writes it.

The formats of findings are said by their verbs (`verb.py` in each room). The command line takes its
choices of --format, its suffixes for -o and their help from these. Formats are read by what is in them, not
by this table: `attnctl.store.source`. A picture is made of `Plot`s (`drawing/pictures/`), which
`pictures/draw.py` makes SVG of and `screen/heat.py` characters; what is drawn of a trace stands in
`drawing/show/picture.py`, of others in the `picture.py` of their room.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnctl.base.format import Format
from attnctl.base.plugins import added
from attnctl.base.rooms import formats_of
from attnctl.store import files
from attnctl.store.files import (
    format_for,
    is_special,
    json_text,
    print_bytes,
    print_findings,
    print_json,
    print_text,
    temporary_folder,
    unwritable,
    write_text,
)
from attnctl.store.formats import pictures_by, workbook

if TYPE_CHECKING:
    from attnctl.drawing.show import View
    from attnctl.record import Trace

__all__ = ["FORMATS", "Format", "format_for", "is_special", "json_text", "print_bytes"]
__all__ += [
    "print_findings",
    "print_found",
    "print_json",
    "print_text",
    "temporary_folder",
    "unwritable",
    "write",
    "write_all",
    "write_found",
    "write_text",
]


OWN_FORMATS = (
    Format("json", ".json", "attnctl.store.json_file:write_json"),
    Format("jsonl", ".jsonl", "attnctl.store.json_file:write_jsonl"),
    Format("npz", ".npz", "attnctl.store.npz:write_traces", binary=True),
    Format(
        "safetensors",
        ".safetensors",
        "attnctl.store.safetensors:write_safetensors",
        binary=True,
        single=True,
    ),
    Format("csv", ".csv", "attnctl.store.long_csv:write_csv", text=True),
    workbook("attnctl.drawing.show.workbook.book"),
    Format("markdown", ".md", "attnctl.drawing.show.markdown:write_markdown", text=True),
    *pictures_by("attnctl.drawing.show.picture"),
    Format("html", ".html", "attnctl.pages.traces:write_traces", binary=True, picture=True),
)
FORMATS = (*OWN_FORMATS, *added("formats", Format, taken=[fmt.name for fmt in OWN_FORMATS]).values())

NOTATIONS = (
    Format("latex", ".tex", "attnctl.drawing.show.written.document:write_latex", text=True, picture=True),
    Format("typst", ".typ", "attnctl.drawing.show.written.document:write_typst", text=True, picture=True),
    Format(
        "markdown", ".md", "attnctl.drawing.show.written.document:write_markdown", text=True, picture=True
    ),
    *(
        Format(
            name,
            ".py",
            f"attnctl.drawing.show.program.text:write_{name}",
            text=True,
            single=True,
            picture=True,
            takes_path=True,
        )
        for name in ("numpy", "torch", "jax", "einsum")
    ),
)
"""What --as names: the steps that are shown, in the languages that people write mathematics in, or the run
as a program.
"""

WRITABLE = (*FORMATS, *(each for each in NOTATIONS if each.name in {"latex", "typst", "numpy"}))
"""What -o takes: of several with one suffix the first, unless --as names another."""


def write(traces: Sequence[Trace], path: str | Path) -> None:
    """Write traces to a file in the format that its suffix names.

    A regular file is written beside its target and moved into place, so that whatever happens
    the old file or the new one is there, whole. A device or a pipe is written to directly, and
    as JSON where it has no suffix.
    """
    write_all(traces, [path])


def write_all(
    traces: Sequence[Trace],
    paths: Sequence[str | Path],
    view: View | None = None,
    notation: str | None = None,
) -> None:
    """Write traces to every file, pictures as `view` has them; an unfit suffix is refused before any.

    A `notation` is what its suffix then means.
    """
    files.write_all(traces, paths, formats_with(notation), view)


def formats_with(notation: str | None) -> Sequence[Format]:
    """The formats of files, those of a notation that is asked for first."""
    return (*(fmt for fmt in NOTATIONS if fmt.name == notation), *WRITABLE)


def is_picture(path: str | Path) -> bool:
    return any(fmt.picture and fmt.suffix == Path(path).suffix for fmt in FORMATS)


def is_program(path: str | Path) -> bool:
    """True for a file that is written as a program, which is made of every step."""
    return any(fmt.takes_path and fmt.suffix == Path(path).suffix for fmt in NOTATIONS)


def is_notation(path: str | Path, notation: str | None) -> bool:
    """True for a file that is written as --as says, or in a notation by its suffix alone."""
    suffix = Path(path).suffix
    chosen = next((fmt for fmt in formats_with(notation) if fmt.suffix == suffix), None)
    return chosen in NOTATIONS


def print_found(verb: str, found: Sequence[Any], name: str) -> None:
    """Write what a verb found to stdout, in the format of this name."""
    next(fmt for fmt in formats_of(verb) if fmt.name == name).write(found, sys.stdout)


def write_found(verb: str, found: Sequence[Any], paths: Sequence[str | Path]) -> None:
    """Write what a verb found to every file; a suffix that does not fit is refused before that."""
    files.write_all(found, paths, formats_of(verb))
