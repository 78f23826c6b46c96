"""attnctl exercise: runs with blanks, handed out and graded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from attnctl import formats
from attnctl.base.errors import AttnError, Exit, raise_all
from attnctl.base.rooms import formats_of
from attnctl.base.setting import Given
from attnctl.base.values import whole_number, words
from attnctl.base.words import all_of
from attnctl.cli import options
from attnctl.cli.options import argument, command, excludes, only, option
from attnctl.cli.output import progress, wanted_steps
from attnctl.cli.program import complain
from attnctl.drawing.screen.output import print_view, say
from attnctl.formats import write_text
from attnctl.inputs.config.flags import settings_from
from attnctl.sources import HELP, open_source
from attnctl.sources.sentence import Arguments
from attnctl.verbs import exercise as making
from attnctl.verbs.exercise import grade as grading
from attnctl.verbs.exercise.grade import HandIn
from attnctl.verbs.exercise.gradebook import AUTOGRADERS, grade_lines
from attnctl.verbs.exercise.sheet import sheet_text

GROUP = {
    "help": "Make exercises, and grade a class.",
    "epilog": (
        "attnctl exercise make example:i-love-ai --blank scores,attention_weights -o sheet.html\n"
        "attnctl exercise grade handed-in/*.json"
    ),
}

MOST_NAMED = 3  # files of one problem that are named; of more the first, and how many others

DECIMALS = whole_number(1, 12)
GRADE_FORMATS = ("table", "json", "csv", "gradescope", "otter")
NO_SEED = options.bars(["seed"], "the name of a student gives it; leave out --seed")
A_NAME = only(lambda given: bool(given["seed_from"].strip()), "no name in it; write that of a student")
TO_FILES = only(
    lambda given: not options.split_outputs(given["output"])[1],
    "where to? add -o FOLDER/, or -o FILE.html for all of them on paper",
)


def names_workbook(given: Given) -> bool:
    return any(path.endswith(".xlsx") for path in given["output"] or ())


@command(
    "attnctl exercise make example:i-love-ai --blank scores,attention_weights -o sheet.html",
    "attnctl exercise make 'the cat sat' --heads 2 --blank scores --seed-from Ann -o Ann.json",
    "attnctl exercise make task.yaml --blank scores --decimals 2 --students roster.csv -o sheets/",
)
def make(  # noqa: PLR0913  (options, and groups of them)
    *,
    source: str | None = argument(HELP, "SOURCE"),
    config: options.Config = None,
    blank: str | None = option("The steps to be filled in, separated by commas.", metavar="STEP,…"),
    seed_from: str | None = option(
        "Draw the numbers from this student's name: each has an own task.",
        metavar="NAME",
        terms=[
            NO_SEED,
            A_NAME,
            excludes("students", "--seed-from: --students has the names; leave out one of them"),
        ],
    ),
    students: str | None = option(
        "A sheet for each student of this roster (a CSV with names, or a name a line), as with "
        "--seed-from; a column id tells equal names apart. -o FOLDER/ gets a page each, "
        "-o 'FOLDER/{name}.json' what the suffix says, and one .html or .md has them all, for paper.",
        metavar="CSV",
        terms=[NO_SEED, TO_FILES],
    ),
    decimals: int | None = option(
        "To how many decimals numbers are given and to be written, 1 to 12 (4).", DECIMALS
    ),
    points: str | None = option(
        "What steps are worth, like scores=2,output=3; default: 1 each.", metavar="STEP=N,…"
    ),
    key: bool = option(
        "Write the answers into the blanks: what to mark by. (No .xlsx, which has them on hidden sheets.)",
        terms=[only(lambda given: not names_workbook(given), "an .xlsx has its answers on hidden sheets")],
    ),
    more: options.Sentence,
    attention: options.Attention,
    output: list[str] | None = options.findings_option("exercise make", checked=False),
) -> None:
    """Write a run with some of its steps blank, to be filled in.

    An .html is a sheet for a browser, which needs no network, keeps what is typed and saves the JSON
    to hand in; it prints with empty boxes. An .md is for paper. A .json is a dump with null in its
    blanks. Steps that follow from a blank one are left out, as they would give it away. With
    --seed-from or --students every student has numbers of their own, the same whenever they are made
    again, so that copies show.
    """
    if blank is None:
        raise AttnError("--blank: which steps are to be filled in? like --blank scores,attention_weights")
    raise_all(find_misnamed(output or [], several=students is not None))

    settings = open_source(source, Arguments(config, {**more, **attention})).settings
    steps = wanted_steps(blank) or []
    places = making.DECIMALS if decimals is None else decimals
    worth = making.read_points(points) if points is not None else {}
    learners: list[making.Student | None] = [making.Student(seed_from) if seed_from else None]
    if students:
        learners = list(making.read_roster(students))

    made: list[making.Exercise] = []
    with progress("making sheets") as moved:
        for number, learner in enumerate(learners, start=1):
            made.append(making.make(settings, steps, learner, places, worth, key=key))
            moved(number, len(learners))

        # The same steps are left out of every sheet.
        left_out = made[0].left_out
        if left_out:
            complain(f"note: left out, as they follow from the blanks: {', '.join(left_out)}")
        write_sheets(made, output or [options.STDOUT], several=students is not None)


def find_misnamed(output: list[str], *, several: bool) -> Iterator[str]:
    """A problem for each file that sheets cannot be written to, whatever its suffix says."""
    for path in output:
        if path.endswith(".pdf"):
            yield f"{path}: no format for the suffix '.pdf'; write .html, and print that"
        if several and path.endswith(".json") and "{name}" not in path:
            yield f"{path}: a .json holds one sheet; for one each write -o 'FOLDER/{{name}}.json'"


def write_sheets(made: list[making.Exercise], output: list[str], *, several: bool) -> None:
    def files_of(target: str) -> list[tuple[list[making.Exercise], str]]:
        if not several or not (is_folder(target) or "{name}" in target):
            return [(made, target)]
        files = making.place_sheets(target, [str(exercise.student) for exercise in made])
        return [([exercise], file) for exercise, file in zip(made, files, strict=True)]

    wanted = [sheet for target in output if target != options.STDOUT for sheet in files_of(target)]
    raise_all(formats.unwritable([file for _, file in wanted], formats_of("exercise make")))

    for sheets, file in wanted:
        if several:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
        formats.write_found("exercise make", sheets, [file])

    if options.STDOUT in output:
        say(*sheet_text(made[0]).removesuffix("\n").split("\n"))


def is_folder(target: str) -> bool:
    return target.endswith(("/", os.sep)) or Path(target).is_dir()


@command(
    "attnctl exercise grade handed-in/*.json",
    "attnctl exercise grade handed-in/ --students roster.csv -o grades.html -o grades.csv",
    "attnctl exercise grade Ann.json -c task.yaml --blank scores,output --format gradescope",
)
def grade(  # noqa: PLR0913  (its options)
    *,
    file: list[str] = argument(
        "The hand-ins, a folder of them, or programs (.py, .ipynb), which are run.", "FILE..."
    ),
    format: str | None = option(  # noqa: A002  (the name of the option)
        "Print the grades in this format; gradescope and otter have the results of one hand-in for "
        "these autograders (several go to -o FOLDER/).",
        words(*GRADE_FORMATS),
    ),
    json: bool = option("Print the grades as JSON."),
    output: list[str] | None = options.findings_option("exercise grade", checked=False),
    students: str | None = option(
        "The roster that the sheets were made for: who is missing is said.", metavar="CSV"
    ),
    config: options.Config = None,
    blank: str | None = option("With -c: the steps that were to be filled in.", metavar="STEP,…"),
    decimals: int | None = option("To how many decimals numbers were to be written.", DECIMALS),
    points: str | None = option(
        "What steps are worth, like scores=2,output=3; default: as the sheet says, or 1 each.",
        metavar="STEP=N,…",
    ),
) -> Exit:
    """Grade a class: names and steps, right, wrong (and the mistake) or not filled in.

    Each step is held to the numbers written before it, so that a slip is marked once. Given numbers
    that were changed are said.

    A sheet says what was to be done, and who filled it in could change that: -c CONFIG and --blank,
    and --decimals where it is not 4, hold all of them to what was asked.

    A number that is wrong by itself is named. What the class got wrong is told above the table.

    Exit codes: 0 all are right; 1 some are not; 2 some cannot be read.
    """
    wanted = options.chosen_format(format, json=json, possible=GRADE_FORMATS)
    roster = making.read_roster(students) if students else []
    hand_ins = list(grading.hand_ins(file))
    files = place_grades(wanted, output or [], hand_ins)
    settings = settings_from(config, {}) if config else None
    if blank is not None and settings is None:
        raise AttnError("--blank: the steps of which run? add -c CONFIG, with which the exercise was made")

    worth = making.read_points(points) if points is not None else {}
    assignment = grading.Assignment(settings, tuple(wanted_steps(blank) or ()), decimals, worth)
    sheets = []
    with progress("grading") as moved:
        for number, hand_in in enumerate(hand_ins, start=1):
            sheets.append(grading.grade_hand_in(hand_in, assignment))
            moved(number, len(hand_ins))

    unread = [sheet for sheet in sheets if sheet.error]
    complain(*problems_of(unread))

    sheets += grading.absent_students(sheets, roster)
    write_grades(sheets, wanted, files, printed=options.STDOUT in (output or ()))
    return Exit.of(None if unread else all(sheet.right for sheet in sheets))


def problems_of(unread: Sequence[HandIn]) -> list[str]:
    """Why hand-ins could not be read, each reason once with the files that have it."""
    files_by_reason: dict[str, list[str]] = {}
    for sheet in unread:
        reason = sheet.error.removeprefix(f"{sheet.file}: ")
        files_by_reason.setdefault(reason, []).append(sheet.file)

    problems = []
    for reason, files in files_by_reason.items():
        names = files if len(files) <= MOST_NAMED else [files[0], f"{len(files) - 1} more"]
        problems.append(f"{all_of(names)}: {reason}")
    return problems


def place_grades(wanted: str, output: list[str], hand_ins: list[str]) -> list[str]:
    """The files of the grades, one a hand-in for an autograder. Raises AttnError for unwritable ones."""
    files = [path for path in output if path != options.STDOUT]
    if wanted not in AUTOGRADERS:
        raise_all(formats.unwritable(files, formats_of("exercise grade")))
        return files

    is_single = len(hand_ins) == 1
    if not files and is_single:
        return []
    if len(files) != 1 or (len(hand_ins) > 1 and not is_folder(files[0])):
        raise AttnError(f"--format {wanted}: it is of one hand-in; for several add -o FOLDER/")

    target = files[0]
    if not is_folder(target):
        return files
    names = [Path(file).stem for file in hand_ins]
    return making.place_sheets(f"{target}/{{name}}.json", names)


def write_grades(sheets: list[grading.HandIn], wanted: str, files: list[str], *, printed: bool) -> None:
    """Write the grades to the files; to stdout where that is asked for, or nothing else is."""
    if wanted in AUTOGRADERS:
        for sheet, path in zip(sheets, files, strict=False):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_text(f"{formats.json_text(AUTOGRADERS[wanted](sheet), 1)}\n", path)
        if not files:
            formats.print_json(AUTOGRADERS[wanted](sheets[0]), indent=1)
        return
    formats.write_found("exercise grade", sheets, files)
    if wanted == "table" and (printed or not files):
        print_view(lambda screen: grade_lines(sheets, screen))
    elif printed or not files:
        formats.print_found("exercise grade", sheets, wanted)
