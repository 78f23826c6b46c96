"""Pages: one file each, with nothing outside it; script, style and numbers are in the page."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.drawing.pictures import BLUE, ORANGE
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.output import plain_text
from attnctl.drawing.screen.text import safe
from attnctl.drawing.show import View
from attnctl.drawing.show.headline import beginning, facts
from attnctl.drawing.show.picture import USUAL, picture_of
from attnctl.drawing.show.tables import trace_lines
from attnctl.math import Array
from attnctl.math.names import WEIGHTS, result_in
from attnctl.pages.describe import WORDS, Blocks, Kept, add_block, choose_kept, name_layer, trace_data
from attnctl.record import Trace
from attnctl.store import page

SCRIPTS = (
    *("elements", "colours", "numbers", "arithmetic", "data", "explain", "trace", "address"),
    *("typeset", "proof", "hero", "map", "matrix", "save", "way", "lens", "page"),
)
"""The modules of the page in an order in which each stands below those that it imports."""

IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?(?:const|class|function\*?) (\w+))", re.MULTILINE)

SPARED = re.compile(r"^\s*(?:/\*.*?\*/|//[^\n]*)\n|^\s+", re.MULTILINE | re.DOTALL)
"""Comments on lines of their own and what lines are indented by; no text of ours goes over lines."""

RAMPS = {"up": BLUE, "down": ORANGE}  # from 0 to the largest number, and to the most negative one

NOTHING = "'none'"

PLACE = re.compile(r"{{(\w+)}}")

MOST_PLAIN = 5_000
"""Numbers that are also there as text, for where no script is run."""

MOST_DRAWN = 200_000
"""Numbers that are also there as a picture, for the same."""

ROOM_WITHOUT_SCRIPT = 9_900  # characters of them: the whole is at most 10 KB
MOST_TRACES = 200  # sentences or layers in one page


Marks = Mapping[str, tuple[Array, Array]]
"""By step the cells that a finding is about, and the numbers beside them."""


@dataclass(frozen=True)
class PageFinding:
    """A finding above the matrices of a page: a title, its words as they are printed, its marks."""

    title: str
    text: str
    marks: Sequence[Marks] = field(default_factory=list)  # for each trace by step
    names: Sequence[str] = ()  # what each trace is called, where a finding has several
    panels: Sequence[Mapping[str, Any]] = ()
    """For each trace what its numbers, the others beside them, and their difference are called."""
    opening: str = ""  # what it comes to, as HTML: read before the rest is opened
    first: int = 0  # the trace to open at, where no cell is marked
    kind: str = ""  # right or wrong, where it is a verdict; else it states facts
    kinds: Sequence[str] = ()  # of each trace the same


def pieces(
    traces: Sequence[Trace], finding: PageFinding | None = None, view: View = USUAL
) -> Iterator[bytes]:
    """The bytes of a page of traces, with a finding above them where there is one.

    Raises AttnError for more traces than a page holds.
    """
    if len(traces) > MOST_TRACES:
        raise AttnError(
            f"{len(traces)} traces: a page holds {MOST_TRACES}; pick one with --trace, or write .jsonl"
        )

    shown = choose_kept(traces)
    blocks = Blocks()
    described = [trace_data(kept, blocks) for kept in shown]
    if finding:
        add_finding(described, finding, blocks)

    arrays = [array for _, array in blocks.values()]
    data = {
        "blocks": [{"dtype": array.dtype.name, "shape": list(array.shape)} for array in arrays],
        "traces": described,
        "words": WORDS,
        "ramps": RAMPS,
        "open": trace_to_open(finding) if finding else 0,
        "look": {
            "log": view.log,
            "first": view.without_first,
            "heads": view.heads,
            "precision": view.precision,
            "cell": view.cell and {"step": view.cell[0], "at": view.cell[1]},
        },
    }

    places = fill_in(shown, finding)
    for piece in PLACE.split(asset("page.html")):
        if piece == "data":
            yield from page.description(data)
            for number, array in enumerate(arrays):
                yield from page.block(number, array)
        else:
            yield encode_page(places.get(piece, piece))


def trace_to_open(finding: PageFinding) -> int:
    """The first trace in which a cell is marked."""
    for number, marks in enumerate(finding.marks):
        if any(cells.any() for cells, _ in marks.values()):
            return number
    return finding.first


def fill_in(shown: Sequence[Kept], finding: PageFinding | None) -> dict[str, str]:
    """What stands in the page around its data. A finding may have no trace."""
    if finding:
        heading = finding.title
    else:
        sentence, _ = beginning(shown[0].trace.sentence or "")
        heading = sentence or "attention"

    first = shown[0] if shown else None
    layer = name_layer(first.trace) if first else ""
    title = " · ".join(filter(None, [heading, layer]))
    about = facts(first.trace) if first else []
    notes = first.said if first else []
    return {
        **heading_places(title, heading, " · ".join(about)),
        "policy": policy(),
        "script": script(),
        "notes": "".join(f"<li>{escape(note)}</li>" for note in notes),
        "finding": describe_finding(finding, opened=not shown) if finding else "",
        "plain": without_script(first.trace) if first else "",
    }


def describe_finding(finding: PageFinding, *, opened: bool) -> str:
    """What a finding comes to, then all of its words, folded where matrices say more."""
    words = f'<summary>In full</summary><pre tabindex="0">{escape(finding.text)}</pre>'
    tag = "<details open>" if opened else "<details>"
    rest = f"{tag}{words}</details>"
    kind = f' class="{finding.kind}"' if finding.kind else ""
    return f'<section id="finding"{kind} aria-label="finding">{finding.opening}{rest}</section>\n'


def encode_page(text: str) -> bytes:
    """UTF-8; what steers a terminal, or turns the words of a tab's title around, is shown escaped."""
    return "\n".join(map(safe, text.split("\n"))).encode()


