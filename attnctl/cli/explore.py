"""attnctl explore: walk through attention in the terminal."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from attnctl.base.errors import AttnError, raise_all
from attnctl.cli.explain import is_sentence
from attnctl.cli.models import ModelOptions, senseless
from attnctl.cli.options import (
    PRECISION,
    AttentionOptions,
    ConfigOption,
    EditOptions,
    Given,
    MemoryOption,
    NameOption,
    SentenceOptions,
    TraceOption,
    command,
    layer_number,
    option,
    pick_trace,
)

if TYPE_CHECKING:
    from attnctl.verbs.explore import TraceSource

app = typer.Typer(rich_markup_mode=None, add_completion=False)

SOURCE = "A sentence to run, or a dump (.json .jsonl .npz .safetensors), - for stdin."
INSTEAD = (
    "attnctl run SENTENCE shows every step, attnctl explain SENTENCE CELL the arithmetic of a cell, "
    "in a pipe, too"
)


@command(
    app,
    'attnctl explore "I love AI" --heads 2 --causal',
    "attnctl explore dump.json",
    'attnctl explore "I love AI" --model ./bert --layer all',
)
def explore(  # noqa: PLR0913  (a group of options each)
    *,
    source: Annotated[str | None, typer.Argument(help=SOURCE, metavar="[SENTENCE|DUMP]")] = None,
    trace: TraceOption = None,
    name: NameOption = None,
    more: SentenceOptions,
    model: ModelOptions,
    config: ConfigOption = None,
    attention: AttentionOptions,
    edits: EditOptions,
    max_memory: MemoryOption = None,
    precision: Annotated[int | None, option("Digits after the point, 0 to 17 (4)."), PRECISION] = None,
) -> None:
    """Walk through attention in the terminal: every cell, and where its number came from.

    Left the steps, in the middle the matrix, below the arithmetic of the cell under the cursor.
    Arrows move, Enter follows an operand to its own cell, Backspace comes back, ? lists every key;
    the mouse does it all, too. What is edited or switched there can be written as a shell command
    (w), which is printed when you leave.

    For the arrays of another program the options for attention say what they were meant to be.
    """
    require_textual()
    require_terminal(source)
    given = {**more, **attention, **edits}
    if model.model is not None:
        found = of_model(source, model, {**given, "config": config, "trace": trace, "name": name})
    elif source is None or is_sentence(source):
        of_files = {"--trace": trace, "--name": name, "--layer": model.layer}
        raise_all(
            f"{flag}: only a dump has that, and this is a sentence: there is no file of that name"
            for flag, value in of_files.items()
            if value is not None
        )
        found = of_sentence(source, config, given)
    else:
        raise_all(of_no_dump(more, edits))
        found = of_dump(pick_trace(source, trace), name or [], model.layer, config, attention)
    explore_on_terminal(found, 4 if precision is None else precision, from_stdin=source == "-")


def require_textual() -> None:
    """Raise AttnError where Textual is not installed."""
    if find_spec("textual") is None:
        raise AttnError(f"explore needs textual; pip install 'attnctl[tui]'. Without it: {INSTEAD}")


def require_terminal(source: str | None) -> None:
    """Raise AttnError where there is no terminal to draw on or to read keys from."""
    streams = {"standard input": sys.stdin, "standard output": sys.stdout, "standard error": sys.stderr}
    if source == "-":
        del streams["standard input"]
    lacking = [name for name, stream in streams.items() if not stream.isatty()]
    if lacking or os.environ.get("TERM") == "dumb":
        what = f"{lacking[0]} is none" if lacking else "TERM=dumb is none that can be drawn on"
        raise AttnError(f"explore needs a terminal, and {what}; {INSTEAD}")
    if source == "-" and not os.path.exists("/dev/tty"):  # noqa: PTH110  (a device, not a path of anyone's)
        raise AttnError("-: there is no terminal to read keys from beside standard input; name a file")


def of_no_dump(more: Given, edits: Given) -> list[str]:
    """Options that mean nothing for a dump."""
    from attnctl.base.setting import EDIT, SENTENCE
    from attnctl.inputs.config.fields import settings_with_flags

    names = {**settings_with_flags(SENTENCE), **settings_with_flags(EDIT)}
    return [
        f"{names[name].flag_name}: only a sentence has that, and this is a dump"
        for name, value in {**more, **edits}.items()
        if value is not None and value is not False
    ]


def of_sentence(sentence: str | None, config: str | None, given: Given) -> TraceSource:
    from attnctl.cli.settings import settings_from
    from attnctl.inputs.config.settings import Settings
    from attnctl.verbs.explore import OfSentence

    base = Settings() if config is None else settings_from(config, {})
    if config == "-":
        raise AttnError("-c -: standard input is where the keys come from; name a file")
    return OfSentence(sentence, settings_from(config, given), config, base)


def of_model(sentence: str | None, model: ModelOptions, given: Given) -> TraceSource:
    """Layers of a trained model."""
    from attnctl.cli.models import model_settings, sources_of
    from attnctl.verbs.explore import OfModel

    raise_all(senseless(model, given))
    settings = model_settings({name: each for name, each in given.items() if each is not None}, None)
    (source,) = sources_of(model, [] if sentence is None else [sentence], given.get("context"))
    assert model.model is not None
    return OfModel(model.model, source, model.layer or "all", settings)


def of_dump(
    path: str, names: list[str], layer: str | None, config: str | None, attention: Given
) -> TraceSource:
    """The traces of a file."""
    from attnctl.cli.attend import renames
    from attnctl.cli.settings import settings_from
    from attnctl.inputs.plan.intended import under_our_names
    from attnctl.store import read
    from attnctl.verbs.explore import OfFile

    meant = settings_from(config, attention) if config or attention else None
    traces = read(path, rename=renames(names))
    ours = tuple(under_our_names(each, meant, layer_number(layer)) for each in traces)
    options = [word for pair in names for word in ("--name", pair)]
    options += [] if layer is None else ["--layer", layer]
    return OfFile(ours, (path, *options), meant)


def explore_on_terminal(source: TraceSource, precision: int, *, from_stdin: bool) -> None:
    """Explore on the terminal; then print the commands that were asked for."""
    from attnctl.drawing.screen.output import say
    from attnctl.verbs.explore import begin_walk
    from attnctl.verbs.explore.tui.app import explore as walk_on

    walk = begin_walk(source)
    if from_stdin:  # the keys come from the terminal itself
        os.dup2(os.open("/dev/tty", os.O_RDWR), sys.__stdin__.fileno() if sys.__stdin__ else 0)
    for each in walk_on(walk, precision, sys.stdout.encoding or "utf-8"):
        say(*each.split("\n"))
