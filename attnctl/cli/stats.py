"""attnctl stats: what each head does, in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from attnctl import api
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.setting import ATTENTION, SENTENCE, Given
from attnctl.base.values import words
from attnctl.cli import options
from attnctl.cli.command import OptionTerm
from attnctl.cli.model import IDS
from attnctl.cli.options import argument, command, option
from attnctl.cli.output import progress
from attnctl.drawing.screen.output import Element, print_view, with_next
from attnctl.formats import print_found, print_json, write_found
from attnctl.inputs.config.fields import settings_with_flags
from attnctl.inputs.config.flags import by_flag
from attnctl.inputs.config.settings import Settings
from attnctl.math.names import WEIGHTS
from attnctl.models.run import ModelInput
from attnctl.record import Trace
from attnctl.sources import HELP_OF_SEVERAL, is_file, open_source
from attnctl.sources.sentence import Arguments, gather_sentences
from attnctl.verbs.stats import DumpStats, StatsReport
from attnctl.verbs.stats.tally import measure_heads, rollout
from attnctl.verbs.stats.view import result_lines

if TYPE_CHECKING:
    from attnctl.drawing.screen import Screen

WRITTEN = ("table", "json", "csv")


def is_table(given: Given) -> bool:
    wanted = options.chosen_format(given["format"], json=given["json"], possible=WRITTEN)
    return options.split_outputs(given["output"])[1] and wanted == "table"


OF_DUMPS = ("trace", "name", "rollout")
OF_RUNS = ("config", *settings_with_flags(SENTENCE), *settings_with_flags(ATTENTION))


def model_option(*terms: OptionTerm) -> Any:
    return option(
        "Run this trained model on texts: a folder, a GGUF file, ollama:NAME, or the id of one on the hub.",
        metavar="DIR",
        terms=[*terms, options.bars(OF_RUNS, "a model has its own attention; leave it out")],
    )


class Output(NamedTuple):
    wanted: str
    files: list[str]
    printed: bool
    precision: int | None
    heat: bool


class StatisticsOptions(NamedTuple):
    """How statistics are written on stdout."""

    precision: int | None = option(
        "Digits after the point, 0 to 17 (2). (Tables.)",
        options.PRECISION,
        terms=[options.only(is_table, "only tables have that; files keep every digit")],
    )
    heat: bool = option(
        "Below the numbers, heat maps of every head; on a terminal that is so for several dumps "
        "anyway. (Tables.)",
        terms=[options.only(is_table, "only tables have that; -o heads.svg draws a picture")],
    )
    format: str | None = option(
        "How to write it on stdout: table, json or csv. "
        f"Left out, what {options.FORMAT_VARIABLE} says, or table.",
        words(*options.FORMAT_NAMES),
        terms=[
            options.only(
                lambda given: given["format"] in WRITTEN,
                "--format {format}: statistics are written as table, json or csv",
            )
        ],
    )
    json: bool = option("Short for --format json.")

    def output(self, files: Sequence[str] | None) -> Output:
        """Where and how the command writes what it finds; `files` are those of -o."""
        wanted = options.chosen_format(self.format, json=self.json, possible=WRITTEN)
        paths, printed = options.split_outputs(files)
        return Output(wanted, paths, printed, self.precision, self.heat)


TAKES_DUMPS = OptionTerm(
    lambda given: options.asked_of(given, OF_DUMPS),
    "takes dumps; attnctl run --model DIR --layer all makes them",
)


@command(
    "attnctl stats dump.json",
    "attnctl stats all.jsonl --trace 'I love AI'",
    "attnctl stats layer-0.npz layer-1.npz --rollout --json",
    "attnctl stats dump.json -o heads.html",
    "attnctl stats --model DIR 'I love AI' 'the cat sat'",
)
def stats(  # noqa: PLR0913  (options, and groups of them)
    *,
    source: list[str] | None = argument(HELP_OF_SEVERAL, "SOURCE"),
    rollout: bool = option("Treat the dumps as layers of one sentence and compute attention rollout."),
    shown: StatisticsOptions,
    trace: options.Trace = None,
    name: options.Name = None,
    model: str | None = model_option(TAKES_DUMPS),
    adapter: options.Adapter = None,
    ids: tuple[int, ...] | None = option(
        "Token ids instead of a text.",
        IDS,
        terms=[options.needs("model", "only a model takes ids; add --model DIR")],
    ),
    more: options.Sentence,
    config: options.Config = None,
    attention: options.Attention,
    max_memory: options.Memory = None,
    output: list[str] | None = options.findings_option("stats"),
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

    --model runs a trained model on texts, the arguments (- is stdin, one a line), instead of reading
    dumps. A row is then a head of a layer, over all texts. A battery of random tokens twice in a row
    names induction, duplicate-token, previous-token and sink heads.

    --rollout takes the dumps as layers, first one first, and multiplies (A + I) / 2 through them:
    how much of each token has reached each place (Abnar & Zuidema 2020).

    Of a corpus of any size, in parts that merge, "attnctl corpus run" measures the same.
    """
    out = shown.output(output)
    if model is not None:
        from attnctl.models.source import join_name

        stats_of_texts(join_name(model, adapter), texts_to_read(source or [], ids), out)
        return

    beside = Arguments(config, {**more, **attention}, trace, options.renames(name or []))
    dumps = open_dumps(source or [], beside, {"--trace": trace, "--name": name})
    stats_of_dumps(dumps, out, as_layers=rollout)


