"""attnctl examples: the configs that are installed."""

from __future__ import annotations

from attnctl.cli.config import ForceOption, print_config, write_config
from attnctl.cli.options import STDOUT, argument, command, needs, output_option
from attnctl.drawing.screen.listing import list_meanings
from attnctl.drawing.screen.output import print_view
from attnctl.inputs.config.examples import example_names, example_summary, example_text


@command(
    "attnctl examples",
    "attnctl examples india-is-great -o mine.yaml",
    "attnctl run -c example:india-is-great",
)
def examples(
    *,
    name: str | None = argument("The config to print.", "NAME"),
    output: str | None = output_option(
        "Write the config to FILE instead of stdout (-).",
        terms=[needs("name", "there is no config to write; name one, like india-is-great")],
    ),
    force: ForceOption = False,
) -> None:
    """List the worked examples that are installed, or print the config of one.

    An example runs where it is: attnctl run -c example:NAME.
    """
    if name is not None:
        if output is None or output == STDOUT:
            print_config(example_text(name))
        else:
            write_config(example_text(name), output, force=force)
        return
    summaries = {name: example_summary(name) for name in example_names()}
    print_view(lambda screen: list_meanings(summaries, screen))
