"""Statistics of heads as a table and as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TextIO

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
from attnctl.verbs.stats import DumpStats, HeadStats, Largest, StatsReport
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

PRECISION = 2

Cells = list[str]


def stats_lines(report: StatsReport, screen: Screen, precision: int = PRECISION) -> Iterator[Line]:
    groups = list(report.dumps)
    whole = report.whole
    if whole:
        groups.append(whole)
    names = ["head", *HEADINGS, "largest"]
    if report.compared:
        names.append("nearest")

    bodies, widths = fitting_rows(groups, names, screen, precision)
    yield table_line(names, widths, "label")
    for group, body in zip(groups, bodies, strict=True):
        yield title_line(group, "all together" if group is whole else group.name, screen)
        yield from (table_line(row, widths, "") for row in body)
        for words in notes_on(group):
            yield from screen.flow([(screen.printable(f"      {words}"), "aside")], " ")
    if len(report.dumps) > 1 and whole is None:
        yield [(screen.printable("no aggregate: the dumps have different numbers of heads"), "aside")]

    yield []
    for word, meaning in legend_of(report).items():
        yield [(pad_right(screen.printable(word), 9) + screen.printable(meaning), "aside")]


def fitting_rows(
    groups: Sequence[DumpStats], names: Cells, screen: Screen, precision: int
) -> tuple[list[list[Cells]], list[int]]:
    """The rows of each group and the width of each column, tokens as short as they must be."""
    # Cells of a token beside the largest weight on a terminal: as many as leave room for the rest.
    for most in range(12, 2, -1):
        bodies = []
        for group in groups:
            rows = head_rows(group, most, screen, precision)
            bodies.append([row[: len(names)] for row in rows])

        columns = zip(names, *chain.from_iterable(bodies), strict=True)
        widths = [max(map(cells, column)) for column in columns]
        total = sum(widths) + len(GAP) * (len(widths) - 1)
        if not screen.fits or total <= screen.width:
            break
    return bodies, widths


def title_line(group: DumpStats, name: str, screen: Screen) -> Line:
    name = screen.printable(name)
    line: Line = [(name, "name")]
    if group.sentence and group.sentence != group.name:
        start, left_out = beginning(group.sentence)
        more = f" {screen.left_out(left_out)} characters" if left_out else ""
        room = max(12, screen.width - cells(name + GAP + more))
        sentence = screen.short(screen.printable(start), room)
        line.append((f"{GAP}{sentence}{more}", "aside"))
    return line


def head_rows(group: DumpStats, most: int, screen: Screen, precision: int = PRECISION) -> Iterator[Cells]:
    """The cells of each head, tokens in at most so many."""

    def number(value: float | None) -> str:
        if value is None:
            return screen.printable("–")
        return f"{value:.{precision}f}"

    def largest(head: HeadStats) -> str:
        if head.largest is None:
            return number(None)
        places = head.largest.tokens or tuple(map(str, head.largest.at[-2:]))
        words = [screen.short(screen.token(place), most) for place in places]
        arrow = screen.printable("→")
        return f"{number(head.largest.value)} {arrow.join(words)}"

    def nearest(head: int) -> str:
        near = group.nearest(head)
        if not near:
            return number(None)
        other, divergence = near
        return f"{other} at {number(divergence)}"

    for place, head in enumerate(group.heads):
        yield [str(place), *map(number, head.means.values()), largest(head), nearest(place)]


def table_line(row: Sequence[str], widths: Sequence[int], style: str) -> Line:
    numbers = 1 + len(HEADINGS)
    texts = []
    for place, (text, width) in enumerate(zip(row[:-1], widths[:-1], strict=True)):
        pad = pad_left if place < numbers else pad_right
        texts.append(pad(text, width))
    texts.append(row[-1])  # nothing is right of it: no spaces at the end of a line
    return [(GAP.join(texts), style)]


def legend_of(report: StatsReport) -> dict[str, str]:
    legend = dict(LEGEND)
    if not report.compared:
        del legend["nearest"]
    return legend


def notes_on(group: DumpStats) -> Iterator[str]:
    """Sentences on measures that mean nothing here, on rows that see nothing or do not sum to 1."""
    if all(head.tallies["distance"] is None for head in group.heads):
        yield "queries have no place among the keys: dist, prev and self mean nothing"

    if empty := counts_of_heads([head.empty_rows for head in group.heads]):
        yield f"rows that see nothing: {empty}"
    if uneven := counts_of_heads([head.uneven_rows for head in group.heads]):
        yield f"rows that do not sum to 1, taken as shares of what they do: {uneven}"


def counts_of_heads(counts: Sequence[int]) -> str:
    """'3 of head 0, 1 of head 2'; empty where there are none."""
    return ", ".join(f"{count} of head {number}" for number, count in enumerate(counts) if count)


def result_lines(
    found: StatsReport, screen: Screen, precision: int | None, *, heat: bool
) -> Iterator[Element]:
    """The table, the rollout, and heat maps: of several dumps on a terminal without being asked."""
    yield from stats_lines(found, screen, PRECISION if precision is None else precision)
    if found.rolled is not None:
        yield from rollout_lines(found, screen, precision)
    if heat or (screen.fits and len(found.dumps) > 1):
        from attnctl.verbs.stats.picture import map_lines

        yield from map_lines(found, screen)


def rollout_lines(found: StatsReport, screen: Screen, precision: int | None) -> Iterator[Element]:
    assert found.rolled is not None
    formula = "Ã_L … Ã_2 Ã_1, Ã = (A + I) / 2"
    step = Step("rollout", Unstated(), (), axes=("query", "key"), formula=formula, symbol="R")
    trace = Trace({"rollout": step}, {"rollout": found.rolled}, {"tokens": found.tokens})
    view = View() if precision is None else View(precision=precision)
    about = screen.printable(f"   {formula}   {len(found.dumps)} layers")
    yield []
    yield [("rollout", "name"), (about, "aside")]
    yield from frames(trace, "rollout", screen, view, 0).lines()


def part_lines(part: CorpusPart, screen: Screen) -> Iterator[Element]:
    yield from part_headline(part, screen)
    yield from stats_lines(report_of(part), screen)


def part_headline(part: CorpusPart, screen: Screen) -> Iterator[Line]:
    sentences = plural(part.sentences, "sentence")
    headline = f"{sentences}, {part.tokens:,} tokens"
    if (part.first, part.stop) != (0, part.lines):
        headline += f"; {part.span} of {part.lines:,}"
    if part.skipped:
        count = sum(lines.count for lines in part.skipped.values())
        headline += f"; {plural(count, 'line')} skipped"
    yield [(screen.printable(headline), "name")]
    yield []


def skipped_lines(part: CorpusPart) -> Iterator[str]:
    for reason, lines in sorted(part.skipped.items()):
        first = ", ".join(f"{line:,}" for line in lines.first)
        if lines.count > len(lines.first):
            first += ", …"
        noun = "line" if lines.count == 1 else "lines"
        yield f"{lines.count:,} {noun} skipped: {reason} ({noun} {first})"


PLACES = ("largest", "largest_query", "largest_key", "query_token", "key_token")
COLUMNS = ("dump", "head", *MEASURES, *PLACES, "empty_rows", "uneven_rows", "nearest_head", "divergence")


def write_csv(found: Sequence[StatsReport], stream: TextIO) -> None:
    """A line for each head of each dump, and for all of them together. Raises AttnError for a rollout."""
    for report in found:
        if report.rolled is not None:
            raise AttnError("--rollout: a matrix has no place in this CSV; use --json, or a table")
        stream.write(",".join(COLUMNS) + "\n")
        for group in filter(None, [*report.dumps, report.whole]):
            for number, head in enumerate(group.heads):
                line = [csv_cell(group.name), str(number), *fields(head), *nearest_fields(group, number)]
                stream.write(",".join(line) + "\n")


def nearest_fields(group: DumpStats, head: int) -> list[str]:
    near = group.nearest(head)
    if not near:
        return ["", ""]
    other, divergence = near
    return [str(other), full_digits(divergence)]


def fields(head: HeadStats) -> Iterator[str]:
    yield from map(full_digits, head.means.values())
    yield from largest_fields(head.largest)
    yield str(head.empty_rows)
    yield str(head.uneven_rows)


def largest_fields(largest: Largest | None) -> list[str]:
    """Its value, query and key, and their tokens."""
    if largest is None:
        return [""] * 5
    tokens = largest.tokens or ("", "")
    return [full_digits(largest.value), *map(str, largest.at[-2:]), *map(csv_cell, tokens)]


def full_digits(value: float | None) -> str:
    return "" if value is None else number_text(value)