def open_dumps(
    named: Sequence[str], beside: Arguments, of_files: Given
) -> Iterator[tuple[str, Sequence[Trace]]]:
    """The traces of each source, by its name. Raises AttnError for options that mean nothing for one."""
    if not named and beside.config is None:
        raise AttnError("no SOURCE; give one, or --model DIR with texts")

    # Without any, the config's own sentence.
    texts: Sequence[str | None] = named or [None]
    sources = [open_source(text, beside, lone_word=False) for text in texts]
    of_runs = {"-c": beside.config, **by_flag(beside.flags)}
    raise_all(problem for source in sources for problem in source.list_unused(of_files, of_runs))
    return ((source.path, source.traces()) for source in sources)


def texts_to_read(arguments: list[str], ids: tuple[int, ...] | None) -> list[ModelInput]:
    """What a model is to read: texts, lines of stdin, ids. Raises AttnError for each that is a file."""
    raise_all(
        f"{text}: a file; attnctl corpus run {text} measures its lines, a dump goes without --model"
        for text in arguments
        if is_file(text)
    )

    texts = [ModelInput(text) for text in gather_sentences(arguments, None)]
    if ids is not None:
        texts.append(ModelInput(ids=ids))
    return texts


def stats_of_dumps(dumps: Iterable[tuple[str, Sequence[Trace]]], out: Output, *, as_layers: bool) -> None:
    layers: list[Trace] = []
    rows: list[DumpStats] = []
    for source, traces in dumps:
        for number, trace in enumerate(traces):
            name = source if len(traces) == 1 else f"{source}[{number}]"
            rows.append(replace(api.stats(trace), name=name))
            if as_layers:
                layers.append(trace)

    if layers:
        report = StatsReport(tuple(rows), rollout(layers), layers[0].tokens)
    else:
        report = StatsReport(tuple(rows))
    write_report(report, out, then=command_to_show(rows))


def command_to_show(rows: Sequence[DumpStats]) -> list[str]:
    """The command that shows the weights of the head with the largest of them, in the first dump."""
    if not rows:
        return []
    first = rows[0]
    largest = [(head.largest.value, number) for number, head in enumerate(first.heads) if head.largest]
    if not largest or first.name == "-":
        return []
    _, head = max(largest)
    return ["attnctl", "show", first.name, "--step", WEIGHTS, "--head", str(head)]


def stats_of_texts(name: str, texts: Sequence[ModelInput], out: Output) -> None:
    from attnctl.models.source import open_model
    from attnctl.sources.model import Layers
    from attnctl.verbs.models.heads import battery, battery_data, battery_lines

    settings = Settings(dtype="float32")
    by_layer: dict[int, list[DumpStats]] = {}
    with progress("texts") as moved:
        for number, text in enumerate(texts):
            for trace in Layers(name, text, "all", settings).run(keep=[WEIGHTS]):
                layer = int(trace.header["layer"])
                by_layer.setdefault(layer, []).append(measure_heads(trace, f"layer {layer}"))
            moved(number + 1, len(texts))

    layers = []
    for layer, dumps in sorted(by_layer.items()):
        whole = StatsReport(tuple(dumps)).aggregate
        if whole:
            layers.append(replace(whole, name=f"layer {layer}"))
    report = StatsReport(tuple(layers))

    # A table of CSV has one kind of row: the heads of the texts.
    if out.wanted == "csv" and out.printed:
        if not texts:
            raise AttnError("--format csv: no text; give some")
        write_report(report, out)
        return

    with progress("random tokens") as moved:
        heads = battery(name, open_model(name).rows("embed"), settings, moved)
    more = {"texts": len(texts), "battery": battery_data(heads)}
    has_rows = bool(texts) or out.wanted == "json"
    write_report(replace(report, more=more), out if has_rows else out._replace(printed=False))

    def view(screen: Screen) -> Iterator[Element]:
        if texts:
            yield []
        yield from battery_lines(heads, screen)

    if out.printed and out.wanted == "table":
        print_view(view)


def write_report(found: StatsReport, out: Output, then: Sequence[str] = ()) -> None:
    write_found("stats", [found], out.files)
    if not out.printed:
        return
    if out.wanted == "csv":
        print_found("stats", [found], "csv")
    elif out.wanted == "json":
        print_json(found.to_dict())
    else:
        view = partial(result_lines, found, precision=out.precision, heat=out.heat)
        print_view(with_next(view, then))
