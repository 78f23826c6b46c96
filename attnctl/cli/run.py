"""attnctl run: a sentence in, every matrix out."""

from __future__ import annotations

from typing import Annotated

import typer

from attnctl.base.errors import raise_all
from attnctl.cli.models import ModelOptions, senseless
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

app = typer.Typer(rich_markup_mode=None, add_completion=False)

SENTENCE = typer.Argument(help="One or more sentences; - reads one a line from stdin.", show_default=False)


@command(
    app,
    'attnctl run "I love AI" --heads 2 --causal',
    "attnctl run -c example:cats-chase-mice --step scores,attention_weights --head 1",
    "attnctl run --file sentences.txt --format jsonl > all.jsonl",
    'attnctl run "I love AI" --story',
)
def run(  # noqa: PLR0913  (a group of options each)
    *,
    sentence: Annotated[list[str] | None, SENTENCE] = None,
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
    from attnctl.api import run_many
    from attnctl.cli.output import emit, kept_steps
    from attnctl.cli.progress import progress
    from attnctl.cli.sentences import gather_sentences, hint_at_quotes
    from attnctl.cli.settings import settings_from

    attention |= gradients
    raise_all(senseless(model, {**more, **attention, "config": config, "padded": padded or None}))
    sentences = gather_sentences(sentence or [], file)
    if model.model is not None:
        from attnctl.cli.models import model_settings, print_model_costs, run_model, sources_of

        sources = sources_of(model, sentences, more.get("context"))
        settings = model_settings({**attention, **edits}, cost.max_memory)
        act = print_model_costs if cost.cost else run_model
        act(model, sources, settings, view, output)
        return
    hint_at_quotes(sentence or [])
    settings = settings_from(config, {**more, **attention, **edits}, max_memory=cost.max_memory)
    if padded:
        from attnctl.inputs.plan import batch

        settings, sentences = batch.pad_batch(settings, sentences)
    if cost.cost:
        from attnctl.cli.costs import print_costs
        from attnctl.inputs.plan.sentence import prepare

        runs = [prepare(settings, each) for each in sentences] or [prepare(settings)]
        print_costs(runs, output, view)
        return
    with progress("attending") as moved:
        traces = run_many(sentences, settings, keep=kept_steps(view), progress=moved)
    emit(traces, output, view, settable=True)
