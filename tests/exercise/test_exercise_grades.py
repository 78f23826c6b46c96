"""Grades as a teacher reads them: the cell of a slip, few decimals, what a class got wrong; and files."""

import copy
import csv
import json

import classroom
import numpy as np
import pytest

import attnctl
from attnctl.inputs.config.load import load

BLANK = "scores,scaled_scores,masked_scores,attention_weights,head_outputs,output"
MISTAKES = {"Ann": {}, "Ben": {"scale": 1.0}, "Cem": {"scale": 1.0}, "Dana": {"axis": -2}}


@pytest.fixture
def hand_in(call, tmp_path):
    """Make, solve and hand in a sheet; what `change` does to it is done before."""
    (tmp_path / "task.yaml").write_text(classroom.CONFIG)

    def hand_in(name="Ann", *options, change=None, decimals=4, **how):
        done = call("exercise", "make", "task.yaml", "--blank", BLANK, "--seed-from", name, *options)
        assert done.code == 0, done.err
        sheet = json.loads(done.out)
        answers = classroom.solved(sheet, **how)
        for step, array in answers.items():
            sheet["steps"][step]["data"] = classroom.written(array, decimals)
        if change:
            change(sheet)
        (tmp_path / f"{name}.json").write_text(json.dumps(sheet))
        return f"{name}.json"

    return hand_in


def graded(call, *args):
    done = call("exercise", "grade", *args, "--json")
    return done.code, json.loads(done.out)


def slip(sheet):
    sheet["steps"]["attention_weights"]["data"][0][2][1] = 0.77


def test_a_single_slip_names_its_cell(call, hand_in, tmp_path):
    file = hand_in(change=slip)
    said = call("exercise", "grade", file, "-o", "g.json", "-o", "-")
    assert said.code == 1
    assert (
        "attention_weights: 1 of 32 numbers differs: attention_weights[0,sat,cat] is 0.77 and should be 0."
        in (" ".join(said.out.split()))
    )
    told = json.loads((tmp_path / "g.json").read_text())
    weights = told["hand_ins"][0]["steps"]["attention_weights"]
    assert (weights["cells"], weights["right"]) == (["attention_weights[0,sat,cat]"], 0.9688)


def test_many_slips_are_counted(call, hand_in):
    def change(sheet):
        sheet["steps"]["scores"]["data"][0] = (np.arange(16).reshape(4, 4) / 7).round(4).tolist()

    _, told = graded(call, hand_in(change=change))
    scores = told["hand_ins"][0]["steps"]["scores"]
    assert (scores["words"], scores["cells"]) == ("16 of 32 numbers differ", [])


def test_part_marks_say_how_much_of_a_step_is_right(call, hand_in, tmp_path):
    def change(sheet):
        scores = sheet["steps"]["scores"]["data"]
        scores[0][0][0] += 9.0
        scores[1][2] = [None] * 4  # 27 of 32 are left
        sheet["steps"]["output"]["data"] = [[None] * 4] * 4

    _, told = graded(call, hand_in(change=change), "-o", "g.csv", "-o", "-")
    steps = told["hand_ins"][0]["steps"]
    assert [steps[name]["right"] for name in ("scores", "head_outputs", "output")] == [0.8438, 1.0, 0.0]
    (row,) = csv.DictReader((tmp_path / "g.csv").read_text().splitlines())
    found = [float(row[f"{name} right"]) for name in ("scores", "head_outputs", "output")]
    assert found == [0.8438, 1.0, 0.0]


# --- decimals ---


def test_two_decimals_where_four_are_asked_are_said_to_be_that(call, hand_in, tmp_path):
    file = hand_in(decimals=2)
    done = call("exercise", "grade", file, "-o", "g.json", "-o", "-")
    told = json.loads((tmp_path / "g.json").read_text())
    verdicts = {step["verdict"] for step in told["hand_ins"][0]["steps"].values()}
    assert done.code == 1
    assert verdicts == {"right", "too few decimals"}
    assert "right to 2 decimals, where 4 are asked for" in " ".join(done.out.split())
    assert call("exercise", "grade", file, "--decimals", "2").code == 0


