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
        for own, theirs in zip(self.layers, other.layers, strict=bool(other.layers)):
            own.add(theirs)

    def skip(self, reason: str, count: int, first: Iterable[int]) -> None:
        self.skipped.setdefault(reason, SkippedLines()).add(count, first)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, with the hash of all of it."""
        skipped = [
            {"reason": reason, "count": count.count, "lines": count.first}
            for reason, count in sorted(self.skipped.items())
        ]
        data = {
            "schema": SCHEMA,
            **self.about,
            "lines": {"first": self.first + 1, "count": self.stop - self.first},
            "sentences": self.sentences,
            "tokens": self.tokens,
            **({"skipped": skipped} if skipped else {}),
            "sums_in": f"2^-{tally.GRID}",
            "bits_a_bin": 1 / tally.BINS_A_BIT,
            "layers": [layer_data(number, layer) for number, layer in enumerate(self.layers)],
        }
        return {**data, "sha256": content_hash(data)}

    def to_bytes(self) -> bytes:
        """As JSON; the same bytes for the same content."""
        return encode_json(f"{json_text(self.to_dict())}\n")


def content_hash(data: Mapping[str, Any]) -> str:
    return sha256(encode_json(json_text(data))).hexdigest()


def layer_data(number: int, layer: LayerTally) -> dict[str, Any]:
    heads = [{"head": at, **head_data(head)} for at, head in enumerate(layer.heads)]
    pairs = [
        {"heads": list(pair), "divergence": apart.mean, "sum": str(apart.units), "rows": apart.rows}
        for pair, apart in sorted(layer.pairs.items())
    ]
    return {"layer": number, "heads": heads, **({"pairs": pairs} if pairs else {})}


def head_data(head: HeadTally) -> dict[str, Any]:
    """Means by name, then the sums (whole numbers as text: many readers of JSON would round them)."""
    return {
        **head.means,
        "sums": {name: str(sum_.units) for name, sum_ in head.sums.items()},
        "rows": {name: sum_.rows for name, sum_ in head.sums.items()},
        "entropies": head.entropies,
        "largest": [
            {"value": found.value, "line": found.line, "query": found.at[0], "key": found.at[1]}
            | {"tokens": list(found.tokens or ())}
            for found in head.examples
        ],
        "empty_rows": head.empty_rows,
        "uneven_rows": head.uneven_rows,
    }


def read_part(path: str, *, own: bool = False) -> CorpusPart:
    """A part from its file, `own` where it is about to be written. Raises AttnError for what is none."""
    if is_address(path):
        with open_address(path, "rb") as elsewhere:
            data = elsewhere.read(LONGEST + 1)
    else:
        with refuse_os_errors(path), (open_own if own else open_input)(path) as stream:
            data = stream.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise AttnError(f"{path}: not a part of a corpus: longer than {LONGEST} bytes")
    return part_of_bytes(data, path)


def may_be_there(path: str) -> bool:
    """False for what is no file, of which none was written: a pipe, say."""
    return is_address(path) or Path(path).is_file()


def part_of_bytes(data: bytes, place: str) -> CorpusPart:
    found = header_of(data, place)
    if found.get("schema") != SCHEMA:
        how = "attnctl stats --file CORPUS --shard I/N -o PART makes them"
        raise AttnError(f"{place}: not a part of a corpus (its schema is not {SCHEMA}); {how}")
    changed = f"{place}: changed since it was written; make it again (attnctl stats --shard … -o {place})"
    try:
        part = part_from(found)
        same = part.to_bytes() == data
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        raise AttnError(changed) from None
    if not same or not 0 <= part.first <= part.stop <= part.lines:
        raise AttnError(changed)
    return part


def part_from(data: Mapping[str, Any]) -> CorpusPart:
    """Read back what `to_dict` wrote; anything else raises one of its errors, or comes out different."""
    first = data["lines"]["first"] - 1
    layers = [
        LayerTally(
            [head_from(head) for head in layer["heads"]],
            {
                (a, b): GridSum(read_units(pair["sum"]), read_count(pair["rows"]))
                for pair in layer.get("pairs", ())
                for a, b in [pair["heads"]]
            },
        )
        for layer in data["layers"]
    ]
    common = {name: data[name] for name in data if name in SAME}
    if common.keys() != set(SAME):
        raise LookupError
    read_count(common["corpus"]["lines"])
    return CorpusPart(
        common,
        first,
        first + read_count(data["lines"]["count"]),
        read_count(data["sentences"]),
        read_count(data["tokens"]),
        layers,
        {str(reason["reason"]): read_skipped(reason) for reason in data.get("skipped", ())},
    )


def read_skipped(data: Mapping[str, Any]) -> SkippedLines:
    found = SkippedLines(read_count(data["count"]), list(map(read_count, data["lines"])))
    if not found.count or len(found.first) != min(found.count, tally.EXAMPLES):
        raise ValueError
    return found


def head_from(data: Mapping[str, Any]) -> HeadTally:
    head = HeadTally(empty_rows=read_count(data["empty_rows"]), uneven_rows=read_count(data["uneven_rows"]))
    for name, sum_ in head.sums.items():
        sum_.add(read_units(data["sums"][name]), read_count(data["rows"][name]))
    head.entropies = list(map(read_count, data["entropies"]))
    if len(head.entropies) != tally.BINS or sum(head.entropies) != head.sums["entropy"].rows:
        raise ValueError
    for entry in data["largest"]:
        query, key = map(str, entry["tokens"])
        line, *at = (read_count(entry[name]) for name in ("line", "query", "key"))
        head.note(Largest(float(entry["value"]), tuple(at), (query, key), line))
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
    raise_all(
        f"{other}: another {differs} than that of {name}; parts of one corpus have the same"
        for other, part in ordered[1:]
        for differs in differing_facts(start.about, part.about)
    )
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
    return [
        f"{spell(later.first, min(part.stop, later.stop))}: in {name} and in {other}; give each part once"
        for (name, part), (other, later) in pairwise(filled)
        if later.first < part.stop
    ]


def lines_left_out(ordered: Sequence[tuple[str, CorpusPart]]) -> list[str]:
    lines = ordered[0][1].lines
    found, reached = [], 0
    for first, stop in [*((part.first, part.stop) for _, part in ordered), (lines, lines)]:
        if first > reached:
            found.append(f"{spell(reached, first)}: in none of the parts; give the part that has them")
        reached = max(reached, stop)
    return found


def spell(first: int, stop: int) -> str:
    """Lines from `first` (from 0) to before `stop`, as people count them."""
    return f"line {stop}" if stop - first == 1 else f"lines {first + 1} to {stop}"


# --- as the statistics of dumps, a dump a layer ---


def report_of(part: CorpusPart) -> StatsReport:
    """A measure that no row has means nothing here."""
    dumps = []
    for at, layer in enumerate(part.layers):
        empty = [name for name in tally.MEASURES if not any(head.sums[name].rows for head in layer.heads)]
        dumps.append(tally.as_stats(f"layer {at}", layer, empty))
    return StatsReport(tuple(dumps))
