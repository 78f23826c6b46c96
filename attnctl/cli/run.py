"""attnctl run: a sentence in, every matrix out."""

# Annotations are types here, which `command` reads: as text, each would be compiled again.
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from attnctl.base.errors import AttnError
from attnctl.base.values import MOST, POSITIVE, whole_number
from attnctl.base.words import quote
from attnctl.cli import options
from attnctl.cli.model import (
    NOT_BESIDE_MODEL,
    ONLY_A_MODEL,
    SECTION,
    ModelOptions,
    layers_of,
    print_followed,
    print_lens,
    run_layers,
)
from attnctl.cli.options import argument, command, option
from attnctl.cli.program import complain
from attnctl.drawing.screen.text import shell_line

if TYPE_CHECKING:
    from attnctl.sources.model import Layers

NOT_OF_NEXT = ("layer", "backward", "cost")
NOT_OF_LENS = (*NOT_OF_NEXT, "next", "step", "head", "story", "tokens")
NOT_OF_FOLLOW = (*NOT_OF_LENS, "lens")
NOT_OF_TOKENS = ("backward", "cost", "next")


@command(
    'attnctl run "I love AI" --heads 2 --causal',
    "attnctl run example:cats-chase-mice --step scores,attention_weights --head 1",
    "attnctl run --file sentences.txt --format jsonl > all.jsonl",
    'attnctl run "I love AI" --story',
)
def run(  # noqa: PLR0913  (a group of options each)
    *,
    source: list[str] | None = argument(
        "A sentence, a config (.yaml), example:NAME, last or a dump to run again; - reads sentences, "
        "one a line.",
        "SENTENCE",
    ),
    file: str | None = option("Read sentences from FILE, one per line.", metavar="FILE"),
    padded: bool = option("Show sentences as a batch has them, padded with [PAD]."),
    more: options.Sentence,
    model: ModelOptions,
    next: int | None = option(  # noqa: A002  (the name of the option)
        "The K likeliest next tokens (at [MASK] in an encoder), and the steps to their logits.",
        whole_number(1, MOST),
        metavar="K",
        terms=[ONLY_A_MODEL, options.bars(NOT_OF_NEXT, "means nothing with --next; leave it out")],
        section=SECTION,
    ),
    at: int | None = option(
        "The position after which --next is asked, from 0, or from -1 back; default: the last.",
        whole_number(-MOST, MOST),
        metavar="N",
        terms=[options.needs("next", "only --next has that; add --next 5")],
        section=SECTION,
    ),
    lens: bool = option(
        "The likeliest next token after each layer, at each position.",
        terms=[ONLY_A_MODEL, options.bars(NOT_OF_LENS, "means nothing with --lens; leave it out")],
        section=SECTION,
    ),
    follow: str | None = option(
        "Follow a token down the layers: how much each other one moves it, ‖A·V·W_O‖, and what would come "
        "next; a word of the sentence (its last), or a position. -o follow.html is one page to share.",
        metavar="WORD",
        terms=[ONLY_A_MODEL, options.bars(NOT_OF_FOLLOW, "means nothing with --follow; leave it out")],
        section=SECTION,
    ),
    tokens: int | None = option(
        "Go on with the text for N tokens, or to its end: the likeliest each time, and the logits that it "
        "was chosen by. With --layer, what the whole text's tokens attend to.",
        whole_number(1, MOST),
        metavar="N",
        terms=[ONLY_A_MODEL, options.bars(NOT_OF_TOKENS, "means nothing with --tokens; leave it out")],
        section=SECTION,
    ),
    sample: float | None = option(
        "Draw each token at this temperature, by --seed, in place of the likeliest.",
        POSITIVE,
        metavar="T",
        terms=[options.needs("tokens", "tokens are drawn with --tokens N; add it")],
        section=SECTION,
    ),
    chat: bool = option(
        "SENTENCE is a message to a model that answers: its chat template is written around it.",
        terms=[
            ONLY_A_MODEL,
            options.bars(["ids", "pair"], "means nothing with --chat; leave it out"),
        ],
        section=SECTION,
    ),
    config: options.Config = None,
    attention: options.Attention,
    gradients: options.Gradients,
    max_memory: options.MemoryToRun = None,
    cost: options.Cost = False,
    edits: options.Edits,
    view: options.ViewOptions,
    output: options.OutputOptions,
) -> None:
    """Tokenize a sentence, attend, and show every step.

    What you do not give is drawn from the seed. SENTENCE may be omitted if the config has one. Several
    sentences share their vocabulary and weights; each gets its own trace.

    With --model the weights are those of a trained transformer: its tokenizer splits the sentence, and
    --layer names the layers to show, one trace each. Without --layer you get a map of what each head of
    each layer does; with --next the likeliest next tokens.
    """
    from attnctl.cli.output import carry_out
    from attnctl.sources import open_run
    from attnctl.sources.sentence import Arguments

    attention |= gradients
    settings = {**attention, **edits, "max_memory": max_memory}
    seeds = more.get("seed")
    if isinstance(seeds, tuple):
        more = {**more, "seed": seeds[0]}
    asked = open_run(source or [], file, Arguments(config, {**more, **settings}), padded=padded)
    if model.model is not None:
        if isinstance(seeds, tuple):
            raise AttnError(f"--seed: several {NOT_BESIDE_MODEL.replace('means', 'mean')}")
        if asked.config is not None:
            raise AttnError(f"{asked.config}: {NOT_BESIDE_MODEL}")
        after = None if next is None else (next, at)
        generating = None
        if tokens is not None:
            from attnctl.models.generate import Generating

            generating = Generating(tokens, sample, int(more.get("seed") or 0))
        layers = layers_of(
            model, asked.sentences, more.get("context"), settings, after, generating, chat=chat
        )
        shown = HowShown(model.layer, lens, follow, asks_next=after is not None, goes_on=tokens is not None)
        show_layers(layers, shown, cost, view, output)
    else:
        each = [asked.of_seed(seed) for seed in seeds] if isinstance(seeds, tuple) else [asked]
        carry_out(each, cost, view, output)
    if asked.joined:
        one = quote(" ".join(asked.joined))
        several = f"printf '%s\\n' {shell_line(asked.joined)} | attnctl run -"
        complain(f"note: read as one sentence, {one}; for a sentence each: {several}")


class HowShown(NamedTuple):
    """What is shown of a model's run."""

    layer: str | None
    lens: bool
    follow: str | None
    asks_next: bool
    goes_on: bool
    """Whether the text is gone on with."""


def show_layers(
    layers: "Sequence[Layers]",
    how: HowShown,
    cost: bool,
    view: options.ViewOptions,
    output: options.OutputOptions,
) -> None:
    from attnctl.cli.output import carry_out

    if how.goes_on and how.layer is None:
        from attnctl.verbs.models.generated import generated_lines

        carry_out(layers, cost, view, output, of_model=True, lines=generated_lines)
    elif how.follow is not None:
        print_followed(layers, how.follow, output)
    elif how.lens:
        print_lens(layers, output)
    elif how.asks_next:
        from attnctl.verbs.models.next import next_lines

        carry_out(layers, cost, view, output, of_model=True, lines=next_lines)
    else:
        run_layers(layers, how.layer, cost, view, output)
