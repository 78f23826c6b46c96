"""attnctl stats: what each head does, in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from attnctl import api
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.rooms import formats_of
from attnctl.base.setting import ATTENTION, SENTENCE, Given
from attnctl.base.values import words
from attnctl.base.workers import ENGINE, Engine
from attnctl.cli import options
from attnctl.cli.command import OptionTerm
from attnctl.cli.model import IDS
from attnctl.cli.options import argument, command, option
from attnctl.cli.output import progress
from attnctl.cli.program import complain
from attnctl.drawing.screen.output import Element, print_view
from attnctl.formats import format_for, print_bytes, print_found, print_json, write_found
from attnctl.inputs.config.fields import settings_with_flags
from attnctl.inputs.config.flags import by_flag, settings_from
from attnctl.inputs.config.settings import Settings
from attnctl.models.run import ModelInput
from attnctl.record import Trace
from attnctl.sources import HELP_OF_SEVERAL, is_file, open_source
from attnctl.sources.sentence import Arguments, gather_sentences
from attnctl.verbs.corpus import SHARD, WHOLE, Shard
from attnctl.verbs.corpus.part import CorpusPart, may_be_there, report_of, write_part
from attnctl.verbs.corpus.run import Work, open_sources, saving
from attnctl.verbs.stats import DumpStats, StatsReport
from attnctl.verbs.stats.tally import measure_heads, rollout
from attnctl.verbs.stats.view import part_headline, result_lines, skipped_lines

if TYPE_CHECKING:
    from attnctl.drawing.screen import Screen

MERGE = "merge"  # the first argument that makes `stats` merge the others

ONLY_A_CORPUS = options.needs("file", "only a corpus has that; add --file")
corpus_option = partial(option, section="A corpus (--file)", terms=[ONLY_A_CORPUS])

WRITTEN = ("table", "json", "csv")


def is_table(given: Given) -> bool:
    wanted = options.chosen_format(given["format"], json=given["json"], possible=WRITTEN)
    return options.split_outputs(given["output"])[1] and wanted == "table"


OF_DUMPS = ("trace", "name", "rollout")
OF_RUNS = ("config", *settings_with_flags(SENTENCE), *settings_with_flags(ATTENTION))


class Output(NamedTuple):
    wanted: str
    files: list[str]
    printed: bool
    precision: int | None
    heat: bool


OF_PARTS = OptionTerm(
    lambda given: (
        options.asked_of(given, (*OF_DUMPS, *OF_RUNS, "shard", "pairs", "skip_bad"))
        if given["source"][0] == MERGE and not options.asked_of(given, ("file", "model"))
        else ()
    ),
    "merge takes parts as they are; leave it out",
)


@command(
    "attnctl stats dump.json",
    "attnctl stats all.jsonl --trace 'I love AI'",
    "attnctl stats layer-0.npz layer-1.npz --rollout --json",
    "attnctl stats dump.json -o heads.html",
    "attnctl stats --model DIR --file corpus.txt --shard 3/8 -o part-3.json",
    "attnctl stats merge part-*.json -o whole.json",
    "attnctl stats --model DIR --file corpus.txt --on processes=4 -o whole.json",
)
def stats(  # noqa: PLR0913  (options, and groups of them)
    *,
    source: list[str] | None = argument(HELP_OF_SEVERAL, "SOURCE", terms=[OF_PARTS]),
    rollout: bool = option("Treat the dumps as layers of one sentence and compute attention rollout."),
    precision: int | None = option(
        "Digits after the point, 0 to 17 (2). (Tables.)",
        options.PRECISION,
        terms=[options.only(is_table, "only tables have that; files keep every digit")],
    ),
    heat: bool = option(
        "Below the numbers, heat maps of every head; on a terminal that is so for several dumps "
        "anyway. (Tables.)",
        terms=[options.only(is_table, "only tables have that; -o heads.svg draws a picture")],
    ),
    format: str | None = option(  # noqa: A002  (the name of the option)
        "How to write it on stdout: table, json or csv. "
        f"Left out, what {options.FORMAT_VARIABLE} says, or table.",
        words(*options.FORMAT_NAMES),
        terms=[
            options.only(
                lambda given: given["format"] in WRITTEN,
                "--format {format}: statistics are written as table, json or csv",
            )
        ],
    ),
    json: bool = option("Short for --format json."),
    trace: options.Trace = None,
    name: options.Name = None,
    model: str | None = option(
        "Run this trained model on texts: a folder, or the id of one on the hub.",
        metavar="DIR",
        terms=[
            OptionTerm(
                lambda given: () if options.is_asked(given, "file") else options.asked_of(given, OF_DUMPS),
                "takes dumps; attnctl run --model DIR --layer all makes them",
            ),
            options.bars(OF_RUNS, "a model has its own attention; leave it out"),
        ],
    ),
    ids: tuple[int, ...] | None = option(
        "Token ids instead of a text.",
        IDS,
        terms=[
            options.needs("model", "only a model takes ids; add --model DIR"),
            options.excludes("file", "--file has the texts; leave one of them out"),
        ],
    ),
    file: str | None = option(
        "A corpus instead of dumps: the sentences of FILE, one per line.",
        metavar="FILE",
        terms=[
            options.bars([*OF_DUMPS, "source"], "means nothing for a corpus; leave it out"),
            options.only(
                lambda given: given["file"] != "-", "--file -: a corpus is read more than once; give a file"
            ),
        ],
    ),
    more: options.Sentence,
    config: options.Config = None,
    attention: options.Attention,
    max_memory: options.Memory = None,
    shard: Shard | None = corpus_option(
        "Only this part of the lines of --file: 3/8 is the third of eight.", SHARD
    ),
    on: Engine | None = corpus_option(
        options.BY_WORKERS.format("Measure it"),
        ENGINE,
    ),
    pairs: bool = corpus_option("Also measure how far apart each pair of heads of a layer is."),
    skip_bad: bool = corpus_option("Skip lines that the model cannot read as a sentence, and count them."),
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

    --file reads a corpus of any size, through --model or attention as a config has it, and keeps no
    sentence: sums, a histogram of entropies, the largest weights. The parts that --shard makes,
    anywhere and in any order, "attnctl stats merge PART..." puts together: to the last digit what
    one process gives.
    """
    arguments = source or []
    flags = {**more, **attention}
    files, printed = options.split_outputs(output)
    wanted = options.chosen_format(format, json=json, possible=WRITTEN)
    out = Output(wanted, files, printed, precision, heat)

    if file is not None:
        settings = settings_from(config, flags) if config or flags else Settings()
        if on is not None and shard is not None:
            raise AttnError("--shard: --on cuts the corpus itself; leave one of them out")
        work = open_sources(
            file,
            model,
            settings,
            shard=shard or WHOLE,
            pairs=pairs,
            skip_bad=skip_bad,
            in_blocks=on is not None,
        )
        write_part_report(measure_shard(work, files, on, printed=printed), out)
    elif model is not None:
        stats_of_texts(model, texts_to_read(arguments, ids), out)
    elif arguments[:1] == [MERGE]:
        if len(arguments) == 1:
            raise AttnError("merge: no PART; give the files that stats --shard … -o wrote")
        write_part_report(api.merge_corpus(arguments[1:]), out)
    else:
        if not arguments and config is None:
            raise AttnError("no SOURCE; give one, --model DIR with texts, or --file")
        beside = Arguments(config, flags, trace, options.renames(name or []))
        named: Sequence[str | None] = arguments or [None]  # without any, the config's own sentence
        sources = [open_source(text, beside, lone_word=False) for text in named]
        of_files: dict[str, object] = {"--trace": trace, "--name": name}
        of_runs = {"-c": config, **by_flag(flags)}
        raise_all(problem for source in sources for problem in source.list_unused(of_files, of_runs))
        stats_of_dumps(((source.path, source.traces()) for source in sources), out, as_layers=rollout)


