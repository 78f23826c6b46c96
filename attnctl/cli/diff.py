"""attnctl diff: where two dumps part, by how much, and why."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from attnctl.cli.options import command, option
from attnctl.errors import AttnError, Exit
from attnctl.values import TOLERANCE

if TYPE_CHECKING:
    from attnctl.trace import Trace

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class ComparisonOptions(NamedTuple):
    """What to compare, and what counts as different."""

    step: Annotated[
        str | None, option("Only these steps, by name, separated by commas.", metavar="NAME,…")
    ] = None
    rtol: Annotated[
        float | None,
        option(
            "Numbers differ when |a - b| > atol + rtol·|b|. From the coarser type of the two: "
            "float64 1e-7, float32 1.3e-6, float16 1e-3."
        ),
        TOLERANCE,
    ] = None
    atol: Annotated[float | None, option("float64 1e-7, float32 and float16 1e-5."), TOLERANCE] = None
    equal_nan: Annotated[bool, option("NaN equals NaN.", "--equal-nan")] = False
    by_position: Annotated[
        bool, option("Compare place by place, whatever the tokens are.", "--by-position")
    ] = False


DUMP = "A dump (.json .jsonl .npz .safetensors), or - for stdin."


@command(app)
def diff(
    *,
    a: Annotated[str, typer.Argument(help=DUMP, metavar="A")],
    b: Annotated[str, typer.Argument(help="The dump to hold it against.", metavar="B")],
    how: ComparisonOptions,
    quiet: Annotated[bool, option("Print nothing; the exit code tells.", "--quiet", "-q")] = False,
    json: Annotated[bool, option("Print the difference as JSON.", "--json")] = False,
) -> Exit:
    """Compare two dumps step by step: where they part, by how much, and why.

    Infinities of one sign are equal, so hidden scores are. Sentences that differ are laid side by
    side by the tokens they have in common; steps whose shapes do not match are skipped and named.
    Why outputs differ is split exactly into what was attended elsewhere (ΔA·V), what said
    something else (A·ΔV), and both (ΔA·ΔV).

    Exit codes: 0 same, 1 differ, 2 not comparable (nothing compared is 2, never 0).
    """
    from attnctl.cli.output import wanted_steps
    from attnctl.verbs.diff import Tolerance
    from attnctl.verbs.diff import diff as compare

    if a == b == "-":
        raise AttnError("both dumps cannot come from stdin; name a file for one")
    if quiet and json:
        raise AttnError("--quiet prints nothing; leave it out to have --json")
    names = wanted_steps(how.step)
    tolerance = Tolerance(how.rtol, how.atol, how.equal_nan)
    found = compare(dump(a), dump(b), tolerance, steps=names, by_position=how.by_position, why=not quiet)
    if json:
        from attnctl.store.strict_json import print_json

        print_json(found.to_dict(), indent=2)
    elif not quiet:
        from attnctl.screen.output import output_for
        from attnctl.verbs.diff.view import show_difference

        show_difference(found, output_for(sys.stdout, os.environ))
    return Exit.OK if found.same else Exit.DIFFERS


def dump(source: str) -> Trace:
    """The trace of one side."""
    from attnctl.store import read_one

    if source == os.devnull:
        raise AttnError(f"{source}: no dump on this side; git shows a file so that was added or removed")
    return read_one(source)
