"""Ready tests for courses and CI name what is wrong with a planted hand-in, and pass a right one."""

import os
import subprocess
import sys
import types
from itertools import product
from pathlib import Path

import pytest
import yaml

SAMPLES = Path(__file__).parent.parent / "samples"
COURSES, ACTION = SAMPLES / "courses", SAMPLES / "ci" / "attention.yml"

HAND_IN = """
import numpy as np

def attention(q, k, v, mask=None, dropout=None):
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    s = s if mask is None else np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    return p @ v, p
"""

WRONG = {
    "scale-by-d_k": ("np.sqrt(q.shape[-1])", "q.shape[-1]"),
    "softmax-over-queries": ("e / e.sum(axis=-1", "e / e.sum(axis=-2"),
    "no-scale": (" / np.sqrt(q.shape[-1])", ""),
}

FILES = {
    "test_cs336.py": ("adapters.py", "def run_scaled_dot_product_attention(*a): return attention(*a)[0]"),
    "test_annotated_transformer.py": ("the_annotated_transformer.py", ""),
}


def planted(mistake):
    old, new = WRONG.get(mistake, (" ", " "))
    assert old in HAND_IN
    return HAND_IN.replace(old, new)


UNDER_PYTEST = [("test_cs336.py", "scale-by-d_k"), ("test_annotated_transformer.py", None)]
SLOW = [pair for pair in product(FILES, [None, *WRONG]) if pair not in UNDER_PYTEST]


@pytest.mark.parametrize(
    ("file", "mistake"), [*UNDER_PYTEST, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in SLOW)]
)
def test_a_hand_in_under_pytest(tmp_path, file, mistake):
    name, adapter = FILES[file]
    (tmp_path / name).write_text(planted(mistake) + adapter)
    (tmp_path / file).write_text((COURSES / file).read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if mistake is None else 1), done.stdout
    assert mistake is None or f"({mistake}" in done.stdout, done.stdout


def run_otter(attention, monkeypatch):
    """What Otter does with a test file: it calls each case with what the notebook has of its parameters."""
    files = types.ModuleType("otter.test_files")
    files.test_case = lambda: lambda case: case
    monkeypatch.setitem(sys.modules, "otter", types.ModuleType("otter"))
    monkeypatch.setitem(sys.modules, "otter.test_files", files)
    found = {}
    exec((COURSES / "otter_attention.py").read_text(), found)
    assert found["OK_FORMAT"] is False
    found["test_attention"](attention)


def run_nbgrader(attention, _monkeypatch):
    exec((COURSES / "nbgrader_cell.py").read_text(), {"attention": attention})


@pytest.mark.parametrize("grade", [run_otter, run_nbgrader])
@pytest.mark.parametrize("mistake", [None, "scale-by-d_k", "softmax-over-queries"])
def test_a_hand_in_in_a_notebook(grade, mistake, monkeypatch):
    notebook = {}
    exec(planted(mistake), notebook)

    def attention(q, k, v):
        return notebook["attention"](q, k, v)[0]

    if mistake is None:
        grade(attention, monkeypatch)
        return
    with pytest.raises(AssertionError, match=mistake):
        grade(attention, monkeypatch)


NANOGPT = """
import math, torch, torch.nn as nn

class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.n_head, self.n_embd = config.n_head, config.n_embd

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        att = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(torch.tril(torch.ones(T, T)) == 0, float("-inf"))
        y = torch.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [("", "", None), ("1.0 / math.sqrt(k.size(-1))", "1.0 / k.size(-1)", "scale-by-d_k")],
)
def test_a_layer_of_torch(tmp_path, old, new, mistake):
    pytest.importorskip("torch")
    (tmp_path / "model.py").write_text(NANOGPT.replace(old or " ", new or " "))
    (tmp_path / "test_nanogpt.py").write_text((COURSES / "test_nanogpt.py").read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_nanogpt.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if mistake is None else 1), done.stdout
    assert mistake is None or f"({mistake}" in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("mistake", "asked"),
    [
        (None, "--quick --dtype float32 --feature attention"),
        pytest.param(None, "--quick", marks=pytest.mark.slow),
        pytest.param("no-scale", "--quick", marks=pytest.mark.slow),
    ],
)
def test_the_action_for_ci(tmp_path, mistake, asked):
    (job,) = yaml.safe_load(ACTION.read_text())["jobs"].values()
    _, test, summary = [step for step in job["steps"] if "run" in step]
    kernel = planted(mistake) + "def attention_only(q, k, v): return attention(q, k, v)[0]\n"
    (tmp_path / "kernels.py").write_text(
        kernel.replace("def attention(", "def both(")
        .replace("attention(q, k, v)[0]", "both(q, k, v)[0]")
        .replace("attention_only", "attention")
    )
    beside = str(Path(sys.executable).parent)
    env = os.environ | {
        "PATH": beside + os.pathsep + os.environ["PATH"],
        "GITHUB_STEP_SUMMARY": "summary.md",
    }

    def bash(text):
        done = subprocess.run(
            ["bash", "-e", "-c", text], cwd=tmp_path, env=env, capture_output=True, check=False
        )
        return done.returncode

    assert bash(test["run"].replace("--quick", asked)) == (0 if mistake is None else 1)
    assert bash(summary["run"]) == 0
    said = (tmp_path / "summary.md").read_text()
    assert ("It conforms" in said) == (mistake is None)
    assert (tmp_path / "conform.xml").read_text().startswith("<?xml")
