"""attnctl explain: the arithmetic behind one cell."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.rooms import formats_of
from attnctl.base.values import whole_number, words
from attnctl.cli import options
from attnctl.cli.options import argument, command, excludes, only, option
from attnctl.cli.program import complain
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.output import Element, print_view
from attnctl.drawing.screen.text import shell_word
from attnctl.formats import print_text, write_found, write_text
from attnctl.inputs.config.flags import by_flag
from attnctl.record import Trace
from attnctl.record.cells import Address, Token, parse_address
from attnctl.sources import HELP, open_source
from attnctl.sources.sentence import Arguments
from attnctl.verbs.explain import Explainer
from attnctl.verbs.explain.view import Page, write_json
from attnctl.verbs.explain.written import explanation_text

PRINTED = only(
    lambda given: options.split_outputs(given["output"])[1] or given["notation"],
    "files have every digit anyway, but for those of --as",
)

NOTATIONS = {fmt.name: fmt.suffix for fmt in formats_of("explain") if fmt.text}
"""What --as names, and the suffix of its files."""


@command(
    "attnctl explain \"I love AI\" --heads 2 'A[1,love,AI]'",
    "attnctl explain dump.json 'attention_weights[0,love,AI]' --depth 3",
    "attnctl explain theirs.npz 'scores[0,1,2]' --scale 0.5 --json",
)
def explain(  # noqa: C901, PLR0913  (options, and groups of them; where the answer goes)
    *,
    source: str | None = argument(HELP, "SOURCE"),
    cell: str | None = argument("STEP[HEAD,ROW,COLUMN], by index or by token.", "CELL"),
    depth: int | None = option("How many steps to go back, as a tree; default: 1.", whole_number(1)),
    precision: int | None = option(
        "Decimals, 0 to 17; default: 4. JSON has every digit.",
        options.PRECISION,
        terms=[excludes("json", "JSON has every digit anyway"), PRINTED],
    ),
    full: bool = option("Show long sums and trees in full."),
    json: bool = option("Write JSON."),
    trace: options.Trace = None,
    name: options.Name = None,
    layer: int | None = option("Which layer of a state dict to read, from 0.", options.LAYER),
    more: options.Sentence,
    layout: options.Arrays,
    config: options.Config = None,
    attention: options.Attention,
    max_memory: options.Memory = None,
    output: list[str] | None = options.findings_option("explain"),
    notation: str | None = option(
        "Write the arithmetic as latex, typst or markdown: on stdout, or to a FILE of -o.",
        words(*NOTATIONS),
        "--as",
        metavar="NAME",
        terms=[
            excludes("json", "--json is another format; leave one of them out"),
            only(options.is_written, options.NOT_WRITTEN),
        ],
    ),
) -> None:
    """Show the arithmetic behind one cell of a dump, or of the run of a sentence.

    CELL is like 'attention_weights[0,love,AI]': a place along each axis, by index from 0 (or from -1 at
    the end) or by token; 'the#2' is the second "the", and double quotes make anything a token
    ('X["7",0]'). Without a head, the cell of every head is shown. The step may be given by its symbol in
    the tables (A, S, Z, Y).

    For a cell of scores it also shows how much comes from the tokens and how much from their positions,
    where positions were added. Of a long sum the largest terms are shown, and the total of the rest.

    With --json, "expression" is plain arithmetic with full digits, and "left_out" is the number of terms
    of a long sum that are given as one number.

    A dump written by attnctl records how each number was computed. For arrays of another program, the
    options for attention say what they were meant to be.
    """
    if cell is None and config is not None:  # the sentence is the config's own
        cell = source
        source = None
    if cell is None:
        raise AttnError(say_what_is_lacking(source))

    files, printed = options.split_outputs(output)
    settings = {**more, **layout, **attention}
    numbers = open_source(source, Arguments(config, settings, trace, options.renames(name or []), layer))
    of_files = {"--trace": trace, "--name": name, "--layer": layer, **by_flag(layout)}
    raise_all(numbers.list_unused(of_files, by_flag(more)))

    address = parse_address(cell)
    recorded = numbers.trace()
    meant = numbers.meant(recorded)
    note = what_is_taken(address.spell_out(recorded), recorded)
    if note:
        complain(f"note: {note}")

    levels = depth or 1
    explainer = Explainer(numbers.under_our_names(recorded), meant, full=full)
    cells = cells_of(address, explainer.trace)
    questions = [(explainer, place, levels) for place in cells]
    digits = Page.precision if precision is None else precision
    if notation:
        written = explanation_text(questions, notation, digits, full=full)
        for path in [path for path in files if path.endswith(NOTATIONS[notation])]:
            write_text(written, path)
            files.remove(path)
    write_found("explain", questions, files)

    def lines(screen: Screen) -> Iterator[Element]:
        for number, place in enumerate(cells):
            if number:
                yield []
            page = Page(explainer, screen, digits, levels, full)
            yield from page.lines(explainer.root(place, levels))

    if printed and notation:
        print_text(written)
    elif printed and json:
        write_json(questions, sys.stdout)
    elif printed:
        print_view(lines)


def say_what_is_lacking(source: str | None) -> str:
    """The message on a command line without a cell; one that is there alone lacks what it is of."""
    if source is not None and re.fullmatch(r"\w+\[.*\]", source):
        instead = f"write a SOURCE before it, like last {shell_word(source)}"
        return f"{source}: a cell of what? {instead}"
    return "no CELL; write a SOURCE and a CELL, like \"I love AI\" 'scores[I,AI]'"


def leaves_out_head(address: Address, trace: Trace) -> bool:
    """True for an address that names a place along each axis but the first, which is that of heads."""
    if address.step not in trace or not address.parts:
        return False
    axes = trace.steps[address.step].axes
    return axes[:1] == ("head",) and len(address.parts) == len(axes) - 1


def what_is_taken(address: Address, trace: Trace) -> str:
    """The note on a number that is read as a query, as the one head that there is is left out."""
    if not leaves_out_head(address, trace) or len(trace[address.step]) > 1:
        return ""

    first = address.parts[0]
    if not isinstance(first, int):
        return ""
    axis = trace.steps[address.step].axes[1]
    return f"{first} is read as the {axis}; the head, of which there is one, is left out"


def cells_of(address: Address, trace: Trace) -> list[Address]:
    """The cell that is meant, of each head where the head is left out and the first place is a token."""
    address = address.spell_out(trace)
    if not leaves_out_head(address, trace) or not isinstance(address.parts[0], Token):
        return [address]

    heads = len(trace[address.step])
    return [replace(address, parts=(head, *address.parts)) for head in range(heads)]
