"""A program is mended only where one changed text, carried out and judged, agrees."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnctl.mistakes import CATALOGUE
from attnctl.verbs.check.mend.candidates import WrongPlace, candidates
from attnctl.verbs.check.mend.rules import RULES_OF_MISTAKE, RULES_OF_STEP
from attnctl.verbs.check.mend.text import ProgramText, lines_of
from attnctl.verbs.check.shown import LOOKS

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
    "scale": (written(scale=""), written(scale=" / Q.shape[-1] ** 0.5")),
    "root": (written(scale=" / Q.shape[-1]"), written(scale=" / Q.shape[-1] ** 0.5")),
}
"""Wrong programs, and what becomes of them."""

TWICE_WRONG = written(axis=0, scale=""), written(scale=" / Q.shape[-1] ** 0.5")
"""Each change is judged beside each other change: this takes ten times as long as one mistake."""


@pytest.mark.usefixtures("in_process")
@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("wrong", "right"),
    [*MENDED.values(), pytest.param(*TWICE_WRONG, marks=pytest.mark.slow)],
    ids=[*MENDED, "two"],
)
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
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.py"]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("flag", ["--fix", "--diff"])
def test_a_right_program_stays_as_it_is(call, tmp_path, flag):
    (tmp_path / "p.py").write_text(written())
    done = call("check", "p.py", flag)
    assert (done.code, (tmp_path / "p.py").read_text()) == (0, written())
    assert "Nothing to mend: every attention agrees, and the program stays as it is." in done.out


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("flag", ["--fix", "--diff"])
def test_what_cannot_be_told_stays_as_it_is(call, tmp_path, flag):
    pytest.importorskip("torch")
    lines = (
        written().replace("out = ", "out = functional.dropout(torch.tensor(weights), 0.5) @ ").split("\n")
    )
    untold = "\n".join([lines[0], "import torch", "from torch.nn import functional", *lines[1:]])
    untold = untold.replace("@ weights @ V", "@ torch.tensor(V)").replace("out.round(6)", "out")
    (tmp_path / "p.py").write_text(untold)
    done = call("check", "p.py", flag)
    assert (done.code, (tmp_path / "p.py").read_text()) == (2, untold), done.out
    assert "Nothing is mended: no step is wrong as far as can be judged" in done.out


@pytest.mark.usefixtures("in_process")
def test_a_scale_that_may_be_meant_is_not_mended(call, tmp_path):
    own = written(scale=" / TAU ** 0.5").replace("rng = ", "TAU, d_k = 17, 5\nrng = ")
    (tmp_path / "p.py").write_text(own)
    done = call("check", "p.py", "--fix")
    assert (done.code, (tmp_path / "p.py").read_text()) == (1, own)
    assert "(scale-other)" in done.out
    assert "Not mended" in done.out


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_what_no_change_mends_stays(call, tmp_path):
    wrong = written().replace("weights = softmax(scores)", "weights = softmax(scores) ** 3 + 0.01")
    (tmp_path / "p.py").write_text(wrong)
    done = call("check", "p.py", "--fix")
    assert done.code == 1
    assert "Not mended: none of them makes it agree" in done.out
    assert (tmp_path / "p.py").read_text() == wrong


# --- files ---

AS_WRITTEN = {
    "tabs": ("    e", "\te", "    return", "\treturn", "utf-8"),
    "a mark": ("", "", "", "", "utf-8-sig"),
    "a cookie": ("import numpy", "# -*- coding: latin-1 -*-\nimport numpy", "── ", "é ", "latin-1"),
    "a last line without an end": ("print(out.round(6))\n", "print(out.round(6))", "", "", "utf-8"),
}
"""What is written otherwise, and the encoding."""


@pytest.mark.sample(2)
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("a", "b", "c", "d", "encoding"), AS_WRITTEN.values(), ids=AS_WRITTEN)
def test_what_is_not_mended_keeps_its_bytes(call, tmp_path, a, b, c, d, encoding):
    def in_bytes(text):
        return text.replace(a, b).replace(c, d).encode(encoding) if a else text.encode(encoding)

    path = tmp_path / "p.py"
    path.write_bytes(in_bytes(written(axis=0)))
    path.chmod(0o751)
    done = call("check", "p.py", "--fix")
    assert (done.code, path.read_bytes()) == (0, in_bytes(written())), done.out
    assert path.stat().st_mode & 0o777 == 0o751


@pytest.mark.usefixtures("in_process")
def test_the_file_behind_a_link_is_mended(call, tmp_path):
    (tmp_path / "own").mkdir()
    file = tmp_path / "own" / "p.py"
    file.write_text(written(axis=0))
    (tmp_path / "p.py").symlink_to(file)
    assert call("check", "p.py", "--fix").code == 0
    assert (tmp_path / "p.py").is_symlink()
    assert file.read_text() == written()


@pytest.mark.usefixtures("in_process")
@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_file_that_is_read_only_stays(call, tmp_path):
    path = tmp_path / "p.py"
    path.write_text(written(axis=0))
    path.chmod(0o444)
    done = call("check", "p.py", "--fix")
    assert (done.code, path.read_text()) == (2, written(axis=0))
    assert "p.py: cannot be written: it is read-only" in done.err


@pytest.mark.slow
def test_a_module_beside_the_program_is_mended(call, tmp_path):
    lines = written(axis=0).split("\n")
    (tmp_path / "own.py").write_text("\n".join(lines[:5]) + "\n")
    program = "\n".join(["import numpy as np", "from own import softmax", *lines[5:]])
    (tmp_path / "p.py").write_text(program)
    done = call("check", "p.py", "--fix")
    assert done.code == 0, done.out
    assert (tmp_path / "own.py").read_text() == "\n".join(written().split("\n")[:5]) + "\n"
    assert (tmp_path / "p.py").read_text() == program


@pytest.mark.slow
def test_what_a_program_writes_is_in_the_end_what_it_writes_as_it_stands(call, tmp_path):
    (tmp_path / "p.py").write_text(written(axis=0) + "np.save('out.npy', out)\n")
    assert call("check", "p.py").code == 1
    before = (tmp_path / "out.npy").read_bytes()
    assert call("check", "p.py", "--diff").code == 1
    assert (tmp_path / "out.npy").read_bytes() == before
    assert call("check", "p.py", "--fix").code == 0
    mended = (tmp_path / "out.npy").read_bytes()
    assert mended != before
    subprocess.run([sys.executable, "p.py"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "out.npy").read_bytes() == mended


@pytest.mark.slow
def test_a_program_whose_numbers_change_is_not_mended(call, tmp_path):
    unsteady = written(axis=0).replace("default_rng(7)", "default_rng(__import__('time').time_ns())")
    (tmp_path / "p.py").write_text(unsteady)
    done = call("check", "p.py", "--fix")
    assert (done.code, (tmp_path / "p.py").read_text()) == (1, unsteady)
    assert "Not mended: its numbers are others each time it runs" in done.out


@pytest.mark.slow
def test_a_program_that_was_saved_meanwhile_is_not_written_over(call, tmp_path):
    saving = "open(__file__, 'a').write('# saved\\n')\n"
    (tmp_path / "p.py").write_text(saving + written(axis=0))
    done = call("check", "p.py", "--fix")
    assert done.code == 2
    assert "p.py: it was changed meanwhile, and is left as it is" in done.err
    assert (tmp_path / "p.py").read_text().startswith(saving + written(axis=0) + "# saved\n")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1.5, 3, 5])
def test_an_interrupted_program_is_whole(tmp_path, seconds):
    path = tmp_path / "p.py"
    path.write_text(written(axis=0))
    words = [sys.executable, "-m", "attnctl", "check", "p.py", "--fix"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert path.read_text() in {written(axis=0), written()}
    assert [file.name for file in tmp_path.iterdir()] == ["p.py"]


# --- what is told ---


def test_a_program_reads_the_file_of_stdin(call, tmp_path):
    asks = written().replace("size=(6, 8)", "size=(int(input()), 8)")
    (tmp_path / "p.py").write_text(asks)
    (tmp_path / "answers.txt").write_text("7\n")
    assert "ValueError" in call("check", "p.py").err
    done = call("check", "p.py", "--stdin", "answers.txt", "--json")
    assert (done.code, json.loads(done.out)["agrees"]) == (0, True)
    assert "--stdin nothing.txt" in call("check", "p.py", "--stdin", "nothing.txt").err


@pytest.mark.slow
def test_what_is_mended_reads_it_each_time(call, tmp_path):
    asks = written(axis=0).replace("size=(6, 8)", "size=(int(input()), 8)")
    (tmp_path / "p.py").write_text(asks)
    (tmp_path / "answers.txt").write_text("7\n")
    assert call("check", "p.py", "--fix", "--stdin", "answers.txt").code == 0
    assert (tmp_path / "p.py").read_text() == asks.replace("axis=0", "axis=-1")


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("flag", ["--fix", "--diff"])
def test_only_a_program_is_mended(call, tmp_path, flag):
    (tmp_path / "d.json").write_text(call("attend", "I love AI", "--format", "json").out)
    assert "it is about a program; give a FILE.py" in call("check", "d.json", flag).err


# --- rules ---


def test_rules_are_of_mistakes_that_there_are():
    names = [*LOOKS, *(mistake.name for mistake in CATALOGUE)]
    assert [words for words in RULES_OF_MISTAKE if not any(name.startswith(words) for name in names)] == []


HOMEWORK = sorted((Path(__file__).parent / "homework").glob("*.py"))


@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # as of 0.5[:, None], which fails when it runs
@pytest.mark.sample(18)
@pytest.mark.parametrize("path", HOMEWORK, ids=lambda path: path.stem)
def test_every_change_is_a_program(path):
    text = ProgramText(path.read_text())
    everywhere = tuple(range(1, len(lines_of(text.text)) + 1))
    for step in RULES_OF_STEP:
        for change in candidates(text, [WrongPlace(everywhere, step, None)]):
            compile(change.applied(text.text), path.name, "exec")
