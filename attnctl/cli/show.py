"""attnctl show: a dump, rendered again."""

from __future__ import annotations

from attnctl.base.errors import raise_all
from attnctl.cli.options import Memory, OutputOptions, Trace, ViewOptions, argument, command
from attnctl.cli.program import complain
from attnctl.sources import HELP, open_source
from attnctl.sources.sentence import Arguments


@command(
    "attnctl show dump.json",
    "attnctl show dump.npz --step attention_weights --head 0-3 --precision 2",
    "attnctl show all.jsonl --trace 2 --format csv",
)
def show(
    *,
    source: str = argument(HELP, "SOURCE"),
    trace: Trace = None,
    max_memory: Memory = None,
    view: ViewOptions,
    output: OutputOptions,
) -> None:
    """Render a dump again, whole or in part: the same tables as the run gave.

    The blanks of an exercise are shown as ____.
    """
    from attnctl.cli.output import emit, progress
    from attnctl.verbs.check.exercise import read_to_show

    found = open_source(source, Arguments(trace=trace), lone_word=False)
    raise_all(found.list_unused({"--trace": trace}, {}))
    with progress("reading"):
        traces, blanks = read_to_show(found.path) if found.is_file else (found.traces(), False)
    if blanks:
        complain("____ stands for what is still to be filled in")
    emit(traces, output, view)
