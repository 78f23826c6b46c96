"""The app, which imports a command when it is called for; help with sections and examples.

It is imported where `attnctl.cli.command` cannot split the words by itself. Typer makes the app and its
groups, says what is wrong with words, folds help to the terminal and installs completion. Three things
that it has are done here instead. Values: since 0.29 it converts even text to text with pydantic, which
takes 70 ms to import; and it stops at the first that is wrong, where `attnctl.cli.options` names all,
also of options that do not go together. Help: without Rich, as long to import, it has one list of
options, no sections, and cuts the lines of commands. Words that a shell offers: its `autocompletion`
reads a function's signature for each option at each start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from inspect import Parameter, Signature, cleandoc
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from attnctl.base import __version__
from attnctl.base.rooms import all_verbs, module_of_commands, options_used_daily
from attnctl.base.words import did_you_mean, one_of, quote
from attnctl.cli.command import Option, Registered, with_values
from attnctl.drawing.screen.output import say

HELP = """Every number in attention, from the shell, and where yours goes wrong.

Exit codes: 0 fine or same, 1 differs or check failed, 2 usage, input or I/O, 70 internal error,
130 interrupted, 141 broken pipe.
"""

EXAMPLES = """attnctl run "I love AI" --heads 2
attnctl explain last 'attention_weights[love,AI]'
"""

EVERYTHING = "--help-all"


def raw_word(parameter: Any, convert: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """Return the word the shell gave; Typer handles what is missing, and options with a callback."""
    missing = value in (None, ())
    if (missing and parameter.required) or (parameter.callback and not missing):
        return convert(context, value)
    return value


def completions(parameter: Any, context: Any, incomplete: str) -> list[Any]:
    """Complete a word of this parameter; none where nothing is known of it."""
    from attnctl.cli.complete import completions_for

    found = completions_for(parameter.name, parameter.metavar, incomplete)
    return [SimpleNamespace(value=word, help=None, type="plain") for word in found]


class Documented:
    """A command that takes its words as they are, and whose help is a page with examples at its end."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of the command's other base
        for parameter in parameters:
            if "process_value" not in vars(parameter):
                parameter.process_value = partial(raw_word, parameter, parameter.process_value)
                parameter.shell_complete = partial(completions, parameter)
        return parameters

    def daily(self, ctx: Any) -> list[str]:
        """The options to show where some are left out; none where all are shown."""
        return [] if EVERYTHING in ctx.meta else options_used_daily(ctx.command_path.partition(" ")[2])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        words = [usage_word(param) for param in self.get_params(ctx) if param.param_type_name == "argument"]
        if isinstance(self, TyperGroup):
            words.append("COMMAND [ARGS]…")
        return ["[OPTIONS]", *words]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        text = cleandoc(self.help or "")  # type: ignore[attr-defined]
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text.partition("\n\n")[0] if self.daily(ctx) else text)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The examples as they are typed: a line that is filled up cannot be copied."""
        lines = (self.epilog or "").splitlines()  # type: ignore[attr-defined]
        if lines:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in lines))


def usage_word(argument: Any) -> str:
    """SENTENCE, SENTENCE… for several, in brackets where it may be left out."""
    word = (argument.metavar or argument.name.upper()).rstrip(".…")
    if argument.nargs != 1:
        word += "…"
    return word if argument.required else f"[{word}]"


def first_sentence(text: str) -> str:
    """Cut a help text for a one-line list: at the first full stop, semicolon, bracket or list."""
    short = re.split(r"\. |; | \(", text, maxsplit=1)[0].rstrip(".")
    before, _, rest = short.partition(": ")
    return f"{before if len(before.split()) > 3 and rest else short}."


def daily_records(options: Sequence[Any], daily: Sequence[str], ctx: Any) -> list[tuple[str, str]]:
    """A line for each option that is used daily, and one that says how many more there are."""
    by_name = {option.name: option for option in options}
    records = []
    for name in daily:
        flags, text = by_name[name].get_help_record(ctx)
        records.append((flags, first_sentence(text)))
    left_out = len(options) - len(daily) - 1  # --help
    return [*records, (EVERYTHING, f"All options: {left_out} more, and what they do.")]


class Command(Documented, TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Some options may stand without their value; --help-all is --help with every option."""
        if EVERYTHING in (args[: args.index("--")] if "--" in args else args):
            ctx.meta[EVERYTHING] = True
            args = ["--help"]
        params = [param for param in self.get_params(ctx) if not getattr(param, "is_flag", False)]
        return super().parse_args(ctx, with_values(args, {name for param in params for name in param.opts}))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The arguments, then each section of options; or one section of what is used daily."""
        parameters = [param for param in self.get_params(ctx) if not param.hidden]
        arguments = [param for param in parameters if param.param_type_name == "argument"]
        options = [param for param in parameters if param.param_type_name == "option"]
        daily = self.daily(ctx)

        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for argument in arguments:
            sections["Arguments"].append((usage_word(argument).strip("[]"), argument.help or ""))
        if daily:
            sections["Options"] = daily_records(options, daily, ctx)
        else:
            for option in options:
                panel = option.rich_help_panel or "Options"
                sections.setdefault(panel, []).append(option.get_help_record(ctx))

        widest = 26 if daily else 30
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records, col_max=widest)


class Group(Documented, TyperGroup):
    """A group of commands, which suggests the nearest for a name that is none."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known and name[:1] != "-" and not ctx.resilient_parsing:
            sentence = ctx.parent is None and " " in name
            otherwise = f"type: attnctl run {quote(name)}" if sentence else self.name_commands(ctx)
            ctx.fail(f"No such command {quote(name)}; {did_you_mean(name, known, otherwise)}")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not (args or self.invoke_without_command or ctx.resilient_parsing):
            ctx.fail(f"no command; {self.name_commands(ctx)}")
        return super().parse_args(ctx, args)

    def name_commands(self, ctx: Any) -> str:
        known = self.list_commands(ctx)
        return f"there are {one_of(known, 'and', most=len(known))}"

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, lines in self.sections(ctx).items():
            with formatter.section(title):
                formatter.write_dl(lines)

    def sections(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        commands: list[Any] = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        told = [(command.name, cleandoc(command.help).partition("\n\n")[0]) for command in commands]
        return {"Commands": told}


@cache
def load_command(name: str) -> Any:
    """The command of a verb for Typer, or its group of commands; None where there is no such verb."""
    found = module_of_commands(name)
    if found is None:
        return None
    module = import_module(found)
    group = getattr(module, "GROUP", {})
    app = typer.Typer(cls=Group, rich_markup_mode=None, add_completion=False, **group)
    for registered in module.COMMANDS.values():
        add_command(app, registered)
    command = get_command(app)
    command.name = name
    return command


def add_command(app: typer.Typer, registered: Registered) -> None:
    def run(**texts: Any) -> int:
        return registered.run(**texts)

    types = {option.name: Annotated[option.kind, told(option)] for option in registered.options}
    parameters = [
        Parameter(
            option.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if option.is_required else option.default,
            annotation=types[option.name],
        )
        for option in registered.options
    ]
    run.__name__ = registered.name
    run.__doc__ = registered.run.__doc__
    run.__annotations__ = types
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # which Typer reads
    settings = {"allow_interspersed_args": not registered.of_program, "help_option_names": ["-h", "--help"]}
    app.command(cls=Command, epilog="\n".join(registered.examples), context_settings=settings)(run)


def told(option: Option) -> Any:
    """What Typer is to know of an option."""
    declared = option.declared
    if declared.is_argument:
        return typer.Argument(help=declared.help, metavar=declared.metavar, show_default=False)
    return typer.Option(
        *declared.flags,
        help=declared.help,
        metavar=declared.metavar,
        show_default=False,
        rich_help_panel=declared.section,
    )


class Lazy(Group):
    """A group that knows its commands by name and imports only the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(all_verbs())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load_command(cmd_name)

    def get_params(self, ctx: Any) -> list[Any]:
        """Every parameter; that completion can also be printed needs no line of the help."""
        parameters = super().get_params(ctx)
        for param in parameters:
            param.hidden = getattr(param, "hidden", False) or param.name == "show_completion"
        return parameters

    def sections(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """The table of commands, without importing any."""
        verbs = all_verbs()
        width = max(map(len, verbs))
        sections: dict[str, list[tuple[str, str]]] = {}
        for verb in verbs.values():
            sections.setdefault(verb.section, []).append((f"{verb.name:{width}}", verb.line))
        return sections


app = typer.Typer(
    cls=Lazy,
    help=HELP,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=False,
    # as wide as the terminal: without it, help ends at 80 columns
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 10_000},
    epilog=EXAMPLES,
)


def show_version(value: bool) -> None:
    if value:
        say(f"attnctl {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=show_version, is_eager=True, help="Print the version."
    ),
    debug: bool = typer.Option(False, "--debug", help="On an internal error, print the traceback."),
) -> None:
    """Show help where no command is given."""
    if context.invoked_subcommand is None:
        say(*context.get_help().split("\n"))
