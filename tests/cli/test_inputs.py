"""One way to name an input: a dump, a config, `example:NAME`, `last`, or a sentence, in every verb."""

import errno
import json
import os
from itertools import cycle

import pytest

from attnctl.sources import last, open_source

CONFIG = """\
sentence: sun melts snow
d_model: 2
embeddings: {sun: [1, 0], melts: [1, 1], snow: [0, 2]}
weights: {W_Q: [[1, 1], [0, 1]], W_K: [[1, 0], [1, 1]], W_V: [[2, 0], [0, 1]], W_O: none}
"""
SENTENCE = "sun melts snow"


@pytest.fixture
def folder(call, tmp_path, monkeypatch):
    """A dump, a config, and a state folder of one's own, in which the last run is that of the config."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "my.yaml").write_text(CONFIG)
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "two.yaml").write_text("heads: 2\nseed: 1\n")
    assert call("run", "my.yaml", "-o", "d.json").code == 0
    return call


INPUTS = ["d.json", "my.yaml", "last", "last[0]", f"last[{SENTENCE}]"]
VERBS = {
    "run": ["--json"],
    "show": ["--json"],
    "explain": ["scores[melts,snow]", "--json"],
    "check": ["--json"],
    "stats": ["--json"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_every_kind_of_input(folder, verb):
    said = {
        name: folder(verb, name, *VERBS[verb]) for name in [*INPUTS, "example:one-matrix", "we like it"]
    }
    assert {done.code for done in said.values()} == {0} or verb == "explain"
    same = {
        done.out.replace('"d.json"', "_").replace('"my.yaml"', "_").replace(f'"{name}"', "_")
        for name, done in said.items() if name in INPUTS
    }  # fmt: skip
    assert len(same) == 1, "the config, the dump and the last run are the same numbers"


@pytest.mark.parametrize("a", INPUTS)
def test_two_of_them_compare(folder, a):
    assert folder("diff", a, "my.yaml", "--quiet").code == 0
    assert folder("diff", a, "sun melts ice", "--quiet").code == 1


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("-", "dump"), ("last", "dump"), ("last[3]", "dump"), ("last night", "sentence"), ("d.json", "dump"),
        ("d.json[0]", "dump"), ("none.npz", "dump"), ("none.jsonl[I love AI]", "dump"), ("my.yaml", "config"),
        ("none.yml", "config"), ("example:none", "config"), ("example: one", "sentence"), ("AI", "sentence"),
        ("and/or", "sentence"), ("I love AI.", "sentence"), ("edit my.yaml", "sentence"), ("a\0b", "sentence"),
        ("none.png", "dump"), ("none.txt", "dump"), (".", "dump"), ("./none", "dump"), ("x" * 5000, "sentence"), ("", "sentence"), ("plain", "dump"),
    ],
    ids=lambda value: value[:20],
)  # fmt: skip
def test_what_a_word_names(folder, tmp_path, word, kind):
    (tmp_path / "plain").write_text("{}")
    assert open_source(word).kind == kind


# ruff: noqa: E501  (a row a line)
REFUSED = [
    (["run", "-c", "d.json"], "d.json: a dump, not a config; attnctl show, explain and check read it"),
    (["run", "my.yaml", "-c", "my.yaml"], "my.yaml: a config beside -c my.yaml; give one of them"),
    (["run", "d.json", "-c", "my.yaml"], "d.json: a dump says itself what was run; leave out -c and --file"),
    (["run", "none.yaml"], "none.yaml: no such file; `attnctl config init -o none.yaml` writes one"),
    (["check", "dmup"], "dmup: no such file; a dump, a folder, a program, a config, example:NAME, last or a sentence"),
    (["diff", "dmup", "d.json"], "dmup: no such file; a dump, a folder, a program, a config, example:NAME, last or a sentence"),
    (["show", "dmup"], "dmup: no such file; a dump, a folder, a program, a config, example:NAME, last or a sentence"),
    (["stats", "state"], "state: a folder without a file of arrays (.pt, .pth, .npy); give a dump"),
    (["stats", "d.json", "--seed", "0"], "--seed: only a sentence has that, and this is a dump"),
    (["run", "a.txt"], "a.txt: text, no dump; --file a.txt reads sentences from it, one a line"),
    (["run", "-c", "empty.yaml"], 'empty.yaml:1 $.sentence: no sentence; give one, like "I love AI", a config that has one, or - to read stdin'),
    (["show", "my.yaml", "--trace", "1"], "--trace: only a dump has that, and this is a config"),
    (["show", "last", "--trace", "1"], "last[1]: there are 1 trace, from 0"),
    (["explain", "my.yaml"], "no CELL; write a SOURCE and a CELL, like \"I love AI\" 'scores[I,AI]'"),
    (["explain", "A[I,love]"], "A[I,love]: a cell of what? write a SOURCE before it, like last 'A[I,love]'"),
    (["explain", "I love", "X[0,0]", "--name", "a=b"], "--name: only a dump has that, and this is a sentence: there is no file of that name"),
    (["explain", "d.json", "X[0,0]", "--seed", "1"], "--seed: only a sentence has that, and this is a dump"),
    (["run", "q.npz"], "q.npz: arrays, not the run of a sentence; attnctl attend reads those"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "message"), REFUSED, ids=lambda value: " ".join(value)[:40])
def test_what_does_not_go_together(folder, args, message):
    folder("attend", "d.json", "-o", "q.npz")
    folder("run", "my.yaml")
    assert folder(*args) == (2, "", f"attnctl: {message}\n")


def test_statistics_of_a_sentence_are_those_of_its_dump(folder):
    folder("run", SENTENCE, "--heads", "2", "--causal", "-c", "two.yaml", "-o", "two.json")
    of_dump = json.loads(folder("stats", "two.json", "--json").out)
    for said in ([SENTENCE, "-c", "two.yaml"], [SENTENCE, "--heads", "2", "--seed", "1"]):
        found = json.loads(folder("stats", *said, "--causal", "--json").out)
        assert [each["heads"] for each in found["dumps"]] == [each["heads"] for each in of_dump["dumps"]]
    assert len(of_dump["dumps"][0]["heads"]) == 2


def test_a_corpus_is_read_as_flags_say(folder, tmp_path):
    (tmp_path / "s.txt").write_text("I love AI\nwe like it\n")
    by_flag, by_config = (
        json.loads(folder("corpus", "run", "s.txt", *args, "--json").out)
        for args in (["--heads", "2", "--seed", "1"], ["-c", "two.yaml"])
    )
    assert by_flag["layers"] == by_config["layers"]


def test_the_cell_of_a_config_s_own_sentence(folder):
    one, other = (
        folder("explain", *args, "scores[melts,snow]") for args in (["-c", "my.yaml"], ["my.yaml"])
    )
    assert one == other
    assert "= 1·2 + 2·2 = 6" in one.out


@pytest.mark.parametrize("name", [*INPUTS, "example:one-matrix", "we like it"])
def test_an_exercise_is_made_of_every_kind_of_input(folder, name):
    done = folder("exercise", "make", name, "--blank", "scores", "-o", "task.json")
    assert done.code == 0
    assert folder("check", "task.json", "--json").code == 1, "it is not filled in"


# --- the last run ---

RUNS = [
    ["I love AI", "--heads", "2", "--causal", "--seed", "3"],
    ["I love AI", "we", "--positions", "rope"],
    ["I love AI", "--context", "AI loves me", "--dtype", "float32"],
    ["my.yaml", "--edit", "scores[0,0,0]=3"],
    ["my.yaml", "--edit", "scores=@d.json"],
    ["I love AI", "--step", "output"],
    ["I love", "AI", "--padded"],
    ["inf.yaml"],
]


@pytest.mark.parametrize("args", RUNS, ids=" ".join)
def test_last_is_what_was_run_to_the_digit(folder, tmp_path, args):
    (tmp_path / "inf.yaml").write_text("sentence: a b\nrules: [{bias: [[0, -.inf], [0, 1]]}]\n")
    first = folder("run", *args, "--json")
    again = folder("show", "last", *(["--step", "output"] * ("--step" in args)), "--json")
    assert without_last_bits(again.out) == without_last_bits(first.out)


def without_last_bits(text):
    """A batch multiplies larger matrices than each of its sentences alone."""
    return json.loads(text, parse_float=lambda digits: f"{float(digits):.14g}")


def test_arrays_are_kept_too(folder):
    done = folder("attend", "d.json", "--causal", "--json")
    assert json.loads(folder("show", "last", "--json").out) == json.loads(done.out)


def test_files_of_a_config_are_found_from_elsewhere(folder, tmp_path, monkeypatch):
    folder("run", "my.yaml", "-o", "w.npz")
    (tmp_path / "f.yaml").write_text(CONFIG.replace("[[1, 1], [0, 1]]", "{file: w.npz, name: W_Q}"))
    first = folder("run", "f.yaml", "--json")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    again = folder("show", "last", "--json")
    first_q, again_q = (json.loads(done.out)["steps"]["Q"] for done in (first, again))
    assert first_q == again_q


def test_only_the_user_reads_it(folder, tmp_path):
    (kept,) = (tmp_path / "state" / "attnctl").iterdir()
    assert [path.stat().st_mode & 0o777 for path in (kept, kept.parent)] == [0o600, 0o700]


@pytest.mark.parametrize("off", ["off", "0", "OFF"])
def test_it_can_be_switched_off(folder, tmp_path, off):
    before = [path.read_text() for path in (tmp_path / "state").rglob("last-*")]
    folder("run", "we like it", ATTNCTL_LAST=off)
    assert [path.read_text() for path in (tmp_path / "state").rglob("last-*")] == before
    done = folder("show", "last", ATTNCTL_LAST=off)
    assert (done.code, done.err[:29]) == (2, "attnctl: last: ATTNCTL_LAST i")


def test_where_nothing_can_be_kept_the_run_is_fine(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert folder("run", "we like it").code == 0
    assert folder("show", "last").err.startswith("attnctl: last: no run in this terminal yet")


JUNK = [
    b"", b"{", b"null", b"0", b'"last"', b"[[]]", b"[0]", b"[{}]", b"{}", b'{"steps": []}', b'{"steps": {"X": 1}}',
    b'[{"steps": {}}, {"steps": {"X": {}}}]', b"[" * 100_000, b"\xff", b"\x00", b"NaN", b"1" * 5000, b'{"steps": {"X": NaN}}',
]  # fmt: skip
VALUES = [
    None,
    True,
    0,
    -1,
    1e300,
    "",
    "x",
    "\x1b[31m",
    [],
    [[]],
    ["x"],
    [0],
    [None],
    {},
    {"x": 0},
    ["x"] * 9,
]


def kept_with(run, key, value):
    """The file of a run with another value, or none, under a key."""
    changed = {name: each for name, each in run.items() if name != key}
    return json.dumps([changed if value is KeyError else {**run, key: value}]).encode()


def test_whatever_the_file_of_the_last_run_holds_is_the_last_run_or_said_to_be_broken(folder, tmp_path):
    (path,) = (tmp_path / "state" / "attnctl").iterdir()
    (run,) = json.loads(path.read_bytes())
    broken = [kept_with(run, key, value) for key in run for value in (KeyError, *VALUES)]
    lines = cycle([["show", "last"], ["explain", "last", "output[0,0]"], ["check", "last[0]"]])
    for raw in [*JUNK, path.read_bytes()[:-1], path.read_bytes()[: 2**6], *broken]:
        path.write_bytes(raw)
        done = folder(*next(lines))
        assert done.code in {0, 1, 2}, (raw[:200], done.err)
        assert bool(done.err) >= (done.code == 2)


def test_ids_that_no_number_of_numpy_holds_are_no_column(folder, tmp_path):
    (path,) = (tmp_path / "state" / "attnctl").iterdir()
    (run,) = json.loads(path.read_bytes())
    path.write_bytes(kept_with(run, "ids", [10**400] * len(run["ids"])))
    done = folder("show", "last")
    assert (done.code, done.err, "10000" in done.out) == (0, "", False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_run_that_cannot_be_kept_is_not_the_one_before(folder, tmp_path):
    kept = tmp_path / "state" / "attnctl"
    kept.chmod(0o500)
    try:
        assert folder("run", "we like it").err == ""
        assert folder("show", "last").err.startswith("attnctl: last: no run in this terminal yet")
    finally:
        kept.chmod(0o700)


@pytest.mark.parametrize("away", [True, False])
def test_a_run_that_could_not_be_written_leaves_no_other_in_its_place(folder, monkeypatch, away):
    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(last.Path, "replace", refuse)
    if not away:
        monkeypatch.setattr(last.os, "unlink", refuse)
        monkeypatch.setattr(last.os, "truncate", refuse)
    done = folder("run", "we like it")
    assert (done.code, "still the run before" in done.err) == (0, not away)
    assert ("no run in this terminal" in folder("show", "last").err) == away


def test_what_is_large_is_not_kept_and_old_terminals_are_forgotten(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(last, "MOST_BYTES", 10)
    folder("attend", "d.json")
    assert "too large to keep" in folder("show", "last").err
    kept = tmp_path / "state" / "attnctl"
    for number in range(40):
        (kept / f"last-x{number}.json").write_text("[]")
    monkeypatch.setattr(last.os, "getsid", lambda _: 7)
    folder("run", "we like it")
    assert len(list(kept.iterdir())) == last.MOST_TERMINALS


def test_a_dump_is_run_again_with_other_settings(folder):
    (folder("run", "I love AI", "-o", "a.json"))
    for name in ("a.json", "last"):
        done = folder("run", name, "--heads", "2", "--seed", "4", "--json")
        assert done.out == folder("run", "I love AI", "--heads", "2", "--seed", "4", "--json").out
        folder("run", "I love AI")