def test_a_mistake_on_a_coarse_sheet_is_still_named(call, hand_in):
    _, told = graded(call, hand_in(decimals=2, scale=1.0))
    assert told["hand_ins"][0]["steps"]["scaled_scores"]["mistake"] == "no-scale"


@pytest.mark.parametrize("more", [(), ("-c", "task.yaml", "--blank", BLANK, "--decimals", "2")])
def test_a_sheet_made_to_two_decimals_is_graded_to_two(call, hand_in, more):
    file = hand_in("Ann", "--decimals", "2", decimals=2)
    code, told = graded(call, file, *more)
    assert (code, told["hand_ins"][0]["notes"]) == (0, [])


def test_given_numbers_may_not_be_rounded_further(call, hand_in):
    def round_away(sheet):
        for name in set(sheet["steps"]) - set(sheet["blank"]):
            sheet["steps"][name]["data"] = classroom.written(np.array(sheet["steps"][name]["data"]), 0)
        answers = classroom.solved(sheet)
        classroom.fill(sheet, answers)
        sheet["rounded"] = 0

    code, told = graded(call, hand_in(change=round_away), "-c", "task.yaml", "--blank", BLANK)
    assert code == 1
    assert told["hand_ins"][0]["notes"][0].startswith("given numbers were changed: ")


def test_a_sheet_from_before_given_numbers_were_rounded_is_still_right(call, hand_in, tmp_path):
    run = attnctl.run(settings=load(str(tmp_path / "task.yaml")).with_(seed=2102083630))  # that of Ann

    def as_before(sheet):
        del sheet["rounded"]
        for name in set(sheet["steps"]) - set(sheet["blank"]):
            sheet["steps"][name]["data"] = run[name].tolist()
        classroom.fill(sheet, classroom.solved(sheet))

    code, told = graded(call, hand_in(change=as_before), "-c", "task.yaml", "--blank", BLANK)
    assert (code, told["hand_ins"][0]["notes"]) == (0, [])


# --- a class ---


@pytest.fixture
def a_class(hand_in):
    return [hand_in(name, **how) for name, how in MISTAKES.items()]


def test_what_a_class_got_wrong_is_told_once(call, a_class):
    _, told = graded(call, *a_class)
    wrong = [(each["step"], each["mistake"], each["names"]) for each in told["wrong"]]
    assert wrong == [
        ("scaled_scores", "no-scale", ["Ben", "Cem"]),
        ("attention_weights", "softmax-over-queries", ["Dana"]),
    ]
    said = call("exercise", "grade", *a_class).out
    assert "2 × no-scale at scaled_scores (Ben, Cem): it is what you get when" in " ".join(said.split())
    assert said.count("it is what you get when") == 2
    assert said.startswith("What the class got wrong:\n  2 × no-scale at scaled_scores (Ben, Cem)")


def test_grades_as_files(call, a_class, tmp_path):
    done = call("exercise", "grade", *a_class, "-o", "g.html", "-o", "g.csv", "-o", "g.json")
    assert (done.code, done.out, done.err) == (1, "", "")
    rows = list(csv.DictReader((tmp_path / "g.csv").read_text().splitlines()))
    assert [(row["name"], row["right"], row["mistakes"]) for row in rows][:2] == [
        ("Ann", "6", ""), ("Ben", "5", "scaled_scores: no-scale"),
    ]  # fmt: skip
    assert json.loads((tmp_path / "g.json").read_text()) == graded(call, *a_class)[1]
    page = (tmp_path / "g.html").read_text()
    assert "script-src 'none'" in page
    assert page.partition("<caption>Grades")[2].count('<th scope="row"') == 4
    assert '<td class="wrong">✗ wrong: no-scale</td>' in page
    assert '<td class="right">✓ right</td>' in page
    assert "attnctl check --about " in page
    assert call("exercise", "grade", *a_class, "--format", "csv").out == (tmp_path / "g.csv").read_text()
    assert call("exercise", "grade", *a_class, "-o", "g.pdf").code == 2


