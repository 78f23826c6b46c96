"""Hostile YAML: whatever is tried, the answer is a clear error, soon, in little memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from yaml_generators import GENERATORS

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
FILES = {path.stem: path for path in sorted((HERE / "files").glob("*.yaml"))}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """How each of the corpus ended: [how, problems, seconds] by name."""
    folder = tmp_path_factory.mktemp("hostile")
    paths = dict(FILES)
    for name, make in GENERATORS.items():
        paths[name] = folder / f"{name}.yaml"
        paths[name].write_bytes(make())
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # threads' stacks count as address space
    done = subprocess.run(
        [sys.executable, str(HERE / "load_each.py"), *map(str, paths.values())],
        capture_output=True, check=True, env=one_thread, timeout=300,
    )  # fmt: skip
    by_path = json.loads(done.stdout)
    print([(Path(k).stem, v[0], v[2]) for k, v in by_path.items() if v[2] > 0.2])
    return {name: by_path[str(path)] for name, path in paths.items()}


@pytest.mark.parametrize("name", [*FILES, *GENERATORS])
def test_the_answer_is_a_clear_error(name, outcomes):
    how, problems, seconds = outcomes[name]
    assert (how, bool(problems)) == ("AttnError", True), problems
    assert seconds < 10
    assert len(problems) <= 51
    for problem in problems:
        assert problem.isprintable()
        assert len(problem) < 2000
        assert problem.startswith("…") or ".yaml" in problem


def test_nothing_was_run():
    assert not Path("/tmp/attnctl-was-here").exists()


def test_every_file_says_what_it_tries():
    assert [name for name, path in FILES.items() if "Tries: " not in path.read_text(encoding="utf-8")] == []
