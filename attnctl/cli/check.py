"""attnctl check: anyone's dump, recomputed; the first wrong step, and the mistake that explains it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from attnctl.cli.options import (
    AttentionOptions,
    ConfigOption,
    Given,
    LayerOption,
    NameOption,
    TraceOption,
    command,
    option,
    picked,
)
from attnctl.errors import AttnError, Exit, raise_all
from attnctl.values import TOLERANCE, whole

if TYPE_CHECKING:
    from attnctl.trace import Trace
    from attnctl.verbs.check.record import Strictness

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class CheckOptions(NamedTuple):
    """How far off a number may be, and how the answer is given."""

    decimals: Annotated[
        int | None,
        option("The numbers were rounded to N decimals (by hand, or when they were printed), 0 to 15."),
        whole(0, 15),
    ] = None
    rtol: Annotated[
        float | None,
        option(
            "Numbers may be atol + rtol·|expected| off. Otherwise they may be as far off as rounding puts "
            "them, which follows from their type and the arithmetic."
        ),
        TOLERANCE,
    ] = None
    atol: Annotated[float | None, option("See --rtol."), TOLERANCE] = None
    full: Annotated[bool, option("Leave nothing out on a terminal, however long.", "--full")] = False
    quiet: Annotated[bool, option("Print nothing; the exit code tells.", "--quiet", "-q")] = False
    json: Annotated[bool, option("Print the report as JSON.", "--json")] = False


@command(
    app,
    "attnctl check dump.json",
    "attnctl check theirs.npz --heads 2 --causal --name query=Q --name key=K --name value=V",
    "attnctl check handed-in.json --decimals 2 --quiet && echo right",
)
def check(
    *,
    dump: Annotated[
        str, typer.Argument(help="A dump or anyone's arrays (.json .npz .safetensors), or - for stdin.")
    ],
    how: CheckOptions,
    trace: TraceOption = None,
    name: NameOption = None,
    layer: LayerOption = None,
    config: ConfigOption = None,
    attention: AttentionOptions,
) -> Exit:
    """Recompute every step of a dump; name the first wrong one and the mistake that explains it.

    A dump of attnctl says how each step came about. Arrays of another program are read by our
    names (Q, K, V, scores, attention_weights, head_outputs, output, …; some are enough) or by those
    of torch, of Hugging Face's models and of common variables, and the options for attention, or
    a config, say what was intended. Options overrule a dump of ours too.

    Steps that are not recorded are recomputed from those that are. In an exercise, null cells and
    steps are still to be filled in.

    Exit codes: 0 every recorded step was judged and agrees; 1 one is wrong, or a blank is not filled
    in; 2 none is wrong, but some cannot be told, or there is nothing to compare.
    """
    from attnctl.cli.attend import renames
    from attnctl.plan.intended import under_our_names
    from attnctl.verbs.check.check import check as check_trace
    from attnctl.verbs.check.exercise import read

    raise_all(senseless(how))
    exercise = read(picked(dump, trace), renames(name or []))
    settings = settings_for(exercise.trace, config, attention)
    report = check_trace(
        under_our_names(exercise.trace, settings, layer),
        settings,
        strictness(how, exercise.trace),
        exercise.begun,
        exercise.unfilled,
    )
    if how.json:
        from attnctl.store.strict_json import print_json

        print_json(report.to_dict(), indent=1)
    elif not how.quiet:
        from attnctl.screen.output import output_for
        from attnctl.verbs.check.view import show_report

        show_report(report, output_for(sys.stdout, os.environ), full=how.full)
    if report.agrees is None:
        return Exit.USAGE
    return Exit.OK if report.agrees else Exit.DIFFERS


def senseless(how: CheckOptions) -> list[str]:
    """Options that mean nothing."""
    problems = []
    if how.quiet and how.json:
        problems.append("--quiet prints nothing; leave it out to have --json")
    if how.decimals is not None and (how.rtol, how.atol) != (None, None):
        problems.append("--decimals says how far off numbers may be; leave out --rtol and --atol")
    return problems


def settings_for(trace: Trace, config: str | None, attention: Given) -> Any:
    """What was intended, by the options over the dump's own config; None where only the dump says it."""
    if not (config or attention):
        return None
    from attnctl.cli.settings import settings_from
    from attnctl.verbs.check.check import configured

    return settings_from(config, attention, base=None if config else configured(trace))


def strictness(how: CheckOptions, trace: Trace) -> Strictness:
    """How far off a number may be; an exercise may say itself to how many decimals it is filled in."""
    from attnctl.verbs.check.record import Strictness

    decimals = how.decimals
    if decimals is None and (how.rtol, how.atol) == (None, None):
        decimals = trace.header.get("decimals")
    if decimals is not None and (type(decimals) is not int or not 0 <= decimals <= 15):
        raise AttnError(f"decimals: {decimals!r} is not a number of decimals; use 0 to 15")
    return Strictness(how.rtol, how.atol, decimals)
