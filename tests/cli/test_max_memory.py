"""What a compressed file holds counts against --max-memory before it is inflated, in every reader."""

import gc
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from commands import commands, parameters

from attnctl import load
from attnctl.base.errors import AttnError
from attnctl.cli import PATIENCE
from attnctl.math.engine.cost import INFLATED, limit_memory

MIB = 2**20
BOMB, LIMIT = "bomb.npz", "--max-memory 10M"
COMMANDS = dict(commands())
PARAMETERS = parameters()
ARGUMENTS = {
    "diff": f"{BOMB} {BOMB}",
    "run": "I -c c.yaml",
    "corpus run": "c.txt -c c.yaml",
    "explain": f"{BOMB} Q[0,0]",
    "show": f"{BOMB} --step Q",
}
"""Of commands that read more than a file, or not all of it."""


def reading():
    """Each command that reads what may be compressed, on one that is."""
    for name, names in PARAMETERS.items():
        if "max_memory" in names and name not in {
            "explore",
            "capture",
            "effect",
        }:  # a terminal, a program, a model
            files = [each for each in COMMANDS[name].arguments if each.is_required]
            yield name, f"{ARGUMENTS.get(name) or ' '.join([BOMB] * max(1, len(files)))} {LIMIT}"
    yield "exercise grade", BOMB  # a hand-in has a limit of its own


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    """A file that inflates a thousandfold."""
    path = tmp_path_factory.mktemp("bomb") / "bomb.npz"
    weights = np.zeros((2048, 2560))
    np.savez_compressed(path, Q=weights, K=weights, V=weights, attention_weights=weights)
    assert path.stat().st_size < MIB
    return path


@pytest.fixture
def bombs(call, bomb, monkeypatch):
    """A command line in a folder with this file, and a config that names it."""
    shutil.copy(bomb, "bomb.npz")
    Path("c.yaml").write_text("weights: {file: bomb.npz}\n")
    Path("c.txt").write_text("I love AI\n")
    monkeypatch.setattr(import_module("attnctl.verbs.exercise.grade"), "MOST_MEMORY", 10 * MIB)
    return call


def test_every_command_that_reads_dumps_is_held_to_it():
    without = {name for name, each in PARAMETERS.items() if "source" in each and "max_memory" not in each}
    assert without == {"exercise make"}  # a config with the files it names: as much as is free


@pytest.mark.sample(4)
@pytest.mark.parametrize(("command", "arguments"), list(reading()))
def test_what_a_reader_inflates_counts_before_it_is_inflated(bombs, command, arguments):
    done = bombs(*command.split(), *arguments.split())
    assert done.code == 2
    assert "needs 40.0 MiB, and 10.0 MiB are left for it" in done.err
    gc.collect()
    assert sum(INFLATED) == 0


def test_what_is_alive_counts_together(bombs):
    trace = load("bomb.npz")
    with limit_memory(100 * MIB):
        q, k = trace["Q"], trace["K"]
        with pytest.raises(AttnError, match=r"'V' needs 40.0 MiB, and 20.0 MiB are left for it"):
            trace["V"]
        del k
        assert trace["V"].nbytes == q.nbytes  # K went: it can be inflated again
    assert trace["K"] is not None
    del q, trace
    gc.collect()
    assert sum(INFLATED) == 0


def test_a_page_counts_too(call):
    call("run", "a b c d", "--d-model", "64", "-o", "page.html")
    refused = call("show", "page.html", "--max-memory", "10K")
    assert refused.code == 2
    assert call("show", "page.html", "--step", "X", "--max-memory", "10M").code == 0


@pytest.mark.parametrize(("patience", "then"), [(PATIENCE, 700), (5_000, 5_000)])
def test_a_check_lets_go_of_large_arrays_in_cycles(call, patience, then):
    """`main` looks for it so seldom that all calls of a capture would stay; a host's own choice stays."""
    call("run", "I love AI", "-o", "dump.json")
    before = gc.get_threshold()
    gc.set_threshold(patience)
    try:
        assert call("check", "dump.json")[0] == 0
        assert gc.get_threshold()[0] == then
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
