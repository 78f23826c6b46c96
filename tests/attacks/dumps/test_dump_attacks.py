"""Hostile dumps: whatever is tried, the answer is a clear error, soon, in little memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dump_generators import GENERATORS

HERE = Path(__file__).parent
RUN = Path("/tmp/attnctl-was-here")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """How each of the corpus ended: [how, problems, seconds] by name."""
    folder = tmp_path_factory.mktemp("hostile")
    RUN.unlink(missing_ok=True)
    paths = {name: folder / f"{name}.npz" for name in GENERATORS}
    for name, make in GENERATORS.items():
        paths[name].write_bytes(make())
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # threads' stacks count as address space
    done = subprocess.run(
        [sys.executable, str(HERE / "read_each.py"), *map(str, paths.values())],
        capture_output=True, check=True, env=one_thread, timeout=300,
    )  # fmt: skip
    by_path = json.loads(done.stdout)
    return {name: by_path[str(path)] for name, path in paths.items()}


@pytest.mark.parametrize("name", GENERATORS)
def test_the_answer_is_a_clear_error(name, outcomes):
    how, problems, seconds = outcomes[name]
    assert (how, bool(problems)) == ("AttnError", True), problems
    assert seconds < 10
    assert len(problems) <= 21
    for problem in problems:
        assert problem.isprintable()
        assert len(problem) < 500
        assert problem.startswith("…") or f"{name}.npz" in problem


def test_nothing_was_run(outcomes):
    assert not RUN.exists()
