"""attnctl mutants -- CMD: someone's own test, run on every wrong kernel."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from attnctl import AttnError
from attnctl.verbs.mutants.tested import OwnTest, mutants_for, score_test

OWN = """
import importlib.util
import sys

import numpy as np

spec = importlib.util.spec_from_file_location("kernel", sys.argv[1])
kernel = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernel)
q, k, v = np.random.RandomState(1).standard_normal((3, 2, 2, 9, 8))
s = q @ k.swapaxes(-1, -2) / np.sqrt(8)
{more}
e = np.exp(s - s.max(axis=-1, keepdims=True))
right = e / e.sum(axis=-1, keepdims=True) @ v
np.testing.assert_allclose(kernel.attention(q, k, v{given}), right, rtol=0, atol={atol})
print("fine")
"""

CAUSAL = "s = np.where(np.tri(9, dtype=bool), s, -np.inf)"


@pytest.fixture
def own(workplace):
    """Write a test of one's own, and give the command that runs mutants on it."""

    def command(*words, more="", given="", atol=1e-2):
        (workplace.folder / "own.py").write_text(OWN.format(more=more, given=given, atol=atol))
        return ("mutants", *words, "--json", "--", sys.executable, "own.py", "{kernel}")

    return command


def names(report):
    return {survivor["name"] for survivor in report["survivors"]}


@pytest.mark.slow
def test_a_test_is_scored(workplace, own):
    done = workplace.run(*own("-j", "2"))
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (1, b"")
    assert {"softmax-epsilon-slight", "no-max-subtraction"} <= names(report)
    assert not {"no-scale", "softmax-over-queries", "keys-dropped"} & names(report)
    assert report["killed"] + len(names(report)) == report["mutants"] > 30
    assert report["equivalent"]["scores-already-scaled"] == "the output is right"

    survivor = report["survivors"][0]
    check = (
        "import numpy as np, runpy; given = dict(np.load({file!r})); right = given.pop('output'); "
        "kernel = runpy.run_path({kernel!r}); out = kernel['attention'](**given); "
        "raise SystemExit(bool(np.abs(out - right).max() < 1e-5))"
    ).format_map(survivor)
    assert workplace.shell(f'{sys.executable} -c "{check}"').returncode == 0


@pytest.mark.slow
def test_a_function_with_an_option_has_more_mutants(workplace, own):
    """The option has its own name in the files; without it mistakes of it would not count."""
    line = own(
        "--with", "causal", "--map", "is_causal=causal", more=CAUSAL, given=", is_causal=True", atol=1e-6
    )
    report = json.loads(workplace.run(*line).stdout)
    assert report["mutants"] > 45
    assert not {"causal-strict", "mask-ignored", "softmax-epsilon-slight"} & names(report)
    assert names(report) == {"no-max-subtraction", "mask-unasked"}  # it never calls without causal


def test_a_run_that_was_interrupted_goes_on(tmp_path, monkeypatch):
    """Each kernel is tested once; when all are, or the test has changed, it begins anew."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "own.sh"
    script.write_text("echo $1 >> log\n")
    own = OwnTest(("sh", str(script), "{kernel}"), folder=tmp_path / "kept")
    names = ["right", *(mutant.name for mutant in mutants_for(own))]

    def stop(done, total):
        assert total == len(names)
        if done == 3:
            raise KeyboardInterrupt

    def log():
        return [Path(line).stem for line in (tmp_path / "log").read_text().split()]

    with pytest.raises(KeyboardInterrupt):
        score_test(own, stop)
    begun = len(log())
    assert 3 <= begun < len(names)
    scored = score_test(own)
    assert {*log()} == {*names}
    assert len(log()) <= len(names) + begun - 3  # what was under way
    assert len(scored.survivors) == len(names) - 1
    script.write_text("echo $$ > pid; exec sleep 60\n")
    with pytest.raises(AttnError, match="the right kernel fails your test: it said nothing"):
        score_test(replace(own, timeout=0.5))
    with pytest.raises(ProcessLookupError):  # it is not left behind
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_the_right_kernel_has_to_pass(workplace, own):
    done = workplace.run(*own(more="s = s * 2"))
    assert done.returncode == 2
    assert "attnctl-mutants/right.py: the right kernel fails your test: " in done.stderr.decode()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "true"], "write {kernel} where the file of a kernel goes"),
        (
            ["--with", "causl", "--", "true", "{kernel}"],
            "--with causl: no option of a kernel; did you mean causal",
        ),
        (["--with", "causal"], "--with: it is of a test of your own; write -- and its command"),
        (["--rtol", "1", "--", "true", "{kernel}"], "--rtol: your own test says what passes, and on what"),
        (["--", "./nowhere", "{kernel}"], "./nowhere: No such file or directory"),
    ],
)
def test_what_cannot_be_run_is_said(call, words, message):
    done = call("mutants", *words)
    assert done.code == 2
    assert message in done.err


@pytest.mark.slow
def test_the_ini_file_gives_a_test_for_each_mutant(tmp_path):
    (tmp_path / "own.py").write_text(OWN.format(more="", given="", atol=1e-2))
    ini = f"[pytest]\nattnctl_mutants = --with causal -- {sys.executable} own.py {{kernel}}\n"
    (tmp_path / "pytest.ini").write_text(ini)
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-rA"]
    said = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert re.search(r"^PASSED .*\[no-scale\]$", said, re.MULTILINE)
    assert re.search(r"^FAILED .*\[softmax-epsilon-slight\]", said, re.MULTILINE)
    assert re.search(r"^FAILED .*\[causal-strict\]", said, re.MULTILINE), "it is never called with causal"
