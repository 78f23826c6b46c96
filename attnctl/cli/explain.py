"""attnctl explain: the arithmetic behind one cell."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NamedTuple

import typer

from attnctl.cli.options import (
    PRECISION,
    AttentionOptions,
    ConfigOption,
    LayerOption,
    NameOption,
    command,
    option,
)
from attnctl.errors import raise_all
from attnctl.values import whole

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class ExplainOptions(NamedTuple):
    """How much of an explanation to show."""

    depth: Annotated[int | None, option("Lines of the derivation to go back, as a tree (1)."), whole(1)] = (
        None
    )
    precision: Annotated[
        int | None, option("Digits after the point, 0 to 17 (4); JSON has every digit."), PRECISION
    ] = None
    full: Annotated[bool, option("Leave nothing out on a terminal, however long.", "--full")] = False
    json: Annotated[bool, option("Write JSON.", "--json")] = False


@command(app)
def explain(
    *,
    dump: Annotated[
        str, typer.Argument(help="A dump (.json .npz .safetensors), or - for stdin.", metavar="DUMP")
    ],
    cell: Annotated[
        str, typer.Argument(help="STEP[HEAD,ROW,COLUMN], by index or by token.", metavar="CELL")
    ],
    how: ExplainOptions,
    name: NameOption = None,
    layer: LayerOption = None,
    config: ConfigOption = None,
    attention: AttentionOptions,
) -> None:
    """Show the arithmetic behind one cell of a dump.

    CELL is like 'attention_weights[0,love,AI]': a place along each axis, by index from 0 (or from
    -1 at the end) or by token; 'the#2' is the second "the", and double quotes make anything a
    token ('X["7",0]'). The head may be left out where there is only one.

    For a cell of scores it also says what came from the tokens and what from their positions,
    where positions were added. With --json, "expression" is plain arithmetic in full digits.

    A dump of attnctl says itself how each number came about. For the arrays of another program
    the options for attention say what they were meant to be.
    """
    from attnctl.cells import parse
    from attnctl.cli.attend import renames
    from attnctl.cli.settings import settings_from
    from attnctl.plan.intended import under_our_names
    from attnctl.store import read_one
    from attnctl.verbs.explain import Explainer

    unused = {"--precision": how.precision is not None, "--full": how.full} if how.json else {}
    raise_all(
        f"{flag}: JSON has every digit and every term anyway" for flag, given in unused.items() if given
    )
    address, depth = parse(cell), how.depth or 1
    meant = settings_from(config, attention) if config or attention else None
    trace = under_our_names(read_one(dump, rename=renames(name or [])), meant, layer)
    explainer = Explainer(trace, meant)
    root = explainer.root(address, depth)
    if how.json:
        from attnctl.store.dump_json import encoded, sink
        from attnctl.verbs.explain.view import json_pieces

        write = sink(sys.stdout)
        for piece in json_pieces(explainer, root):
            write(encoded(piece))
        return
    from attnctl.screen.output import output_for, print_lines, screen_of
    from attnctl.verbs.explain.view import Page, View

    output = output_for(sys.stdout, os.environ)
    precision = View.precision if how.precision is None else how.precision
    view = View(precision, depth, how.full)
    print_lines(Page(explainer, screen_of(output), view).lines(root), output)
