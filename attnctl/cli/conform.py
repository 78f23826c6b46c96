"""attnctl conform: anyone's attention function, held to a suite of cases."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from attnctl.cli.options import command, option
from attnctl.errors import AttnError, Exit
from attnctl.values import POSITIVE, words

if TYPE_CHECKING:
    from attnctl.verbs.conform.report import Conformance
    from attnctl.verbs.conform.suite import Asked

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class TargetOptions(NamedTuple):
    """How the target is called."""

    layout: Annotated[
        str | None,
        option("The axes of its arrays: bhnd (batch, head, n, d), the default, bnhd, hnd or nd."),
        words("bhnd", "bnhd", "hnd", "nd"),
    ] = None
    like: Annotated[
        str | None,
        option("It takes its options as this library's attention does: sdpa, flash, onnx or jax."),
        words("sdpa", "flash", "onnx", "jax"),
    ] = None
    map: Annotated[
        list[str] | None,
        option(
            "A parameter of it by our name (causal, window, …); may be repeated.", metavar="THEIRS=OURS"
        ),
    ] = None
    framework: Annotated[
        str | None,
        option("Whose arrays it takes: numpy (the default), torch or jax."),
        words("numpy", "torch", "jax"),
    ] = None
    device: Annotated[str | None, option("Where they are, like cuda or mps.", metavar="D")] = None
    timeout: Annotated[
        float | None,
        option("Seconds that one call may take before it counts as hanging (20)."),
        POSITIVE,
    ] = None


class SuiteOptions(NamedTuple):
    """What is run."""

    quick: Annotated[
        bool, option("About ten seconds: fewer lengths, sizes and random cases.", "--quick")
    ] = False
    feature: Annotated[list[str] | None, option("Only this feature; may be repeated.", metavar="NAME")] = (
        None
    )
    dtype: Annotated[
        list[str] | None,
        option("Only this type (float64, float32, float16, bfloat16); may be repeated.", metavar="TYPE"),
    ] = None
    claims: Annotated[
        str | None,
        option("A YAML file of what it is said to do: features, without, conventions.", metavar="FILE"),
    ] = None
    xfail: Annotated[
        str | None,
        option("A YAML file of features that are known to fail, each with why.", metavar="FILE"),
    ] = None


class ReportOptions(NamedTuple):
    """How the answer is given."""

    json: Annotated[bool, option("Print the report as JSON.", "--json")] = False


@command(
    app,
    "attnctl conform my_kernels.py:attention --quick",
    "attnctl conform package.module:attention --like flash --framework torch",
)
def conform(
    *,
    target: Annotated[
        list[str] | None,
        typer.Argument(help="module:function or file.py:function; or -- CMD {in} {out}", metavar="TARGET"),
    ] = None,
    how: TargetOptions,
    what: SuiteOptions,
    report: ReportOptions,
) -> Exit:
    """Hold someone's attention function to a suite of cases: what is right, what is wrong and why.

    The function takes Q, K and V, and what else it can do is read from its signature: causal or
    is_causal, mask or attn_mask, scale, softcap, window, bias, alibi_slopes, key_lengths, past_key
    and past_value, sinks, … What it has no keyword for is skipped.

    Inputs are rounded to the type first and the reference is computed in float64. Numbers may be off
    by six times what plain attention in that type is off by; the table has the worst of each feature
    as a part of that. Every call runs in a process apart with a time limit.

    Exit codes: 0 everything that was run is right; 1 something is wrong or has no effect; 2 nothing
    could be run.
    """
    from attnctl.cli.progress import progress
    from attnctl.verbs.conform.ask import target_for
    from attnctl.verbs.conform.suite import run

    if not target:
        raise AttnError("no TARGET; give module:function, file.py:function, or -- CMD {in} {out}")
    if len(target) > 1:
        raise AttnError(f"{target[1]}: one TARGET at a time")
    asked = asked_of(how, what)
    made, name = target_for(target[0], how.framework or "numpy", how.device, how.timeout)
    with progress("cases") as moved:
        found = run(made, name, asked, moved)
    show(found, report)
    if found.agrees is None:
        return Exit.USAGE
    return Exit.OK if found.agrees else Exit.DIFFERS


def asked_of(how: TargetOptions, what: SuiteOptions) -> Asked:
    """How the suite is to be run. Raises AttnError for names that there are not."""
    from attnctl.cli.attend import renames
    from attnctl.verbs.conform.ask import asked

    return asked(
        layout=how.layout,
        like=how.like,
        names=renames(how.map or [], "--map"),
        claims=what.claims,
        xfail=what.xfail,
        features=what.feature or (),
        dtypes=what.dtype or (),
        quick=what.quick,
    )


def show(found: Conformance, report: ReportOptions) -> None:
    """Write the report as it is asked for."""
    if report.json:
        from attnctl.store.strict_json import print_json

        print_json(found.to_dict(), indent=1)
        return
    from attnctl.screen.output import output_for
    from attnctl.verbs.conform.view import show_conformance

    show_conformance(found, output_for(sys.stdout, os.environ))
