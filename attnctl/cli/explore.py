"""attnctl explore: walk through attention in the terminal."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.setting import Given
from attnctl.cli.app import make_app
from attnctl.cli.models import ModelOptions, senseless
from attnctl.cli.options import (
    PRECISION,
    AttentionOptions,
    ConfigOption,
    EditOptions,
    MemoryOption,
    NameOption,
    SentenceOptions,
    TraceOption,
    command,
    layer_number,
    option,
    renames,
)
from attnctl.cli.source import HELP, by_flag, source_of

if TYPE_CHECKING:
    from attnctl.cli.source import NamedInput
    from attnctl.verbs.explore import TraceSource

app = make_app()

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
    source: Annotated[str | None, typer.Argument(help=HELP, metavar="SOURCE")] = None,
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
    else:
        asked = source_of(source, config)
        of_files = {"--trace": trace, "--name": name, "--layer": model.layer}
        raise_all(asked.list_unused(of_files, by_flag({**more, **edits})))
        if asked.is_run:
            found = of_sentence(asked, given)
        else:
            meant = attention if config is None else {**attention, "config": config}
            found = of_dump(asked, trace, name or [], model.layer, meant)
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


def of_sentence(asked: NamedInput, given: Given) -> TraceSource:
    from attnctl.inputs.config.settings import Settings
    from attnctl.verbs.explore import OfSentence

    if asked.config == "-":
        raise AttnError("-c -: standard input is where the keys come from; name a file")
    base = Settings() if asked.config is None else source_of(None, asked.config).settings({})
    return OfSentence(asked.sentence, asked.settings(given), asked.config, base)


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
    asked: NamedInput, trace: str | None, names: list[str], layer: str | None, meant: Given
) -> TraceSource:
    from attnctl.cli.source import settings_from
    from attnctl.inputs.plan.intended import under_our_names
    from attnctl.verbs.explore import OfFile

    attention = {name: each for name, each in meant.items() if name != "config"}
    settings = settings_from(meant.get("config"), attention) if meant else None
    traces = asked.read(trace, renames(names))
    ours = tuple(under_our_names(each, settings, layer_number(layer)) for each in traces)
    options = [word for pair in names for word in ("--name", pair)]
    options += [] if layer is None else ["--layer", layer]
    return OfFile(ours, (asked.path(trace), *options), settings)


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
