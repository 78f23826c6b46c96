"""attnctl explain: the arithmetic behind one cell."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from attnctl.base.errors import raise_all
from attnctl.base.setting import SENTENCE
from attnctl.base.values import whole
from attnctl.cli.options import (
    PRECISION,
    ArrayOptions,
    AttentionOptions,
    ConfigOption,
    Given,
    LayerOption,
    MemoryOption,
    NameOption,
    SentenceOptions,
    TraceOption,
    command,
    option,
    pick_trace,
)
from attnctl.inputs.config.fields import settings_with_flags

if TYPE_CHECKING:
    from attnctl.base.cells import Address
    from attnctl.base.trace import Trace
    from attnctl.verbs.explain import Explainer, Node

app = typer.Typer(rich_markup_mode=None, add_completion=False)


DUMP = "A dump (.json .npz .safetensors), - for stdin, or a sentence to run."
SUFFIX = re.compile(r"\.\w+(\[.*\])?$")


class ExplainOptions(NamedTuple):
    """How much of an explanation to show."""

    depth: Annotated[int | None, option("Lines of the derivation to go back, as a tree (1)."), whole(1)] = (
        None
    )
    precision: Annotated[
        int | None, option("Digits after the point, 0 to 17 (4); JSON has every digit."), PRECISION
    ] = None
    full: Annotated[bool, option("Leave nothing out, however long a sum or a tree.", "--full")] = False
    json: Annotated[bool, option("Write JSON.", "--json")] = False


@command(
    app,
    "attnctl explain \"I love AI\" --heads 2 'A[1,love,AI]'",
    "attnctl explain dump.json 'attention_weights[0,love,AI]' --depth 3",
    "attnctl explain theirs.npz 'scores[0,1,2]' --scale 0.5 --json",
)
def explain(  # noqa: PLR0913  (a group of options each)
    *,
    dump: Annotated[str, typer.Argument(help=DUMP, metavar="DUMP")],
    cell: Annotated[
        str, typer.Argument(help="STEP[HEAD,ROW,COLUMN], by index or by token.", metavar="CELL")
    ],
    how: ExplainOptions,
    trace: TraceOption = None,
    name: NameOption = None,
    layer: LayerOption = None,
    more: SentenceOptions,
    layout: ArrayOptions,
    config: ConfigOption = None,
    attention: AttentionOptions,
    max_memory: MemoryOption = None,
) -> None:
    """Show the arithmetic behind one cell of a dump, or of the run of a sentence.

    CELL is like 'attention_weights[0,love,AI]': a place along each axis, by index from 0 (or from
    -1 at the end) or by token; 'the#2' is the second "the", and double quotes make anything a
    token ('X["7",0]'). Without a head, the cell of every head is shown. The step may be written
    as its symbol in tables (A, S, Z, Y).

    For a cell of scores it also says what came from the tokens and what from their positions,
    where positions were added. Of a long sum the largest terms are shown, and what the rest comes to.

    With --json, "expression" is plain arithmetic in full digits, and "left_out" says how many terms
    of a long sum it has as one number.

    A dump of attnctl says itself how each number came about. For the arrays of another program
    the options for attention say what they were meant to be.
    """
    from attnctl.base.cells import parse
    from attnctl.cli.attend import renames
    from attnctl.cli.settings import settings_from
    from attnctl.inputs.plan.intended import under_our_names
    from attnctl.store import read_one
    from attnctl.verbs.explain import Explainer

    sentence = is_sentence(dump)
    of_files = {"--trace": trace, "--name": name, "--layer": layer, "--layout": layout.get("layout")}
    raise_all(unused_options(how, of_files, more, sentence=sentence))
    address = parse(cell)
    if sentence:
        from attnctl.api import run

        explainer = Explainer(run(dump, settings_from(config, {**more, **attention})), full=how.full)
    else:
        asked = {**layout, **attention}
        meant = settings_from(config, asked) if config or asked else None
        found = read_one(pick_trace(dump, trace), rename=renames(name or []))
        explainer = Explainer(under_our_names(found, meant, layer), meant, full=how.full)
    roots = [explainer.root(each, how.depth or 1) for each in cells_of(address, explainer.trace)]
    (write_json if how.json else show)(explainer, roots, how)


def unused_options(
    how: ExplainOptions, of_files: Given, of_sentences: Given, *, sentence: bool
) -> Iterator[str]:
    """Options that mean nothing in JSON, for a sentence, or for a dump."""
    if how.precision is not None and how.json:
        yield "--precision: JSON has every digit anyway"
    for flag, value in of_files.items():
        if value is not None and sentence:
            yield f"{flag}: only a dump has that, and this is a sentence: there is no file of that name"
    for name in of_sentences:
        if not sentence:
            flag = settings_with_flags(SENTENCE)[name].flag_name
            yield f"{flag}: only a sentence has that, and this is a dump"


def show(explainer: Explainer, roots: Sequence[Node], how: ExplainOptions) -> None:
    """Print the explanations, an empty line between them."""
    from attnctl.drawing.screen.output import output_for, print_lines, screen_of
    from attnctl.verbs.explain.view import ExplanationView, Page

    output = output_for(sys.stdout, os.environ)
    precision = ExplanationView.precision if how.precision is None else how.precision
    page = Page(explainer, screen_of(output), ExplanationView(precision, how.depth or 1, how.full))
    for number, root in enumerate(roots):
        print_lines([[]] if number else [], output)
        print_lines(page.lines(root), output)


def write_json(explainer: Explainer, roots: Sequence[Node], how: ExplainOptions) -> None:
    """Write one explanation as an object, several as an array."""
    from attnctl.store.strict_json import encode_json, sink
    from attnctl.verbs.explain.view import json_pieces

    write, several = sink(sys.stdout), len(roots) != 1
    for number, root in enumerate(roots):
        write(b"" if not several else b"," if number else b"[")
        for piece in json_pieces(explainer, root):
            write(encode_json(piece))
    write(b"]\n" if several else b"")


def cells_of(address: Address, trace: Trace) -> list[Address]:
    """The cell that is meant, of each head where the head is left out and the first place is a token."""
    from attnctl.base.cells import Index, Token

    address = address.spell_out(trace)
    axes = trace.steps[address.step].axes if address.step in trace else ()
    parts = address.parts
    if axes[:1] != ("head",) or len(parts) != len(axes) - 1 or not isinstance(parts[0], Token):
        return [address]
    heads = range(len(trace[address.step]))
    return [replace(address, parts=(Index(head), *parts)) for head in heads]


def is_sentence(source: str) -> bool:
    """Whether this is a sentence to run: no file of this name is there, and it does not look like one."""
    looks_like_a_file = source == "-" or "/" in source or SUFFIX.search(source) is not None
    return not looks_like_a_file and not os.path.exists(source)  # noqa: PTH110  never raises
