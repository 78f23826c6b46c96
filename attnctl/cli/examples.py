"""attnctl examples: the configs that are installed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from attnctl.cli.options import command, option
from attnctl.errors import AttnError

app = typer.Typer(rich_markup_mode=None, add_completion=False)

NAME = typer.Argument(help="The config to print.", metavar="NAME", show_default=False)


@command(
    app,
    "attnctl examples",
    "attnctl examples india-is-great -o mine.yaml",
    "attnctl run -c example:india-is-great",
)
def examples(
    *,
    name: Annotated[str | None, NAME] = None,
    output: Annotated[
        str | None,
        option(
            "Write the config to FILE instead of stdout (-).", "--output", "-o", metavar="FILE", writes=True
        ),
    ] = None,
) -> None:
    """List the worked examples that are installed, or print the config of one.

    An example runs where it is: attnctl run -c example:NAME.
    """
    from attnctl.cli.config import write_config
    from attnctl.cli.options import STDOUT
    from attnctl.config.examples import about, names, text_of

    if name is not None:
        if output in {None, STDOUT}:
            sys.stdout.write(text_of(name))
        else:
            write_config(text_of(name), str(output))
        return
    if output is not None:
        raise AttnError("-o: there is no config to write; name one, like india-is-great")
    width = max(map(len, names()))
    for each in names():
        typer.echo(f"{each:{width}}  {about(each)}")
