"""What is blank is the teacher's word: sheets as a person makes them who would rather not do the work."""

import copy
import json

import classroom
import numpy as np
import pytest
from command_line import call

CONFIG = classroom.CONFIG + "seed: 5\n"
EASIER = "scores"
"""What the enemy would rather be asked for."""


def made(config, blank, *more):
    code, out, err = call("exercise", "make", str(config), "--blank", blank, *more)
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    (folder / "task.yaml").write_text(CONFIG)
    return folder / "task.yaml"


@pytest.fixture(scope="module")
def ann(task):
    return made(task, classroom.BLANK, "--seed-from", "Ann")


def graded(sheet, task, *options):
    path = task.parent / "hand-in.json"
    path.write_text(json.dumps(sheet))
    code, out, err = call("exercise", "grade", str(path), "--json", *options)
    (hand_in,) = json.loads(out)["hand_ins"]
    assert (code == 0) == hand_in["right"], err
    return hand_in


def asked(task):
    """How a teacher grades who does not believe sheets."""
    return ["-c", str(task), "--blank", classroom.BLANK]


# --- the enemy ---


def without(sheet, *keys):
    return {name: value for name, value in sheet.items() if name not in keys}


def with_numbers(sheet, value, names=None):
    """The sheet with one number everywhere, or in some steps."""
    for name in names or sheet["steps"]:
        step = sheet["steps"][name]
        step["data"] = np.full(step["shape"], value).tolist()
    return sheet


def zeros(sheet, **_):
    return with_numbers(without(sheet, "blank", "handed_out"), 0)


def zeros_beside_what_is_given(sheet, **_):
    return with_numbers(sheet, 0, classroom.BLANK.split(","))


def zeros_to_no_decimals(sheet, **_):
    return with_numbers(sheet, 0, classroom.BLANK.split(",")) | {"decimals": 0}


def infinity(sheet, **_):
    return with_numbers(sheet, "-Infinity", classroom.BLANK.split(","))


def only_what_is_easy(sheet, **_):
    answers = classroom.solved(sheet)
    kept = without(sheet, "blank")
    for name in set(answers) - {EASIER}:
        del kept["steps"][name]
    return classroom.fill(kept, answers, {EASIER})


def fewer_blanks(sheet, **_):
    return classroom.fill(sheet, classroom.solved(sheet), {EASIER}) | {"blank": [EASIER]}


def an_easier_sheet(sheet, task):
    own = made(task, EASIER, "--seed-from", "Ann")
    own["steps"][EASIER]["data"] = classroom.written(classroom.solved_scores(own))
    return own


def easier_numbers(sheet, task):
    easy = task.parent / "easy.yaml"
    easy.write_text(CONFIG + "weights: {W: identity, W_O: identity}\n")
    own = made(easy, classroom.BLANK, "--seed", "1") | {"student": "Ann"}
    return classroom.fill(own, classroom.solved(own))


def given_zeros(sheet, **_):
    with_numbers(sheet, 0, ["X", "W_Q", "W_K", "W_V", "W_O", "Q", "K", "V", "embeddings"])
    return classroom.fill(sheet, classroom.solved(sheet))


def edited(sheet, **_):
    steps = classroom.BLANK.split(",")
    edits = [{"step": name, "edit": f"{name}=0"} for name in steps]
    return with_numbers(sheet, 0, steps) | {"edits": edits}


def rows_that_see_nothing(sheet, **_):
    with_numbers(sheet, "NaN", classroom.BLANK.split(","))
    return sheet | {"empty_rows": [[head, query] for head in range(2) for query in range(4)]}


def coarse(sheet, **_):
    """Numbers that are right to a percent, in a type that has no more."""
    answers = {name: array * 1.004 for name, array in classroom.solved(sheet).items()}
    for name in classroom.BLANK.split(","):
        sheet["steps"][name]["dtype"] = "float16"
    return classroom.fill(sheet, answers) | {"config": sheet["config"] | {"dtype": "float16"}}


def one_decimal(sheet, **_):
    answers = {name: np.round(array, 1) for name, array in classroom.solved(sheet).items()}
    return classroom.fill(sheet, answers) | {"decimals": 1}


def steps_of_nothing(sheet, **_):
    """Each blank step a copy of X, as the sheet has it."""
    for name in classroom.BLANK.split(","):
        sheet["steps"][name] = {**sheet["steps"]["Q"], "inputs": ["Q"], "formula": "Q"}
    return sheet


ATTACKS = [
    zeros, zeros_beside_what_is_given, zeros_to_no_decimals, infinity, only_what_is_easy, fewer_blanks,
    an_easier_sheet, easier_numbers, given_zeros, edited, rows_that_see_nothing, coarse, one_decimal,
    steps_of_nothing,
]  # fmt: skip


SLOW = {infinity}
"""Their numbers are held to all pairs of mistakes."""


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "attack",
    [pytest.param(each, marks=pytest.mark.slow) if each in SLOW else each for each in ATTACKS],
    ids=lambda attack: attack.__name__,
)
def test_it_does_not_pass(attack, ann, task):
    hand_in = graded(attack(copy.deepcopy(ann), task=task), task, *asked(task))
    assert not hand_in["right"]
    wrong = [step for step in hand_in["steps"].values() if step["verdict"] != "right"]
    assert wrong or hand_in["notes"]


def test_work_that_was_done_passes_every_way(ann, task):
    sheet = classroom.fill(copy.deepcopy(ann), classroom.solved(ann))
    for way in ([], ["-c", str(task)], asked(task)):
        assert graded(sheet, task, *way)["right"]


def test_without_a_config_a_sheet_is_believed(ann, task):
    sheet = fewer_blanks(copy.deepcopy(ann))
    assert graded(sheet, task)["right"]
    assert not graded(sheet, task, *asked(task))["right"]


def test_a_seal_of_an_older_release_is_passed_over(ann, task):
    sheet = classroom.fill(copy.deepcopy(ann), classroom.solved(ann)) | {"seal": "0" * 32}
    assert graded(sheet, task)["right"]
    assert graded(sheet, task, *asked(task))["right"]


def test_other_decimals_than_were_asked_for_are_said(ann, task):
    sheet = classroom.fill(copy.deepcopy(ann), classroom.solved(ann)) | {"decimals": 2}
    hand_in = graded(sheet, task, *asked(task))
    assert hand_in["notes"] == ["it says 2 decimals, and is held to 4 (--decimals)"]


def test_blanks_without_a_config_are_refused(tmp_path):
    code, out, err = call("exercise", "grade", "x.json", "--blank", "scores")
    assert (code, out) == (2, "")
    assert "--blank: the steps of which run? add -c CONFIG" in err
