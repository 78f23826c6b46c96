"""attnctl stats: what each head does, in numbers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from attnctl.cli.corpus import MERGE, CorpusOptions, asked_for
from attnctl.cli.options import (
    FORMAT_NAMES,
    FORMAT_VARIABLE,
    PRECISION,
    ConfigOption,
    NameOption,
    TraceOption,
    command,
    option,
    picked,
)
from attnctl.cli.sentences import gathered
from attnctl.errors import AttnError, raise_all
from attnctl.values import words

if TYPE_CHECKING:
    from attnctl.array import Array
    from attnctl.trace import Trace
    from attnctl.verbs.corpus import Part
    from attnctl.verbs.stats import DumpStats, Report

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class StatsOptions(NamedTuple):
    """What to measure, and how to write it."""

    rollout: Annotated[
        bool, option("Take the dumps as layers of one sentence and roll attention out.", "--rollout")
    ] = False
    precision: Annotated[
        int | None, option("Digits after the point, 0 to 17 (2). (Tables.)"), PRECISION
    ] = None
    format: Annotated[
        str | None,
        option(
            "How to write it on stdout: table, json or csv. "
            f"Left out, what {FORMAT_VARIABLE} says, or table."
        ),
        words(*FORMAT_NAMES),
    ] = None
    json: Annotated[bool, option("Short for --format json.", "--json")] = False


ModelOption = Annotated[
    str | None,
    option("Run this trained model on texts: a folder, or the id of one on the hub.", metavar="DIR"),
]
FileOption = Annotated[
    str | None, option("Read texts from FILE, one a line, instead of dumps.", metavar="FILE")
]
WRITTEN = ("table", "json", "csv")
"""How statistics are written."""

DUMPS = "Dumps (.json .jsonl .npz .safetensors), or - for stdin."


@command(
    app,
    "attnctl stats dump.json",
    "attnctl stats all.jsonl --trace 'I love AI'",
    "attnctl stats layer-0.npz layer-1.npz --rollout --json",
    "attnctl stats --model DIR --file corpus.txt --shard 3/8 -o part-3.json",
    "attnctl stats merge part-*.json -o whole.json",
)
def stats(  # noqa: PLR0913  (a group of options each)
    *,
    dump: Annotated[list[str] | None, typer.Argument(help=DUMPS, metavar="DUMP...")] = None,
    how: StatsOptions,
    trace: TraceOption = None,
    name: NameOption = None,
    model: ModelOption = None,
    file: FileOption = None,
    config: ConfigOption = None,
    corpus: CorpusOptions,
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

    A corpus of any size: --file with --shard, -o or --pairs, through --model or attention as a
    config has it, gives sums, a histogram of entropies and the largest weights, and keeps no
    sentence. The parts that --shard makes, anywhere and in any order, "attnctl stats merge PART..."
    puts together: to the last digit what one process gives.
    """
    from attnctl.cli.attend import renames
    from attnctl.cli.output import chosen_format
    from attnctl.store import read
    from attnctl.verbs.stats import Report, measured, rollout

    wanted = chosen_format(how.format, json=how.json, possible=WRITTEN)
    raise_all(unusable(how, wanted))
    merging = (dump or [])[:1] == [MERGE] and file is None and model is None
    measuring = file is not None and (model is None or bool(asked_for(corpus)))
    if merging or measuring:
        of_dumps: dict[str, object] = {"--trace": trace, "--name": name, "--rollout": how.rollout}
        of_dumps |= {"DUMP": measuring and dump, "-c": merging and config}
        of_dumps["--precision"] = corpus.output and how.precision
        raise_all(
            f"{flag}: means nothing for a corpus; leave it out" for flag, given in of_dumps.items() if given
        )
    if merging:
        stats_of_parts((dump or [])[1:], wanted, how, corpus)
        return
    if measuring:
        stats_of_corpus(str(file), model, config, corpus, wanted, how)
        return
    raise_all(f"{flag}: only a corpus has that; add --file" for flag in asked_for(corpus))
    raise_all([] if config is None else ["-c: only a corpus has that; add --file"])
    if model is not None:
        stats_of_model(model, gathered(dump or [], file), wanted, how)
        return
    if not dump:
        raise AttnError("no DUMP; give one, --model DIR with texts, or --file")
    rename = renames(name or [])
    layers: list[Trace] = []
    found: list[DumpStats] = []
    for source in (picked(each, trace) for each in dump):
        traces = read(source, rename=rename)
        for number, each in enumerate(traces):
            found.append(measured(each, source if len(traces) == 1 else f"{source}[{number}]"))
            layers += [each] if how.rollout else []
    show(Report(tuple(found)), layers, rollout(layers) if layers else None, wanted, how)


