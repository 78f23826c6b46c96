"""A program is mended only where one changed text, carried out and judged, agrees."""

import json

import pytest

WRONG = """\
import numpy as np
# ── attention, for the seminar
def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis={axis}, keepdims=True)

rng = np.random.default_rng(7)
E = rng.normal(size=(6, 8))
WQ, WK, WV = rng.normal(size=(8, 5)), rng.normal(size=(8, 5)), rng.normal(size=(8, 5))
Q = E @ WQ
K = E @ WK
V = E @ {weight}
scores = Q @ K.T{scale}
weights = softmax(scores)
out = weights @ V
print(out.round(6))
"""


def written(**wrong):
    return WRONG.format(**{"axis": -1, "weight": "WV", "scale": " / np.sqrt(5)"} | wrong)


MENDED = {
    "axis": (written(axis=0), written()),
    "weight": (written(weight="WK"), written()),
}
"""Wrong programs, and what becomes of them."""


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("wrong", "right"), MENDED.values(), ids=MENDED)
def test_a_mended_program_is_the_right_one_to_the_byte(call, tmp_path, wrong, right):
    path = tmp_path / "p.py"
    before = wrong.replace("\n", "\r\n").encode()
    path.write_bytes(before)
    shown = call("check", "p.py", "--diff")
    assert (shown.code, path.read_bytes()) == (1, before), shown.err
    assert "--- p.py" in shown.out
    assert "not written" in shown.out
    done = call("check", "p.py", "--fix")
    assert done.code == 0, done.out
    assert path.read_bytes() == right.replace("\n", "\r\n").encode()
    assert call("check", "p.py", "--fix").code == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.py"]


@pytest.mark.usefixtures("in_process")
def test_a_missing_scale_is_mended(call, tmp_path):
    (tmp_path / "p.py").write_text(written(scale=""))
    assert call("check", "p.py").code == 1
    assert call("check", "p.py", "--fix").code == 0
    assert call("check", "p.py").code == 0


@pytest.mark.usefixtures("in_process")
def test_what_no_change_mends_stays(call, tmp_path):
    wrong = written().replace("weights = softmax(scores)", "weights = softmax(scores) ** 3 + 0.01")
    (tmp_path / "p.py").write_text(wrong)
    done = call("check", "p.py", "--fix")
    assert done.code == 1
    assert "Not mended: none of them makes it agree" in done.out
    assert (tmp_path / "p.py").read_text() == wrong


def test_a_program_reads_the_file_of_stdin(call, tmp_path):
    asks = written().replace("size=(6, 8)", "size=(int(input()), 8)")
    (tmp_path / "p.py").write_text(asks)
    (tmp_path / "answers.txt").write_text("7\n")
    assert "ValueError" in call("check", "p.py").err
    done = call("check", "p.py", "--stdin", "answers.txt", "--json")
    assert (done.code, json.loads(done.out)["agrees"]) == (0, True)
    assert "--stdin nothing.txt" in call("check", "p.py", "--stdin", "nothing.txt").err


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("flag", ["--fix", "--diff"])
def test_only_a_program_is_mended(call, tmp_path, flag):
    (tmp_path / "d.json").write_text(call("attend", "I love AI", "--format", "json").out)
    assert "it is about a program; give a FILE.py" in call("check", "d.json", flag).err
