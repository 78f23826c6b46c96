"""attnctl stats: what each head does, in numbers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from attnctl.cli.options import (
    FORMAT_NAMES,
    FORMAT_VARIABLE,
    PRECISION,
    NameOption,
    TraceOption,
    command,
    findings_option,
    option,
    picked,
)
from attnctl.cli.sentences import gathered
from attnctl.errors import AttnError, raise_all
from attnctl.values import words

if TYPE_CHECKING:
    from attnctl.trace import Trace
    from attnctl.verbs.stats import DumpStats, Found

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class StatsOptions(NamedTuple):
    """What to measure, and how to write it."""

    rollout: Annotated[
        bool, option("Take the dumps as layers of one sentence and roll attention out.", "--rollout")
    ] = False
    precision: Annotated[
        int | None, option("Digits after the point, 0 to 17 (2). (Tables.)"), PRECISION
    ] = None
    heat: Annotated[
        bool,
        option(
            "Below the numbers, heat maps of every head; on a terminal that is so for several dumps "
            "anyway. (Tables.)",
            "--heat",
        ),
    ] = False
    format: Annotated[
        str | None,
        option(
            "How to write it on stdout: table, json or csv. "
            f"Left out, what {FORMAT_VARIABLE} says, or table."
        ),
        words(*FORMAT_NAMES),
    ] = None
    json: Annotated[bool, option("Short for --format json.", "--json")] = False


class Output(NamedTuple):
    """Where statistics go: the format of stdout, files, and whether stdout has them at all."""

    wanted: str
    files: list[str]
    printed: bool


ModelOption = Annotated[
    str | None,
    option("Run this trained model on texts: a folder, or the id of one on the hub.", metavar="DIR"),
]
FileOption = Annotated[
    str | None, option("With --model: read texts from FILE, one a line.", metavar="FILE")
]
WRITTEN = ("table", "json", "csv")
"""How statistics are written."""

DUMPS = "Dumps (.json .jsonl .npz .safetensors), or - for stdin."


@command(
    app,
    "attnctl stats dump.json",
    "attnctl stats all.jsonl --trace 'I love AI'",
    "attnctl stats layer-0.npz layer-1.npz --rollout --json",
)
def stats(
    *,
    dump: Annotated[list[str] | None, typer.Argument(help=DUMPS, metavar="DUMP...")] = None,
    how: StatsOptions,
    trace: TraceOption = None,
    name: NameOption = None,
    model: ModelOption = None,
    file: FileOption = None,
    output: Annotated[list[str] | None, findings_option("stats")] = None,
) -> None:
    """Measure each head: how widely it attends, how far, to what, and which head does the same.

    A row is one query's weights over the keys. Every figure is a mean over rows, but for those
    that see nothing (they are counted):

    entropy: H of the row in bits; 0 when one key gets all, log2 n when n keys get the same.
    effective keys: 2^H. distance: |query - key| in tokens, weighted.

    previous, first, self: the share of attention on the token before the query (over rows that
    have one), on the first key, on the query's own token. same token: the share on other places
    with the same word as the query's. In cross-attention distance, previous and self mean nothing
    and are null; same token is then every key with that word.

    nearest: the head whose rows are most alike by the mean Jensen-Shannon divergence in bits (0
    the same, 1 nothing in common).

    Several dumps give a row for each head of each, and one for all together: sums and counts are in
    the JSON, so parts can be merged without losing a digit.

    --model runs a trained model on texts instead of reading dumps: the arguments, or the lines of
    --file. A row is then a head of a layer, over all texts. A battery of random tokens twice in a
    row names induction, duplicate-token, previous-token and sink heads.

    --rollout takes the dumps as layers, first one first, and multiplies (A + I) / 2 through them:
    how much of each token has reached each place (Abnar & Zuidema 2020).
    """
    from attnctl.cli.attend import renames
    from attnctl.cli.output import chosen_format, files_for
    from attnctl.store import read
    from attnctl.verbs.stats import Found, Report, measured, rollout

    wanted = chosen_format(how.format, json=how.json, possible=WRITTEN)
    raise_all(unusable(how, wanted))
    files, printed = files_for("stats", output, [*(dump or ()), file])
    out = Output(wanted, files, printed)
    if model is not None:
        stats_of_model(model, gathered(dump or [], file), out, how)
        return
    if file is not None:
        raise AttnError("--file: add --model DIR")
    if not dump:
        raise AttnError("no DUMP; give one, or --model DIR with texts")
    rename = renames(name or [])
    layers: list[Trace] = []
    found: list[DumpStats] = []
    for source in (picked(each, trace) for each in dump):
        traces = read(source, rename=rename)
        for number, each in enumerate(traces):
            found.append(measured(each, source if len(traces) == 1 else f"{source}[{number}]"))
            layers += [each] if how.rollout else []
    rolled = rollout(layers) if layers else None
    give(Found(Report(tuple(found)), rolled, layers[0].tokens if layers else None), out, how)


def stats_of_model(name: str, texts: list[str], out: Output, how: StatsOptions) -> None:
    """Every head of a model over these texts, and the battery."""
    from attnctl.cli.progress import progress
    from attnctl.config.settings import Settings
    from attnctl.models.run import Input, run_model
    from attnctl.models.source import open_model
    from attnctl.names import WEIGHTS
    from attnctl.verbs.models.battery import battery, battery_data, battery_lines
    from attnctl.verbs.stats import Found, Report, measured

    if how.rollout:
        raise AttnError("--rollout: takes dumps; attnctl run --model DIR --layer all makes them")
    settings = Settings(dtype="float32")
    by_layer: dict[int, list[DumpStats]] = {}
    with progress("texts") as moved:
        for number, text in enumerate(texts):
            for trace in run_model(name, Input(text), "all", settings, [WEIGHTS]):
                layer = int(trace.header["layer"])
                by_layer.setdefault(layer, []).append(measured(trace, f"layer {layer}"))
            moved(number + 1, len(texts))
    wholes = [(layer, Report(tuple(each)).aggregate) for layer, each in sorted(by_layer.items())]
    report = Report(tuple(replace(whole, name=f"layer {layer}") for layer, whole in wholes if whole))
    if out.wanted == "csv" and out.printed:
        raise_all([] if texts else ["--format csv: no text; give some"])
        give(Found(report), out, how)
        return
    with progress("random tokens") as moved:
        found = battery(name, open_model(name).description["vocab"], settings, moved)
    more = {"texts": len(texts), "battery": battery_data(found)}
    if texts or out.wanted == "json":
        give(Found(report, more=more), out, how)
    if out.printed and out.wanted == "table":
        from attnctl.screen.output import output_for, print_lines, screen_of

        sys.stdout.write("\n" if texts else "")
        output = output_for(sys.stdout, os.environ)
        print_lines(battery_lines(found, screen_of(output)), output)


def unusable(how: StatsOptions, wanted: str) -> Iterator[str]:
    """Options that this output has no use for."""
    if wanted not in WRITTEN:
        yield f"--format {wanted}: statistics are written as table, json or csv"
    if how.precision is not None and wanted != "table":
        yield "--precision: only tables have that; files keep every digit"
    if how.heat and wanted != "table":
        yield "--heat: only tables have that; -o heads.svg draws a picture"
    if how.rollout and wanted == "csv":
        from attnctl.verbs.stats.view import NO_MATRIX

        yield NO_MATRIX


def give(found: Found, out: Output, how: StatsOptions) -> None:
    """Write what was found to the files, and on stdout in the format that is wanted."""
    from attnctl.formats import write_found

    write_found("stats", [found], out.files)
    if not out.printed:
        return
    if out.wanted == "csv":
        from attnctl.verbs.stats.view import write_csv

        write_csv(found.report, sys.stdout)
    elif out.wanted == "json":
        from attnctl.store.strict_json import print_json

        print_json(found.to_dict())
    else:
        from attnctl.screen.output import output_for, print_lines, screen_of
        from attnctl.verbs.stats.view import Table, rollout_lines

        output = output_for(sys.stdout, os.environ)
        table = Table(screen_of(output), Table.precision if how.precision is None else how.precision)
        print_lines(table.lines(found.report), output)
        if found.rolled is not None:
            print_lines(rollout_lines(found, screen_of(output), how.precision), output)
        if how.heat or (screen_of(output).fits and len(found.report.dumps) > 1):
            from attnctl.verbs.stats.picture import map_lines

            print_lines(map_lines(found, screen_of(output)), output)