def stats_of_model(name: str, texts: list[str], wanted: str, how: StatsOptions) -> None:
    """Every head of a model over these texts, and the battery."""
    from attnctl.cli.progress import progress
    from attnctl.config.settings import Settings
    from attnctl.models.run import Input, run_model
    from attnctl.models.source import open_model
    from attnctl.names import WEIGHTS
    from attnctl.store.strict_json import print_json
    from attnctl.verbs.models.battery import battery, battery_data, battery_lines
    from attnctl.verbs.stats import Report, measured

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
    if wanted == "csv":
        raise_all([] if texts else ["--format csv: no text; give some"])
        show(report, [], None, wanted, how)
        return
    with progress("random tokens") as moved:
        found = battery(name, open_model(name).description["vocab"], settings, moved)
    if wanted == "json":
        print_json({**report.to_dict(), "texts": len(texts), "battery": battery_data(found)})
        return
    from attnctl.screen.output import output_for, print_lines, screen_of

    if texts:
        show(report, [], None, wanted, how)
        sys.stdout.write("\n")
    output = output_for(sys.stdout, os.environ)
    print_lines(battery_lines(found, screen_of(output)), output)


def stats_of_corpus(
    file: str,
    model: str | None,
    config: str | None,
    corpus: CorpusOptions,
    wanted: str,
    how: StatsOptions,
) -> None:
    """Measure a corpus, or a shard of it."""
    from attnctl.cli.corpus import emit, job_of, measure

    part = measure(job_of(file, model, config, corpus), corpus.output, corpus.dask)
    if part is not None:
        emit(part, corpus.output, wanted, lambda part: show_part(part, wanted, how))


def stats_of_parts(paths: list[str], wanted: str, how: StatsOptions, corpus: CorpusOptions) -> None:
    """Put the parts of a corpus together."""
    from attnctl.cli.corpus import emit, merge

    given = [flag for flag in asked_for(corpus) if flag != "-o"]
    raise_all(f"{flag}: merge takes parts as they are; leave it out" for flag in given)
    emit(merge(paths), corpus.output, wanted, lambda part: show_part(part, wanted, how))


def show_part(part: Part, wanted: str, how: StatsOptions) -> None:
    """Write a part as a table or as CSV."""
    from attnctl.cli.corpus import print_headline
    from attnctl.verbs.corpus.view import report_of

    if wanted == "table":
        print_headline(part)
    show(report_of(part), [], None, wanted, how)


def unusable(how: StatsOptions, wanted: str) -> Iterator[str]:
    """Options that this output has no use for."""
    if wanted not in WRITTEN:
        yield f"--format {wanted}: statistics are written as table, json or csv"
    if how.precision is not None and wanted != "table":
        yield "--precision: only tables have that; files keep every digit"
    if how.rollout and wanted == "csv":
        yield "--rollout: a matrix has no place in this CSV; use --json, or a table"


def show(report: Report, layers: list[Trace], rolled: Array | None, wanted: str, how: StatsOptions) -> None:
    """Write it in the format that is wanted."""
    if wanted == "csv":
        from attnctl.verbs.stats.view import write_csv

        write_csv(report, sys.stdout)
    elif wanted == "json":
        from attnctl.store.strict_json import print_json

        data = report.to_dict()
        if rolled is not None:
            data["rollout"] = {"tokens": layers[0].tokens, "data": rolled.tolist()}
        print_json(data)
    else:
        from attnctl.screen.output import output_for, print_lines, screen_of
        from attnctl.verbs.stats.view import Table, rollout_lines

        output = output_for(sys.stdout, os.environ)
        table = Table(screen_of(output), Table.precision if how.precision is None else how.precision)
        print_lines(table.lines(report), output)
        if rolled is not None:
            print_lines(rollout_lines(rolled, layers, screen_of(output), how.precision), output)
