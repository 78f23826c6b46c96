"""A class, handed out by name: solved, mistaken, tampered with; graded in one command."""

import csv
import json

import classroom
import numpy as np
import pytest
from command_line import call

RIGHT = [f"right {n}" for n in range(14)]
MISTAKES = {
    "no scale 1": ({"scale": 1.0}, "scaled_scores", "no-scale"),
    "no scale 2": ({"scale": 1.0}, "scaled_scores", "no-scale"),
    "by d_k": ({"scale": 2.0}, "scaled_scores", "scale-by-d_k"),
    "by columns 1": ({"axis": -2}, "attention_weights", "softmax-over-queries"),
    "by columns 2": ({"axis": -2}, "attention_weights", "softmax-over-queries"),
    "no mask": ({"mask": False}, "masked_scores", "mask-ignored"),
    "swapped": ({"swap": True}, "scores", "query-key-swapped"),
    "heads": ({"merge": False}, "output", "heads-in-other-order"),
}
OTHERS = ["blank", "last blank", "half", "edited", "zeros"]


def handed_out(folder, name):
    path = folder / f"{name}.json"
    code, _, err = call(
        "exercise", "make", str(folder / "task.yaml"), "--blank", classroom.BLANK, "--seed-from", name,
        "-o", str(path),
    )  # fmt: skip
    assert code == 0, err
    return path, json.loads(path.read_text())


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The files of the class, and what one command says of them."""
    folder = tmp_path_factory.mktemp("class")
    (folder / "task.yaml").write_text(classroom.CONFIG)
    for name in [*RIGHT, *MISTAKES, *OTHERS]:
        path, sheet = handed_out(folder, name)
        answers = classroom.solved(sheet, **MISTAKES.get(name, ({},))[0])
        match name:
            case "blank":
                pass
            case "last blank":
                classroom.fill(sheet, answers, set(answers) - {"output"})
            case "half":
                classroom.fill(sheet, answers)
                sheet["steps"]["scores"]["data"][1][2] = [None] * 4
            case "edited":
                sheet["steps"]["V"]["data"][0][0][0] = 1.0
                classroom.fill(sheet, classroom.solved(sheet))
            case "zeros":
                classroom.fill(sheet, {step: np.zeros(array.shape) for step, array in answers.items()})
            case _:
                classroom.fill(sheet, answers)
        path.write_text(json.dumps(sheet))
    files = sorted(map(str, folder.glob("*.json")))
    assert len(files) == 27
    grades = folder / "grades.csv"
    code, out, err = call("exercise", "grade", *files, "--json", "-o", str(grades), "-o", "-")
    assert (code, err) == (1, "")
    return {each["name"]: each for each in json.loads(out)["hand_ins"]}, grades, files


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_one_is_right(graded, name):
    hand_in = graded[0][name]
    assert hand_in["right"], hand_in
    assert {step["verdict"] for step in hand_in["steps"].values()} == {"right"}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_once_and_what_follows_from_it_is_right(graded, name):
    _, step, mistake = MISTAKES[name]
    hand_in = graded[0][name]
    wrong = {at: each["mistake"] for at, each in hand_in["steps"].items() if each["verdict"] == "wrong"}
    assert wrong == {step: mistake}
    assert not hand_in["right"]


def test_a_blank_is_not_right_and_not_wrong(graded):
    hand_ins = graded[0]
    assert {step["verdict"] for step in hand_ins["blank"]["steps"].values()} == {"not filled in"}
    last = {at: step["verdict"] for at, step in hand_ins["last blank"]["steps"].items()}
    assert last.pop("output") == "not filled in"
    assert set(last.values()) == {"right"}
    assert hand_ins["half"]["steps"]["scores"]["verdict"] == "not filled in"
    assert hand_ins["half"]["steps"]["scores"]["words"] == "28 of 32 numbers filled in"
    assert not any(hand_ins[name]["right"] for name in ("blank", "last blank", "half"))


def test_given_numbers_that_were_changed_are_said(graded):
    assert graded[0]["edited"]["notes"] == ["given numbers were changed: V"]
    assert not graded[0]["edited"]["right"]


def test_zeros_are_never_right(graded):
    marks = graded[0]["zeros"]["steps"]
    assert "right" not in {marks[name]["verdict"] for name in ("scores", "attention_weights")}


def test_the_gradebook_has_a_row_for_each(graded):
    with graded[1].open() as stream:
        rows = {row["name"]: row for row in csv.DictReader(stream)}
    assert len(rows) == 27
    assert rows["right 5"]["right"] == rows["right 5"]["of"] == "6"
    assert rows["no scale 1"]["mistakes"] == "scaled_scores: no-scale"
    both = "scaled_scores: scale-by-d_k; also fits: scale-by-sqrt-d_model"  # d_k 2 is the root of d_model 4
    assert rows["by d_k"]["mistakes"].startswith(both)
    assert rows["blank"]["output"] == "not filled in"


def test_a_blank_that_nothing_needs_is_seen_by_check_too(tmp_path):
    task = tmp_path / "task.json"
    assert call("exercise", "make", "example:i-love-ai", "--blank", "output", "-o", str(task))[0] == 0
    code, out, _ = call("check", str(task), "--json")
    assert (code, json.loads(out)["agrees"], json.loads(out)["not_filled"]) == (1, False, ["output"])


def test_a_folder_and_the_roster_tell_who_is_missing(tmp_path):
    (tmp_path / "roster.csv").write_text("name\nAnn\nBo\nCid\n")
    (tmp_path / "in").mkdir()
    roster, folder = str(tmp_path / "roster.csv"), str(tmp_path / "in")
    made = call(
        "exercise",
        "make",
        "example:i-love-ai",
        "--blank",
        "A",
        "--seed-from",
        "Ann",
        "-o",
        f"{folder}/a.json",
    )
    assert made[0] == 0
    (tmp_path / "in" / "notes.txt").write_text("no hand-in")
    code, out, err = call(
        "exercise", "grade", folder, "--students", roster, "-o", f"{tmp_path}/g.csv", "-o", "-"
    )
    assert (code, err) == (1, "")
    assert "0 of 1 hand-in all right; missing: Bo, Cid." in out
    rows = list(csv.reader((tmp_path / "g.csv").read_text().splitlines()))
    assert [row[0] for row in rows] == ["name", "Ann", "Bo", "Cid"]
    assert "nothing handed in" in rows[2]


def test_a_folder_without_hand_ins(tmp_path):
    code, out, err = call("exercise", "grade", str(tmp_path))
    assert (code, out) == (2, "")
    assert err == f"attnctl: {tmp_path}: no .json in this folder; give the files that were handed in\n"