def test_a_hostile_name_is_text_on_the_page(call, hand_in, tmp_path):
    def rename(sheet):
        sheet["student"] = "<script>alert(1)</script>\x1b[31m"

    call("exercise", "grade", hand_in(change=rename), "-o", "g.html")
    page = (tmp_path / "g.html").read_text()
    assert "<script" not in page
    assert "\x1b" not in page


# --- autograders ---


def test_gradescope_gets_a_results_json(call, hand_in):
    """Fields of gradescope-autograders.readthedocs.io/en/latest/specs; no right number is given away."""
    file = hand_in(change=slip)
    done = call("exercise", "grade", file, "--format", "gradescope")
    assert done.code == 1
    result = json.loads(done.out)
    assert set(result) <= {"score", "output", "output_format", "tests", "extra_data"}
    assert "score" not in result
    assert result["output_format"] == "text"
    for test in result["tests"]:
        assert set(test) == {"name", "score", "max_score", "status", "output", "output_format"}
        assert test["status"] in {"passed", "failed"}
    assert {test["name"]: test["score"] for test in result["tests"] if not test["score"]} == {
        "attention_weights": 0
    }
    (wrong,) = [test["output"] for test in result["tests"] if test["status"] == "failed"]
    assert "attention_weights[0,sat,cat]" in wrong
    assert "should be" not in wrong


@pytest.mark.parametrize("name", ["gradescope", "otter"])
def test_a_sheet_of_other_numbers_gets_no_points(call, hand_in, name):
    def change(sheet):
        sheet["steps"]["V"]["data"][0][0][0] = 1.0
        classroom.fill(sheet, classroom.solved(sheet))

    file = hand_in(change=change)
    result = json.loads(call("exercise", "grade", file, "--format", name).out)
    if name == "gradescope":
        assert result["score"] == 0
        assert "given numbers were changed: V" in result["output"]
    else:
        files = result["test_file_results"]
        assert not any(case["passed"] for each in files for case in each["test_case_results"])


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["gradescope", "otter"])
def test_several_results_go_to_a_folder(call, a_class, tmp_path, name):
    done = call("exercise", "grade", *a_class, "--format", name)
    assert (done.code, done.out) == (2, "")
    assert "for several add -o FOLDER/" in done.err
    assert call("exercise", "grade", *a_class, "--format", name, "-o", "out/").code == 1
    assert {each.stem for each in (tmp_path / "out").iterdir()} == set(MISTAKES)
    one = call("exercise", "grade", a_class[1], "--format", name)
    assert json.loads(one.out) == json.loads((tmp_path / "out" / "Ben.json").read_text())


CASE = {
    "name": str,
    "code": str,
    "points": int,
    "hidden": bool,
    "success_message": None,
    "failure_message": None,
}
"""What Otter-Grader 7 reads of each test (otter/test_files/__init__.py, from_ottr_json)."""


def test_otter_reads_the_results(call, hand_in):
    result = json.loads(call("exercise", "grade", hand_in(scale=1.0), "--format", "otter").out)
    assert set(result) == {"test_file_results"}
    earned, said = {}, {}
    for each in result["test_file_results"]:
        assert set(each) == {"filename", "points", "test_case_results"}
        (case,) = each["test_case_results"]
        assert set(case) == {"passed", "error", "test_case"}
        assert set(case["test_case"]) == set(CASE)
        earned[each["filename"]] = each["points"] * case["passed"]
        assert (case["error"] is None) == case["passed"]
        said[each["filename"]] = case["error"]
    steps = BLANK.split(",")
    assert earned == {"the sheet": 0, **dict.fromkeys(steps, 1), "scaled_scores": 0}
    assert "the scores are not scaled" in said["scaled_scores"]
    otter = pytest.importorskip("otter.test_files")
    read = otter.GradingResults.from_ottr_json(json.dumps(copy.deepcopy(result)))
    assert (read.total, read.possible) == (5, 6)
