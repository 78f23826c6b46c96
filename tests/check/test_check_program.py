"""Programs of people: their variables are read whatever they are called, and a mistake has its line."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from people import program

import attnctl

HOMEWORK = sorted((Path(__file__).parent / "homework").glob("*.py"))
"""Each line that is wrong says so: `# wrong: no-scale`, or `# wrong: -` for what no mistake explains."""

MARK = re.compile(r"# wrong: (\S+)")

OPTIONS = re.compile(r"# options: (.*)")
"""What a person says beside, on the first line."""

LIBRARY = re.compile(r"^import (torch|jax)\b", re.MULTILINE)
"""A library that a program needs, and that is not there everywhere."""


@pytest.mark.usefixtures("in_process")
@pytest.mark.sample(22)
@pytest.mark.parametrize("path", HOMEWORK, ids=lambda path: path.stem)
def test_a_program_is_right_or_wrong_at_a_line(call, path):
    text = path.read_text()
    for library in LIBRARY.findall(text):
        pytest.importorskip(library)
    lines = text.splitlines()
    wrong = [(number, mark[1]) for number, line in enumerate(lines, 1) if (mark := MARK.search(line))]
    options = OPTIONS.match(lines[0])
    done = call("check", path, "--json", *(options[1].split() if options else ()))
    reports = json.loads(done.out)
    if not isinstance(reports, list):
        reports = [reports]
    assert done.code == int(bool(wrong)), reports
    accused = [report for report in reports if not report["agrees"]]
    assert bool(accused) == bool(wrong), reports
    for report in accused:
        assert (report["file"], report["line"], report["mistake"] or "-") == (str(path), *wrong[0])
        assert not report["proven"] or not report["cannot_tell"]  # what is not judged proves nothing


@pytest.mark.usefixtures("in_process")
@pytest.mark.sample(15)
@pytest.mark.parametrize("seed", range(60))
def test_a_right_program_of_any_habit_agrees(call, tmp_path, seed):
    (tmp_path / "p.py").write_text(program(seed))
    done = call("check", "p.py")
    assert done.code == 0, program(seed) + done.out + done.err


@pytest.mark.usefixtures("in_process")
def test_the_report_begins_with_the_line(call):
    done = call("check", HOMEWORK[0].with_name("over_queries.py"))
    first, second, *rest = done.out.splitlines()
    assert first.endswith("over_queries.py:18:12: softmax runs over queries: use axis=-1.")
    assert second.startswith("   18 |     return e / np.sum(e, axis=0, keepdims=True)")
    assert rest[0].strip() == f"| {' ' * 11}{'^' * 36}"
    assert "called from over_queries.py:20: weights = softmax(scores)" in rest[1]
    assert rest[2].startswith("attention_weights is the first wrong step: ")


@pytest.mark.usefixtures("in_process")
def test_what_the_program_shows_is_asked_for_and_options_overrule_it(call):
    path = HOMEWORK[0].with_name("right_einsum.py")
    assert call("check", path).code == 0
    assert call("check", path, "--window", "2,0").code == 1


@pytest.mark.usefixtures("in_process")
def test_a_cell_of_a_program_is_explained(call):
    done = call("explain", HOMEWORK[0].with_name("right_letters.py"), "scores[0,1,2]")
    assert (done.code, done.out.splitlines()[0]) == (0, "scores = Q Kᵀ")


PROGRAMS = {
    "x = 1 / 0": "p.py:1: ZeroDivisionError: division by zero",
    "def f():\n    return nothing\n\nf()": "p.py:2: NameError: name 'nothing' is not defined",
    "x = (": "p.py:1: SyntaxError: '(' was never closed",
    "import sys; sys.exit('no data')": "p.py:1: SystemExit: no data",
    "import os; os._exit(0)": "p.py: it ended itself, and its variables with it",
    "import os; os.kill(os.getpid(), 9)": "p.py: it was ended by SIGKILL, and its variables with it",
    "x = 3": "p.py: no attention found",
    "import numpy\nx = numpy.ones(3)": "p.py: no attention found",
    "": "p.py: no attention found",
}


@pytest.mark.sample(4)
@pytest.mark.parametrize(("text", "said"), PROGRAMS.items())
def test_what_goes_wrong_in_a_program_is_said_with_its_line(call, tmp_path, text, said):
    (tmp_path / "p.py").write_text(text)
    done = call("check", "p.py")
    assert (done.code, done.out) == (2, "")
    assert done.err.strip().startswith(f"attnctl: {said}")


def test_a_program_without_end_is_ended(call, tmp_path, monkeypatch):
    monkeypatch.setattr("attnctl.sources.program.run.SECONDS", 1)
    (tmp_path / "p.py").write_text("while True:\n    print('x' * 1000)\n")
    done = call("check", "p.py")
    assert (done.code, done.err) == (2, "attnctl: p.py: still running after 1 s; it was ended\n")


def test_a_program_runs_in_its_folder_and_finds_what_is_beside_it(call, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.py").write_text("def scaled(s, d):\n    return s / d**0.5\n")
    (tmp_path / "sub" / "rows.txt").write_text("1 2 3 4\n0 1 1 2\n")
    text = (
        "import numpy as np\nfrom mine import scaled\n\nif __name__ == '__main__':\n"
        "    q = k = v = np.loadtxt('rows.txt')\n    scores = scaled(q @ k.T, 4)\n"
        "    w = np.exp(scores)\n    w /= w.sum(1, keepdims=True)\n    out = w @ v\n"
    )
    (tmp_path / "sub" / "p.py").write_text(text.replace("w.sum(1, ", "w.sum(0, "))
    done = call("check", "sub/p.py")
    assert done.out.startswith("sub/p.py:8:5: softmax runs over queries")


@pytest.mark.slow
def test_a_program_is_watched_until_it_agrees(call, tmp_path, monkeypatch):
    right = HOMEWORK[0].with_name("right_letters.py").read_text()
    texts = iter([right.replace("6**.5", "6"), "x = 1 /", right])
    path = tmp_path / "p.py"

    def save(_):
        path.write_text(next(texts) + "# saved\n")

    path.write_text("import numpy\n")
    monkeypatch.setattr("attnctl.sources.program.run.wait", save)
    done = call("check", "p.py", "--watch")
    assert done.code == 0
    said = [line for line in done.err.splitlines() if line.startswith("attnctl: p.py")]
    assert said == [
        "attnctl: p.py: no attention found, which is a product of Q and K, a softmax, and a product with V",
        "attnctl: p.py:1: SyntaxError: invalid syntax",
    ]
    begins = "p.py:7:", "agrees"
    assert len([line for line in done.out.splitlines() if line.startswith(begins)]) == 2


def test_only_a_program_is_watched(call, tmp_path):
    (tmp_path / "d.npz").write_bytes(b"")
    done = call("check", "d.npz", "--watch")
    assert (done.code, done.err) == (
        2,
        "attnctl: --watch: only a program is checked again; give a FILE.py\n",
    )


NOTEBOOK = [
    ("markdown", "# Attention\n"),
    ("code", "%matplotlib inline\nimport numpy as np\nx = np.random.RandomState(0).rand(4, 6)\ndisplay(x)"),
    ("code", "q = k = v = x\nscores = q @ k.T"),
    ("code", "w = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)\nout = w @ v\n!ls"),
]


def notebook(path, cells):
    data = [{"cell_type": kind, "source": text.splitlines(keepends=True)} for kind, text in cells]
    path.write_text(json.dumps({"cells": data, "nbformat": 4}))


def test_a_notebook_is_a_program_of_cells(call, tmp_path):
    notebook(tmp_path / "n.ipynb", NOTEBOOK)
    done = call("check", "n.ipynb")
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("n.ipynb cell 2 line 2: the scores are not scaled")
    assert "Left out, as only a kernel knows them: %matplotlib inline, !ls." in done.out
    notebook(tmp_path / "n.ipynb", [*NOTEBOOK, ("code", "y = 1\nz = nothing")])
    done = call("check", "n.ipynb")
    assert (done.code, done.err) == (1, "")
    early = "ended early (n.ipynb cell 4 line 2: NameError: name 'nothing' is not defined)"
    assert early in " ".join(done.out.split())


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_of_many_calls_the_last_is_kept_however_much_they_hold(call, tmp_path, monkeypatch):
    monkeypatch.setattr("attnctl.sources.program.record.MOST_BYTES", 2**18)
    text = (
        "import numpy as np\n\ndef attend(q, k, v):\n    pad = np.zeros(8_000)\n"
        "    scores = q @ k.T{}\n"
        "    w = np.exp(scores)\n    w /= w.sum(1, keepdims=True)\n    return w @ v\n\n"
        "for number in range(8):\n    x = np.random.RandomState(number).rand(4, 6)\n    attend(x, x, x)\n"
    )
    (tmp_path / "right.py").write_text(text.format(" / 6**.5"))
    assert call("check", "right.py").code == 0
    (tmp_path / "wrong.py").write_text(text.format(""))
    assert "\nwrong.py:5:14: the scores are not scaled" in call("check", "wrong.py").out


UNREADABLE = {
    "n.ipynb": (b"{", "not a notebook"),
    "m.ipynb": (b"{}", "not a notebook"),
    "l.ipynb": (b'{"cells": [1]}', "not a notebook"),
    "u.py": (b"\xff\xfe", "not text in UTF-8"),
    "no/such/p.py": (None, "cannot be read: No such file or directory"),
    "d.py": (None, "cannot be read: Is a directory"),
}


@pytest.mark.parametrize(("name", "data", "said"), [(name, *rest) for name, rest in UNREADABLE.items()])
def test_what_is_no_program_is_said(call, tmp_path, name, data, said):
    (tmp_path / "d.py").mkdir()
    if data is not None:
        (tmp_path / name).write_bytes(data)
    done = call("check", name)
    assert (done.code, done.err) == (2, f"attnctl: {name}: {said}\n")


def test_python_checks_the_variables_of_its_caller():
    draw = np.random.RandomState(0)
    q, k, v = draw.rand(3, 4, 6)
    sim = q @ k.T / 6**0.5
    alpha = np.where(np.tri(4) > 0, np.exp(sim), 0)
    alpha /= alpha.sum(axis=1, keepdims=True)
    ctx = alpha @ v
    assert attnctl.check().agrees
    alpha = alpha.T
    assert not attnctl.check().agrees
    assert ctx.shape == (4, 6)
