"""The statistics of a corpus as those of a dump a layer, for the table and the CSV of `stats`."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl.base.words import plural
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.screen import Line, Screen
from attnctl.verbs.corpus.part import CorpusPart, spell
from attnctl.verbs.corpus.tally import GridSum, HeadTally, LayerTally
from attnctl.verbs.stats import DumpStats, HeadStats, Largest, StatsReport, Tally


def part_lines(part: CorpusPart, screen: Screen) -> Iterator[Element]:
    """The counts, and the table of `stats`."""
    from attnctl.verbs.stats.view import StatsTable

    yield from headline(part, screen)
    yield from StatsTable(screen).lines(report_of(part))


def report_of(part: CorpusPart) -> StatsReport:
    """A row for each head of each layer."""
    return StatsReport(tuple(layer_stats(f"layer {at}", each) for at, each in enumerate(part.layers)))


def layer_stats(name: str, layer: LayerTally) -> DumpStats:
    pairs = {pair: tally(apart) for pair, apart in layer.pairs.items()}
    return DumpStats(name, tuple(map(head_stats, layer.heads)), pairs)


def head_stats(head: HeadTally) -> HeadStats:
    """The statistics of one head; a measure that no row has means nothing here."""
    best = head.examples[0] if head.examples else None
    largest = best and Largest(best.value, (best.query, best.key), best.tokens)
    sums = {name: tally(each) if each.rows else None for name, each in head.sums.items()}
    return HeadStats(sums, largest, head.empty_rows, head.uneven_rows)


def tally(found: GridSum) -> Tally:
    """A sum as one of floats."""
    return Tally(found.sum, found.rows)


def headline(part: CorpusPart, screen: Screen) -> Iterator[Line]:
    """The number of sentences and tokens that were measured, and of which lines."""
    count = "sentence" if part.sentences == 1 else "sentences"
    said = f"{part.sentences:,} {count}, {part.tokens:,} tokens"
    if (part.first, part.stop) != (0, part.lines):
        said += f"; {spell(part.first, part.stop)} of {part.lines:,}"
    if part.skipped:
        said += f"; {plural(sum(each.count for each in part.skipped.values()), 'line')} skipped"
    yield [(screen.ours(said), "name")]
    yield []


def skipped_lines(part: CorpusPart) -> Iterator[str]:
    """Say how many lines were left out for each reason, and the first of them."""
    for reason, lines in sorted(part.skipped.items()):
        first = ", ".join(f"{line:,}" for line in lines.first)
        more = ", …" if lines.count > len(lines.first) else ""
        noun = "line" if lines.count == 1 else "lines"
        yield f"{lines.count:,} {noun} skipped: {reason} ({noun} {first}{more})"
