"""attnctl stats of a corpus: a shard of it, all of it on a cluster, and the whole from its parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.setting import Given
from attnctl.base.values import BadValueError, Reader
from attnctl.cli.options import SECTIONS, excludes, needs, option
from attnctl.verbs.corpus.lines import SHARD, WHOLE, Shard

if TYPE_CHECKING:
    from attnctl.verbs.corpus import CorpusPart, Job

MOST_WORKERS = 1000
MERGE = "merge"
"""The first argument that makes `stats` merge the others."""


def read_cluster(text: str) -> str:
    """'local', '3' or an address -> the same, where it is one of them."""
    if text != "local" and ":" not in text and not (text.isdecimal() and 0 < int(text[:9]) < MOST_WORKERS):
        raise BadValueError(f"{text!r} is no cluster; write tcp://host:8786, or how many local workers")
    return text


DASK = Reader(read_cluster, {}, "[N|ADDRESS]")


ONLY_A_CORPUS = needs("file", "only a corpus has that; add --file")


class CorpusOptions(NamedTuple):
    """Statistics of a corpus in parts."""

    shard: Annotated[
        Shard | None,
        option(
            "Only this part of the lines of --file: 3/8 is the third of eight.",
            terms=[
                ONLY_A_CORPUS,
                excludes("dask", "--shard: --dask divides the corpus itself; leave it out"),
            ],
        ),
        SHARD,
    ] = None
    pairs: Annotated[
        bool,
        option("Also how far each two heads of a layer are apart.", "--pairs", terms=[ONLY_A_CORPUS]),
    ] = False
    skip_bad: Annotated[
        bool,
        option(
            "Leave out lines that are no sentence for the model, and count them.",
            "--skip-bad",
            terms=[ONLY_A_CORPUS],
        ),
    ] = False
    dask: Annotated[
        str | None,
        option(
            "All of it over Dask's scheduler: this machine's processors (no value), so many local workers, "
            "or the scheduler at an address, like tcp://host:8786.",
            metavar="[N|ADDRESS]",
            terms=[ONLY_A_CORPUS],
        ),
        DASK,
    ] = None


SECTIONS[CorpusOptions] = "A corpus (--file)"


def is_part(path: str) -> bool:
    """True for a file that has all digits of a corpus's statistics, not for a table or picture of them."""
    from attnctl.formats import FINDINGS, format_for

    return format_for(path, 1, FINDINGS["stats"]).name == "json"


def job_of(file: str, model: str | None, config: str | None, flags: Given, how: CorpusOptions) -> Job:
    """The corpus to measure, through a model or attention as a config and flags have it."""
    from attnctl.inputs.config.settings import Settings
    from attnctl.sources.sentence import settings_from
    from attnctl.verbs.corpus import Job

    settings = settings_from(config, flags) if config or flags else Settings()
    return Job(file, model, settings, how.shard or WHOLE, how.pairs, how.skip_bad)


def measure(job: Job, cluster: str | None, files: Sequence[str], *, printed: bool) -> CorpusPart | None:
    """Measure a shard, or all on a cluster; None where that is all for files that have it already."""
    from attnctl.cli.program import complain
    from attnctl.cli.progress import progress
    from attnctl.verbs.corpus.run import saving

    work = job.open_sources()
    parts = list(filter(is_part, files))
    complete = [path for path in parts if Path(path).is_file() and work.resume(path)]
    if complete == files and not printed:
        for path in files:
            complain(f"{path}: is complete, and kept")
        return None
    if work.span.start < work.part.stop < work.span.stop:
        complain(f"the part goes on after line {work.part.stop:,}")
    with progress("lines") as moved:
        if cluster is None:
            return work.done(moved, saving(parts))
        from attnctl.verbs.corpus.cluster import over_cluster

        return over_cluster(work, cluster, moved, saving(parts))


def merge(paths: Sequence[str]) -> CorpusPart:
    """The whole of a corpus from the files of its parts. Raises AttnError with everything that is wrong."""
    from attnctl.verbs.corpus import merge_parts, read_part

    if not paths:
        raise AttnError("merge: no PART; give the files that stats --shard … -o wrote")
    parts, problems = [], list[str]()
    for path in paths:
        try:
            parts.append((path, read_part(path)))
        except AttnError as error:
            problems += error.problems
    raise_all(problems)
    return merge_parts(parts)


def print_headline(part: CorpusPart) -> None:
    from attnctl.drawing.screen.output import print_view
    from attnctl.verbs.stats.view import headline

    print_view(lambda screen: headline(part, screen))


def complain_of_skipped(part: CorpusPart) -> None:
    """Say on stderr which lines were left out."""
    from attnctl.cli.program import complain
    from attnctl.verbs.stats.view import skipped_lines

    for line in skipped_lines(part):
        complain(line)
