"""The cost of runs, as a table or JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from attnctl.base.errors import AttnError
from attnctl.base.trace import require_steps
from attnctl.cli.options import STDOUT, OutputOptions, ViewOptions
from attnctl.cli.output import chosen_format, wanted_steps
from attnctl.inputs.plan.prepared import Prepared
from attnctl.math.engine.cost import Cost, size_text
from attnctl.store.strict_json import print_json


def print_costs(runs: Sequence[Prepared], output: OutputOptions, view: ViewOptions) -> None:
    """Print what each step of each run would take; nothing is computed."""
    wanted = chosen_format(output.format, json=output.json, possible=("table", "json"))
    if set(output.output or ()) - {STDOUT} or wanted not in {"table", "json"}:
        raise AttnError("--cost: prints a table, or JSON with --json; leave out -o and other formats")
    if view.story:
        raise AttnError("--cost: nothing is computed that could be told; leave out --story")
    keep = wanted_steps(view.step)
    for run in runs:
        require_steps(keep or (), [step.name for step in run.derivation])
        costs = run.costs(keep)
        if wanted == "json":
            print_json({"steps": {each.name: as_data(each) for each in costs}})
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
    from attnctl.drawing.screen.listing import Listing
    from attnctl.drawing.screen.output import output_for, print_lines, screen_of

    output = output_for(sys.stdout, os.environ)
    rows = [
        [
            (each.name, "name"),
            (" × ".join(map(str, each.shape)), ""),
            (each.growth, "aside"),
            (size_text(each.bytes) if each.kept else "not kept", ""),
            (f"{each.flops:,}", ""),
        ]
        for each in costs
    ]
    kept = size_text(sum(each.bytes for each in costs if each.kept))
    rows.append(
        [("in all", ""), ("", ""), ("", ""), (kept, ""), (f"{sum(each.flops for each in costs):,}", "")]
    )
    titles = [["step", "shape", "grows with", "bytes", "FLOPs"]]
    listing = Listing(screen_of(output), titles, rows, frozenset({0, 1, 2}))
    print_lines(listing.fit(2).lines(), output)
