"""What is right is marked right: drawn classes, to one decimal and to four, worked out in either way."""

import io
import json

import classroom
import numpy as np
import pytest

from attnctl.inputs.config.form import settings_of
from attnctl.verbs.exercise import Student, make
from attnctl.verbs.exercise.grade import grade_hand_in
from attnctl.verbs.exercise.sheet import write_json

SENTENCES = ("the cat sat", "I love AI", "time flies like an arrow", "a b c d")
KINDS = (
    {},
    {"rules": ["causal"]},
    {"rules": ["causal", {"softcap": 2}]},
    {"positions": "rope"},
    {"scale": 0.3},
)
BLANKS = (
    ("scores",),
    ("attention_weights", "output"),
    ("Q", "scores", "attention_weights"),
    ("scores", "scaled_scores", "attention_weights", "head_outputs", "output"),
)


def exercise_of(number):
    """The sheet of a student of a class that is drawn, and a stream to draw on from."""
    rng = np.random.RandomState(number)
    heads = int(rng.choice([1, 2]))
    kind = KINDS[rng.randint(len(KINDS))]
    sizes = {"d_model": heads * int(rng.choice([2, 4])), "heads": heads}
    settings = settings_of({"sentence": str(rng.choice(SENTENCES)), **sizes, **kind})
    blank = BLANKS[rng.randint(len(BLANKS))]
    return make(settings, blank, Student(f"student {number}"), 1 + number % 4), rng


def right_answers(exercise, goes_on_from):
    """What a student writes down who makes no mistake, going on from exact numbers or from these."""
    values, answers = {}, {}
    for step in exercise.steps:
        if step.name in exercise.trace and step.name not in exercise.blank:
            values[step.name] = exercise.trace[step.name]
            continue
        if not all(name in values for name in step.inputs):
            continue
        exact = step.op.apply(*(values[name] for name in step.inputs))
        written = np.round(exact, exercise.decimals)
        if step.name in exercise.blank:
            answers[step.name] = written
        values[step.name] = written if goes_on_from == "written" and step.name in exercise.blank else exact
    return answers


def handed_in(exercise, answers, path):
    stream = io.BytesIO()
    write_json(exercise, stream)
    sheet = json.loads(stream.getvalue())
    for name, array in answers.items():
        sheet["steps"][name]["data"] = classroom.written(array, exercise.decimals)
    path.write_text(json.dumps(sheet))
    return grade_hand_in(str(path))


@pytest.mark.parametrize(
    "number", [*range(8), *(pytest.param(number, marks=pytest.mark.slow) for number in range(8, 200))]
)
def test_a_right_hand_in_has_full_marks(number, tmp_path):
    exercise, _ = exercise_of(number)
    for way in ("exact", "written"):
        with np.errstate(invalid="ignore"):
            graded = handed_in(exercise, right_answers(exercise, way), tmp_path / "Ann.json")
        assert {mark.step: (mark.verdict, mark.part) for mark in graded.marks} == dict.fromkeys(
            exercise.blank, ("right", 1.0)
        )
        assert graded.right


@pytest.mark.sample(4)
@pytest.mark.parametrize("number", range(24))
def test_a_number_that_is_off_by_three_has_not(number, tmp_path):
    exercise, rng = exercise_of(number)
    answers = right_answers(exercise, "exact")
    step = exercise.blank[rng.randint(len(exercise.blank))]
    off = answers[step].copy()
    places = np.argwhere(np.isfinite(off))
    off[tuple(places[rng.randint(len(places))])] += 3 * 10.0**-exercise.decimals
    graded = handed_in(exercise, {**answers, step: off}, tmp_path / "Ann.json")
    assert {mark.step: mark.verdict for mark in graded.marks}[step] != "right"
    assert not graded.right
