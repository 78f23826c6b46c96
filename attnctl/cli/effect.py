"""attnctl effect: what each head of a model does to the next token."""

from __future__ import annotations

from functools import partial

from attnctl import api
from attnctl.base.errors import AttnError
from attnctl.base.rooms import formats_of
from attnctl.base.values import MOST, whole_number, words
from attnctl.base.workers import ENGINE, Engine
from attnctl.cli import options
from attnctl.cli.model import IDS
from attnctl.cli.options import argument, command, option
from attnctl.cli.output import give, progress
from attnctl.formats import format_for
from attnctl.models.source import join_name
from attnctl.verbs.effect.metrics import DIFFERENCE, METRICS
from attnctl.verbs.effect.parts import BY, HEAD
from attnctl.verbs.effect.view import effect_lines, mean_lines


@command(
    "attnctl effect 'Mary met John, and John thanked' --model gpt2 --between ' Mary' ' John'",
    "attnctl effect 'Paul left. Who left?' --model gpt2 --between ' Paul' ' Anna' "
    "--patch 'Anna left. Who left?'",
    "attnctl effect --ids 3,4,5,3,4 --model DIR --between 5 4 --direct -o effect.json",
    "attnctl effect --prompts names.jsonl --model gpt2 --by layer -o layers.svg",
)
def effect(  # noqa: PLR0913  (options)
    *,
    prompt: str | None = argument("The text whose next token is asked for.", "PROMPT"),
    model: str | None = option(
        "A folder of save_pretrained, a GGUF file, ollama:NAME, or the id of a model on the hub.",
        metavar="DIR",
    ),
    adapter: options.Adapter = None,
    between: tuple[str, str] | None = option(
        "The two tokens, as texts (a space before a word is part of it), or as ids beside --ids.",
        metavar="A B",
    ),
    by: str = option(
        "What is changed at a time: a head's output, all that a layer or its network adds, or the row of a "
        "position that comes into a layer.",
        words(*BY),
        default=HEAD,
    ),
    at: int | None = option(
        "The position after which the next token is asked, from 0, or from -1 back; default: the last.",
        whole_number(-MOST, MOST),
        metavar="N",
    ),
    metric: str = option(
        "What is measured: logit A − logit B; of A the logit, ln p or p; or the divergence of all tokens "
        "from what they were. Without --between A and B are the likeliest, but for a difference.",
        words(*METRICS),
        default=DIFFERENCE,
    ),
    ids: tuple[int, ...] | None = option("Token ids instead of PROMPT.", IDS),
    patch: str | None = option(
        "Take each head's output from this prompt of as many tokens (ids beside --ids), in place of zero.",
        metavar="OTHER",
    ),
    mean: bool = option(
        "Replace each head's output by its mean over positions, in place of zero.",
        terms=[
            options.excludes("patch", "a patch takes the other prompt's outputs; leave one of them out")
        ],
    ),
    prompts: str | None = option(
        'Many prompts: a JSON object a line, {"prompt": …, "other": …, "a": …, "b": …}; the mean of each '
        "effect and how it spreads. With other in all, each is patched from it.",
        metavar="FILE.jsonl",
        terms=[
            options.bars(["prompt", "ids", "patch"], "the prompts of --prompts say it; leave it out"),
            options.bars(["direct"], "shares are those of one prompt; leave --prompts out"),
        ],
    ),
    direct: bool = option(
        "Add what each part writes into the difference itself; the parts add up.",
        terms=[
            options.only(
                lambda given: (given.get("by"), given.get("metric")) == (HEAD, DIFFERENCE),
                "shares are those of heads in a difference; leave --by and --metric out",
            )
        ],
    ),
    on: Engine | None = option(options.BY_WORKERS.format("Measure the layers"), ENGINE),
    json: bool = option("Print it as JSON."),
    output: list[str] | None = options.findings_option("effect"),
    max_memory: options.Memory = None,
) -> None:
    """Say what each head, layer or position does to the next token: how two logits change without it.

    The output of one head after the other is made zero at all positions (or its mean, or that of another
    prompt), and the change in logit A − logit B after the last token is given, or at [MASK].

    --direct takes the difference apart, the norms' roots held: what the embeddings, each head and each
    network have written into it adds up to it.

    A JSON file of -o is written after each layer; where a run was interrupted, the same command goes on.
    That of --prompts is written at the end.
    """
    if prompts is not None:
        if model is None:
            raise AttnError("missing: --model DIR")
        with progress("prompts") as moved:
            several = api.mean_effect(
                prompts,
                model=join_name(model, adapter),
                between=between,
                mean=mean,
                by=by,
                at=at,
                metric=metric,
                on=on,
                progress=moved,
            )
        give("effect", [several], output, partial(mean_lines, several), json=json)
        return

    needed = {"--model DIR": model, "--between A B": between, "PROMPT, or --ids N,…": prompt or ids}
    if metric != DIFFERENCE:
        del needed["--between A B"]
    lacking = [name for name, value in needed.items() if value is None]
    if lacking or model is None:
        raise AttnError(f"missing: {', '.join(lacking)}")
    if prompt and ids:
        raise AttnError("--ids: there is a prompt too; give one of them")

    files, _ = options.split_outputs(output)
    kept = [path for path in files if format_for(path, 1, formats_of("effect")).name == "json"]
    other = options.read_late("--patch", IDS, patch) if ids and patch else patch

    with progress("heads") as moved:
        found = api.effect(
            prompt,
            model=join_name(model, adapter),
            between=between,
            ids=ids,
            patch=other,
            mean=mean,
            by=by,
            at=at,
            metric=metric,
            direct=direct,
            save=kept[0] if kept else None,
            on=on,
            progress=moved,
        )

    give("effect", [found], output, partial(effect_lines, found), json=json)
