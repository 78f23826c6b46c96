"""attnctl corpus: what each head does over a corpus, in parts that merge."""

from __future__ import annotations

from attnctl import api
from attnctl.base.rooms import formats_of
from attnctl.base.workers import ENGINE, Engine
from attnctl.cli import options
from attnctl.cli.options import argument, command, option
from attnctl.cli.output import progress
from attnctl.cli.program import complain
from attnctl.cli.stats import Output, StatisticsOptions, model_option, write_report
from attnctl.drawing.screen.output import print_view
from attnctl.formats import format_for, print_bytes
from attnctl.inputs.config.flags import settings_from
from attnctl.inputs.config.settings import Settings
from attnctl.verbs.corpus import SHARD, WHOLE, Shard
from attnctl.verbs.corpus.part import CorpusPart, may_be_there, report_of, write_part
from attnctl.verbs.corpus.run import Work, open_work, saving
from attnctl.verbs.stats.view import part_headline, skipped_lines

GROUP = {
    "help": "Measure each head over a corpus of any size, in parts that merge.",
    "epilog": (
        "attnctl corpus run corpus.txt --model DIR -o whole.json\n"
        "attnctl corpus merge part-*.json -o whole.json"
    ),
}

NO_STREAM = options.only(
    lambda given: given["corpus"] != "-", "-: a corpus is read more than once; give a file"
)
CUTS_ITSELF = options.excludes("shard", "--shard: --on cuts the corpus itself; leave one of them out")


@command(
    "attnctl corpus run corpus.txt --heads 2 --causal",
    "attnctl corpus run corpus.txt --model DIR --shard 3/8 -o part-3.json",
    "attnctl corpus run corpus.txt --model DIR --shard 3/8 --survey blocks.json -o part-3.json",
    "attnctl corpus run corpus.txt --model DIR --on processes=4 -o whole.json",
)
def run(  # noqa: PLR0913  (options, and groups of them)
    *,
    corpus: str = argument("A file of sentences, one per line.", "CORPUS", terms=[NO_STREAM]),
    shown: StatisticsOptions,
    model: str | None = model_option(),
    adapter: options.Adapter = None,
    more: options.Sentence,
    config: options.Config = None,
    attention: options.Attention,
    max_memory: options.Memory = None,
    shard: Shard | None = option("Only this part of the lines: 3/8 is the third of eight.", SHARD),
    survey: str | None = option(
        "Keep hashes and places of blocks of lines here, by which a shard reads its own bytes alone.",
        metavar="FILE",
    ),
    on: Engine | None = option(options.BY_WORKERS.format("Measure it"), ENGINE, terms=[CUTS_ITSELF]),
    pairs: bool = option("Also measure how far apart each pair of heads of a layer is."),
    skip_bad: bool = option("Skip lines that the model cannot read as a sentence, and count them."),
    output: list[str] | None = options.findings_option("corpus run"),
) -> None:
    """Measure each head over a corpus, through --model or attention as options and a config have it.

    No sentence is kept: sums, a histogram of entropies, the largest weights. attnctl stats --help says
    what the figures are. A .json has all their digits, and grows while lines are read: what an interrupted
    run left is gone on with. The parts that --shard makes, anywhere and in any order,
    "attnctl corpus merge PART..." puts together: to the last digit what one process gives.
    """
    flags = {**more, **attention}
    if model is not None:
        from attnctl.models.source import join_name

        model = join_name(model, adapter)
    work = open_work(
        corpus,
        model,
        settings_from(config, flags) if config or flags else Settings(),
        shard=shard or WHOLE,
        pairs=pairs,
        skip_bad=skip_bad,
        in_blocks=on is not None,
        survey=survey,
    )
    out = shown.output(output)
    write_part_report(measure_shard(work, out.files, on, printed=out.printed), out)


@command(
    "attnctl corpus merge part-*.json",
    "attnctl corpus merge part-*.json -o whole.json -o heads.csv",
)
def merge(
    *,
    part: list[str] = argument("The parts that corpus run --shard … -o wrote, in any order.", "PART..."),
    shown: StatisticsOptions,
    output: list[str] | None = options.findings_option("corpus merge"),
) -> None:
    """Put the parts of a corpus together: to the last digit what one process gives.

    Lines that are in two of them, or in none, and parts of different corpora are refused.
    """
    write_part_report(api.merge_corpus(part), shown.output(output))


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


def is_part(path: str) -> bool:
    """True for a file that has all digits of a corpus's statistics, not for a table or picture of them."""
    return format_for(path, 1, formats_of("corpus run")).name == "json"


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
