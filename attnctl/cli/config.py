"""attnctl config: write, check and describe YAML configs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from attnctl.base.errors import AttnError, collect_problems, raise_all
from attnctl.cli import options
from attnctl.cli.options import STDOUT, argument, command, only, option, output_option
from attnctl.cli.program import complain
from attnctl.drawing.screen.output import say
from attnctl.formats import is_special, json_text, print_json, write_text
from attnctl.inputs.config.flags import settings_from, write_commented
from attnctl.inputs.config.form import json_schema, with_files
from attnctl.inputs.config.load import load
from attnctl.inputs.config.settings import Settings
from attnctl.sources.sentence import Source

SCHEMA_FILE = "attnctl.schema.json"  # which the first line of a config names

ForceOption = Annotated[
    bool,
    option(
        "Overwrite FILE if it exists.",
        terms=[only(lambda given: given["output"] not in {None, STDOUT}, "goes with -o FILE")],
    ),
]

GROUP = {
    "help": "Write, check and describe YAML configs.",
    "epilog": "attnctl config init > mine.yaml\nattnctl config check mine.yaml",
}


@command(
    "attnctl config init > mine.yaml",
    'attnctl config init "I love AI" --heads 2 --causal -o mine.yaml',
    "attnctl config init -c example:india-is-great --seed 7 -o other.yaml",
)
def init(
    *,
    sentence: str | None = argument("The sentence of the config."),
    more: options.Sentence,
    config: options.Config = None,
    attention: options.Attention,
    output: str | None = output_option(
        f"Write to FILE instead of stdout (-), and {SCHEMA_FILE} beside it, for an editor."
    ),
    force: ForceOption = False,
) -> None:
    """Write a commented config that reproduces the run these options ask for."""
    settings = settings_from(config, {**more, **attention}, sentence=sentence)
    settings = settings.with_(sentence=settings.sentence or known_token(settings))
    if output is None or output == STDOUT:
        print_config(write_commented(settings))
    else:
        folder = os.path.dirname(output)  # noqa: PTH120  pathlib would rewrite ./x

        def from_there(file: str) -> str:
            return file if not folder or os.path.isabs(file) else os.path.relpath(file, folder)  # noqa: PTH117

        write_config(write_commented(with_files(settings, from_there)), output, force=force)


def print_config(text: str) -> None:
    say(*text.removesuffix("\n").split("\n"))


def write_config(text: str, path: str, *, force: bool) -> None:
    """Write a config, and its schema where there is none. Raises AttnError rather than overwrite."""
    if Path(path).is_file() and not force:
        raise AttnError(f"-o {path}: it is there already, and is kept; give another name, or add --force")
    write_text(text, path)
    schema = Path(path).with_name(SCHEMA_FILE)
    if not is_special(path) and not schema.exists():
        write_text(json_text(json_schema(), indent=2) + "\n", schema)
        complain(f"note: wrote {schema}, too: an editor completes and checks the config by it")


@command("attnctl config check mine.yaml", "attnctl config check configs/*.yaml")
def check(file: list[str] = argument("The configs to check.", "FILE...")) -> None:
    """Validate configs and report every problem with its line."""
    problems: list[str] = []
    for path in file:
        with collect_problems(problems):
            settings = load(path)
            Source(settings=settings, sentences=[settings.sentence or known_token(settings)]).plans()
    raise_all(problems)
    say(*(f"{path}: fine" for path in file))


def known_token(settings: Settings) -> str:
    """A sentence for a config that has none: a token it knows, or what the README runs."""
    rows = settings.embeddings if isinstance(settings.embeddings, Mapping) else ()
    return next(iter(settings.vocab or rows), "I love AI")


@command("attnctl config schema > attnctl.schema.json")
def schema() -> None:
    """Print the JSON Schema of a config, for an editor's completion."""
    print_json(json_schema(), indent=2)
