"""How far a number may be off: by one in the last place asked for, and the same in `grade` and `check`."""

import copy
import json

import classroom
import numpy as np
import pytest
from command_line import call

from attnctl.verbs.exercise.grade import grade_hand_in

STEPS = classroom.BLANK.split(",")


def handed_out(folder, name="Ann", d_model=4, decimals=4):
    task = folder / "task.yaml"
    task.write_text(classroom.CONFIG.replace("d_model: 4", f"d_model: {d_model}"))
    more = ("--seed-from", name, "--decimals", str(decimals))
    code, out, err = call("exercise", "make", str(task), "--blank", classroom.BLANK, *more)
    assert code == 0, err
    return json.loads(out)


def judged(sheet, folder):
    """The steps that are not right, as `grade` and as `check` have it."""
    path = folder / "Ann.json"
    path.write_text(json.dumps(sheet))
    marks = {mark.step: mark.verdict for mark in grade_hand_in(str(path)).marks}
    steps = json.loads(call("check", str(path), "--json")[1])["steps"]
    return [
        [name for name in STEPS if marks[name] != "right"],
        [name for name in STEPS if steps[name]["verdict"] != "agrees"],
    ]


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    sheet = handed_out(tmp_path_factory.mktemp("sheet"))
    return sheet, classroom.solved(sheet)


@pytest.mark.parametrize("by", [-1, 1])
def test_every_number_may_be_off_by_one(solved, by, tmp_path):
    sheet, answers = copy.deepcopy(solved[0]), solved[1]
    off = {name: np.round(array, 4) + by * 1e-4 for name, array in answers.items()}
    assert judged(classroom.fill(sheet, off), tmp_path) == [[], []]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("step", "by"), [*zip(STEPS, [2, -2] * 3, strict=True)])
def test_no_number_may_be_off_by_two(solved, step, by, tmp_path):
    sheet, answers = copy.deepcopy(solved[0]), solved[1]
    off = np.round(answers[step], 4)
    off[(..., *np.argwhere(np.isfinite(off))[-1][-2:])] += by * 1e-4
    classroom.fill(sheet, {**answers, step: off})
    assert judged(sheet, tmp_path) == [[step], [step]]


def test_it_is_stated(solved, tmp_path):
    sheet, answers = copy.deepcopy(solved[0]), solved[1]
    assert sheet["exercise"] == "Fill in every null, to 4 decimals; the last may be off by one."
    (tmp_path / "Ann.json").write_text(json.dumps(classroom.fill(sheet, answers)))
    said = call("check", str(tmp_path / "Ann.json"))[1]
    assert "rounding to 4 decimals (the last may be off by one)" in said


WAYS = {"unrounded": 0.0, "written": 1.0, "now this, now that": 0.5}
"""How often a person goes on from the rounded numbers that they wrote down."""


def worked_out(sheet, decimals, rng):
    """A student's answers: rounded or cut, worked out in some way, one of them with a slip."""
    have = {name: np.array(step["data"], dtype=object) for name, step in sheet["steps"].items()}
    q, k, v, w = (have[name].astype(float) for name in ("Q", "K", "V", "W_O"))
    often, near = rng.choice(list(WAYS.values())), np.trunc if rng.rand() < 0.3 else np.round
    slip = rng.choice([*STEPS, ""])
    answers = {}

    def used(name):
        exact = answers[name]
        return near(exact * 10**decimals) / 10**decimals if rng.rand() < often else exact

    for step in STEPS:
        match step:
            case "scores":
                array = q @ k.swapaxes(1, 2)
            case "scaled_scores":
                array = used("scores") / np.sqrt(q.shape[-1])
            case "masked_scores":
                array = np.where(np.tril(np.ones((4, 4), bool)), used("scaled_scores"), -np.inf)
            case "attention_weights":
                array = classroom.softmax(used("masked_scores"))
            case "head_outputs":
                array = used("attention_weights") @ v
            case _:
                array = np.concatenate(list(used("head_outputs")), axis=-1) @ w
        if step == slip:
            array = array.copy()
            array[(0,) * array.ndim] += rng.uniform(0.1, 1)
        answers[step] = array
    return slip, {name: near(array * 10**decimals) / 10**decimals for name, array in answers.items()}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 150))]
)
def test_no_way_of_working_it_out_is_wrong(seed, tmp_path):
    """From unrounded numbers or from those written down, rounded or cut: a slip is marked where it is."""
    rng = np.random.RandomState(seed)
    decimals = int(rng.choice([2, 3, 4]))
    sheet = handed_out(tmp_path, f"student {seed}", int(rng.choice([4, 8, 16])), decimals)
    with np.errstate(invalid="ignore"):
        slip, answers = worked_out(sheet, decimals, rng)
    for name, array in answers.items():
        sheet["steps"][name]["data"] = classroom.written(array, decimals)
    wrong = [slip] if slip else []
    assert judged(sheet, tmp_path) == [wrong, wrong]
