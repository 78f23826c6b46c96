"""attnctl run: a sentence in, every matrix out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from attnctl.base.errors import raise_all
from attnctl.base.words import quote
from attnctl.cli.app import make_app
from attnctl.cli.models import (
    ModelOptions,
    ModelRequest,
    model_settings,
    print_model_costs,
    run_model,
    senseless,
    sources_of,
)
from attnctl.cli.options import (
    AttentionOptions,
    ConfigOption,
    CostOptions,
    EditOptions,
    GradientOptions,
    OutputOptions,
    SentenceOptions,
    ViewOptions,
    command,
    option,
)

if TYPE_CHECKING:
    from attnctl.cli.source import RunRequest
    from attnctl.inputs.config.settings import Settings
    from attnctl.inputs.plan.plan import Plan

app = make_app()

SOURCE = typer.Argument(
    help="A sentence, a config (.yaml), example:NAME, last or a dump to run again; - reads sentences, "
    "one a line.",
    metavar="SENTENCE",
    show_default=False,
)


@command(
    app,
    'attnctl run "I love AI" --heads 2 --causal',
    "attnctl run example:cats-chase-mice --step scores,attention_weights --head 1",
    "attnctl run --file sentences.txt --format jsonl > all.jsonl",
    'attnctl run "I love AI" --story',
)
def run(  # noqa: PLR0913  (a group of options each)
    *,
    source: Annotated[list[str] | None, SOURCE] = None,
    file: Annotated[str | None, option("Read sentences from FILE, one a line.", metavar="FILE")] = None,
    padded: Annotated[
        bool, option("Show every sentence as it is computed: filled up with [PAD].", "--padded")
    ] = False,
    more: SentenceOptions,
    model: ModelOptions,
    config: ConfigOption = None,
    attention: AttentionOptions,
    gradients: GradientOptions,
    cost: CostOptions,
    edits: EditOptions,
    view: ViewOptions,
    output: OutputOptions,
) -> None:
    """Tokenize a sentence, attend, and show every step.

    Without weights of your own everything is drawn from the seed. SENTENCE may be left out where
    the config has one. Several sentences are padded to one batch; each gives its own trace.

    With --model the weights are those of a trained transformer: its own tokenizer cuts the
    sentence, and --layer names the layers to show, each a trace. Without --layer a map says what
    each head of each layer does.
    """
    from attnctl.cli.output import emit, kept_steps
    from attnctl.cli.progress import progress
    from attnctl.cli.source import find_run

    asked = find_run(source or [], file, config)
    attention |= gradients
    if model.model is not None:
        given = {**more, **attention, "config": asked.source.config, "padded": padded or None}
        raise_all(senseless(model, given))
        sources = sources_of(model, asked.sentences, more.get("context"))
        settings = model_settings({**attention, **edits}, cost.max_memory)
        wanted = ModelRequest(model.model, model.layer, sources, settings, view, output)
        (print_model_costs if cost.cost else run_model)(wanted)
        note_joined(asked)
        return
    raise_all(senseless(model, {}))
    settings = asked.source.settings({**more, **attention, **edits}).with_(max_memory=cost.max_memory)
    runs = prepare_runs(settings, asked.sentences, padded=padded)
    if cost.cost:
        from attnctl.cli.output import print_costs

        print_costs(runs, output, view)
        return
    from attnctl.cli import last
    from attnctl.inputs.plan.sentence import carry_out_batch

    with progress("attending") as moved:
        traces = carry_out_batch(runs, kept_steps(view), moved)
    last.keep(traces)
    emit(traces, output, view, settable=True)
    note_joined(asked)


def prepare_runs(settings: Settings, sentences: list[str], *, padded: bool) -> list[Plan]:
    """Everything that the run of each sentence needs; of none, that of the settings' own."""
    from attnctl.inputs.plan.sentence import prepare_all

    if padded:
        from attnctl.inputs.plan.sentence import pad_batch

        settings, sentences = pad_batch(settings, sentences)
    return prepare_all(settings, sentences)


def note_joined(asked: RunRequest) -> None:
    """Say on stderr that words were taken as one sentence, and how to ask for several."""
    if asked.joined:
        from attnctl.cli.program import complain
        from attnctl.drawing.screen.text import shell_line

        several = f"printf '%s\\n' {shell_line(asked.joined)} | attnctl run -"
        complain(
            f"note: read as one sentence, {quote(' '.join(asked.joined))}; for a sentence each: {several}"
        )
