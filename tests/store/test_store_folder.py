"""Folders of arrays: names tell arrays and calls, whoever wrote them; what is hostile is refused."""

import os
import sys

import fake_torch
import numpy as np
import pytest
from command_line import call, working_in
from fake_torch import FAKE, Tensor

from attnctl.base.errors import AttnError
from attnctl.store import folder as folders
from attnctl.store.source import read

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)


def filled(folder, names, suffix=".npy"):
    """A folder in which the array of each file is other: ROWS, with its place among the names added."""
    folder.mkdir(exist_ok=True)
    for place, name in enumerate(names):
        np.save(folder / f"{name}{suffix}", ROWS + place)
    return folder


def numbers(traces):
    """By trace: each array and which file it came from."""
    return [{name: int(array.flat[0]) for name, array in trace.items()} for trace in traces]


PLAIN = {
    "one call": (["k", "q", "v"], [{"q": 1, "k": 0, "v": 2}]),
    "numbers behind": (
        ["q_0", "k_0", "q_1", "k_1", "q_10", "k_10"], [{"q": 0, "k": 1}, {"q": 2, "k": 3}, {"q": 4, "k": 5}]
    ),
    "numbers in front": (["2.q", "2.k", "10.q", "10.k"], [{"q": 0, "k": 1}, {"q": 2, "k": 3}]),
    "numbers of layers": (["layer3_q", "layer3_k", "layer10_q", "layer10_k"],
                          [{"q": 0, "k": 1}, {"q": 2, "k": 3}]),
    "what is in every call": (["q_0", "k_0", "q_1", "k_1", "mask"],
                              [{"q": 0, "k": 1, "mask": 4}, {"q": 2, "k": 3, "mask": 4}]),
    "names that end in a number": (["W_1", "W_2", "q"], [{"W_1": 0, "W_2": 1, "q": 2}]),
    "paths of modules": (["model.layers.3.attn.q", "model.layers.3.attn.k"],
                         [{"model.layers.3.attn.q": 0, "model.layers.3.attn.k": 1}]),
}  # fmt: skip
"""Names of files, and the traces that they make: each array with the place of its file among the names."""


@pytest.mark.parametrize(("names", "wanted"), PLAIN.values(), ids=PLAIN)
def test_names_of_files_tell_arrays_and_calls(tmp_path, names, wanted):
    filled(tmp_path / "a", names)
    (tmp_path / "a" / "notes.txt").write_text("passed over")
    filled(tmp_path / "a" / "deeper", ["x"])
    assert numbers(read(tmp_path / "a")) == wanted


def named(**tags):
    return "___".join(f"{tag}={value}" for tag, value in tags.items())


def dumped(folder, step, number, name, layer, *, older):
    """A tensor as sglang's dumper writes it now, or as it did with forward_pass_id."""
    tags = {"forward_pass_id" if older else "step": step, "rank": 0}
    tags |= {"name": name, "dump_index": number} if older else {"dump_index": number, "name": name}
    tags |= {"layer_id": layer} if older else {"recompute_status": "disabled", "layer_id": layer}
    tensor = Tensor(ROWS + number)
    held = tensor if older else {"value": tensor, "meta": {**tags, "world_size": 1, "dims": None}}
    fake_torch.save(held, folder / f"{named(**tags)}.pt", "x")


@pytest.mark.parametrize("older", [False, True])
def test_a_dump_of_sglang_is_read_by_pass_and_layer(tmp_path, monkeypatch, older):
    monkeypatch.setitem(sys.modules, "torch", FAKE)
    calls = [(step, layer) for step in (0, 1) for layer in (2, 10)]
    for at, (step, layer) in enumerate(calls):
        for number, name in enumerate(("q", "k", "grad__q")):
            dumped(tmp_path, step, 100 * at + number + 9, name, layer, older=older)
    wanted = [{"q": 9 + 100 * at, "k": 10 + 100 * at, "grad_q": 11 + 100 * at} for at in range(len(calls))]
    assert numbers(read(tmp_path)) == wanted
    dumped(tmp_path, 0, 700, "q", 2, older=older)  # another call in the same pass of the same layer
    assert numbers(read(tmp_path)) == [wanted[0], {"q": 700}, *wanted[1:]]


