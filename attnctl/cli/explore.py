"""attnctl explore: walk through attention in the terminal."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from attnctl.base.errors import AttnError, raise_all
from attnctl.cli import options
from attnctl.cli.model import ModelOptions, layers_of
from attnctl.cli.options import argument, command, option
from attnctl.drawing.screen.output import say
from attnctl.inputs.config.flags import by_flag
from attnctl.sources import HELP, open_source
from attnctl.sources.sentence import Arguments, Source

INSTEAD = (
    "attnctl run SENTENCE shows every step, attnctl explain SENTENCE CELL the arithmetic of a cell, "
    "in a pipe, too"
)


@command(
    'attnctl explore "I love AI" --heads 2 --causal',
    "attnctl explore dump.json",
    'attnctl explore "I love AI" --model ./bert --layer all',
)
def explore(  # noqa: PLR0913  (a group of options each)
    *,
    source: str | None = argument(HELP, "SOURCE"),
    trace: options.Trace = None,
    name: options.Name = None,
    more: options.Sentence,
    model: ModelOptions,
    config: options.Config = None,
    attention: options.Attention,
    edits: options.Edits,
    max_memory: options.Memory = None,
    precision: int | None = option("Decimals, 0 to 17; default: 4.", options.PRECISION),
) -> None:
    """Walk through attention in the terminal: every cell, and where its number comes from.

    The steps are on the left, the matrix in the middle, the arithmetic of the selected cell below. Arrow
    keys move, Enter follows an operand to its own cell, Backspace goes back, ? lists every key; the mouse
    works, too. w writes the shell command for what you edited or switched; it is printed when you quit.

    For arrays of another program, the options for attention say what they were meant to be.
    """
    if find_spec("textual") is None:
        raise AttnError(f"explore needs textual; pip install 'attnctl[tui]'. Without it: {INSTEAD}")
    require_terminal(source)
    given = {**more, **attention, **edits}
    if model.model is not None:
        sentences = [] if source is None else [source]
        found: Source = layers_of(model, sentences, more.get("context"), given)[0]
    else:
        renames = options.renames(name or [])
        beside = Arguments(config, given, trace, renames, options.layer_number(model.layer))
        found = open_source(source, beside)
        of_files = {"--trace": trace, "--name": name, "--layer": model.layer}
        raise_all(found.list_unused(of_files, by_flag({**more, **edits})))
        if found.is_run and found.config == "-":
            raise AttnError("-c -: standard input is where the keys come from; name a file")
    explore_on_terminal(found, 4 if precision is None else precision, from_stdin=source == "-")


def require_terminal(source: str | None) -> None:
    streams = {"standard input": sys.stdin, "standard output": sys.stdout, "standard error": sys.stderr}
    if source == "-":
        del streams["standard input"]
    lacking = [name for name, stream in streams.items() if not stream.isatty()]
    if lacking or os.environ.get("TERM") == "dumb":
        what = f"{lacking[0]} is none" if lacking else "TERM=dumb is none that can be drawn on"
        raise AttnError(f"explore needs a terminal, and {what}; {INSTEAD}")
    if source == "-" and not os.path.exists("/dev/tty"):  # noqa: PTH110  (a device, not a path of anyone's)
        raise AttnError("-: there is no terminal to read keys from beside standard input; name a file")


def explore_on_terminal(source: Source, precision: int, *, from_stdin: bool) -> None:
    from attnctl.verbs.explore import begin_walk
    from attnctl.verbs.explore.app import explore as walk_on

    walk = begin_walk(source)
    if from_stdin:  # the keys come from the terminal itself
        os.dup2(os.open("/dev/tty", os.O_RDWR), sys.__stdin__.fileno() if sys.__stdin__ else 0)
    for command_line in walk_on(walk, precision, sys.stdout.encoding or "utf-8"):
        say(*command_line.split("\n"))
