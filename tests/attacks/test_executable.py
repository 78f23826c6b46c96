"""The real executable under attack: one documented exit, one clear message, and every file as it was."""

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest
from arrays import ARRAYS
from attack import Attack
from options import OPTIONS
from sentences import SENTENCES

import attnctl
from attnctl.formats import write_all

HERE = Path(__file__).parent
sys.path += [str(HERE / "yaml"), str(HERE / "dumps")]

import hostile_archives  # noqa: E402, F401  (each enters its generators; the line above says where they are)
import hostile_arrays  # noqa: E402, F401
import hostile_json  # noqa: E402, F401
import hostile_pages  # noqa: E402, F401
import hostile_tensors  # noqa: E402, F401
from hostile import GENERATORS as DUMPS  # noqa: E402
from yaml_generators import GENERATORS as CONFIGS  # noqa: E402

pytestmark = pytest.mark.sample(12)

GOOD = HERE.parents[1] / "configs" / "i-love-ai.yaml"
ADDRESS_SPACE = 2**20  # KiB
SECONDS = 10  # of processor time; the clock of a busy machine gets ten times that
LIMITED = f'ulimit -v {ADDRESS_SPACE}; ulimit -t {SECONDS}; ulimit -c 0; exec "$@"'
MOST_LINES = 51
STEERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
OTHER_VERBS = [
    ("check", "x"),
    ("diff", "x", "good.json"),
    ("diff", "good.json", "x"),
    ("explain", "x", "scores[0,0,0]"),
    ("stats", "x"),
    ("attend", "x"),
]


def config_attacks():
    """Every hostile config, run and checked."""
    made = {path.stem: path.read_bytes for path in sorted((HERE / "yaml" / "files").glob("*.yaml"))}
    for name, make in {**made, **CONFIGS}.items():
        for verb, args in {"run": ("run", "-c", "x.yaml"), "check": ("config", "check", "x.yaml")}.items():
            yield f"config_{verb}_{name}", Attack(name, args, files={"x.yaml": make}, says="x.yaml")


def dump_attacks():
    """Every hostile dump, shown and given to one other verb in turn."""
    for number, (name, make) in enumerate(DUMPS.items()):
        other = OTHER_VERBS[number % len(OTHER_VERBS)]
        for verb, args in {"show": ("show", "x"), other[0]: other}.items():
            yield f"dump_{verb}_{name}", Attack(name, args, files={"x": make})


CORPORA = {
    "config": dict(config_attacks()),
    "dump": dict(dump_attacks()),
    "sentence": SENTENCES,
    "array": ARRAYS,
    "option": OPTIONS,
}
ATTACKS = {f"{kind}-{name}": each for kind, corpus in CORPORA.items() for name, each in corpus.items()}
QUICK = {key for corpus in CORPORA for key in [k for k in ATTACKS if k.startswith(f"{corpus}-")][::13]}
PAIRS = [f"{kind}-{name}" for kind in ("config", "dump") for name in CORPORA[kind]]
WHOLE = {PAIRS[2 * number + number % 2] for number in range(len(PAIRS) // 2)} - QUICK
"""Of two verbs that are given the same file one in turn."""


class Outcome(NamedTuple):
    """How a process ended, and what it did to its folder."""

    code: int
    stdout: str
    stderr: str
    changed: list[str]


def snapshot(folder):
    """Every file with what would show that it was touched."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in folder.rglob("*")
    }


def carried_out(attack, folder, good):
    """What came of one attack, in a folder of its own and within limits."""
    folder.mkdir()
    for name, content in good.items():
        (folder / name).write_bytes(content)
    (folder / "folder.json").mkdir()
    (folder / "link.json").symlink_to("good.json")
    (folder / "loop.json").symlink_to("loop.json")
    for name, make in attack.files.items():
        (folder / name).write_bytes(make())
    before = snapshot(folder)
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", LIMITED, "bash", "attnctl", *attack.args],
        cwd=folder, env={"PATH": path, "HOME": str(folder), "LC_ALL": "C.UTF-8", "ATTNCTL_LAST": "off"},
        input=attack.stdin, capture_output=True, check=False, timeout=10 * SECONDS,
    )  # fmt: skip
    after = snapshot(folder)
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    for name in attack.files:
        (folder / name).unlink()
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode(), names)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """What every attack finds beside it: a sound dump, sound arrays, a sound config."""
    folder = tmp_path_factory.mktemp("good")
    write_all([attnctl.run("I love AI")], [folder / "good.json", folder / "good.npz"])
    (folder / "good.yaml").write_bytes(GOOD.read_bytes())
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def marks_of(name):
    if name in QUICK:
        return ()
    return pytest.mark.whole if name in WHOLE else pytest.mark.slow


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks_of(name)) for name in ATTACKS])
def test_it_ends_with_a_documented_code_one_message_and_every_file_as_it_was(name, good, tmp_path):
    attack = ATTACKS[name]
    outcome = carried_out(attack, tmp_path / "attacked", good)
    lines = outcome.stderr.split("\n")
    assert lines.pop() == ""
    assert outcome.code in attack.codes, outcome.stderr[:2000]
    assert [line for line in lines if not line.startswith("attnctl: ")] == []
    assert len(lines) <= MOST_LINES
    assert [line for line in lines if not line.isprintable() or len(line) > 6000] == []
    assert STEERS.findall(outcome.stdout.replace("\n", "")) == []
    assert set(outcome.changed) <= set(attack.makes)
    assert attack.says in outcome.stdout + outcome.stderr
    if outcome.code == 2:
        assert (bool(lines), outcome.stdout) == (True, "")


def test_the_corpus_is_large():
    assert len(ATTACKS) >= 100
    assert all(attack.tries for attack in ATTACKS.values())
