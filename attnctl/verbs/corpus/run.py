"""A part of a corpus: its lines cut into tokens, put beside others of their length, and measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field
from importlib.util import find_spec
from time import monotonic
from typing import Any, NamedTuple

from attnctl.base import __version__
from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.values import MAX_PROBLEMS
from attnctl.base.workers import Engine, call_each
from attnctl.inputs.config.settings import Settings
from attnctl.math.engine.tiles import single_thread
from attnctl.store.files import is_special
from attnctl.verbs import corpus
from attnctl.verbs.corpus import WHOLE, BadLineError, CorpusBlock, Lines, Shard
from attnctl.verbs.corpus.part import (
    CorpusPart,
    differing_facts,
    part_of_bytes,
    read_part,
    spell,
    write_part,
)
from attnctl.verbs.corpus.sources import DrawnAttention, TrainedModel, load_model
from attnctl.verbs.corpus.surveyed import survey_kept
from attnctl.verbs.stats.tally import tally_of

DEFAULTS = Settings()

Moved = Callable[[int, int], None]
Save = Callable[[CorpusPart], None]

MOST_WAITING = 2**14  # tokens of sentences that wait for others of their length
SAVE_EVERY = 30.0  # seconds of work that a process which is killed may lose

UNMEASURED = "cannot be measured"
"""The reason of a sentence that the attention refuses, or makes no weights of."""


def open_work(  # noqa: PLR0913  (what is measured, by what, and which part of it)
    source: Lines,
    model: str | None = None,
    settings: Settings = DEFAULTS,
    shard: Shard = WHOLE,
    *,
    pairs: bool = False,
    skip_bad: bool = False,
    in_blocks: bool = False,
    survey: str | None = None,
) -> Work:
    """A part of a corpus that is to be measured: by a model, or by attention as `settings` have it.

    Both are read as far as their hashes, a file once more where it is to be measured `in_blocks`; where
    a file holds its `survey` already, the lines of the shard alone. Raises AttnError where one is missing.
    """
    lines = source
    if survey is not None and not isinstance(source, str):
        raise AttnError("survey: that of a file; write the sentences to one, a line each")
    if survey is not None and isinstance(source, str):
        surveyed = survey_kept(source, survey)
        lines = corpus.CorpusBlocks(source, surveyed.blocks)
    elif not in_blocks:
        surveyed = corpus.survey(source)
    elif isinstance(source, str):
        surveyed = corpus.survey_blocks(source)
    else:
        raise AttnError("an engine reads a file; write the sentences to one, a line each")

    maker = Maker(model, settings)
    weights = maker.source()
    about = {
        "attnctl": __version__,
        **weights.identity,
        "corpus": {"sha256": surveyed.sha256, "lines": surveyed.lines},
        "pairs": pairs,
    }
    span = shard.span(surveyed.lines)
    return Work(
        lines,
        weights,
        span,
        part=CorpusPart(about, span.start, span.start),
        skip_bad=skip_bad,
        blocks=surveyed.blocks,
        maker=maker,
    )


def measure_into(
    work: Work, paths: Sequence[str], moved: Moved | None = None, engine: Engine | None = None
) -> CorpusPart:
    """Go on from what one of the files has; all keep the part.

    Raises AttnError with each line that is no sentence, or the first of many, unless it skips them, and as
    `Work.resume` does.
    """
    complete = [path for path in paths if work.resume(path)]
    save = saving(paths)
    part = work.done(moved, save) if engine is None else work.done_by(engine, moved, save)
    for path in paths:
        if path not in complete:
            write_part(part, path)
    return part


def saving(paths: Sequence[str]) -> Save | None:
    """Writes what there is of a part, while more is measured, to the files that will have all of it."""
    files = [path for path in paths if not is_special(path)]

    def save(part: CorpusPart) -> None:
        for path in files:
            write_part(part, path)

    return save if files else None


class Maker(NamedTuple):
    """What makes the weights: a model by its name, or attention as settings have it."""

    model: str | None
    settings: Settings

    def source(self) -> TrainedModel | DrawnAttention:
        return DrawnAttention(self.settings) if self.model is None else load_model(self.model)


@dataclass
class Work:
    """The lines that are to be measured, the part so far, and sentences that wait for others as long.

    `waiting` has them by their number of tokens and the number of their line, as their source took them.
    """

    lines: Lines
    source: TrainedModel | DrawnAttention
    span: range
    part: CorpusPart
    skip_bad: bool
    blocks: Sequence[CorpusBlock] = ()
    """Those of the file, where workers measure them."""
    maker: Maker = Maker(None, DEFAULTS)
    waiting: dict[int, dict[int, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unmeasured: list[str] = field(default_factory=list)

    def resume(self, path: str) -> bool:
        """Go on from what a file has of this part already, where it has any; true if that is all of it.

        A file that holds no part, or a damaged one, counts for nothing. Raises AttnError where it
        holds a part of something else.
        """
        try:
            saved = read_part(path, own=True)
        except AttnError:
            return False

        differences = [f"another {name}" for name in differing_facts(self.part.about, saved.about)]
        if saved.first != self.span.start or saved.stop > self.span.stop:
            wanted = spell(self.span.start, self.span.stop)
            differences.append(f"{saved.span} where {wanted} are asked for")
        if saved.skipped and not self.skip_bad:
            differences.append("lines left out by --skip-bad")
        instead = "remove it, or write to another file"
        raise_all(f"{path}: it holds a part with {difference}; {instead}" for difference in differences)

        if saved.stop > self.part.stop:  # of several files the one that is furthest
            self.part = saved
        return saved.stop == self.span.stop

    def done(self, moved: Moved | None = None, save: Save | None = None) -> CorpusPart:
        """Measure every line that is left, and `save` what there is from time to time."""
        self.measure_lines(moved, save)
        return self.concluded()

    def measure_lines(self, moved: Moved | None = None, save: Save | None = None) -> None:
        saved = monotonic()
        # A model's weights are read once; as one thread computes, so many processes can.
        with single_thread() if find_spec("threadpoolctl") is not None else nullcontext():
            for number, data in corpus.lines_of(self.lines, range(self.part.stop, self.span.stop)):
                if moved:
                    moved(number - 1 - self.span.start, len(self.span))
                if save and monotonic() - saved >= SAVE_EVERY and not self.problems:
                    save(self.measure_waiting(number - 1))
                    saved = monotonic()
                self.take(number, data)
            self.measure_waiting(self.span.stop)

    def done_by(self, engine: Engine, moved: Moved | None = None, save: Save | None = None) -> CorpusPart:
        """The same by the workers of an engine, a block each; what was done of the first ones is kept."""
        left = [block for block in self.blocks if block.stop > self.part.stop]
        tasks = [
            Task(block, self.part.about, self.maker, start=self.part.stop, skip_bad=self.skip_bad)
            for block in left
        ]
        # Parts are added in the order of the blocks, so that what is saved is always the first lines.
        ready: dict[int, Measured] = {}
        added = 0
        saved = monotonic()
        for number, measured in call_each(engine, measure_block, tasks):
            ready[number] = measured
            while added in ready:
                self.take_in(left[added], ready.pop(added))
                added += 1

            if moved:
                moved(self.part.stop, self.span.stop)
            if save and monotonic() - saved >= SAVE_EVERY and not self.problems:
                save(self.part)
                saved = monotonic()
        return self.concluded()

    def take_in(self, block: CorpusBlock, measured: Measured) -> None:
        """Add the block that follows the part."""
        self.part.add(part_of_bytes(measured.part, f"{block.path}: a block"))
        self.part.stop = block.stop
        self.problems += measured.problems
        self.unmeasured = self.unmeasured or measured.unmeasured

    def concluded(self) -> CorpusPart:
        """The part, when nothing is left. Raises AttnError where lines were bad, or all were left out."""
        if self.problems:
            problems = self.problems[:MAX_PROBLEMS]
            more = len(self.problems) - MAX_PROBLEMS
            if more > 0:
                problems.append(f"{more} lines more")
            raise AttnError([*problems, "--skip-bad leaves bad lines out, and counts them by reason"])

        if not self.part.sentences:  # then it is no matter of lines
            raise_all(self.unmeasured[:1])
        return self.part

    def take(self, number: int, data: bytes) -> None:
        try:
            text = corpus.decode_line(data)
            if not text.strip():
                return
            count, taken = self.source.take(text)
        except BadLineError as bad:
            self.leave_out(number, bad)
            return

        batch = self.waiting.setdefault(count, {})
        batch[number] = taken
        if len(batch) >= self.source.at_once(count):
            self.measure(count, self.waiting.pop(count))
        elif sum(map(self.tokens_waiting, self.waiting)) > MOST_WAITING:
            longest = max(self.waiting, key=self.tokens_waiting)
            self.measure(longest, self.waiting.pop(longest))

    def tokens_waiting(self, count: int) -> int:
        """The tokens of all sentences of this length that wait."""
        return count * len(self.waiting[count])

    def leave_out(self, number: int, bad: BadLineError) -> None:
        problem = f"{corpus.source_name(self.lines)}:{number}: {'; '.join(bad.problems)}"
        if not self.skip_bad:
            self.problems.append(problem)
            return
        self.part.skip(bad.reason, 1, [number])
        if bad.reason == UNMEASURED:
            self.unmeasured = self.unmeasured or [problem]

    def measure_waiting(self, stop: int) -> CorpusPart:
        """Measure the sentences that wait: the part then has all lines before `stop`."""
        for count, batch in self.waiting.items():
            self.measure(count, batch)
        self.waiting.clear()
        self.part.stop = stop
        return self.part

    def measure(self, count: int, batch: Mapping[int, Any]) -> None:
        """Add sentences of so many tokens to the part; nothing is computed once a line was wrong."""
        if self.problems:
            return
        try:
            with corpus.bad_for(UNMEASURED):
                self.part.add(self.part_of_batch(count, batch))
        except BadLineError as bad:
            if len(batch) == 1:
                (line,) = batch
                self.leave_out(line, bad)
                return
            for line, taken in batch.items():  # to find those that are bad
                self.measure(count, {line: taken})

    def part_of_batch(self, count: int, batch: Mapping[int, Any]) -> CorpusPart:
        """What sentences of so many tokens add up to; a part of no lines of its own."""
        about = self.part.about
        layers = []
        for weights, sentences in self.source.layers(batch):
            layers.append(tally_of(weights, sentences, pairs=about["pairs"]))
        return CorpusPart(about, 0, 0, sentences=len(batch), tokens=count * len(batch), layers=layers)


# --- by workers: each reads the bytes of its block ---


class Task(NamedTuple):
    """What a worker is told."""

    block: CorpusBlock
    about: dict[str, Any]
    maker: Maker
    start: int
    """The first line that is not measured yet."""
    skip_bad: bool


class Measured(NamedTuple):
    """What a worker found; its part as the bytes of a file of it, whose hash is checked."""

    part: bytes
    problems: list[str]
    unmeasured: list[str]


def measure_block(task: Task) -> Measured:
    """Measure the lines of a block, as a worker. Raises AttnError where its model is another."""
    source = task.maker.source()
    wrong = [name for name, value in source.identity.items() if task.about[name] != value]
    raise_all(f"a worker has another {name} than this machine; give them the same files" for name in wrong)

    block = task.block
    span = range(max(task.start, block.first), block.stop)
    part = CorpusPart(task.about, span.start, span.start)
    work = Work(block, source, span, part=part, skip_bad=task.skip_bad)
    work.measure_lines()
    return Measured(work.part.to_bytes(), work.problems, work.unmeasured)
