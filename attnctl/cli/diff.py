"""attnctl diff: where two dumps part, by how much, and why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from attnctl import api
from attnctl.base.errors import AttnError, Exit
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.values import TOLERANCE
from attnctl.base.words import plural
from attnctl.cli import options
from attnctl.cli.model import IDS, SECTION
from attnctl.cli.options import argument, command, option
from attnctl.cli.output import give, progress, wanted_steps
from attnctl.record import Trace
from attnctl.sources import HELP, open_source
from attnctl.sources.sentence import Arguments
from attnctl.verbs.diff import Difference, pair_traces
from attnctl.verbs.diff.view import lines_of_pairs

OF_DUMPS = ("step", "rtol", "atol", "equal_nan", "by_position", "trace")


@command(
    "attnctl diff a.json b.json",
    "attnctl diff a.npz b.npz --step output --rtol 1e-3 --quiet || echo changed",
    "attnctl diff a.jsonl b.jsonl --trace 'I love AI' --json",
    "attnctl diff 'The capital of France is' --model model.gguf --model DIR",
)
def diff(  # noqa: PLR0913  (what to compare, and how the answer is given)
    *,
    a: str | None = argument(f"{HELP} With --model, a text.", "A"),
    b: str | None = argument("What to compare it with, named the same way.", "B"),
    model: list[str] | None = option(
        "Compare two trained models on the text A: give it twice. 'DIR --adapter LORA' is one, too.",
        metavar="DIR",
        section=SECTION,
        terms=[options.bars(OF_DUMPS, "compares dumps; leave it out with --model")],
    ),
    ids: tuple[int, ...] | None = option(
        "Token ids instead of the text.",
        IDS,
        section=SECTION,
        terms=[options.needs("model", "only models take ids; add --model A --model B")],
    ),
    step: str | None = option("Only these steps, by name, separated by commas.", metavar="NAME,…"),
    rtol: float | None = option(
        "Numbers differ when |a - b| > atol + rtol·|b|. From the coarser type of the two: "
        "float64 1e-7, float32 1.3e-6, float16 1e-3.",
        TOLERANCE,
    ),
    atol: float | None = option("float64 1e-7, float32 and float16 1e-5.", TOLERANCE),
    equal_nan: bool = option("NaN equals NaN."),
    by_position: bool = option("Compare position by position, whatever the tokens are."),
    trace: options.Trace = None,
    max_memory: options.Memory = None,
    full: options.Full = False,
    quiet: options.Quiet = False,
    json: bool = option("Print the difference as JSON: an object for one pair, an array for several."),
    output: list[str] | None = options.findings_option("diff"),
) -> Exit:
    """Compare two dumps step by step: where they part, by how much, and why.

    Infinities of the same sign are equal, and so are hidden scores. Different sentences are aligned by the
    tokens they share; steps whose shapes do not match are skipped and named. Why outputs differ is split
    exactly into attention that moved (ΔA·V), values that changed (A·ΔV), and both (ΔA·ΔV).

    Two files of several traces are compared pair by pair, in order; of two captures each call with the same
    one of its module, and the first that differs is shown.

    With --model given twice, two trained models of one shape are run on a text: layer by layer how far
    their weights and each head's are apart, the cosine of the rows that leave each layer, the first tensor
    that differs, and how far apart the next tokens are.

    Exit codes: 0 same, 1 different, 2 not comparable (comparing nothing is 2, never 0).
    """
    if model is not None:
        return diff_models(
            model, [text for text in (a, b) if text is not None], ids, HowToAnswer(json, quiet, output)
        )
    if a is None or b is None:
        raise AttnError("missing: A and B, the two dumps to compare; or a text, with --model A --model B")
    if a == b == "-":
        raise AttnError("both dumps cannot come from stdin; name a file for one")

    names = wanted_steps(step)
    first = traces_of(a, trace)
    second = traces_of(b, trace)
    pairs, alone = pair_traces(first, second)
    if pairs is None:
        raise AttnError(
            f"{a} holds {plural(len(first), 'trace')}, {b} {plural(len(second), 'trace')}; "
            "pick one of each by number from 0 or by sentence, like FILE[0]"
        )

    compare = partial(
        api.diff,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        steps=names,
        by_position=by_position,
        why=not quiet,
    )
    differences = [replace(compare(*pair), names=(a, b)) for pair in pairs]
    view = partial(lines_of_pairs, differences, alone)
    then = command_to_explain(b, differences)
    give("diff", differences, output, view, json=json, indent=2, quiet=quiet, full=full, then=then)
    return Exit.of(not alone and all(pair.same for pair in differences))


def command_to_explain(b: str, differences: Sequence[Difference]) -> list[str]:
    """The command that writes out the number of B that is furthest off in the first step that differs."""
    if len(differences) != 1 or differences[0].first is None:
        return []
    difference = differences[0]
    cell = difference.steps[difference.first].cell if difference.first in difference.steps else None
    if cell is None or b == "-" or difference.left_out != ([], []):
        return []  # of other sentences the cell has another name in B
    return ["attnctl", "explain", b, cell]


class HowToAnswer(NamedTuple):
    """How the answer is given."""

    json: bool
    quiet: bool
    output: list[str] | None


def diff_models(
    names: Sequence[str], texts: Sequence[str], ids: tuple[int, ...] | None, answer: HowToAnswer
) -> Exit:
    """Two models on a text, or on ids."""
    from attnctl.models.run import ModelInput
    from attnctl.verbs.models.compare import compare_lines, compare_models

    if len(names) != 2:
        raise AttnError(f"--model: {plural(len(names), 'model')}; two are compared: --model A --model B")
    if len(texts) + (ids is not None) != 1:
        raise AttnError("--model: one text is asked of both models, or --ids 1,2,3")
    given = ModelInput(ids=ids) if ids is not None else ModelInput(texts[0])
    with progress("layers") as moved:
        first, second = names
        found = compare_models(first, second, given, moved)
    view = partial(compare_lines, found)
    give("diff", [found], answer.output, view, json=answer.json, quiet=answer.quiet)
    return Exit.of(found.same)


def traces_of(text: str, trace: str | None) -> Sequence[Trace]:
    if text == os.devnull:
        raise AttnError(f"{text}: no dump on this side; git shows a file so that was added or removed")
    return open_source(text, Arguments(trace=trace), lone_word=False).traces()
