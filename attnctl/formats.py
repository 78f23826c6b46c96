"""Every format that traces and findings are written in: a line here for each, and a file that writes it.

The command line takes its choices of --format, its suffixes for -o and their help from these tables.
Formats are read by what is in them, not by this table: `attnctl.store.source`. A picture is made of
`Plot`s (`drawing/pictures/`), which `pictures/draw.py` makes SVG of and `screen/heat.py` characters;
what is drawn of a trace stands in `drawing/show/picture.py`, of others in the `picture.py` of their room.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnctl.store import files
from attnctl.store.files import (
    Format,
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

if TYPE_CHECKING:
    from attnctl.drawing.show import View
    from attnctl.record import Trace

__all__ = ["FINDINGS", "FORMATS", "Format", "format_for", "is_special", "json_text", "print_bytes"]
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


def pictures_by(module: str) -> tuple[Format, Format]:
    resvg = "attnctl.drawing.pictures.png:require_resvg"
    svg = Format("svg", ".svg", f"{module}:write_svg", text=True, picture=True)
    return svg, Format("png", ".png", f"{module}:write_png", binary=True, picture=True, needs=resvg)


def workbook(module: str) -> Format:
    openpyxl = "attnctl.drawing.show.workbook.book:require_openpyxl"
    return Format("xlsx", ".xlsx", f"{module}:write_xlsx", binary=True, single=True, needs=openpyxl)


FORMATS = (
    Format("json", ".json", "attnctl.store.json_file:write_json"),
    Format("jsonl", ".jsonl", "attnctl.store.json_file:write_jsonl"),
    Format("npz", ".npz", "attnctl.store.npz:write_npz", binary=True, single=True),
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

FOUND_JSON = Format("json", ".json", "attnctl.store.files:write_found")

FINDINGS = {
    "check": (
        FOUND_JSON,
        Format("sarif", ".sarif", "attnctl.verbs.check.sarif:write_sarif"),
        Format("html", ".html", "attnctl.pages.found:write_check", binary=True),
    ),
    "conform": (FOUND_JSON, Format("html", ".html", "attnctl.pages.found:write_conform", binary=True)),
    "diff": (
        FOUND_JSON,
        *pictures_by("attnctl.verbs.diff.picture"),
        Format("html", ".html", "attnctl.pages.found:write_diff", binary=True),
    ),
    "effect": (
        FOUND_JSON,
        Format("csv", ".csv", "attnctl.verbs.effect.view:write_csv", text=True),
        *pictures_by("attnctl.verbs.effect.view"),
        Format("html", ".html", "attnctl.pages.found:write_effect", binary=True),
    ),
    "exercise grade": (
        Format("json", ".json", "attnctl.verbs.exercise.gradebook:write_json"),
        Format("csv", ".csv", "attnctl.verbs.exercise.gradebook:write_csv", text=True),
        Format("html", ".html", "attnctl.pages.tables:write_grades", binary=True),
    ),
    "exercise make": (
        Format("json", ".json", "attnctl.verbs.exercise.sheet:write_json", single=True),
        Format("html", ".html", "attnctl.verbs.exercise.sheet:write_page", binary=True),
        workbook("attnctl.verbs.exercise.workbook"),
        Format("markdown", ".md", "attnctl.verbs.exercise.sheet:write_markdown", text=True),
    ),
    "explain": (
        Format("json", ".json", "attnctl.verbs.explain.view:write_json"),
        Format("html", ".html", "attnctl.pages.found:write_explain", binary=True),
        Format("latex", ".tex", "attnctl.verbs.explain.written:write_latex", text=True),
        Format("typst", ".typ", "attnctl.verbs.explain.written:write_typst", text=True),
        Format("markdown", ".md", "attnctl.verbs.explain.written:write_markdown", text=True),
    ),
    "lens": (FOUND_JSON, *pictures_by("attnctl.verbs.models.next")),
    "model": (FOUND_JSON, Format("html", ".html", "attnctl.pages.tables:write_model", binary=True)),
    "mutants": (FOUND_JSON,),
    "stats": (
        FOUND_JSON,
        Format("csv", ".csv", "attnctl.verbs.stats.view:write_csv", text=True),
        *pictures_by("attnctl.verbs.stats.picture"),
        Format("html", ".html", "attnctl.pages.tables:write_stats", binary=True),
    ),
}
"""For each verb that finds something the formats of its findings; a writer takes a list of them:

`verbs.check.report.Report`, `verbs.conform.report.Conformance`, `verbs.diff.Difference` (one for each
pair), `verbs.effect.Effects`, `Exercise` and `HandIn` of `verbs.exercise` (one for each student),
`verbs.explain.view.Question`,
`verbs.models.about.About`, `verbs.models.next.Lens`, `verbs.mutants.survey.Survey`,
`verbs.stats.StatsReport`.
"""


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
    next(fmt for fmt in FINDINGS[verb] if fmt.name == name).write(found, sys.stdout)


def write_found(verb: str, found: Sequence[Any], paths: Sequence[str | Path]) -> None:
    """Write what a verb found to every file; a suffix that does not fit is refused before that."""
    files.write_all(found, paths, FINDINGS[verb])
