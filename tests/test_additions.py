"""What the recipes say an addition costs is what it costs: its snippets are registered and run."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "what",
    [
        "rule",
        *(pytest.param(what, marks=pytest.mark.slow) for what in ("step", "weight", "number", "verb")),
    ],
)
def test_the_snippets_of_the_recipes_go_everywhere(what, tmp_path):
    done = subprocess.run(
        [sys.executable, Path(__file__).parent / "additions.py", what],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
