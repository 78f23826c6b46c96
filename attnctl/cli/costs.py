"""What runs would cost, as a table or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from attnctl.cli.options import Format, OutputOptions, ViewOptions
from attnctl.cli.output import chosen_format, make_console, wanted_steps
from attnctl.cost import Cost
from attnctl.errors import AttnError
from attnctl.memory import size_text
from attnctl.prepare.prepared import Prepared
from attnctl.trace import require_steps


def print_costs(runs: Sequence[Prepared], output: OutputOptions, view: ViewOptions) -> None:
    """Print what each step of each run would take; nothing is computed."""
    wanted = chosen_format(output)
    if output.output or wanted not in {Format.table, Format.json}:
        raise AttnError("--cost: prints a table, or JSON with --json; leave out -o and other formats")
    keep = wanted_steps(view)
    for run in runs:
        require_steps(keep or (), [step.name for step in run.derivation])
        costs = run.costs(keep)
        if wanted is Format.json:
            sys.stdout.write(json.dumps({"steps": {each.name: as_data(each) for each in costs}}) + "\n")
        else:
            print_table(costs)


def as_data(each: Cost) -> dict[str, object]:
    """One step's cost as JSON data."""
    return {
        "shape": list(each.shape),
        "bytes": each.bytes,
        "flops": each.flops,
        "grows": each.growth,
        "kept": each.kept,
    }


def print_table(costs: Sequence[Cost]) -> None:
    """A row a step, and what is kept in all."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.ROUNDED, show_footer=True)
    kept = sum(each.bytes for each in costs if each.kept)
    table.add_column("step", footer="kept, and all operations")
    table.add_column("shape")
    table.add_column("grows with")
    table.add_column("bytes", justify="right", footer=size_text(kept))
    table.add_column("FLOPs", justify="right", footer=f"{sum(each.flops for each in costs):,}")
    for each in costs:
        size = size_text(each.bytes) if each.kept else "not kept"
        table.add_row(each.name, " × ".join(map(str, each.shape)), each.growth, size, f"{each.flops:,}")
    make_console().print(table)
