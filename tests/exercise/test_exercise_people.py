"""A student from nothing to a graded exercise, and a teacher with thirty: the scripts of the samples."""

import csv
import json
import shutil

import pytest

CLASS = [f"Student {number}" for number in range(1, 31)]


@pytest.fixture
def place(workplace):
    (workplace.folder / "roster.csv").write_text("\n".join(["name", *CLASS]) + "\n")
    return workplace


@pytest.mark.slow
def test_a_student_goes_from_nothing_to_a_graded_exercise(place):
    done = place.shell(
        "samples/exercises/teacher.sh make roster.csv class && mkdir class/handed-in && "
        "samples/exercises/student.sh 'class/json/Student 1.json' 'class/handed-in/Student 1.json' && "
        "attnctl exercise grade 'class/handed-in/Student 1.json'"
    )
    screen = done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()
    assert "scores[0,love,AI] = " in screen
    assert "1 of 1 lesson right." in screen
    assert "agrees: " in screen
    assert "1 of 1 hand-in all right." in screen


def hand_in(sheet, number):
    """The scores of a sheet: right, with Q and K exchanged, with one slip, or not filled in."""
    q, k = (sheet["steps"][name]["data"] for name in "QK")
    if number % 10 == 1:
        q, k = k, q
    scores = [
        [
            [round(sum(a * b for a, b in zip(row, column, strict=True)), 3) for column in k[head]]
            for row in q[head]
        ]
        for head in range(len(q))
    ]
    if number % 10 == 2:
        scores[0][1][2] += 0.5
    if number % 10 != 3:
        sheet["steps"]["scores"]["data"] = scores
    return sheet


@pytest.mark.slow
def test_a_teacher_has_thirty(place):
    done = place.shell("samples/exercises/teacher.sh make roster.csv class")
    assert (done.returncode, done.stdout) == (0, b"")
    folder = place.folder / "class"
    assert {path.stem for path in (folder / "sheets").iterdir()} == set(CLASS)
    handed_in = folder / "handed-in"
    shutil.copytree(folder / "json", handed_in)
    for number, name in enumerate(CLASS):
        path = handed_in / f"{name}.json"
        path.write_text(json.dumps(hand_in(json.loads(path.read_text()), number)))
    done = place.shell("samples/exercises/teacher.sh grade class/handed-in")
    assert (done.returncode, done.stderr) == (0, b"")
    screen = done.stdout.decode()
    assert "3 × query-key-swapped at scores (Student 12, Student 2, Student 22): it is what" in screen
    assert "scores[0,love,AI]" in screen
    assert "21 of 30 hand-ins all right." in screen
    rows = list(csv.DictReader((folder / "grades.csv").read_text().splitlines()))
    assert [row["scores"] for row in sorted(rows, key=lambda row: int(row["name"].split()[1]))][:4] == [
        "right", "wrong", "wrong", "not filled in",
    ]  # fmt: skip
    assert (folder / "grades.html").read_text().count("✗ wrong: query-key-swapped") == 3
