"""The options of a trained model, and running one as `run` and `attend` ask."""

# Typer reads these annotations as types: written as text, each would be compiled again.
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.setting import Given
from attnctl.base.values import MOST, Plain, Reader, whole
from attnctl.cli.options import SECTIONS, OutputOptions, ViewOptions, chosen_format, option
from attnctl.math.kind import GRADIENT_SETTINGS

if TYPE_CHECKING:
    from attnctl.models.run import ModelInput

ALLOWED = {"dtype", "edits", "renormalize", "context", "max_memory", *GRADIENT_SETTINGS}
"""The settings that a run of a model has; the rest the model says itself."""


def read_ids(text: str) -> tuple[int, ...]:
    """'101,7592,102' -> the ids."""
    return tuple(whole(0, MOST)(Plain(part.strip())) for part in text.split(","))


IDS = Reader(read_ids, {}, "N,…")


class ModelOptions(NamedTuple):
    """A trained model instead of drawn weights."""

    model: Annotated[
        str | None,
        option(
            "Run a trained model: a folder of save_pretrained, or the id of one on the hub. Without "
            "--layer: a map of what each head does.",
            metavar="DIR",
        ),
    ] = None
    layer: Annotated[
        str | None,
        option(
            "The layers to trace: 3, 0,2, -1 or all; decoder.1 or cross.1 of a model that has a decoder.",
            metavar="N,…",
        ),
    ] = None
    ids: Annotated[tuple[int, ...] | None, option("The ids of tokens instead of a sentence."), IDS] = None
    pair: Annotated[
        str | None, option("The second segment, for models of pairs (BERT).", metavar="TEXT")
    ] = None
    context_ids: Annotated[
        tuple[int, ...] | None,
        option("Ids instead of --context: what an encoder reads for its decoder."),
        IDS,
    ] = None


SECTION = "A trained model"
SECTIONS[ModelOptions] = SECTION


def senseless(model: ModelOptions, flags: Given) -> list[str]:
    """Options that mean nothing without a model, or with one."""
    if model.model is None:
        given = {
            "--layer": model.layer,
            "--ids": model.ids,
            "--pair": model.pair,
            "--context-ids": model.context_ids,
        }
        return [
            f"{flag}: only a model has that; add --model DIR"
            for flag, value in given.items()
            if value is not None
        ]
    allowed = ALLOWED | ({"seed"} if flags.get("backward") else set())  # of d_output
    return [
        f"--{name.replace('_', '-')}: means nothing with --model; leave it out"
        for name, value in flags.items()
        if name not in allowed and value is not None
    ]


def model_settings(flags: Given, max_memory: int | None) -> Any:
    """The settings of a run of a model: float32 unless asked otherwise."""
    from attnctl.cli.source import settings_from

    return settings_from(None, {"dtype": "float32", **flags}, max_memory=max_memory)


def sources_of(model: ModelOptions, sentences: Sequence[str], context: str | None) -> "list[ModelInput]":
    """Return what the model is run on: each sentence, or ids.

    Raises AttnError where there is neither, or both.
    """
    from attnctl.models.run import ModelInput

    if model.ids is not None and sentences:
        raise AttnError("--ids: there is a sentence too; give one of them")
    if model.pair is not None and len(sentences) != 1:
        raise AttnError("--pair: goes with one sentence")
    beside = ModelInput(ids=model.ids, pair=model.pair, context=context, context_ids=model.context_ids)
    return [replace(beside, text=text) for text in sentences] or [beside]


class ModelRequest(NamedTuple):
    """A run of a model as it is asked for: which layers, on what, and where the traces go."""

    model: str
    layer: str | None
    sources: "Sequence[ModelInput]"
    settings: Any
    view: ViewOptions
    output: OutputOptions


def run_model(asked: ModelRequest) -> None:
    """Print or write the traces of the layers that are asked for, or the map of all heads."""
    from attnctl.cli import last
    from attnctl.cli.output import emit, kept_steps
    from attnctl.cli.progress import progress
    from attnctl.math.names import OUTPUT, WEIGHTS
    from attnctl.models import run

    if asked.layer is None:
        print_map(asked)
        return
    keep = kept_steps(asked.view)
    if asked.view.brief and keep is None and not asked.view.story:
        keep = [WEIGHTS, OUTPUT]
    with progress("layers") as moved:
        traces = [
            trace
            for source in asked.sources
            for trace in run.run_model(asked.model, source, asked.layer, asked.settings, keep, moved)
        ]
    last.keep(traces)
    emit(traces, asked.output, asked.view)


def print_model_costs(asked: ModelRequest) -> None:
    from attnctl.cli.output import print_costs
    from attnctl.models.run import plans

    layer = asked.layer
    if layer is None:
        raise AttnError("--cost: of which layer? add --layer 0")
    runs = [run for each in asked.sources for run in plans(asked.model, each, layer, asked.settings)]
    print_costs(runs, asked.output, asked.view)


def print_map(asked: ModelRequest) -> None:
    """Print the map of a model: a name for each head of each layer on this text."""
    from attnctl.cli.output import emit
    from attnctl.cli.program import complain
    from attnctl.cli.progress import progress
    from attnctl.formats import is_picture
    from attnctl.math.names import WEIGHTS
    from attnctl.models import run
    from attnctl.store.strict_json import print_json
    from attnctl.verbs.models.heads import as_data, heads_of

    name, settings, view, output = asked.model, asked.settings, asked.view, asked.output
    wanted = chosen_format(output.format, json=output.json, possible=("table", "json"))
    drawn = bool(output.output) and all(map(is_picture, output.output or ()))
    if (output.output and not drawn) or wanted not in {"table", "json"}:
        raise AttnError(
            "without --layer a map of all heads is printed, as a table or --json, or drawn (-o map.svg, "
            "-o map.html); add --layer for a trace"
        )
    if len(asked.sources) > 1:
        raise AttnError("a map is that of one sentence; add --layer, or give one")
    (source,) = asked.sources
    given = {"--step": view.step, "--story": view.story}
    given |= {f"--{each}": getattr(settings, each) for each in GRADIENT_SETTINGS}
    raise_all(f"{flag}: a map has no steps; add --layer" for flag, value in given.items() if value)
    with progress("layers") as moved:
        traces = run.run_model(name, source, "all", settings, [WEIGHTS], moved)
    if drawn:
        emit(traces, output, view)
        return
    heads = [head for trace in traces for head in heads_of(trace)]
    for text in traces[0].header.get("notes", ()):
        complain(f"note: {text}")
    if wanted == "json":
        print_json(as_data(heads, traces[0]))
        return
    from attnctl.drawing.screen.output import print_view
    from attnctl.verbs.models.view import map_lines

    print_view(lambda screen: map_lines(heads, traces[0].tokens or [], name, screen))
