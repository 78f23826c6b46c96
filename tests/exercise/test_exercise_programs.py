"""A program graded as if what it computed stood on the sheet that was handed out."""

import json
from pathlib import Path

import pytest

PROGRAM = """
import json
from pathlib import Path
import numpy as np
steps = json.load(open("sheet.json"))["steps"]
Q, K, V, W_O = (np.array(steps[name]["data"]) for name in ("Q", "K", "V", "W_O"))
CHANGE
scores = Q @ K.transpose(0, 2, 1)
scaled = scores / np.sqrt(2)
e = np.exp(scaled - scaled.max(-1, keepdims=True))
A = e / e.sum(-1, keepdims=True)
concat = (A @ V).transpose(1, 0, 2).reshape(3, 4)
output = concat @ W_O
"""

PLAIN = """
import numpy as np
Q = K = V = np.eye(3) + 0.5
weights = np.exp(Q @ K.T / 3**0.5)
output = weights / weights.sum(-1, keepdims=True) @ V
"""

RIGHT, WRONG = "right", "wrong"

CASES = {
    "right": ("", "", RIGHT, RIGHT, None, False),
    "scale": ("np.sqrt(2)", "2", RIGHT, WRONG, "scale-by-d_k", False),
    "output": ("concat @ W_O", "concat @ W_O.T", RIGHT, WRONG, "weight-transposed", False),
    "scores": ("scores = Q @ K", "scores = Q @ V", WRONG, RIGHT, None, False),
    "given": ("CHANGE", "W_O = W_O + 1", RIGHT, RIGHT, None, True),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES)
def test_each_blank_has_its_mark(call, tmp_path, case):
    old, new, scores, output, mistake, changed = CASES[case]
    (tmp_path / "task.yaml").write_text("sentence: the cat sat\nheads: 2\n")
    asked = ("-c", "task.yaml", "--blank", "scores,output")
    assert call("exercise", "make", *asked, "-o", "sheet.json").code == 0
    (tmp_path / "ann.py").write_text(PROGRAM.replace(old or " ", new or " ").replace("CHANGE", ""))
    done = call("exercise", "grade", "ann.py", *asked, "--json")
    (sheet,) = json.loads(done.out)["hand_ins"]
    assert [sheet["steps"][name]["verdict"] for name in ("scores", "output")] == [scores, output]
    assert sheet["steps"]["output"].get("mistake") == mistake
    assert any("W_O" in note for note in sheet.get("notes", [])) == changed
    assert done.code == (0 if case == "right" else 1)


def test_a_program_does_not_say_what_was_asked(call, tmp_path):
    (tmp_path / "ann.py").write_text(PLAIN)
    done = call("exercise", "grade", "ann.py", "--json")
    assert done.code != 0
    assert "give the config with -c, and --blank STEP" in done.err


def test_one_reason_is_said_once_with_the_files_that_have_it(call):
    names = [f"student-{number}.py" for number in range(5)]
    for name in names:
        Path(name).write_text(PLAIN, encoding="utf-8")
    said = call("exercise", "grade", *names).err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("attnctl: student-0.py and 4 more: a program does not say what was asked")


def test_a_sheet_that_is_run_says_what_it_is(call):
    call("exercise", "make", "I love AI", "--blank", "scores", "-o", "Ann.json")
    for command in (["run", "Ann.json"], ["explain", "Ann.json", "Q[0,0,0]"]):
        done = call(*command)
        assert done.code == 2
        assert done.err == (
            "attnctl: Ann.json: a sheet of an exercise, with steps to be filled in; attnctl show Ann.json "
            "shows it, and attnctl exercise grade Ann.json marks it\n"
        )
    assert call("show", "Ann.json").code == 0
