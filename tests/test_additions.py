"""An addition costs what its recipe says: it is put into the files that are named there, and used."""

import subprocess
import sys
from pathlib import Path

import pytest
from additions import ADDITIONS

QUICK = {"rule", "dumps"}


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[] if what in QUICK else [pytest.mark.slow]) for what in ADDITIONS]
)
def test_what_is_added_as_its_recipe_says_goes_everywhere(what, tmp_path):
    done = subprocess.run(
        [sys.executable, Path(__file__).parent / "additions.py", what],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
