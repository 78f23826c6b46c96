"""Exercises one by one: what is made, what is refused, hostile names, other people's sheets."""

import csv
import io
import json
from pathlib import Path

import pytest
from command_line import call

from attnctl.verbs.exercise import Student
from attnctl.verbs.exercise.grade import HandIn
from attnctl.verbs.exercise.gradebook import harmless, write_csv

SAMPLES = Path(__file__).parents[2] / "samples" / "exercises"


def made(*options):
    code, out, err = call("exercise", "make", "example:i-love-ai", *options)
    assert code == 0, err
    return out, err


def test_a_sheet_has_blanks_and_nothing_that_follows_from_them():
    out, err = made("--blank", "scores,output", "--seed-from", "Ann")
    sheet = json.loads(out)
    assert sheet["steps"]["scores"]["data"] == [[[None] * 3] * 3] * 2
    assert sheet["steps"]["output"]["data"] == [[None] * 4] * 3
    assert not {"scaled_scores", "attention_weights", "head_outputs", "concat"} & set(sheet["steps"])
    assert "Q" in sheet["steps"]
    assert "left out" in err
    assert (sheet["student"], sheet["blank"], sheet["decimals"]) == ("Ann", ["scores", "output"], 4)


def test_a_student_has_the_same_numbers_whenever_they_are_made():
    ann, again, ben = (made("--blank", "scores", "--seed-from", name)[0] for name in ("Ann", "Ann", "Ben"))
    assert ann == again
    assert json.loads(ann)["steps"]["X"]["data"] != json.loads(ben)["steps"]["X"]["data"]
    # Typed in: sheets that were handed out stay what they are.
    assert Student("Ann").seed == Student(" ann ").seed == 2102083630
    assert Student("Ben").seed != Student("Ann").seed


REFUSED = [
    (["example:i-love-ai"], "--blank: which steps are to be filled in?"),
    (["example:i-love-ai", "--blank", "scorse"], "no step 'scorse' here"),
    (["example:i-love-ai", "--blank", "W_Q"], "--blank W_Q: it is given, not computed"),
    (["example:i-love-ai", "--blank", ","], "--step: no name in it"),
    (["example:india-is-great", "--blank", "Q", "--seed-from", "Ann"], "would have the same numbers"),
    (["example:i-love-ai", "--blank", "Q", "--seed-from", " "], "--seed-from: no name in it"),
    (["example:i-love-ai", "--blank", "Q", "--seed-from", "Ann", "--seed", "3"], "leave out --seed"),
    (["example:i-love-ai", "--blank", "Q", "--decimals", "0"], "--decimals: 0 is too small"),
    (["nowhere.yaml", "--blank", "Q"], "nowhere.yaml: no such file"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_refused(args, message):
    code, out, err = call("exercise", "make", *args)
    assert (code, out) == (2, "")
    assert message in err


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "|cmd", "Ann"]


def test_no_name_is_carried_out_by_a_spreadsheet():
    stream = io.StringIO()
    write_csv([HandIn(f"{name}.json", Student(name, name), error=name) for name in FORMULAS], stream)
    rows = list(csv.reader(io.StringIO(stream.getvalue())))
    assert len(rows) == 1 + len(FORMULAS)
    for row in rows[1:]:
        assert not any(cell.lstrip().startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row)
    assert harmless("Ann-Marie") == "Ann-Marie"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"steps": {}}', '{"scores": "x"}', "\x00", "[" * 5000,
     '{"steps": {"scores": {"data": [[1]]}}}'],
)  # fmt: skip
def test_what_cannot_be_read_is_two_and_the_others_are_graded(tmp_path, text):
    (tmp_path / "bad.json").write_text(text)
    code, out, err = call(
        "exercise", "grade", str(tmp_path / "bad.json"), str(SAMPLES / "solution.json"), "--json"
    )
    assert code == 2
    bad, good = json.loads(out)["hand_ins"]
    assert {step["verdict"] for step in good["steps"].values()} == {"right"}
    assert not bad["steps"]
    assert not bad["right"]
    assert "bad.json" in err


