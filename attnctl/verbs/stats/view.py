"""Statistics of heads as a table and as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TextIO

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import number_text, plural
from attnctl.drawing.screen import Line, Screen
from attnctl.drawing.screen.output import Element
from attnctl.drawing.screen.text import cells, pad_left, pad_right
from attnctl.drawing.show import View
from attnctl.drawing.show.frames import frames
from attnctl.drawing.show.headline import beginning
from attnctl.math.derivation import Step
from attnctl.math.ops import Unstated
from attnctl.record import Trace
from attnctl.store.long_csv import csv_cell
from attnctl.verbs.corpus.part import CorpusPart, report_of
from attnctl.verbs.stats import DumpStats, HeadStats, StatsReport
from attnctl.verbs.stats.tally import MEASURES

HEADINGS = ("bits", "keys", "dist", "prev", "first", "self", "same")
"""What stands above each of MEASURES."""

LEGEND = {
    "bits": "entropy of a row of weights",
    "keys": "effective number of keys, 2 to the entropy",
    "dist": "how far away, |query − key| in tokens",
    "prev …": "share of attention on the token before, on the first, on itself",
    "same": "share on the same word elsewhere",
    "nearest": "the head that attends most alike, by Jensen–Shannon divergence in bits",
}
"""What the columns mean; all are means over rows."""

GAP = "  "

Cells = list[str]


@dataclass(frozen=True)
class StatsTable:
    screen: Screen
    precision: int = 2

    def lines(self, report: StatsReport) -> Iterator[Line]:
        groups = list(report.dumps)
        whole = report.aggregate if len(groups) > 1 else None
        groups += [whole] if whole else []
        names = ["head", *HEADINGS, "largest", *(["nearest"] if report.compared else [])]
        bodies, widths = self.fitting(groups, names)
        yield self.line(names, widths, "label")
        for group, body in zip(groups, bodies, strict=True):
            yield self.title(group, "all together" if group is whole else group.name)
            for row in body:
                yield self.line(row, widths, "")
            for words in notes_on(group):
                yield from self.screen.flow([(self.screen.printable(f"      {words}"), "aside")], " ")
        if len(report.dumps) > 1 and whole is None:
            words = "no aggregate: the dumps have different numbers of heads"
            yield [(self.screen.printable(words), "aside")]
        yield []
        for word, meaning in legend_of(report).items():
            words = pad_right(self.screen.printable(word), 9) + self.screen.printable(meaning)
            yield [(words, "aside")]

    def fitting(self, groups: Sequence[DumpStats], names: Cells) -> tuple[list[list[Cells]], list[int]]:
        """The rows of each group and the width of each column, tokens as short as they must be."""
        # Cells of a token beside the largest weight on a terminal: as many as leave room for the rest.
        for most in range(12, 2, -1):
            rows = ((self.row(group, at, most) for at in range(len(group.heads))) for group in groups)
            bodies = [[row[: len(names)] for row in body] for body in rows]
            columns = zip(names, *chain.from_iterable(bodies), strict=True)
            widths = [max(map(cells, column)) for column in columns]
            if not self.screen.fits or sum(widths) + len(GAP) * (len(widths) - 1) <= self.screen.width:
                break
        return bodies, widths

    def title(self, group: DumpStats, name: str) -> Line:
        name = self.screen.printable(name)
        line: Line = [(name, "name")]
        if group.sentence and group.sentence != group.name:
            shown, rest = beginning(group.sentence)
            more = f" {self.screen.left_out(rest)} characters" if rest else ""
            room = max(12, self.screen.width - cells(name + GAP + more))
            line += [(GAP + self.screen.short(self.screen.printable(shown), room) + more, "aside")]
        return line

    def row(self, group: DumpStats, number: int, most: int) -> Cells:
        head, near = group.heads[number], group.nearest(number)
        nearest = f"{near[0]} at {self.number(near[1])}" if near else self.number(None)
        return [str(number), *map(self.number, head.means.values()), self.largest(head, most), nearest]

    def number(self, value: float | None) -> str:
        return self.screen.printable("–") if value is None else f"{value:.{self.precision}f}"

    def largest(self, head: HeadStats, most: int) -> str:
        if head.largest is None:
            return self.number(None)
        places = head.largest.tokens or tuple(map(str, head.largest.at[-2:]))
        words = [self.screen.short(self.screen.token(place), most) for place in places]
        return f"{self.number(head.largest.value)} {self.screen.printable('→').join(words)}"

    def line(self, row: Sequence[str], widths: Sequence[int], style: str) -> Line:
        numbers = 1 + len(HEADINGS)
        columns = list(zip(row, widths, strict=True))
        texts = [pad_left(*column) for column in columns[:numbers]]
        texts += [pad_right(*column) for column in columns[numbers:-1]]
        return [(GAP.join([*texts, row[-1]]), style)]


def legend_of(report: StatsReport) -> dict[str, str]:
    return {word: means for word, means in LEGEND.items() if word != "nearest" or report.compared}


def notes_on(group: DumpStats) -> Iterator[str]:
    """Sentences on measures that mean nothing here, on rows that see nothing or do not sum to 1."""
    if all(head.tallies["distance"] is None for head in group.heads):
        yield "queries have no place among the keys: dist, prev and self mean nothing"
    empty = [head.empty_rows for head in group.heads]
    uneven = [head.uneven_rows for head in group.heads]
    off = "rows that do not sum to 1, taken as shares of what they do"
    for words, counts in (("rows that see nothing", empty), (off, uneven)):
        if any(counts):
            told = ", ".join(f"{count} of head {at}" for at, count in enumerate(counts) if count)
            yield f"{words}: {told}"


def result_lines(
    found: StatsReport, screen: Screen, precision: int | None, *, heat: bool
) -> Iterator[Element]:
    """The table, the rollout, and heat maps: of several dumps on a terminal without being asked."""
    yield from StatsTable(screen, StatsTable.precision if precision is None else precision).lines(found)
    if found.rolled is not None:
        yield from rollout_lines(found, screen, precision)
    if heat or (screen.fits and len(found.dumps) > 1):
        from attnctl.verbs.stats.picture import map_lines

        yield from map_lines(found, screen)


def rollout_lines(found: StatsReport, screen: Screen, precision: int | None) -> Iterator[Element]:
    assert found.rolled is not None
    formula = "Ã_L … Ã_2 Ã_1, Ã = (A + I) / 2"
    step = Step("rollout", Unstated(), (), ("query", "key"), formula, "R")
    trace = Trace({"rollout": step}, {"rollout": found.rolled}, {"tokens": found.tokens})
    view = View(precision=View.precision if precision is None else precision)
    yield []
    yield [("rollout", "name"), (screen.printable(f"   {formula}   {len(found.dumps)} layers"), "aside")]
    yield from frames(trace, "rollout", screen, view, 0).lines()


def part_lines(part: CorpusPart, screen: Screen) -> Iterator[Element]:
    yield from part_headline(part, screen)
    yield from StatsTable(screen).lines(report_of(part))


def part_headline(part: CorpusPart, screen: Screen) -> Iterator[Line]:
    said = f"{plural(part.sentences, 'sentence')}, {part.tokens:,} tokens"
    if (part.first, part.stop) != (0, part.lines):
        said += f"; {part.span} of {part.lines:,}"
    if part.skipped:
        said += f"; {plural(sum(reasons.count for reasons in part.skipped.values()), 'line')} skipped"
    yield [(screen.printable(said), "name")]
    yield []


def skipped_lines(part: CorpusPart) -> Iterator[str]:
    for reason, lines in sorted(part.skipped.items()):
        first = ", ".join(f"{line:,}" for line in lines.first) + ", …" * (lines.count > len(lines.first))
        noun = "line" if lines.count == 1 else "lines"
        yield f"{lines.count:,} {noun} skipped: {reason} ({noun} {first})"


PLACES = ("largest", "largest_query", "largest_key", "query_token", "key_token")
COLUMNS = ("dump", "head", *MEASURES, *PLACES, "empty_rows", "uneven_rows", "nearest_head", "divergence")


def write_csv(report: StatsReport, stream: TextIO) -> None:
    """A line for each head of each dump, and for all of them together. Raises AttnError for a rollout."""
    if report.rolled is not None:
        raise AttnError("--rollout: a matrix has no place in this CSV; use --json, or a table")
    stream.write(",".join(COLUMNS) + "\n")
    whole = report.aggregate if len(report.dumps) > 1 else None
    for group in [*report.dumps, *([whole] if whole else [])]:
        for number, head in enumerate(group.heads):
            near = group.nearest(number)
            nearest = (str(near[0]), full_digits(near[1])) if near else ("", "")
            stream.write(",".join([csv_cell(group.name), str(number), *fields(head), *nearest]) + "\n")


def write_found_csv(found: Sequence[StatsReport], stream: TextIO) -> None:
    for report in found:
        write_csv(report, stream)


def fields(head: HeadStats) -> Iterator[str]:
    yield from map(full_digits, head.means.values())
    largest = head.largest
    yield full_digits(largest.value if largest else None)
    yield from map(str, largest.at[-2:] if largest else ("", ""))
    yield from map(csv_cell, largest.tokens if largest and largest.tokens else ("", ""))
    yield from (str(head.empty_rows), str(head.uneven_rows))


def full_digits(value: float | None) -> str:
    return "" if value is None else number_text(value)
