"""Every promise of SECURITY.md names the tests that hold it, and they are there."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
PROMISES = re.findall(r"^- \*\*(.*?)\.\*\*", PAGE, re.MULTILINE)
ROWS = dict(re.findall(r"^\| ([A-Z][^|]*?) \| (`tests/[^|]*) \|$", PAGE, re.MULTILINE))
NAMES = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_every_promise_has_its_tests():
    assert list(ROWS) == PROMISES
    assert len(PROMISES) > 5


@pytest.mark.parametrize(("path", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_test_that_is_named_is_there(path, name):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {part.name for part in tree.body if isinstance(part, ast.FunctionDef)}


COMMANDS = [
    ["run", "I love AI", "-o", "a.json", "-o", "a.html", "-o", "a.svg", "-o", "a.npz"],
    ["show", "a.npz"],
    ["show", "a.html"],
    ["explain", "a.json", "output[0,0]"],
    ["check", "a.json"],
    ["check", "h.py"],
    ["diff", "a.json", "a.npz"],
    ["stats", "a.json"],
    ["conform", "h.py:attend", "--quick", "--feature", "attention"],
    ["config", "init"],
    ["learn", "--list"],
    ["mistakes"],
]

WATCHED = """
import json, sys
heard = []
sys.addaudithook(lambda event, _: event.startswith("socket.") and heard.append(event))
from attnctl.cli.program import program
for words in json.loads(sys.argv[1]):
    try:
        program(words)
    except SystemExit:
        pass
print("heard", *heard)
"""

PROGRAM = """
import numpy as np
def attend(q, k, v):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v
x = np.eye(4)
attend(x, x, x)
"""


def test_no_connection_is_opened(tmp_path):
    (tmp_path / "h.py").write_text(PROGRAM)
    words = [sys.executable, "-c", WATCHED, json.dumps(COMMANDS)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heard"
    assert {path.name for path in tmp_path.iterdir()} >= {"a.json", "a.html", "a.npz"}
