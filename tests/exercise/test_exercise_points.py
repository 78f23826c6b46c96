"""Points by step: on the sheet, in the table, in files, and for autograders."""

import csv
import io
import json
from pathlib import Path

import classroom
import numpy as np
import pytest

TASK = ("I love AI", "--blank", "scores,output", "--points", "scores=2,Y=3")


@pytest.fixture
def handed_in(call, tmp_path, monkeypatch):
    """A sheet with its scores right and its output left out."""
    monkeypatch.chdir(tmp_path)
    assert call("exercise", "make", *TASK, "-o", "Ann.json").code == 0
    sheet = json.loads(Path("Ann.json").read_text())
    q, k = (np.array(sheet["steps"][name]["data"]) for name in "QK")
    sheet["steps"]["scores"]["data"] = classroom.written(q @ k.swapaxes(-1, -2))
    Path("Ann.json").write_text(json.dumps(sheet))
    return sheet


def test_a_sheet_says_what_its_steps_are_worth(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call("exercise", "make", *TASK, "-o", "a.md", "-o", "a.html")
    assert "## scores: fill in (2 points)\n" in Path("a.md").read_text()
    assert "<h2>output (3 points) " in Path("a.html").read_text()
    call("exercise", "make", *TASK[:3], "-o", "b.md")
    assert "point" not in Path("b.md").read_text()


def test_a_right_step_has_its_points(call, handed_in):
    assert handed_in["points"] == {"scores": 2, "output": 3}
    done = call("exercise", "grade", "Ann.json")
    assert done.code == 1
    assert "points" in done.out
    assert " 2/5 " in done.out
    found = json.loads(call("exercise", "grade", "Ann.json", "--json").out)["hand_ins"][0]
    assert (found["points"], found["of"]) == (2, 5)
    assert [step["worth"] for step in found["steps"].values()] == [2, 3]

    (row,) = csv.DictReader(io.StringIO(call("exercise", "grade", "Ann.json", "--format", "csv").out))
    assert [row[name] for name in ("right", "of", "points", "of points")] == ["1", "2", "2", "5"]
    graded = json.loads(call("exercise", "grade", "Ann.json", "--format", "gradescope").out)
    assert [(test["score"], test["max_score"]) for test in graded["tests"]] == [(2, 2), (0, 3)]
    graded = json.loads(call("exercise", "grade", "Ann.json", "--format", "otter").out)
    assert [test["points"] for test in graded["test_file_results"]] == [0, 2, 3]


def test_a_teacher_is_believed_before_a_sheet(call, handed_in):
    handed_in["points"] = {"scores": 900, "output": True}
    Path("Ann.json").write_text(json.dumps(handed_in))
    assert " 2/3 " in call("exercise", "grade", "Ann.json", "--points", "scores=2").out
    Path("task.yaml").write_text("sentence: I love AI\n")
    stated = ("-c", "task.yaml", "--blank", "scores,output")
    assert " 1/2 " in call("exercise", "grade", "Ann.json", *stated).out
    assert " 4/8 " in call("exercise", "grade", "Ann.json", *stated, "--points", "S=4,Y=4").out


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ("scores=x", "--points: 'scores=x' is not STEP=N, N up to 1000; write scores=2"),
        ("scores=1001", "is not STEP=N"),
        ("scores=-1", "is not STEP=N"),
        ("Q=2", "--points Q: it is not to be filled in; add it to --blank"),
        ("", "--points: no step in it"),
        ("scored=2", "scored"),
    ],
)
def test_points_that_mean_nothing_are_refused(call, points, message):
    done = call("exercise", "make", "I love AI", "--blank", "scores", "--points", points)
    assert done.code == 2
    assert message in done.err


# --- the key ---


def test_a_key_has_the_answers_and_full_marks(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = (
        "the cat sat",
        "--causal",
        "--blank",
        "scores,masked_scores,attention_weights",
        "--seed-from",
        "Ann",
    )
    assert call("exercise", "make", *task, "-o", "sheet.md", "-o", "sheet.json").code == 0
    assert (
        call("exercise", "make", *task, "--key", "-o", "key.md", "-o", "key.json", "-o", "key.html").code
        == 0
    )
    sheet, key = Path("sheet.md").read_text(), Path("key.md").read_text()
    assert "____" in sheet
    assert "____" not in key
    assert "**The answers, to 4 decimals.**" in key
    assert "## scores: answers\n" in key
    graded = json.loads(call("exercise", "grade", "key.json", "--json").out)["hand_ins"][0]
    assert graded["right"]
    given = json.loads(Path("sheet.json").read_text())["steps"]
    solved = json.loads(Path("key.json").read_text())["steps"]
    assert solved["Q"]["data"] == given["Q"]["data"]
    assert f"{solved['scores']['data'][0][0][0]:.4f}".replace("-", "−") in key
    assert "<input" not in Path("key.html").read_text().split("<article>")[1].split("</article>")[0]


def test_a_key_is_no_workbook(call):
    done = call("exercise", "make", "I love AI", "--blank", "scores", "--key", "-o", "key.xlsx")
    assert done.code == 2
    assert "--key: an .xlsx has its answers on hidden sheets" in done.err
