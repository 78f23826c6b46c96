"""attnctl model: what a checkpoint is, layer by layer."""

from __future__ import annotations

from typing import Annotated

import typer

from attnctl.cli.app import make_app
from attnctl.cli.options import command, findings_option, option, split_outputs

app = make_app()


@command(
    app,
    "attnctl model path/to/checkpoint",
    "attnctl model path/to/checkpoint --json",
    "attnctl model path/to/checkpoint -o model.html",
)
def model(
    *,
    folder: Annotated[
        str,
        typer.Argument(metavar="DIR", help="What save_pretrained wrote, or the id of a model on the hub."),
    ],
    json_: Annotated[bool, option("Print it as JSON.", "--json")] = False,
    output: Annotated[list[str] | None, findings_option("model")] = None,
) -> None:
    """Say what a checkpoint is: its family, each layer's window, rope and network, and its size.

    Nothing is computed and no tensor is read. Refused by name: an unknown model_type, quantised
    weights, a kind of rope that is not understood, pickles.
    """
    from attnctl.cli.progress import progress
    from attnctl.formats import write_found
    from attnctl.store.strict_json import print_json
    from attnctl.verbs.models.about import about

    files, printed = split_outputs(output)
    with progress("reading"):
        found = about(folder)
    write_found("model", [found], files)
    if not printed:
        return
    if json_:
        print_json(found.to_dict(), indent=1)
        return
    from attnctl.drawing.screen.output import print_view
    from attnctl.verbs.models.view import model_lines

    print_view(lambda screen: model_lines(found, screen))
