"""attnctl model: what a checkpoint is; and a run of one, as `run` and `attend` ask for it."""

# Typer reads these annotations as types: written as text, each would be compiled again.
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.setting import ARRAYS, ATTENTION, EDIT, GRADIENTS, SENTENCE, Given
from attnctl.base.values import MOST, Plain, Reader, whole_number
from attnctl.cli import options
from attnctl.cli.command import OptionTerm
from attnctl.cli.options import OutputOptions, ViewOptions, argument, command, is_asked, needs, only, option
from attnctl.cli.program import complain
from attnctl.drawing.screen.output import print_view
from attnctl.formats import is_picture, print_json
from attnctl.inputs.config.fields import settings_with_flags
from attnctl.math.kind import GRADIENT_SETTINGS
from attnctl.math.names import FADED, OUTPUT, WEIGHTS

if TYPE_CHECKING:
    from attnctl.models.generate import Generating
    from attnctl.sources.model import Layers
    from attnctl.verbs.models.about import About

OF_MODELS = {"dtype", "edits", "renormalize", "context", "seed", *GRADIENT_SETTINGS}
"""The settings that a run of a model has; the rest the model says itself. (The seed is d_output's.)"""

GROUPS = (SENTENCE, ARRAYS, ATTENTION, GRADIENTS, EDIT)
OF_OURS = {name for group in GROUPS for name in settings_with_flags(group)} - OF_MODELS | {"config"}
NOT_BESIDE_MODEL = "means nothing with --model; leave it out"
ONLY_A_MODEL = needs("model", "only a model has that; add --model DIR")

IDS = Reader(
    lambda text: tuple(whole_number(0, MOST)(Plain(part.strip())) for part in text.split(",")), {}, "N,…"
)


SECTION = options.OF_A_MODEL


def draws(given: Given) -> bool:
    """Whether a run of a model draws numbers: a gradient to begin with, or tokens."""
    return bool(given.get("backward")) or is_asked(given, "sample")


NOT_OF_IMAGES = ("ids", "pair", "context", "next", "tokens", "lens", "follow", "chat", "cost")


class ModelOptions(NamedTuple):
    model: str | None = option(
        "Run a trained model: a folder of save_pretrained, a GGUF file, ollama:NAME, or the id of one on "
        "the hub. Without --layer: a map of what each head does.",
        metavar="DIR",
        terms=[
            options.bars([*OF_OURS, "padded", "trace", "name"], NOT_BESIDE_MODEL),
            OptionTerm(  # a gradient begins with it
                lambda given: ["seed"] if is_asked(given, "seed") and not draws(given) else [],
                NOT_BESIDE_MODEL,
            ),
        ],
    )
    adapter: options.Adapter = None
    layer: str | None = option(
        "The layers to trace: 3, 0,2, -1 or all; decoder.1 or cross.1 in a model with a decoder.",
        metavar="N,…",
        terms=[  # a command that renames arrays takes a file of them, with layers
            only(lambda given: is_asked(given, "model") or "name" in given, ONLY_A_MODEL.words)
        ],
    )
    ids: tuple[int, ...] | None = option("Token ids instead of a sentence.", IDS, terms=[ONLY_A_MODEL])
    pair: str | None = option(
        "The second segment, for models that read pairs (BERT).", metavar="TEXT", terms=[ONLY_A_MODEL]
    )
    image: str | None = option(
        "A picture in place of a sentence, for models that see (ViT, CLIP, SigLIP, DINO): PNG, JPEG, WebP, "
        "GIF or BMP. Its patches are the tokens, r3c5 that in row 3 and column 5, from 0.",
        metavar="FILE",
        terms=[
            ONLY_A_MODEL,
            options.bars(NOT_OF_IMAGES, "means nothing beside a picture; leave it out"),
        ],
    )
    context_ids: tuple[int, ...] | None = option(
        "Ids instead of --context: the encoder's input for its decoder.", IDS, terms=[ONLY_A_MODEL]
    )


options.SECTIONS[ModelOptions] = SECTION


def layers_of(
    model: ModelOptions,
    sentences: Sequence[str],
    context: str | None,
    flags: Given,
    following: tuple[int, int | None] | None = None,
    generating: "Generating | None" = None,
    *,
    chat: bool = False,
) -> "list[Layers]":
    """The layers that are asked for, of each sentence or of ids. Raises AttnError for neither, or both."""
    from attnctl.inputs.config.flags import settings_from
    from attnctl.models.run import ModelInput
    from attnctl.models.source import join_name
    from attnctl.sources.model import Layers

    if model.ids is not None and sentences:
        raise AttnError("--ids: there is a sentence too; give one of them")
    if model.image is not None and sentences:
        raise AttnError("--image: there is a sentence too; give one of them")
    if model.pair is not None and len(sentences) != 1:
        raise AttnError("--pair: goes with one sentence")
    assert model.model is not None
    settings = settings_from(None, {"dtype": "float32", **flags})
    beside = ModelInput(
        ids=model.ids,
        pair=model.pair,
        context=context,
        context_ids=model.context_ids,
        chat=chat,
        image=model.image,
    )
    inputs = [replace(beside, text=text) for text in sentences] or [beside]
    name = join_name(model.model, model.adapter)
    return [Layers(name, input_, model.layer, settings, following, generating) for input_ in inputs]


