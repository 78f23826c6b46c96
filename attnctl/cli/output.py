"""Traces to where they were asked for: a table, a format on stdout, files by suffix."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnctl.cli.options import OutputOptions, ViewOptions
from attnctl.errors import AttnError, raise_all
from attnctl.formats import FORMATS, write_all
from attnctl.names import WEIGHTS, result_in
from attnctl.trace import Trace

if TYPE_CHECKING:
    from attnctl.verbs.show.tables import View


def emit(
    traces: Sequence[Trace],
    output: OutputOptions,
    view: ViewOptions,
    *,
    inputs: Sequence[str | None] = (),
) -> None:
    """Write traces as asked; `inputs` are files that were read, which are not overwritten."""
    wanted = chosen_format(output)
    raise_all(unused(output, view, wanted))
    keep_inputs(output.output or (), inputs)
    kept = [selected(trace, view) for trace in traces]
    warn(kept)
    if output.output:
        from attnctl.cli.progress import progress

        with progress("writing"):
            write_all(kept, output.output)
    else:
        print_traces(kept, wanted, view)


def print_traces(traces: Sequence[Trace], wanted: str, view: ViewOptions) -> None:
    """Write traces on stdout in this format."""
    if wanted == "table":
        from attnctl.screen.output import output_for
        from attnctl.verbs.show.tables import show_all

        show_all(traces, output_for(sys.stdout, os.environ), table_view(view))
    else:
        next(each for each in FORMATS if each.name == wanted).write(traces, sys.stdout)


def keep_inputs(outputs: Sequence[str], inputs: Sequence[str | None]) -> None:
    """Raise AttnError where a file that is read would be overwritten."""

    def same(output: str, path: str | None) -> bool:
        try:
            return path is not None and Path(output).is_file() and Path(output).samefile(path)
        except OSError:
            return False

    raise_all(
        f"-o {output}: it is what this command reads; give another name"
        for output in outputs
        if any(same(output, path) for path in inputs)
    )


def chosen_format(output: OutputOptions) -> str:
    """The format for stdout: --json beats --format beats the environment."""
    return "json" if output.json else output.format or "table"


def unused(output: OutputOptions, view: ViewOptions, wanted: str) -> list[str]:
    """View options that this output would ignore."""
    if not output.output and wanted == "table":
        return []
    named = {"--head": view.head, "--precision": view.precision, "--full": view.full or None}
    return [
        f"{flag}: only tables have that; a dump keeps every head and digit"
        for flag, value in named.items()
        if value is not None
    ]


def selected(trace: Trace, view: ViewOptions) -> Trace:
    """The steps that were asked for."""
    wanted = wanted_steps(view.step)
    if wanted is not None:
        return trace.select(wanted)
    if view.brief:
        return trace.select([WEIGHTS, *result_in(trace)])
    return trace


def wanted_steps(step: str | None) -> list[str] | None:
    """The steps that --step names, None where it is not given."""
    if step is None:
        return None
    names = [name.strip() for name in step.split(",") if name.strip()]
    if not names:
        raise AttnError("--step: no name in it; write steps separated by commas, like scores,output")
    return names


def warn(traces: Sequence[Trace]) -> None:
    """Say on stderr what a person should know before they trust the numbers."""
    from attnctl.cli.program import complain

    for trace in traces:
        for note in trace.header.get("notes", ()):
            complain(f"note: {note}")
        rows = trace.header.get("empty_rows")
        if rows:
            more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
            listed = ", ".join(str(row) for row in rows[:3])
            complain(f"warning: rows that may see nothing get zeros: {listed}{more} (head, query)")
        overflow = trace.header.get("overflow")
        if overflow:
            kind = trace.config.get("dtype", "this type of number")
            complain(f"warning: {overflow.get('step')} grows too large for {kind} at {overflow.get('at')}")


def table_view(view: ViewOptions) -> View:
    """How tables are drawn."""
    from attnctl.verbs.show.tables import View

    precision = View.precision if view.precision is None else view.precision
    return View(heads=view.head, precision=precision, full=view.full)