def add_finding(described: Sequence[dict[str, Any]], finding: PageFinding, blocks: Blocks) -> None:
    for entry, marks in zip(described, finding.marks, strict=True):
        entry["marks"] = {
            name: {"wrong": add_block(blocks, wrong.astype("uint8")), "other": add_block(blocks, other)}
            for name, (wrong, other) in marks.items()
            if name in entry["blocks"]
        }
    for entry, name in zip(described, finding.names, strict=False):
        entry["view"]["name"] = ": ".join(filter(None, [name, entry["view"]["sentence"]]))
    for entry, kind in zip(described, finding.kinds, strict=False):
        entry["view"]["kind"] = kind
    for entry, panels in zip(described, finding.panels, strict=False):
        entry["view"]["panels"] = panels


def without_script(trace: Trace) -> str:
    """Weights and result as a picture and as text, of both what has room."""
    names = [name for name in (WEIGHTS, *result_in(trace)) if name in trace]
    parts = [draw_trace(trace)]
    if names and sum(trace[name].size for name in names) <= MOST_PLAIN:
        text = "\n".join(plain_text(trace_lines(trace.select(names), Screen(), View())))
        parts.insert(0, f"<pre>{escape(text)}\n</pre>")

    kept = ""
    for part in parts:
        if len(kept) + len(part) <= ROOM_WITHOUT_SCRIPT:
            kept += part
    return kept


def draw_trace(trace: Trace) -> str:
    """The picture that `-o FILE.svg` writes, as an image; nothing where that would be large."""
    if not len(trace) or trace.get(WEIGHTS, np.empty(0)).size > MOST_DRAWN:
        return ""
    try:
        return image(picture_of([trace]).svg)
    except AttnError:  # a step that no picture shows
        return ""


def image(svg: str, words: str = "") -> str:
    """An SVG as an image that a page holds; `words` say what is in it."""
    data = b64encode(encode_page(svg)).decode()
    return f'<img alt="{escape(words)}" src="data:image/svg+xml;base64,{data}">'


# --- what every page has ---


@cache
def asset(name: str) -> str:
    whole = Path(__file__).with_name("page").joinpath(name).read_text(encoding="utf-8")
    return whole if name.endswith(".html") else SPARED.sub("", whole)


def page_of_tables(
    title: str, heading: str, facts: str, body: Sequence[str], *, finding: str = ""
) -> bytes:
    """A page of these parts; body and finding are HTML, the other texts are not. It runs no script."""
    places = heading_places(title, heading, facts)
    places |= {"policy": policy(runs=False), "body": "\n".join(body), "finding": finding}
    return encode_page(PLACE.sub(lambda place: places[place[1]], asset("tables.html")))


def heading_places(title: str, heading: str, facts: str) -> dict[str, str]:
    words = {"title": title, "heading": heading, "facts": facts}
    return {name: keep_joined(escape(word)) for name, word in words.items()} | {"style": asset("style.css")}


EMOJI = "\u2190-\u2bff\U0001f000-\U0001faff"
JOINER = re.compile(f"(?<=[{EMOJI}\ufe0f])\u200d(?=[{EMOJI}])")


def keep_joined(words: str) -> str:
    """HTML in which what joins two emoji is an entity: it is seen as the one that they make."""
    return JOINER.sub("&#8205;", words)


@cache
def script() -> str:
    return '"use strict";\n{\n' + "\n".join(map(module, SCRIPTS)) + "}\n"


def module(name: str) -> str:
    """A module as a function of its own, with the names that it exports beside those of the others."""
    text = IMPORT.sub("", asset(f"{name}.mjs"))
    names = ", ".join(match[2] for match in EXPORT.finditer(text))
    body = EXPORT.sub(r"\1", text)
    return f"const {{ {names} }} = (() => {{\n{body}return {{ {names} }};\n}})();\n"


@cache
def policy(*, runs: bool = True) -> str:
    """Return the page's content security policy: its own style and script, and nothing else."""
    allowed_script = source_hash(script()) if runs else NOTHING
    return (
        f"default-src 'none'; script-src {allowed_script}; style-src {source_hash(asset('style.css'))}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def source_hash(text: str) -> str:
    """A script or a style as a content security policy names it."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