def test_a_file_of_all_of_a_pass_is_a_trace(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", FAKE)
    for number in (0, 2, 10):
        held = {"model.layers.0.attn.q": Tensor(ROWS + number), "model.norm": Tensor(ROWS)}
        fake_torch.save(held, tmp_path / f"Pass{number}.pt")
    found = numbers(read(tmp_path))
    assert found == [{"model.layers.0.attn.q": number, "model.norm": 0} for number in (0, 2, 10)]


def empty(folder):
    filled(folder / "deeper", ["q"])


def crowded(folder):
    filled(folder, "abcde")


def pipe(folder):
    os.mkfifo(folder / "q.npy")


def device(folder):
    (folder / "q.npy").symlink_to("/dev/zero")


def lost(folder):
    (folder / "q.npy").symlink_to("nowhere.npy")


def circle(folder):
    (folder / "q.npy").symlink_to("q.npy")


def pickled(folder):
    np.save(folder / "q.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)


def no_array(folder):
    (folder / "q.npy").write_text("not one")


def shorter(folder):
    filled(folder, ["q"])
    whole = (folder / "q.npy").read_bytes()
    (folder / "q.npy").write_bytes(whole[:-4])


HOSTILE = {
    empty: r"a folder without a file of arrays \(\.pt, \.pth, \.npy\); give a dump",
    crowded: "more than 3 files; give a folder with fewer",
    pipe: "/q.npy: not a regular file",
    device: "/q.npy: not a regular file",
    lost: "/q.npy: No such file or directory",
    circle: "/q.npy: Too many levels of symbolic links",
    pickled: "/q.npy: type 'object': only arrays of numbers, true and false are read",
    no_array: "/q.npy: the array header is not one that np.save writes",
    shorter: "/q.npy: shape and data disagree",
}


@pytest.mark.parametrize(("make", "said"), HOSTILE.items(), ids=lambda case: getattr(case, "__name__", ""))
def test_a_hostile_folder_is_refused(tmp_path, monkeypatch, make, said):
    monkeypatch.setattr(folders, "MOST_FILES", 3)
    make(tmp_path)
    with pytest.raises(AttnError, match=said):
        read(tmp_path)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_said(tmp_path):
    filled(tmp_path, ["q"])
    (tmp_path / "q.npy").chmod(0)
    with pytest.raises(AttnError, match=r"q\.npy: Permission denied"):
        read(tmp_path)


def test_an_array_that_has_changed_since_is_no_other_array(tmp_path):
    (trace,) = read(filled(tmp_path, ["q"]))
    np.save(tmp_path / "q.npy", np.zeros((9, 9)))
    with pytest.raises(AttnError, match="its shape or type has changed"):
        trace["q"]


def test_a_folder_of_many_files_keeps_none_open(tmp_path):
    (trace,) = read(filled(tmp_path, [f"x{number}" for number in range(300)]))
    assert len(trace) == 300
    held = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0  # noqa: PTH112, PTH208
    assert held < 200


def qkv(folder, seed=0):
    folder.mkdir()
    draw = np.random.RandomState(seed)
    q, k, v = (draw.standard_normal((3, 4)) for _ in "qkv")
    scores = q @ k.T / 2
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    for name, array in {"q": q, "k": k, "v": v, "attn_weights": weights, "out": weights @ v}.items():
        np.save(folder / f"{name}.npy", array)


COMMANDS = {
    "check a/": 0, "check a": 0, "check {}/a": 0, "check a[0]": 0, "check a/[0]": 0,
    "diff a/ again/": 0, "diff a/ b/": 1, "show a/": 0, "explain a/ attention_weights[0,1]": 0,
    "attend a/": 0, "check none/": 2, "check a/[1]": 2,
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_stands_where_a_dump_does(tmp_path, command):
    for name, seed in {"a": 0, "again": 0, "b": 1}.items():
        qkv(tmp_path / name, seed)
    with working_in(tmp_path):
        done = call(*command.format(tmp_path).split())
    assert done.code == COMMANDS[command], done.err


def test_a_sentence_is_no_folder_of_its_name(tmp_path):
    qkv(tmp_path / "love")
    with working_in(tmp_path):
        done = call("run", "love", "--json")
    assert done.code == 0
    assert '"sentence":"love"' in done.out.replace(": ", ":")
