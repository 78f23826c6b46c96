"""attnctl config: write, check and describe YAML configs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from attnctl.cli.options import AttentionOptions, ConfigOption, SentenceOptions, command, option
from attnctl.cli.unconverted import UnconvertedGroup

if TYPE_CHECKING:
    from attnctl.config.settings import Settings

app = typer.Typer(
    cls=UnconvertedGroup,
    rich_markup_mode=None,
    add_completion=False,
    help="Write, check and describe YAML configs.",
)


@command(app)
def init(
    *,
    sentence: Annotated[
        str | None, typer.Argument(help="The sentence the config is for.", show_default=False)
    ] = None,
    more: SentenceOptions,
    config: ConfigOption = None,
    attention: AttentionOptions,
    output: Annotated[
        str | None, option("Write to FILE instead of stdout.", "--output", "-o", metavar="FILE")
    ] = None,
) -> None:
    """Write a commented config that reproduces the run these options ask for."""
    from attnctl.cli.settings import settings_from
    from attnctl.config.write import commented

    settings = settings_from(config, {**more, **attention}, sentence=sentence)
    text = commented(settings)
    if output is None:
        sys.stdout.write(text)
        return
    from attnctl.cli.output import keep_inputs
    from attnctl.store import write_text

    keep_inputs([output], [config])
    write_text(text, output)


@command(app)
def check(
    file: Annotated[list[str], typer.Argument(help="The configs to check.", metavar="FILE...")],
) -> None:
    """Validate configs and say every problem, each with its line."""
    from attnctl.config.load import load
    from attnctl.errors import AttnError, raise_all
    from attnctl.plan.sentence import prepare

    def problems(path: str) -> tuple[str, ...]:
        try:
            settings = load(path)
            prepare(settings, settings.sentence or known_token(settings))
        except AttnError as error:
            return error.problems
        return ()

    raise_all(problem for path in file for problem in problems(path))
    typer.echo("\n".join(f"{path}: fine" for path in file))


def known_token(settings: Settings) -> str:
    """A sentence for a config that has none: a token it knows."""
    known = settings.vocab or (
        tuple(settings.embeddings) if isinstance(settings.embeddings, Mapping) else ()
    )
    return known[0] if known else "attention"


@command(app)
def schema() -> None:
    """Print the JSON Schema of a config, for an editor's completion."""
    from attnctl.config.schema import json_schema
    from attnctl.store.strict_json import print_json

    print_json(json_schema(), indent=2)
