"""What installed packages add: the one of samples/plugin, one of every group, and broken ones."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from attnctl.base.plugins import GROUPS

ROOT = Path(__file__).parent.parent


def install(site, entries, modules):
    """A distribution as installers leave it: entry points by group, and modules."""
    folder = site / "added-1.0.dist-info"
    folder.mkdir(parents=True)
    text = ""
    for group, lines in entries.items():
        text += f"[attnctl.{group}]\n{lines}\n"
    (folder / "entry_points.txt").write_text(f"[console_scripts]\nother = other:main\n{text}")
    for name, code in modules.items():
        (site / f"{name}.py").write_text(code)


def with_site(site, *args, cwd=None):
    """The command line in a process of its own, with the packages of this folder."""
    return in_process_with(site, "-m", "attnctl", *args, cwd=cwd or site.parent)


def in_process_with(site, *args, cwd):
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *([str(site)] if site else [])])}
    command = [sys.executable, *args]
    return subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.slow
def test_the_sample_is_installed_and_used(tmp_path):
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", site, ROOT / "samples" / "plugin"], check=True, capture_output=True)

    def run(*args):
        return with_site(site, *args, cwd=tmp_path)

    sentence = "the cat sat on the mat"
    done = run("run", sentence, "--strided", "2", "-o", "run.tsv", "-o", "run.npz")
    assert (done.returncode, done.stderr) == (0, "")
    trace = dict(np.load(tmp_path / "run.npz", allow_pickle=False))
    weights = trace["attention_weights"][0]
    assert ((weights > 0) == ((np.arange(6)[:, None] - np.arange(6)) % 2 == 0)).all()
    rows = [line.split("\t") for line in (tmp_path / "run.tsv").read_text().splitlines()]
    told = [[float(number) for number in row] for name, *row in rows if name == "attention_weights"]
    assert told == weights.tolist()

    for words, expected in (
        (["run", "--help-all"], "--strided N"),
        (["show", "run.npz"], "strided 2"),
        (["run", sentence, "--strided", "2", "--story"], "A query sees every 2th key"),
        (["config", "schema"], '"strided"'),
        (["run", "x", "--strided", "2", "-o", "run.xyz"], ".tsv"),
    ):
        done = run(*words)
        assert expected in " ".join((done.stdout + done.stderr).split())
    assert run("check", "run.npz").returncode == 0

    scores = trace["masked_scores"]
    e = np.exp(-np.where(np.isneginf(scores), np.inf, scores))
    np.savez(tmp_path / "theirs.npz", **trace | {"attention_weights": e / e.sum(-1, keepdims=True)})
    report = json.loads(run("check", "theirs.npz", "--strided", "2", "--json").stdout)
    assert report["first"] == "attention_weights"
    assert "scores-as-distances" in json.dumps(report)


VERB = """
from attnctl.base.verb import Verb

VERB = Verb("greet", "Look", 15, "Say hello.", function="added_command:greet", module="added_command")
SHADOW = Verb("run", "Look", 15, "Not ours.", module="added_command")
"""
COMMAND = """
from attnctl.cli.options import command
from attnctl.drawing.screen.output import say

@command("attnctl greet")
def greet():
    \"\"\"Say hello.\"\"\"
    say("hello")
"""
SOURCE = """
from attnctl.sources import DUMP, SourceKind
from attnctl.sources.dump import Dump

HALVES = SourceKind(DUMP, "added_source:of_half", ("half:",), "half:NAME")

def of_half(text, beside):
    return Dump(text.removeprefix("half:"), beside)

"""
OP = """
from attnctl.base.dataclass import dataclass
from attnctl.math.ops import Op

@dataclass(frozen=True)
class Halve(Op):
    signature = "token d -> token d"
"""
FAMILY = """
from attnctl.models.families.llama import LLAMA

STACKS = {"": LLAMA}
"""
TARGET = """
import numpy as np

def attention(q, k, v):
    e = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return e / e.sum(-1, keepdims=True) @ v
