"""attnctl effect: what each head of a model does to the next token."""

# Annotations are types here, which `command` reads: as text, each would be compiled again.
from functools import partial
from typing import Any, NamedTuple

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
from attnctl.verbs.effect.view import effect_lines, mean_lines, path_lines


class MeasureOptions(NamedTuple):
    """What is measured of each prompt, of one or of many: keywords of the library's functions."""

    between: tuple[str, str] | None = option(
        "The two tokens, as texts (a space before a word is part of it), or as ids beside --ids.",
        metavar="A B",
    )
    by: str = option(
        "What is changed at a time: a head's output, all that a layer or its network adds, or the row of a "
        "position that comes into a layer.",
        words(*BY),
        default=HEAD,
    )
    at: int | None = option(
        "The position after which the next token is asked, from 0, or from -1 back; default: the last.",
        whole_number(-MOST, MOST),
        metavar="N",
    )
    metric: str = option(
        "What is measured: logit A − logit B; of A the logit, ln p or p; or the divergence of all tokens "
        "from what they were. Without --between A and B are the likeliest, but for a difference.",
        words(*METRICS),
        default=DIFFERENCE,
    )
    mean: bool = option(
        "Replace each head's output by its mean over positions, in place of zero.",
        terms=[
            options.excludes("patch", "a patch takes the other prompt's outputs; leave one of them out")
        ],
    )
    attribution: bool = option(
        "Estimate all effects at once, gradient · (other − own), in place of a pass for each.",
        terms=[options.bars(["on", "path"], "a gradient takes one pass; leave it out")],
    )
    on: Engine | None = option(options.BY_WORKERS.format("Measure the layers"), ENGINE)


SHARES_TERM = options.only(
    lambda given: (given.get("by"), given.get("metric")) == (HEAD, DIFFERENCE),
    "shares are those of heads in a difference; leave --by and --metric out",
)


@command(
    "attnctl effect 'Mary met John, and John thanked' --model gpt2 --between ' Mary' ' John'",
    "attnctl effect 'Paul left. Who left?' --model gpt2 --between ' Paul' ' Anna' "
    "--patch 'Anna left. Who left?'",
    "attnctl effect --ids 3,4,5,3,4 --model DIR --between 5 4 --direct -o effect.json",
    "attnctl effect --prompts names.jsonl --model gpt2 --by layer -o layers.svg",
    "attnctl effect --ids 3,4,5,3,4 --model DIR --between 5 4 --path '*->9.6.q' --path 9.6->logits",
)
def effect(  # noqa: PLR0913  (options)
    *,
    prompt: str | None = argument("The text whose next token is asked for.", "PROMPT"),
    model: str | None = option(
        "A folder of save_pretrained, a GGUF file, ollama:NAME, or the id of a model on the hub.",
        metavar="DIR",
    ),
    adapter: options.Adapter = None,
    measured: MeasureOptions,
    ids: tuple[int, ...] | None = option("Token ids instead of PROMPT.", IDS),
    patch: str | None = option(
        "Take each head's output from this prompt of as many tokens (ids beside --ids), in place of zero.",
        metavar="OTHER",
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
    path: list[str] | None = option(
        "Change one part only where another reads it: 4.2->7.3 (head 2 of layer 4, read by head 3 of layer "
        "7), 7.3.q, .k or .v, 5.mlp, embed, logits; * is each head. May be given more than once.",
        metavar="A->B",
        terms=[
            options.bars(["prompts", "direct", "on"], "means nothing with --path; leave it out"),
            options.only(
                lambda given: given.get("by") == HEAD, "says what is changed itself; leave --by out"
            ),
        ],
    ),
    direct: bool = option(
        "Add what each part writes into the difference itself; the parts add up.", terms=[SHARES_TERM]
    ),
    json: bool = option("Print it as JSON."),
    output: list[str] | None = options.findings_option("effect"),
    max_memory: options.Memory = None,
) -> None:
    """Say what each head, layer or position does to the next token: how two logits change without it.

    The output of one head after the other is made zero at all positions (or its mean, or that of another
    prompt), and the change in logit A − logit B after the last token is given, or at [MASK].

    --direct takes the difference apart, the norms' roots held: what the embeddings, each head and each
    network have written into it adds up to it. --attribution asks the gradient; --path changes a part only
    where another one reads it, all between them held as it was.

    A JSON file of -o is written after each layer; where a run was interrupted, the same command goes on.
    That of --prompts and of --path is written at the end.
    """
    asked = AskedOfOne(prompt, ids, model, patch)
    if prompts is not None:
        with progress("prompts") as moved:
            several = api.mean_effect(
                prompts, model=model_named(model, adapter), **measured._asdict(), progress=moved
            )
        give("effect", [several], output, partial(mean_lines, several), json=json)
        return

    refuse_lacking(asked, measured)
    question = asked.question(measured, adapter)
    if path:
        with progress("paths") as moved:
            paths = api.path_effect(path, **question, progress=moved)
        give("effect", [paths], output, partial(path_lines, paths), json=json)
        return

    with progress("heads") as moved:
        found = api.effect(
            **question,
            by=measured.by,
            attribution=measured.attribution,
            on=measured.on,
            direct=direct,
            save=first_json(output),
            progress=moved,
        )
    give("effect", [found], output, partial(effect_lines, found), json=json)


class AskedOfOne(NamedTuple):
    """The prompt that effects are of, as it was given."""

    prompt: str | None
    ids: tuple[int, ...] | None
    model: str | None
    patch: str | None

    def question(self, measured: MeasureOptions, adapter: str | None) -> dict[str, Any]:
        """The keywords that every question about one prompt has."""
        patch: str | tuple[int, ...] | None = self.patch
        if self.ids and self.patch:
            patch = options.read_late("--patch", IDS, self.patch)
        return {
            "prompt": self.prompt,
            "ids": self.ids,
            "model": model_named(self.model, adapter),
            "patch": patch,
            "between": measured.between,
            "mean": measured.mean,
            "at": measured.at,
            "metric": measured.metric,
        }


def model_named(model: str | None, adapter: str | None) -> str:
    if model is None:
        raise AttnError("missing: --model DIR")
    return join_name(model, adapter)


def refuse_lacking(asked: AskedOfOne, measured: MeasureOptions) -> None:
    """Raise AttnError naming each thing that one prompt's effects need and that was not given."""
    needed = {
        "--model DIR": asked.model,
        "--between A B": measured.between,
        "PROMPT, or --ids N,…": asked.prompt or asked.ids,
    }
    if measured.metric != DIFFERENCE:
        del needed["--between A B"]
    lacking = [name for name, value in needed.items() if value is None]
    if lacking:
        raise AttnError(f"missing: {', '.join(lacking)}")
    if asked.prompt and asked.ids:
        raise AttnError("--ids: there is a prompt too; give one of them")


def first_json(output: list[str] | None) -> str | None:
    """The file of -o that is written after each layer."""
    files, _ = options.split_outputs(output)
    for path in files:
        if format_for(path, 1, formats_of("effect")).name == "json":
            return path
    return None