def test_a_page_that_is_handed_in_says_what_to_do(tmp_path):
    made("--blank", "scores", "-o", str(tmp_path / "sheet.html"))
    code, _, err = call("exercise", "grade", str(tmp_path / "sheet.html"))
    assert code == 2
    assert "sheet.html: a page: open it, press Save to hand in, and give the .json that it saves" in err


@pytest.mark.parametrize(
    "change",
    [
        {"blank": []},
        {"blank": ["nothing"]},
        {"blank": "scores"},
        {"config": {"weights": {"file": "/etc/passwd"}}},
        {"config": {"heads": 0}},
        {"config": {"d_model": 10**9, "sentence": "a b"}},
    ],
    ids=str,
)
def test_a_sheet_that_says_nonsense_of_itself_is_not_right(tmp_path, change):
    sheet = json.loads(made("--blank", "scores", "--seed-from", "Ann")[0]) | change
    (tmp_path / "x.json").write_text(json.dumps(sheet))
    code, out, err = call("exercise", "grade", str(tmp_path / "x.json"))
    assert code in {1, 2}
    assert "all right" in out
    assert "passwd" not in err


@pytest.mark.parametrize("decimals", [-1, 16, 2.0, True, "4", [4]], ids=repr)
def test_what_is_no_number_of_decimals_is_said(tmp_path, decimals):
    sheet = json.loads(made("--blank", "scores")[0]) | {"decimals": decimals}
    (tmp_path / "x.json").write_text(json.dumps(sheet))
    code, _, err = call("exercise", "grade", str(tmp_path / "x.json"))
    assert code == 2
    assert f"$.decimals: {decimals!r} is not a number of decimals; use 0 to 15" in err


@pytest.mark.parametrize("decimals", [0, 12])
def test_a_sheet_may_be_held_to_any_number_of_decimals(tmp_path, decimals):
    sheet = json.loads(made("--blank", "scores", "--decimals", "12")[0]) | {"decimals": decimals}
    right = json.loads(call("run", "example:i-love-ai", "--json")[1])
    sheet["steps"]["scores"]["data"] = right["steps"]["scores"]["data"]
    (tmp_path / "x.json").write_text(json.dumps(sheet))
    assert call("exercise", "grade", str(tmp_path / "x.json"))[0] in {0, 1}


def test_the_shipped_exercises_are_graded_too():
    code, out, _ = call("exercise", "grade", *map(str, sorted(SAMPLES.glob("*.json"))), "--json")
    assert code == 1
    told = {Path(each["file"]).stem: each for each in json.loads(out)["hand_ins"]}
    assert {step["verdict"] for step in told["solution"]["steps"].values()} == {"right"}
    assert told["solution"]["right"]
    verdicts = {name: each["verdict"] for name, each in told["handed-in"]["steps"].items()}
    assert verdicts["attention_weights"] == "wrong"
    assert verdicts["head_outputs"] == "not filled in"
    assert told["handed-in"]["steps"]["attention_weights"]["mistake"] == "softmax-over-queries"
    assert "right" not in {each["verdict"] for each in told["1-one-head"]["steps"].values()}


def test_a_teachers_own_config_is_what_counts(tmp_path):
    """A sheet that claims another config is held to the one that was handed out."""
    task = tmp_path / "task.yaml"
    task.write_text("sentence: a b c\nd_model: 2\nheads: 1\n")
    code, out, err = call("exercise", "make", str(task), "--blank", "scores", "--seed-from", "Ann")
    assert code == 0, err
    sheet = json.loads(out)
    sheet["config"]["weights"] = {"W": "identity"}
    x = sheet["steps"]["X"]["data"]
    for name in "QK":
        sheet["steps"][name]["data"] = [x]
    sheet["steps"]["scores"]["data"] = [
        [[sum(a * b for a, b in zip(q, k, strict=True)) for k in x] for q in x]
    ]
    path = tmp_path / "Ann.json"
    path.write_text(json.dumps(sheet))
    code, out, _ = call("exercise", "grade", str(path), "-c", str(task), "--json")
    (hand_in,) = json.loads(out)["hand_ins"]
    assert code == 1
    assert hand_in["notes"] == ["given numbers were changed: Q and K"]
