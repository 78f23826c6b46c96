"""The commands by name: each is imported when it is called for, and no sooner."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.main import get_command

from attnctl import VERBS, __version__
from attnctl.cli.commands import ANY_WIDTH, Group

HELP = """Every number in attention, from the shell, and where yours goes wrong.

Exit codes: 0 fine or same, 1 differs or check failed, 2 usage, input or I/O, 70 a bug of ours,
130 interrupted, 141 broken pipe.
"""

EXAMPLES = """attnctl run "I love AI" --heads 2
attnctl explain last 'attention_weights[love,AI]'
"""


class Lazy(Group):
    """A group that knows its commands by name and imports only the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every name, in the order a newcomer meets them."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        loaded = get_command(import_module(f"attnctl.cli.{cmd_name}").app)
        loaded.name = cmd_name
        return loaded

    def get_params(self, ctx: Any) -> list[Any]:
        """Every parameter; that completion can also be printed needs no line of the help."""
        parameters = super().get_params(ctx)
        for each in parameters:
            each.hidden = getattr(each, "hidden", False) or each.name == "show_completion"
        return parameters

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The table of commands, without importing any."""
        width = max(map(len, VERBS))
        for title in dict.fromkeys(section for section, _, _ in VERBS.values()):
            lines = [
                (f"{name:{width}}", line) for name, (section, line, _) in VERBS.items() if section == title
            ]
            with formatter.section(title):
                formatter.write_dl(lines)


app = typer.Typer(
    cls=Lazy,
    help=HELP,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], **ANY_WIDTH},
    epilog=EXAMPLES,
)


def show_version(value: bool) -> None:
    """Print the version and end."""
    from attnctl.drawing.screen.output import say

    if value:
        say(f"attnctl {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=show_version, is_eager=True, help="Print the version."
    ),
    debug: bool = typer.Option(False, "--debug", help="On a bug of ours, print the traceback. (First.)"),
) -> None:
    """Show help where no command is given."""
    from attnctl.drawing.screen.output import say

    if context.invoked_subcommand is None:
        say(*context.get_help().split("\n"))