"""
PROGRAM = """
import attnctl
from attnctl.math import ops
from attnctl.models.families import FAMILIES
from attnctl.verbs.conform.profile import Request
from attnctl.verbs.conform.target import make_target

print(attnctl.greet.__name__, "greet" in dir(attnctl))
print(ops.OPS["Halve"].__module__, "mine" in FAMILIES)
print(attnctl.conform("halved", quick=True, features=["attention"], dtypes=["float64"]).agrees)
"""


def test_a_package_adds_to_every_other_registry(tmp_path):
    site = tmp_path / "site"
    entries = {
        "verbs": "greet = added_verb:VERB",
        "sources": "half = added_source:HALVES",
        "ops": "Halve = added_op:Halve  # a comment",
        "families": "mine = added_family:STACKS",
        "targets": "halved = added_target:attention",
    }
    modules = {
        "added_verb": VERB,
        "added_command": COMMAND,
        "added_source": SOURCE,
        "added_op": OP,
        "added_family": FAMILY,
        "added_target": TARGET,
    }
    install(site, entries, modules)
    listed = re.findall(r"^  (\w+) +[A-Z]", with_site(site, "--help").stdout, re.MULTILINE)
    assert listed[:3] == ["run", "greet", "show"]
    assert with_site(site, "greet").stdout == "hello\n"
    assert "attnctl greet" in with_site(site, "greet", "--help").stdout
    assert with_site(site, "run", "I love AI", "-o", "a.json").returncode == 0
    shown = with_site(site, "show", "half:a.json", "--step", "output")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "half:NAME" in with_site(site, "show", "--help").stdout

    (tmp_path / "program.py").write_text(PROGRAM)
    done = in_process_with(site, "program.py", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("greet True\nadded_op True\nTrue\n", "")


def test_a_broken_plug_in_is_named_and_left_out(tmp_path):
    site = tmp_path / "site"
    entries = dict.fromkeys(GROUPS, "broken = added_broken:THING")
    entries["rules"] += "\ngone = added_nowhere:THING\ncausal = added_fine:Mine\nother = added_fine:Mine"
    entries["verbs"] += "\nrun = added_fine:SHADOW"
    broken = "THING = 'no rule\x1b[31m'\nraise ValueError('not today\x1b[31m')"
    fine = "from attnctl.math.rules.base import VisibilityRule\n" + VERB
    fine += "\nclass Mine(VisibilityRule):\n    name = 'causal'\n"
    install(site, entries, {"added_broken": broken, "added_fine": fine})

    done = with_site(site, "run", "I love AI", "--causal")
    assert done.returncode == 0
    assert "attention_weights" in done.stdout
    said = done.stderr.splitlines()
    assert "\x1b" not in done.stderr
    gone = "ModuleNotFoundError: No module named 'added_nowhere'"
    for plug_in, why in (
        ("broken (attnctl.rules: added_broken:THING)", r"ValueError: not today\x1b[31m"),
        ("gone (attnctl.rules: added_nowhere:THING)", gone),
        ("causal (attnctl.rules: added_fine:Mine)", "attnctl has one of this name"),
        ("other (attnctl.rules: added_fine:Mine)", "it calls itself 'causal'"),
    ):
        expected = f"attnctl: plug-in {plug_in} is left out: {why}"
        assert said.count(expected) == 1, done.stderr
    page = with_site(site, "--help")
    assert (page.returncode, "Not ours." in page.stdout) == (0, False)
    assert "plug-in run (attnctl.verbs: added_fine:SHADOW) is left out" in page.stderr
    assert "plug-in broken (attnctl.verbs" in page.stderr


def test_the_folder_one_stands_in_adds_nothing(tmp_path):
    install(tmp_path, {"verbs": "greet = added_verb:VERB"}, {"added_verb": VERB})
    done = with_site(None, "greet", cwd=tmp_path)
    assert done.returncode == 2
    assert "No such command 'greet'" in done.stderr
