"""attnctl exercise: runs with blanks, handed out and graded."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from attnctl.base.errors import AttnError, Exit
from attnctl.base.values import whole
from attnctl.cli.commands import Group
from attnctl.cli.options import AttentionOptions, ConfigOption, SentenceOptions, command, option

if TYPE_CHECKING:
    from attnctl.verbs.exercise import HandIn

app = typer.Typer(
    cls=Group,
    rich_markup_mode=None,
    add_completion=False,
    help="Make exercises of runs, and grade a class.",
    epilog=(
        "attnctl exercise make example:i-love-ai --blank scores,attention_weights -o task.json\n"
        "attnctl exercise grade handed-in/*.json"
    ),
)

DECIMALS = whole(1, 12)


@command(
    app,
    "attnctl exercise make example:i-love-ai --blank scores,attention_weights -o task.json",
    "attnctl exercise make example:i-love-ai --blank scores --seed-from Ann -o Ann.json",
)
def make(
    *,
    config: Annotated[
        str, typer.Argument(help="The run: a YAML config, or example:NAME.", metavar="CONFIG")
    ],
    blank: Annotated[
        str | None, option("The steps to be filled in, separated by commas.", metavar="STEP,…")
    ] = None,
    seed_from: Annotated[
        str | None,
        option("Draw the numbers from this student's name: each has an own task.", metavar="NAME"),
    ] = None,
    decimals: Annotated[
        int | None, option("To how many decimals numbers are to be written, 1 to 12 (4)."), DECIMALS
    ] = None,
    more: SentenceOptions,
    attention: AttentionOptions,
    output: Annotated[
        str | None,
        option(
            "Write the exercise to FILE instead of stdout (-).",
            "--output",
            "-o",
            metavar="FILE",
            writes=True,
        ),
    ] = None,
) -> None:
    """Write a run with some of its steps blank, to be filled in.

    The file is a dump with null in its blanks. Steps that follow from a blank one are left out, as
    they would give it away. With --seed-from every student has numbers of their own, the same
    whenever they are made again, so that copies show.
    """
    from attnctl.cli.options import STDOUT
    from attnctl.cli.output import wanted_steps
    from attnctl.cli.program import complain
    from attnctl.cli.settings import settings_from
    from attnctl.drawing.screen.output import say
    from attnctl.store import write_text
    from attnctl.verbs import exercise
    from attnctl.verbs.exercise.make import DECIMALS as USUAL

    if blank is None:
        raise AttnError("--blank: which steps are to be filled in? like --blank scores,attention_weights")
    if seed_from is not None and not seed_from.strip():
        raise AttnError("--seed-from: no name in it; write that of a student")
    if seed_from is not None and "seed" in attention | more:
        raise AttnError("--seed-from: the name gives the seed; leave out --seed")
    settings = settings_from(config, {**more, **attention})
    steps = wanted_steps(blank) or []
    made = exercise.make(settings, steps, seed_from, USUAL if decimals is None else decimals)
    if made.left_out:
        complain(f"note: left out, as they follow from the blanks: {', '.join(made.left_out)}")
    try:
        made = exercise.seal_exercise(made, exercise.own_or_new_key())
    except AttnError as error:
        complain(
            f"note: the sheet has no seal, so that it will vouch for itself: {'; '.join(error.problems)}"
        )
    if output in {None, STDOUT}:
        say(*exercise.sheet_text(made).removesuffix("\n").split("\n"))
    else:
        write_text(exercise.sheet_text(made), str(output))


class TaskOptions(NamedTuple):
    """What was to be done, whatever the sheets say."""

    blank: Annotated[
        str | None, option("With -c: the steps that were to be filled in.", metavar="STEP,…")
    ] = None
    decimals: Annotated[
        int | None, option("To how many decimals numbers were to be written."), DECIMALS
    ] = None


@command(
    app,
    "attnctl exercise grade handed-in/*.json",
    "attnctl exercise grade Ann.json Ben.json --csv grades.csv",
    "attnctl exercise grade *.json -c task.yaml --blank scores,output --json",
)
def grade(
    *,
    file: Annotated[list[str], typer.Argument(help="The hand-ins.", metavar="FILE...")],
    csv: Annotated[
        str | None,
        option(
            "Write the grades to FILE as CSV, for a gradebook; - is stdout.", metavar="FILE", writes=True
        ),
    ] = None,
    json: Annotated[bool, option("Print the grades as JSON.", "--json")] = False,
    config: ConfigOption = None,
    task: TaskOptions,
    more: SentenceOptions,
    attention: AttentionOptions,
) -> Exit:
    """Grade a class: names and steps, right, wrong (and the mistake) or not filled in.

    Each step is held to the numbers written before it, so that a slip is marked once. Given numbers
    that were changed are said, and copies: the same numbers on sheets that were made of different
    names, or a sheet that was made for another name.

    What was to be done is the teacher's word: a sheet has the seal of whoever made it (its key is a
    file of theirs, exercise.key in their data folder), or -c and --blank, and the options that the
    exercise was made with, say it. A sheet with neither is not held to be right.

    Exit codes: 0 all are right; 1 some are not; 2 some cannot be read.
    """
    from attnctl.cli.output import wanted_steps
    from attnctl.cli.program import complain
    from attnctl.cli.progress import progress
    from attnctl.cli.settings import settings_from
    from attnctl.verbs import exercise

    settings = settings_from(config, {**more, **attention}) if config or more or attention else None
    if task.blank is not None and settings is None:
        raise AttnError("--blank: the steps of which run? add -c CONFIG, with which the exercise was made")
    blank = tuple(wanted_steps(task.blank) or ())
    asked = exercise.Assignment(settings, blank, task.decimals, exercise.own_key())
    sheets = []
    with progress("grading") as moved:
        for number, each in enumerate(file):
            sheets.append(exercise.grade(each, asked))
            moved(number + 1, len(file))
    sheets = exercise.with_copies(sheets)
    for sheet in sheets:
        if sheet.error:
            complain(f"{sheet.file}: {sheet.error.removeprefix(f'{sheet.file}: ')}")
    show(sheets, csv, json=json)
    if any(sheet.error for sheet in sheets):
        return Exit.USAGE
    return Exit.OK if all(sheet.right for sheet in sheets) else Exit.DIFFERS


def show(sheets: list[HandIn], csv: str | None, *, json: bool) -> None:
    """Print the grades, and write them where they are asked for."""
    import io

    from attnctl.drawing.screen.output import output_for, print_lines, say, screen_of
    from attnctl.store import write_text
    from attnctl.store.strict_json import print_json
    from attnctl.verbs.exercise import view

    if csv is not None:
        text = io.StringIO()
        view.write_csv(sheets, text)
        if csv == "-":
            say(*text.getvalue().removesuffix("\n").split("\n"))
        else:
            write_text(text.getvalue(), csv)
    if json:
        print_json(view.as_data(sheets), indent=1)
    elif csv != "-":
        output = output_for(sys.stdout, os.environ)
        print_lines(view.grade_lines(sheets, screen_of(output)), output)
