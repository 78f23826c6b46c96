"""The shipped exercises: graded step by step, null or filled, rounded by hand."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

import attnctl
from attnctl.cli.program import program

FOLDER = Path(__file__).parents[2] / "samples" / "exercises"
EXERCISES = sorted(FOLDER.glob("[0-9]*.json"))

X = np.array([[1, 0], [1, 1], [0, 2]])


def worked_out(steps):
    """Every step of an exercise by plain NumPy, from what it gives."""
    have = {name: np.array(entry["data"], dtype=object) for name, entry in steps.items()}
    have = {name: x.astype(float) for name, x in have.items() if (x != None).all()}  # noqa: E711  cell by cell
    if "X" in have:
        for name in "QKV":
            have.setdefault(name, have["X"] @ have[f"W_{name}"])
    have["scores"] = have["Q"] @ have["K"].swapaxes(-1, -2)
    have["scaled_scores"] = have["scores"] / np.sqrt(have["Q"].shape[-1])
    s = have["scaled_scores"]
    if "masked_scores" in steps:
        s = have["masked_scores"] = np.where(np.tril(np.ones((3, 3), bool)), s, -np.inf)
    e = np.exp(s)
    have["attention_weights"] = e / e.sum(axis=-1, keepdims=True)
    have["head_outputs"] = have["attention_weights"] @ have["V"]
    have["concat"] = np.concatenate(list(have["head_outputs"]), axis=-1)
    if "W_O" in have:
        have["output"] = have["concat"] @ have["W_O"]
    return have


def written(x, decimals=4, cut=False):
    """As a student writes it: rounded, or cut."""
    near = np.trunc(x * 10**decimals) / 10**decimals if cut else np.round(x, decimals)
    return json.loads(json.dumps(near.tolist()).replace("-Infinity", '"-Infinity"'))


def filled(path, cut=False, only=None):
    """The exercise with every null filled in, or those of some steps."""
    exercise = json.loads(path.read_text())
    answers = worked_out(exercise["steps"])
    for name, entry in exercise["steps"].items():
        if "null" in json.dumps(entry["data"]) and (only is None or name in only):
            entry["data"] = written(answers[name], exercise["decimals"], cut)
    return exercise


def graded(exercise, tmp_path, *options):
    path = tmp_path / "handed-in.json"
    path.write_text(json.dumps(exercise))
    out, err = io.StringIO(), io.StringIO()
    code = program(["check", str(path), "--json", *options], stdout=out, stderr=err)
    return code, json.loads(out.getvalue()) if out.getvalue() else err.getvalue()


def test_there_are_exercises():
    assert [path.stem for path in EXERCISES] == ["1-one-head", "2-causal", "3-two-heads"]


@pytest.mark.parametrize("cut", [False, True], ids=["rounded", "cut"])
@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.stem)
def test_a_right_answer_is_right(path, cut, tmp_path):
    code, report = graded(filled(path, cut), tmp_path)
    assert (code, report["agrees"]) == (0, True)
    assert {step["verdict"] for step in report["steps"].values()} <= {"agrees", "given", "not recorded"}


@pytest.mark.sample(3)
@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.stem)
def test_every_step_is_graded_by_itself(path, tmp_path):
    exercise = filled(path)
    blanks = json.loads(path.read_text())["steps"]
    for name in [name for name, entry in blanks.items() if "null" in json.dumps(entry["data"])]:
        wrong = json.loads(json.dumps(exercise))
        row = wrong["steps"][name]["data"]
        while isinstance(row[0], list):
            row = row[-1]
        row[0] = 7.5
        code, report = graded(wrong, tmp_path)
        assert (code, report["first"]) == (1, name)


@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.stem)
def test_what_is_not_filled_in_fails_and_is_not_called_wrong(path, tmp_path):
    blanks = json.loads(path.read_text())["steps"]
    asked = [name for name, entry in blanks.items() if "null" in json.dumps(entry["data"])]
    code, report = graded(filled(path, only=asked[:1]), tmp_path)
    assert (code, report["agrees"], report["first"]) == (1, False, None)
    assert report["not_filled"] == asked[1:]
    assert report["steps"][asked[0]]["verdict"] == "agrees"
    left = [name for name in asked[1:] if name not in {"scores", "Q"}]  # those are begun already
    assert all(report["steps"][name]["verdict"] == "not filled in" for name in left)


def test_a_step_half_filled_is_graded_on_that_half(tmp_path):
    exercise = filled(FOLDER / "1-one-head.json", only=["Q", "K", "V"])
    exercise["steps"]["scores"]["data"][0][1] = [1, 4, None]
    code, report = graded(exercise, tmp_path)
    assert (code, report["first"], report["steps"]["scores"]["of"]) == (1, None, 5)
    assert "scores" in report["not_filled"]
    exercise["steps"]["scores"]["data"][0][1] = [1, 5, None]
    code, report = graded(exercise, tmp_path)
    assert (code, report["first"], report["at"]) == (1, "scores", [0, 1, 1])


def test_an_empty_exercise_is_neither_right_nor_wrong(tmp_path):
    exercise = json.loads((FOLDER / "3-two-heads.json").read_text())
    code, message = graded(exercise, tmp_path)
    assert code == 2
    assert "nothing is filled in yet; write numbers for null in Q, K, V, scores" in message


def test_the_mistake_of_a_student_is_named(tmp_path):
    exercise = filled(FOLDER / "1-one-head.json")
    unscaled = np.exp(np.array(exercise["steps"]["scores"]["data"], dtype=float))
    weights = unscaled / unscaled.sum(axis=-1, keepdims=True)
    exercise["steps"]["attention_weights"]["data"] = written(weights)
    exercise["steps"]["scaled_scores"]["data"] = None
    exercise["steps"]["head_outputs"]["data"] = None
    code, report = graded(exercise, tmp_path)
    assert (code, report["mistake"]) == (1, "no-scale")
    assert report["steps"]["scaled_scores"]["verdict"] == "not filled in"


def test_without_decimals_hand_rounded_numbers_are_wrong_and_it_says_so(tmp_path):
    exercise = filled(FOLDER / "1-one-head.json")
    del exercise["decimals"]
    code, report = graded(exercise, tmp_path)
    assert code == 1
    assert report["hint"] == "It agrees to 4 decimals: add --decimals 4."
    assert graded(exercise, tmp_path, "--decimals", "4")[0] == 0
    assert graded(exercise, tmp_path, "--atol", "1e-3")[0] == 0


def test_the_worked_solution_agrees_and_is_the_one():
    from attnctl.store.source import read_one

    solution = read_one(FOLDER / "solution.json")
    assert attnctl.check(solution).agrees
    answers = worked_out(filled(FOLDER / "1-one-head.json")["steps"])
    assert all(
        np.allclose(solution[name], answers[name], atol=2e-4) for name in answers if name in solution
    )


def test_the_recipe_of_the_readme_makes_an_exercise(workplace):
    readme = (FOLDER / "README.md").read_text()
    recipe = re.search(r"```sh\n(.*?)```", readme, re.DOTALL).group(1)
    assert workplace.shell(recipe).stderr == b""
    done = workplace.run("check", "mine.json", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["first"]) == (1, None)
    assert report["steps"]["scores"]["verdict"] == "not filled in"
    assert report["steps"]["scaled_scores"]["verdict"] == "agrees"


def test_a_dump_with_nulls_put_in_is_an_exercise(tmp_path, monkeypatch):
    out = io.StringIO()
    monkeypatch.chdir(FOLDER)
    program(["run", "-c", "sun-melts-snow.yaml", "--causal", "--json"], stdout=out)
    dump = json.loads(out.getvalue())
    dump["steps"]["attention_weights"]["data"] = [[[None] * 3] * 3]
    dump["steps"]["scores"]["data"][0][2][1] = None
    code, report = graded(dump, tmp_path)
    assert (code, report["not_filled"]) == (1, ["scores", "attention_weights"])
    assert report["steps"]["attention_weights"]["verdict"] == "not filled in"
    assert report["steps"]["scores"]["of"] == 8
    stdin = io.TextIOWrapper(io.BytesIO(json.dumps(dump).encode()))
    assert program(["check", "-", "-q"], stdin=stdin) == 1


def test_arrays_without_a_header_or_heads_can_be_filled_in_too(tmp_path):
    path = tmp_path / "mine.json"
    arrays = {"Q": [[1, 1], [1, 2]], "K": [[1, 0], [2, 1]], "scores": [[1, 3], [None, 4]]}
    path.write_text(json.dumps({**arrays, "scaled_scores": [[None, None], [0.71, None]]}))
    for options, first in (("--decimals 2", None), ("--decimals 3", "scaled_scores")):
        out = io.StringIO()
        assert program(["check", str(path), "--json", *options.split()], stdout=out) == 1
        report = json.loads(out.getvalue())
        assert (report["first"], report["steps"]["scores"]["of"]) == (first, 3)


@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.stem)
def test_an_exercise_as_it_is_handed_out_does_not_pass(path):
    out, err = io.StringIO(), io.StringIO()
    assert program(["check", str(path)], stdout=out, stderr=err) in {1, 2}
    assert "filled in" in out.getvalue() + err.getvalue()


@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.stem)
def test_an_exercise_is_shown_with_its_blanks(path):
    for source, stdin in ((str(path), None), ("-", io.TextIOWrapper(io.BytesIO(path.read_bytes())))):
        out, err = io.StringIO(), io.StringIO()
        assert program(["show", source], stdin=stdin, stdout=out, stderr=err) == 0
        assert "____" in out.getvalue()
        assert "NaN" not in out.getvalue()
        assert "still to be filled in" in err.getvalue()


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ({"Q": {"data": [[1, None], [2]]}}, "mine.json: $.steps.Q.data[1]: expected a list of 2, found 1"),
        ({"Q": {"data": [[1, None, "two"]]}}, "mine.json: $.steps.Q.data[0][2]: 'two' is not a number"),
    ],
)
def test_a_slip_of_the_pen_is_said_with_its_place(steps, said, tmp_path, monkeypatch):
    (tmp_path / "mine.json").write_text(json.dumps({"schema": "attnctl/trace/1", "steps": steps}))
    monkeypatch.chdir(tmp_path)
    err = io.StringIO()
    assert program(["check", "mine.json"], stderr=err) == 2
    assert said in err.getvalue()
