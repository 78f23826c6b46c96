"""attnctl show: a dump, rendered again."""

from __future__ import annotations

from typing import Annotated

import typer

from attnctl.cli.options import OutputOptions, TraceOption, ViewOptions, command, picked

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@command(
    app,
    "attnctl show dump.json",
    "attnctl show dump.npz --step attention_weights --head 0-3 --precision 2",
    "attnctl show all.jsonl --trace 2 --format csv",
)
def show(
    *,
    dump: Annotated[str, typer.Argument(help="A dump (.json .jsonl .npz .safetensors), or - for stdin.")],
    trace: TraceOption = None,
    view: ViewOptions,
    output: OutputOptions,
) -> None:
    """Render a dump again, whole or in part: the same tables as the run gave."""
    from attnctl.cli.output import emit
    from attnctl.cli.progress import progress
    from attnctl.store import read

    with progress("reading"):
        traces = read(picked(dump, trace))
    emit(traces, output, view, inputs=[dump])
