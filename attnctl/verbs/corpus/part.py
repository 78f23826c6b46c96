"""A part of a corpus: what its lines added up to, and what they were lines of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from attnctl.base import Displayed
from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import open_input, open_own, refuse_os_errors
from attnctl.base.words import plural
from attnctl.store.elsewhere import is_address, open_address
from attnctl.store.files import encode_json, json_text, open_output
from attnctl.store.json_file import header_of
from attnctl.verbs.stats import Largest, StatsReport, tally
from attnctl.verbs.stats.tally import GridSum, HeadTally, LayerTally, SkippedLines

SCHEMA = "attnctl/corpus/1"
LONGEST = 2**28  # bytes of a part; what is longer is none
DIGITS = re.compile(r"0|[1-9][0-9]{0,60}")

SAME = ("model", "tokenizer", "corpus", "dtype", "pairs", "attnctl")
"""What the parts of one whole have in common."""


@dataclass(repr=False)
class CorpusPart:
    """The statistics of the lines from `first` (from 0) to before `stop`; `about` says what they are of.

    `layers[3].heads[1].means` are those of a head. It is printed as its command prints it.
    """

    about: dict[str, Any]
    first: int
    stop: int
    sentences: int = 0
    tokens: int = 0
    layers: list[LayerTally] = field(default_factory=list)
    skipped: dict[str, SkippedLines] = field(default_factory=dict)
    """The lines that were left out, by reason."""

    __str__ = Displayed.__str__

    def __repr__(self) -> str:
        counts = (plural(self.sentences, "sentence"), plural(self.tokens, "token"))
        return f"<CorpusPart: {', '.join(counts)}, {self.span} of {self.lines:,}>"

    @property
    def span(self) -> str:
        return spell(self.first, self.stop)

    @property
    def lines(self) -> int:
        count: int = self.about["corpus"]["lines"]
        return count

    def add(self, other: CorpusPart) -> None:
        """Take in the sums of another part; which lines it had is the caller's to know."""
        self.sentences += other.sentences
        self.tokens += other.tokens
        for reason, lines in other.skipped.items():
            self.skip(reason, lines.count, lines.first)
        if not self.layers:
            self.layers = [LayerTally([HeadTally() for _ in layer.heads]) for layer in other.layers]
        if other.layers:  # a part of no sentences has none
            for ours, theirs in zip(self.layers, other.layers, strict=True):
                ours.add(theirs)

    def skip(self, reason: str, count: int, first: Iterable[int]) -> None:
        self.skipped.setdefault(reason, SkippedLines()).add(count, first)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, with the hash of all of it."""
        data = {
            "schema": SCHEMA,
            **self.about,
            "lines": {"first": self.first + 1, "count": self.stop - self.first},
            "sentences": self.sentences,
            "tokens": self.tokens,
        }
        if self.skipped:
            data["skipped"] = [
                {"reason": reason, "count": lines.count, "lines": lines.first}
                for reason, lines in sorted(self.skipped.items())
            ]
        data["sums_in"] = f"2^-{tally.GRID}"
        data["bits_a_bin"] = 1 / tally.BINS_A_BIT
        data["layers"] = [layer_data(number, layer) for number, layer in enumerate(self.layers)]
        data["sha256"] = content_hash(data)
        return data

    def to_bytes(self) -> bytes:
        """As JSON; the same bytes for the same content."""
        return encode_json(f"{json_text(self.to_dict())}\n")


def content_hash(data: Mapping[str, Any]) -> str:
    return sha256(encode_json(json_text(data))).hexdigest()


def layer_data(number: int, layer: LayerTally) -> dict[str, Any]:
    data: dict[str, Any] = {
        "layer": number,
        "heads": [{"head": place, **head_data(head)} for place, head in enumerate(layer.heads)],
    }
    if layer.pairs:
        data["pairs"] = [
            {"heads": list(pair), "divergence": apart.mean, "sum": str(apart.units), "rows": apart.rows}
            for pair, apart in sorted(layer.pairs.items())
        ]
    return data


def head_data(head: HeadTally) -> dict[str, Any]:
    """Means by name, then the sums (whole numbers as text: many readers of JSON would round them)."""
    return {
        **head.means,
        "sums": {name: str(total.units) for name, total in head.sums.items()},
        "rows": {name: total.rows for name, total in head.sums.items()},
        "entropies": head.entropies,
        "largest": list(map(largest_data, head.examples)),
        "empty_rows": head.empty_rows,
        "uneven_rows": head.uneven_rows,
    }


def largest_data(largest: Largest) -> dict[str, Any]:
    query, key = largest.at
    return {
        "value": largest.value,
        "line": largest.line,
        "query": query,
        "key": key,
        "tokens": list(largest.tokens or ()),
    }


def read_part(path: str, *, own: bool = False) -> CorpusPart:
    """A part from its file, `own` where it is about to be written. Raises AttnError for what is none."""
    if is_address(path):
        with open_address(path, "rb") as elsewhere:
            data = elsewhere.read(LONGEST + 1)
    else:
        opener = open_own if own else open_input
        with refuse_os_errors(path), opener(path) as stream:
            data = stream.read(LONGEST + 1)

    if len(data) > LONGEST:
        raise AttnError(f"{path}: not a part of a corpus: longer than {LONGEST} bytes")
    return part_of_bytes(data, path)


def may_be_there(path: str) -> bool:
    """False for what is no file, of which none was written: a pipe, say."""
    return is_address(path) or Path(path).is_file()


def part_of_bytes(data: bytes, place: str) -> CorpusPart:
    """A part from the bytes of its file. Raises AttnError where they are not those that were written."""
    header = header_of(data, place)
    if header.get("schema") != SCHEMA:
        instead = "attnctl corpus run CORPUS --shard I/N -o PART makes them"
        raise AttnError(f"{place}: not a part of a corpus (its schema is not {SCHEMA}); {instead}")

    again = f"make it again (attnctl corpus run CORPUS --shard … -o {place})"
    changed = f"{place}: changed since it was written; {again}"
    try:
        part = part_from(header)
        # Written again it has the same bytes, its hash among them, unless something was changed.
        is_same = part.to_bytes() == data
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        raise AttnError(changed) from None
    if not is_same or not 0 <= part.first <= part.stop <= part.lines:
        raise AttnError(changed)
    return part


def part_from(data: Mapping[str, Any]) -> CorpusPart:
    """Read back what `to_dict` wrote; anything else raises one of its errors, or comes out different."""
    first = data["lines"]["first"] - 1
    layers = [layer_from(layer) for layer in data["layers"]]
    about = {name: data[name] for name in data if name in SAME}
    if about.keys() != set(SAME):
        raise LookupError
    read_count(about["corpus"]["lines"])

    return CorpusPart(
        about,
        first,
        first + read_count(data["lines"]["count"]),
        sentences=read_count(data["sentences"]),
        tokens=read_count(data["tokens"]),
        layers=layers,
        skipped={str(entry["reason"]): read_skipped(entry) for entry in data.get("skipped", ())},
    )


def layer_from(data: Mapping[str, Any]) -> LayerTally:
    layer = LayerTally([head_from(head) for head in data["heads"]])
    for pair in data.get("pairs", ()):
        a, b = pair["heads"]
        layer.pairs[a, b] = GridSum(read_units(pair["sum"]), read_count(pair["rows"]))
    return layer


def read_skipped(data: Mapping[str, Any]) -> SkippedLines:
    lines = SkippedLines(read_count(data["count"]), list(map(read_count, data["lines"])))
    if not lines.count or len(lines.first) != min(lines.count, tally.EXAMPLES):
        raise ValueError
    return lines


def head_from(data: Mapping[str, Any]) -> HeadTally:
    head = HeadTally(empty_rows=read_count(data["empty_rows"]), uneven_rows=read_count(data["uneven_rows"]))
    for name, total in head.sums.items():
        total.add(read_units(data["sums"][name]), read_count(data["rows"][name]))

    head.entropies = list(map(read_count, data["entropies"]))
    if len(head.entropies) != tally.BINS or sum(head.entropies) != head.sums["entropy"].rows:
        raise ValueError
    for entry in data["largest"]:
        query, key = map(str, entry["tokens"])
        line = read_count(entry["line"])
        cell = (read_count(entry["query"]), read_count(entry["key"]))
        head.note(Largest(float(entry["value"]), cell, (query, key), line=line))
    return head


def read_units(text: str) -> int:
    if not DIGITS.fullmatch(text):
        raise ValueError
    return int(text)


def read_count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def write_part(part: CorpusPart, path: str) -> None:
    with open_address(path, "wb") if is_address(path) else open_output(path) as stream:
        stream.write(part.to_bytes())


def merge_parts(parts: Sequence[tuple[str, CorpusPart]]) -> CorpusPart:
    """A whole corpus from named parts. Raises AttnError where they overlap, leave gaps or differ."""
    ordered = sorted(parts, key=lambda named: (named[1].first, named[1].stop))
    name, start = ordered[0]
    problems: list[str] = []
    for other, part in ordered[1:]:
        problems.extend(
            f"{other}: another {fact} than that of {name}; parts of one corpus have the same"
            for fact in differing_facts(start.about, part.about)
        )
    raise_all(problems)
    raise_all(overlaps(ordered) + lines_left_out(ordered))

    whole = CorpusPart(start.about, 0, start.lines)
    for _, part in ordered:
        try:
            whole.add(part)
        except (ValueError, LookupError):
            raise AttnError("the parts have different numbers of layers or heads") from None
    return whole


def differing_facts(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    words = {"pairs": "choice of --pairs", "attnctl": "version of attnctl", "dtype": "type of number"}
    return [words.get(name, name) for name in SAME if ours[name] != theirs[name]]


def overlaps(ordered: Sequence[tuple[str, CorpusPart]]) -> list[str]:
    filled = [(name, part) for name, part in ordered if part.first < part.stop]
    problems = []
    for (name, part), (other, later) in pairwise(filled):
        if later.first < part.stop:
            lines = spell(later.first, min(part.stop, later.stop))
            problems.append(f"{lines}: in {name} and in {other}; give each part once")
    return problems


def lines_left_out(ordered: Sequence[tuple[str, CorpusPart]]) -> list[str]:
    spans = [(part.first, part.stop) for _, part in ordered]
    _, start = ordered[0]
    spans.append((start.lines, start.lines))  # what is behind the last part is left out, too

    problems = []
    reached = 0
    for first, stop in spans:
        if first > reached:
            problems.append(f"{spell(reached, first)}: in none of the parts; give the part that has them")
        reached = max(reached, stop)
    return problems


def spell(first: int, stop: int) -> str:
    """Lines from `first` (from 0) to before `stop`, as people count them."""
    return f"line {stop}" if stop - first == 1 else f"lines {first + 1} to {stop}"


# --- as the statistics of dumps, a dump a layer ---


def report_of(part: CorpusPart) -> StatsReport:
    """A measure that no row has means nothing here."""
    dumps = []
    for number, layer in enumerate(part.layers):
        empty = [name for name in tally.MEASURES if not any(head.sums[name].rows for head in layer.heads)]
        dumps.append(tally.as_stats(f"layer {number}", layer, empty))
    return StatsReport(tuple(dumps))
