"""One part of a corpus: its lines cut into tokens, put beside others of their length, and measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from attnctl.base.errors import AttnError
from attnctl.base.values import MAX_PROBLEMS
from attnctl.inputs.config.settings import Settings
from attnctl.math.engine import blas
from attnctl.verbs.corpus.lines import WHOLE, Corpus, Shard, lines_of, survey
from attnctl.verbs.corpus.measure import add
from attnctl.verbs.corpus.part import CorpusPart, about
from attnctl.verbs.corpus.sources import DrawnAttention, Taken, WeightSource, load_model
from attnctl.verbs.corpus.tally import HeadTally, LayerTally

DEFAULTS = Settings()

Moved = Callable[[int, int], None]

MOST_WAITING = 2**14
"""Tokens of sentences that wait for others of their length."""


@dataclass(frozen=True)
class Job:
    """A part of a corpus to be measured: by a model, or by attention as `settings` have it."""

    file: str
    model: str | None = None
    settings: Settings = DEFAULTS
    shard: Shard = WHOLE
    pairs: bool = False

    def open_sources(self) -> Work:
        """The corpus and the model, read as far as their hashes.

        Raises AttnError where one of them is not there, or is none.
        """
        corpus = survey(self.file)
        source: WeightSource = (
            DrawnAttention(self.settings) if self.model is None else load_model(self.model)
        )
        said = {"sha256": corpus.sha256, "lines": corpus.lines}
        span = self.shard.span(corpus.lines)
        part = CorpusPart(about(source.identity(), said, pairs=self.pairs), span.start, span.stop)
        return Work(self, corpus, source, part)


def part_of(job: Job, moved: Moved | None = None) -> CorpusPart:
    """Measure the lines of a job's shard.

    Raises AttnError with every line (the first of many) that is no sentence for this model.
    """
    return job.open_sources().done(moved)


@dataclass
class Work:
    """A part that is being measured, and the sentences that wait, by their number of tokens."""

    job: Job
    corpus: Corpus
    source: WeightSource
    part: CorpusPart
    waiting: dict[int, list[Taken]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def done(self, moved: Moved | None = None) -> CorpusPart:
        """Measure every line."""
        # A model's weights are read once; as one thread computes, so many processes can.
        with blas.single_thread if threads_can_be_held() else nullcontext():
            span = range(self.part.first, self.part.stop)
            for line in lines_of(self.corpus, span):
                if moved:
                    moved(line.number - 1 - span.start, len(span))
                self.take(line.number, line.text, line.wrong)
            for batch in list(self.waiting.values()):
                self.measure(batch)
        if self.problems:
            raise AttnError(list_problems(self.problems))
        return self.part

    def take(self, number: int, text: str, wrong: str) -> None:
        """Cut a line into tokens; measure those of its length when there are enough."""
        try:
            taken = self.source.take(number, text) if not wrong else None
        except AttnError as error:
            wrong = "; ".join(error.problems)
        if wrong or taken is None:
            self.problems.append(f"{self.corpus.path}:{number}: {wrong}")
            return
        batch = self.waiting.setdefault(taken.count, [])
        batch.append(taken)
        if len(batch) >= self.source.at_once(taken.count):
            self.measure(self.waiting.pop(taken.count))
        elif sum(count * len(each) for count, each in self.waiting.items()) > MOST_WAITING:
            self.measure(self.waiting.pop(max(self.waiting, key=lambda n: n * len(self.waiting[n]))))

    def measure(self, batch: Sequence[Taken]) -> None:
        """Add sentences of one length to the part; nothing is computed once a line was wrong."""
        if self.problems:
            return
        for number, (weights, sentences) in enumerate(self.source.layers(batch)):
            if number == len(self.part.layers):
                self.part.layers.append(LayerTally([HeadTally() for _ in range(weights.shape[1])]))
            try:
                add(self.part.layers[number], weights, sentences, pairs=self.part.about["pairs"])
            except AttnError as error:
                lines = ", ".join(str(each.line) for each in batch)
                raise AttnError(
                    f"{self.corpus.path}: line {lines}: {each}" for each in error.problems
                ) from None
        self.part.sentences += len(batch)
        self.part.tokens += sum(each.count for each in batch)


def threads_can_be_held() -> bool:
    from importlib.util import find_spec

    return find_spec("threadpoolctl") is not None


def list_problems(problems: Sequence[str]) -> list[str]:
    more = len(problems) - MAX_PROBLEMS
    return [*problems[:MAX_PROBLEMS], *([f"{more} lines more"] if more > 0 else [])]