def texts_to_read(arguments: list[str], ids: tuple[int, ...] | None) -> list[ModelInput]:
    """What a model is to read: texts, lines of stdin, ids. Raises AttnError for each that is a file."""
    raise_all(
        f"{text}: a file; --file {text} measures its lines, a dump goes without --model"
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
    write_report(report, out)


def stats_of_texts(name: str, texts: Sequence[ModelInput], out: Output) -> None:
    from attnctl.math.names import WEIGHTS
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


def write_part_report(part: CorpusPart | None, out: Output) -> None:
    if part is None:
        return

    others = []
    for path in out.files:
        if is_part(path):
            write_part(part, path)
        else:
            others.append(path)

    is_printed_as_part = out.printed and out.wanted == "json"
    if is_printed_as_part:
        print_bytes(part.to_bytes())
    elif out.printed and out.wanted == "table":
        print_view(lambda screen: part_headline(part, screen))

    rest = out._replace(files=others, printed=out.printed and not is_printed_as_part)
    write_report(report_of(part), rest)
    complain(*skipped_lines(part))


def write_report(found: StatsReport, out: Output) -> None:
    write_found("stats", [found], out.files)
    if not out.printed:
        return
    if out.wanted == "csv":
        print_found("stats", [found], "csv")
    elif out.wanted == "json":
        print_json(found.to_dict())
    else:
        print_view(lambda screen: result_lines(found, screen, out.precision, heat=out.heat))


def is_part(path: str) -> bool:
    """True for a file that has all digits of a corpus's statistics, not for a table or picture of them."""
    return format_for(path, 1, formats_of("stats")).name == "json"


def measure_shard(
    work: Work, files: list[str], engine: Engine | None, *, printed: bool
) -> CorpusPart | None:
    """Measure a shard; None where that is all for files that have it already."""
    parts = list(filter(is_part, files))
    # Each is asked, as one that is begun is gone on with.
    complete = [path for path in parts if may_be_there(path) and work.resume(path)]
    if complete == files and not printed:
        complain(*(f"{path}: is complete, and kept" for path in files))
        return None

    if work.span.start < work.part.stop < work.span.stop:
        complain(f"the part goes on after line {work.part.stop:,}")
    with progress("lines") as moved:
        if engine is not None:
            return work.done_by(engine, moved, saving(parts))
        return work.done(moved, saving(parts))
