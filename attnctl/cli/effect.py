"""attnctl effect: what each head of a model does to the next token."""

from __future__ import annotations

from functools import partial

from attnctl import api
from attnctl.base.errors import AttnError
from attnctl.base.rooms import formats_of
from attnctl.base.workers import ENGINE, Engine
from attnctl.cli import options
from attnctl.cli.model import IDS
from attnctl.cli.options import argument, command, option
from attnctl.cli.output import give, progress
from attnctl.formats import format_for
from attnctl.models.source import join_name
from attnctl.verbs.effect.view import effect_lines


@command(
    "attnctl effect 'Mary met John, and John thanked' --model gpt2 --between ' Mary' ' John'",
    "attnctl effect 'Paul left. Who left?' --model gpt2 --between ' Paul' ' Anna' "
    "--patch 'Anna left. Who left?'",
    "attnctl effect --ids 3,4,5,3,4 --model DIR --between 5 4 --direct -o effect.json",
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
    direct: bool = option("Add what each part writes into the difference itself; the parts add up."),
    on: Engine | None = option(options.BY_WORKERS.format("Measure the layers"), ENGINE),
    json: bool = option("Print it as JSON."),
    output: list[str] | None = options.findings_option("effect"),
    max_memory: options.Memory = None,
) -> None:
    """Say what each head does to the next token: how the difference of two logits changes without it.

    The output of one head after the other is made zero at all positions (or its mean, or that of another
    prompt), and the change in logit A − logit B after the last token is given, or at [MASK].

    --direct takes the difference apart, the norms' roots held: what the embeddings, each head and each
    network have written into it adds up to it.

    A JSON file of -o is written after each layer; where a run was interrupted, the same command goes on.
    """
    needed = {"--model DIR": model, "--between A B": between, "PROMPT, or --ids N,…": prompt or ids}
    lacking = [name for name, value in needed.items() if value is None]
    if lacking or model is None or between is None:
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
            direct=direct,
            save=kept[0] if kept else None,
            on=on,
            progress=moved,
        )

    give("effect", [found], output, partial(effect_lines, found), json=json)
