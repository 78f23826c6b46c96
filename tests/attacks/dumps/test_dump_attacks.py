"""Hostile dumps: whatever is tried, the answer is a clear error, soon, in little memory."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import hostile_archives  # noqa: F401  (each enters its generators)
import hostile_arrays  # noqa: F401
import hostile_json  # noqa: F401
import hostile_pages  # noqa: F401
import hostile_tensors  # noqa: F401
import pytest
from hostile import GENERATORS

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
RUN = Path("/tmp/attnctl-was-here")
MEMORY = 2**30
ENVIRON = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # threads' stacks count as address space


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """The corpus as files."""
    folder = tmp_path_factory.mktemp("hostile")
    RUN.unlink(missing_ok=True)
    made = {name: folder / f"{name}.npz" for name in GENERATORS}
    for name, make in GENERATORS.items():
        made[name].write_bytes(make())
    return made


@pytest.fixture(scope="module")
def outcomes(paths):
    """How each of the corpus ended: [how, problems, seconds] by name."""
    command = [sys.executable, str(HERE / "read_each.py"), *map(str, paths.values())]
    done = subprocess.run(command, capture_output=True, check=True, env=ENVIRON, timeout=300)
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


def limit():
    """The limits of each attempt."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


@pytest.mark.slow
def test_the_executable_says_so_too(paths):
    """`check` of each; `show` and the others are in `test_executable.py`."""
    for name, path in paths.items():
        command = [sys.executable, "-m", "attnctl", "check", str(path)]
        before = path.stat()
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            preexec_fn=limit,
            env=ENVIRON,
            timeout=60,
        )
        assert done.returncode == 2, (name, done.returncode, done.stderr[-500:])
        assert name in done.stderr
        assert "Traceback" not in done.stderr
        assert (path.stat().st_mtime_ns, path.stat().st_size) == (before.st_mtime_ns, before.st_size)
    assert not RUN.exists()
