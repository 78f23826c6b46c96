"""attnctl diff: where two dumps part, by how much, and why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from attnctl import api
from attnctl.base.errors import AttnError, Exit
from attnctl.base.values import TOLERANCE
from attnctl.base.words import plural
from attnctl.cli import options
from attnctl.cli.options import argument, command, option
from attnctl.cli.output import give, wanted_steps
from attnctl.record import Trace
from attnctl.sources import HELP, open_source
from attnctl.sources.sentence import Arguments
from attnctl.verbs.diff import pair_traces
from attnctl.verbs.diff.view import lines_of_pairs


@command(
    "attnctl diff a.json b.json",
    "attnctl diff a.npz b.npz --step output --rtol 1e-3 --quiet || echo changed",
    "attnctl diff a.jsonl b.jsonl --trace 'I love AI' --json",
)
def diff(  # noqa: PLR0913  (what to compare, and how the answer is given)
    *,
    a: str = argument(HELP, "A"),
    b: str = argument("What to compare it with, named the same way.", "B"),
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

    Exit codes: 0 same, 1 different, 2 not comparable (comparing nothing is 2, never 0).
    """
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
    differences = [compare(*pair) for pair in pairs]
    view = partial(lines_of_pairs, differences, alone)
    give("diff", differences, output, view, json=json, indent=2, quiet=quiet, full=full)
    return Exit.of(not alone and all(pair.same for pair in differences))


def traces_of(text: str, trace: str | None) -> Sequence[Trace]:
    if text == os.devnull:
        raise AttnError(f"{text}: no dump on this side; git shows a file so that was added or removed")
    return open_source(text, Arguments(trace=trace), lone_word=False).traces()
