"""How commands parse, suggest and show their help: options in sections, examples, the terminal's width."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

from attnctl.cli.unconverted import Unconverted

ANY_WIDTH = {"max_content_width": 10_000}
"""What makes the help as wide as the terminal: left out, it ends at 80 columns."""


class Documented(Unconverted):
    """A command whose help ends with examples, a line each in its epilog."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The examples as they are typed: a line that is filled up cannot be copied."""
        lines = (self.epilog or "").splitlines()  # type: ignore[attr-defined]  # of the command's other base
        if lines:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in lines))


LEFT_OUT = {"--dask": "local"}
"""The options whose value may be left out, and what it then is."""


def with_values(args: list[str]) -> list[str]:
    """The arguments, with a value after each option that stands without the one it may have."""
    out = []
    for number, arg in enumerate(args):
        out.append(arg)
        if arg == "--":
            return [*out, *args[number + 1 :]]
        following = args[number + 1 : number + 2]
        if arg in LEFT_OUT and (not following or following[0].startswith("-")):
            out.append(LEFT_OUT[arg])
    return out


class Command(Documented, TyperCommand):
    """A command whose options stand in the sections that their panels name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Some options may stand without their value."""
        found: list[str] = super().parse_args(ctx, with_values(args))
        return found

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The arguments, then each section of options; those of none come first."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                panel = (
                    "Arguments" if parameter.param_type_name == "argument" else parameter.rich_help_panel
                )
                sections.setdefault(panel or "Options", []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Group(Documented, TyperGroup):
    """A group of commands, which suggests the nearest for a name that is none."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and name[:1] != "-" and not ctx.resilient_parsing:
            from attnctl.base.words import did_you_mean, one_of, quote

            sentence = ctx.parent is None and " " in name
            otherwise = f"attnctl run {quote(name)}?" if sentence else f"there are {one_of(known, 'and')}"
            ctx.fail(f"No such command {quote(name)}; {did_you_mean(name, known, otherwise)}")
        return super().resolve_command(ctx, args)