def run_layers(
    sources: "Sequence[Layers]", layer: str | None, cost: bool, view: ViewOptions, output: OutputOptions
) -> None:
    from attnctl.cli.output import carry_out

    if layer is None and cost:
        raise AttnError("--cost: of which layer? add --layer 0")
    if layer is None:
        print_map(sources, view, output)
        return
    brief = view.brief and view.step is None and not view.story
    carry_out(sources, cost, view, output, [WEIGHTS, FADED, OUTPUT] if brief else None, of_model=True)


def print_lens(sources: "Sequence[Layers]", output: OutputOptions) -> None:
    from attnctl import api
    from attnctl.cli.output import give, progress
    from attnctl.verbs.models.next import lens_lines

    wanted = options.chosen_format(output.format, json=output.json, possible=("table", "json"))
    if wanted not in {"table", "json"} or len(sources) > 1:
        raise AttnError("--lens: prints a table of one sentence, or --json; -o takes .json, .svg and .png")
    with progress("layers") as moved:
        found = api.lens(sources[0], progress=moved)
    give("model --lens", [found], output.output, partial(lens_lines, found), json=wanted == "json")


def print_followed(sources: "Sequence[Layers]", word: str, output: OutputOptions) -> None:
    from attnctl.cli.output import give, progress
    from attnctl.models.next import begin_pass
    from attnctl.verbs.models.follow import follow, follow_lines

    wanted = options.chosen_format(output.format, json=output.json, possible=("table", "json"))
    if wanted not in {"table", "json"} or len(sources) > 1:
        raise AttnError("--follow: a token of one sentence; -o takes .html, .svg, .png and .json")
    (source,) = sources
    with progress("layers") as moved:
        found = follow(begin_pass(source.model, source.input, source.settings), word, moved)
    give("model --follow", [found], output.output, partial(follow_lines, found), json=wanted == "json")


def print_map(sources: "Sequence[Layers]", view: ViewOptions, output: OutputOptions) -> None:
    from attnctl.cli.output import emit, progress
    from attnctl.verbs.models.heads import head_profiles, map_lines, profile_data

    wanted = options.chosen_format(output.format, json=output.json, possible=("table", "json"))
    drawn = bool(output.output) and all(map(is_picture, output.output or ()))
    if (output.output and not drawn) or wanted not in {"table", "json"} or output.notation:
        raise AttnError(
            "without --layer a map of all heads is printed, as a table or --json, or drawn (-o map.svg, "
            "-o map.html); add --layer for a trace"
        )
    if len(sources) > 1:
        raise AttnError("a map is that of one sentence; add --layer, or give one")
    (source,) = sources
    given = {"--step": view.step, "--story": view.story}
    given |= {f"--{setting}": getattr(source.settings, setting) for setting in GRADIENT_SETTINGS}
    raise_all(f"{flag}: a map has no steps; add --layer" for flag, value in given.items() if value)
    with progress("layers") as moved:
        traces = source.run(keep=[WEIGHTS], progress=moved)
    if drawn:
        emit(traces, output, view)
        return
    heads = [head for trace in traces for head in head_profiles(trace)]
    complain(*(f"note: {text}" for text in traces[0].header.get("notes", ())))
    if wanted == "json":
        print_json(profile_data(heads, traces[0]))
        return
    print_view(lambda screen: map_lines(heads, traces[0].tokens or [], source.model, screen))


@command(
    "attnctl model path/to/checkpoint",
    "attnctl model path/to/checkpoint --json",
    "attnctl model path/to/checkpoint -o model.html",
)
def model(
    *,
    folder: str = argument(
        "What save_pretrained wrote, a GGUF file, ollama:NAME, or the id of a model on the hub.", "DIR"
    ),
    adapter: str | None = option(
        "A LoRA adapter of it: the folder that PEFT's save_pretrained wrote, or the id of one.",
        "--adapter",
        metavar="DIR",
    ),
    heads: bool = option(
        "What the weights of each head say without a text: whether it copies, and what it looks for.",
        terms=[options.excludes("output", "the scores of heads are a table, or --json; leave it out")],
    ),
    json_: bool = option("Print it as JSON.", "--json"),
    output: list[str] | None = options.findings_option("model"),
) -> None:
    """Describe a checkpoint: its family, each layer's window, rope and network, and its size.

    Nothing is computed and no tensor is read, except with --heads. An unknown model_type, weights quantized
    in an unknown way, and an unknown kind of rope are refused by name.
    """
    from attnctl.cli.output import give, progress
    from attnctl.models.source import join_name
    from attnctl.verbs.models.about import describe_checkpoint, model_lines

    folder = join_name(folder, adapter)
    if heads:
        from attnctl.verbs.models.spectra import find_spectra, spectra_lines

        with progress("layers") as moved:
            scores = find_spectra(folder, moved)
        give("model", [scores], output, partial(spectra_lines, scores), json=json_)
        return
    with progress("reading"):
        found = describe_checkpoint(folder)
    then = command_to_run(found)
    give("model", [found], output, partial(model_lines, found), json=json_, then=then)


def command_to_run(found: "About") -> list[str]:
    """The command that maps the heads of a model that reads one text; nothing for others."""
    if len(found.parts) != 1 or "embed" not in found.parts[0].stack.outer:
        return []
    text = "The capital of France is" if found.parts[0]["causal"] else "The animal was tired"
    return ["attnctl", "run", text, "--model", found.name]
