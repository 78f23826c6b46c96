"""The commands by name: each is imported when it is called for, and no sooner."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.main import get_command

from attnctl import __version__
from attnctl.cli.commands import ANY_WIDTH, Group

GROUPS = {
    "Look": {
        "run": "Tokenize a sentence, attend, show every step.",
        "show": "Render a dump again, whole or in part.",
        "explain": "Show the arithmetic behind one cell.",
        "explore": "Walk through it all in the terminal.",
        "stats": "Measure each head: entropy, distance, what it looks at.",
        "model": "Say what a trained model is, layer by layer.",
    },
    "Learn": {
        "learn": "Take a lesson: predict a number, then see it revealed.",
        "exercise": "Make exercises of runs, and grade a class.",
    },
    "Compare": {
        "check": "Recompute anyone's dump; name the first wrong step and why.",
        "diff": "Compare two dumps: where they part, by how much, and why.",
    },
    "Build": {
        "attend": "Attend over arrays: Q K V, or X and weights.",
        "conform": "Hold someone's attention function to a suite of cases.",
    },
    "Files": {
        "config": "Write, check and describe YAML configs.",
        "examples": "List the configs that are installed, or print one.",
    },
}
"""Every command with its one line of help, in the order a newcomer meets them."""

COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}
"""Every command; `attnctl.cli.NAME` holds its Typer app."""

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
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
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
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", line) for name, line in commands.items()])


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
