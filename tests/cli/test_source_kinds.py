"""Every verb that takes a SOURCE takes every kind of it: a law over the registries of both."""

import json
import shlex
import sys
from pathlib import Path

import fake_torch
import numpy as np
import pytest
from commands import parameters

import attnctl
from attnctl.base.rooms import all_verbs
from attnctl.formats import FORMATS
from attnctl.sources import FILE, FOLDER, OF_SIGN

SENTENCE = OF_SIGN[""].trial

VERBS = {path: shlex.split(words) for verb in all_verbs().values() for path, words in verb.sources.items()}
"""How each command that takes a SOURCE is called, as its verb says."""


def write_program(arrays):
    """A program whose variables are the steps of a trace."""
    lines = [f"{name} = np.array({array.tolist()})" for name, array in arrays.items()]
    Path("d.py").write_text("\n".join(["import numpy as np", *lines]))


def write_notebook(arrays):
    write_program(arrays)
    cell = {"cell_type": "code", "source": Path("d.py").read_text().splitlines(keepends=True)}
    Path("d.ipynb").write_text(json.dumps({"cells": [cell]}))


def write_folder(arrays):
    Path("d").mkdir()
    for name, array in arrays.items():
        np.save(Path("d", f"{name}.npy"), array)


MAKERS = {
    FOLDER: write_folder,
    ".py": write_program,
    ".ipynb": write_notebook,
    ".npy": lambda arrays: np.save("attention_weights.npy", arrays["attention_weights"]),
    ".pt": lambda arrays: fake_torch.save({n: fake_torch.Tensor(a) for n, a in arrays.items()}, "d.pt"),
    ".pth": lambda arrays: fake_torch.save({n: fake_torch.Tensor(a) for n, a in arrays.items()}, "d.pth"),
}
"""Formats that attnctl reads and does not write: arrays alone, which say nothing of how they came about."""

FILES = {FILE: "whole", ".yaml": "my.yaml", ".yml": "my.yml", ".npy": "attention_weights.npy"}
"""Files that are not called d: one without a suffix, what the last run was made of, an array."""


def word_of(sign):
    """A word that names a source of this kind, in the folder below."""
    return OF_SIGN[sign].trial or FILES.get(sign, f"d{sign}")


@pytest.fixture
def folder(call, tmp_path, monkeypatch):
    """A source of each kind, all of the same run; the sentence and the example are runs of their own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setitem(sys.modules, "torch", fake_torch.FAKE)
    monkeypatch.setattr("attnctl.cli.explore.require_terminal", lambda _: None)
    monkeypatch.setattr("attnctl.cli.explore.explore_on_terminal", explored)
    for name in ("my.yaml", "my.yml"):
        (tmp_path / name).write_text(f"sentence: {SENTENCE}\n")
    trace = attnctl.run(SENTENCE)
    for each in FORMATS:
        if each.suffix in OF_SIGN:
            trace.save(f"d{each.suffix}")
    trace.save("whole.json")
    (tmp_path / "whole").write_bytes((tmp_path / "whole.json").read_bytes())
    for make in MAKERS.values():
        make(dict(trace.items()))
    assert call("run", "my.yaml").code == 0
    return call


def explored(source, *_, **__):
    from attnctl.verbs.explore.remake import begin_walk

    assert begin_walk(source).layers


ARRAYS = {"run": "arrays, not the run of a sentence", "exercise make": "arrays, not the run of a sentence"}
ONE_ARRAY = ARRAYS | {
    "explain": "scaled_scores is not in this dump",
    "check": "nothing to compare: it has attention_weights",
    "attend": "no Q, K, V in the arrays",
}
LACKING = {
    FOLDER: ARRAYS,
    ".py": ARRAYS,
    ".ipynb": ARRAYS,
    ".pt": ARRAYS,
    ".pth": ARRAYS,
    ".npy": ONE_ARRAY,
}
"""What a verb says of arrays that hold less than it needs: it has read them."""


def test_each_verb_and_each_kind_is_tried():
    takes = {name for name, names in parameters().items() if {"source", "a"} & names}
    assert takes | {"attend"} == VERBS.keys()
    written = {each.suffix for each in FORMATS}
    files = {sign for sign, kind in OF_SIGN.items() if not kind.trial}
    assert files - written <= FILES.keys() | MAKERS.keys(), "write one of it, in MAKERS"


@pytest.mark.sample(12)
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_every_kind_of_source(folder, tmp_path, verb):
    files = [sign for sign, kind in OF_SIGN.items() if kind.source.endswith((":Dump", ":Script"))]
    for sign in files if verb == "attend" else OF_SIGN:  # attend takes a FILE
        word = word_of(sign)
        piped = SENTENCE.encode() + b"\n" if verb == "run" else (tmp_path / "whole.json").read_bytes()
        done = folder(*verb.split(), *(each.format(word) for each in VERBS[verb]), stdin=piped)
        why = LACKING.get(sign, {}).get(verb)
        differs = verb == "diff" and sign == "example:"
        assert done.code == (2 if why else int(differs)), f"{verb} {word}: {done.err}"
        assert (why or "") in done.err
