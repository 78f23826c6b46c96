"""Thousands of broken inputs through the whole command line: an answer or a refusal, never a bug."""

# ruff: noqa: E501  (a row a line)
import io
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnctl.cli.program import program

ROOT = Path(__file__).parents[2]
CONFIGS = [path.read_bytes() for path in sorted((ROOT / "configs").glob("*.yaml"))]
DUMPS = [
    path.read_bytes()
    for path in sorted((ROOT / "tests/store/golden").iterdir())
    if path.suffix in {".json", ".jsonl", ".npz", ".safetensors"}
]
CELLS = [
    "attention_weights[0,love,AI]",
    "scores[0,1,2]",
    'X["7",0]',
    "output[the#2,-1]",
    "W_Q[0,:,1]",
    "attention_weights",
]
EDITS = [
    "attention_weights[0,love,:]=0",
    "head_outputs[0]*=2",
    "scores[:,I,AI]=-inf",
    "X+=1e-3",
    "attention_weights=@x.json",
]
TEXT_PIECES = [
    *"[]#:,\"'\\=+*-@ \n\t0９",
    "-1",
    "1e999",
    "nan",
    "99999999999999999999",
    "love",
    "\u202e",
    "\ud7ff",
    "\x1b[31m",
]
BYTE_PIECES = [b"[", b"]", b"{", b"}", b",", b":", b'"', b"-", b"#", b" ", b"\n", b"\t", b"\x00", b"\xff", b"\xef\xbb\xbf",
               b"null", b"true", b"-1", b"0", b"2.5", b"1e999", b"4294967296", b'"NaN"', b'"-Infinity"', b"heads: 2\n", b"identity",
               b"none", b"causal", b"[[]]", b"{random: {seed: 1}}", b"\xe2\x80\xae"]  # fmt: skip
LIMIT = ("--max-memory", "64M")

some = settings(deadline=None, suppress_health_check=list(HealthCheck))
seen: Counter = Counter()


def ends_well(args, folder):
    """Hold one command line to the promise; counts how it ended."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict") for _ in range(2))
    code = program(args, io.TextIOWrapper(io.BytesIO(b"")), out, err)
    seen[args[0], int(code)] += 1
    for stream in (out, err):
        stream.flush()
    said = err.buffer.getvalue().decode()
    shown = out.buffer.getvalue().decode()
    assert code in {0, 1, 2}, said
    assert bool(said) >= (code == 2)
    assert all(line.startswith("attnctl: ") and line.isprintable() for line in said.split("\n")[:-1]), said
    assert all(line.isprintable() for line in shown.split("\n")), shown
    assert not (code == 2 and shown)


def mutated(seeds, pieces):
    """One of the seeds with a few pieces cut out, put in, repeated or turned over."""
    change = st.tuples(st.integers(0, 10**6), st.integers(0, 30), st.sampled_from([*pieces, None]))

    def apply(seed, changes):
        for start, length, piece in changes:
            at = start % (len(seed) + 1)
            put = seed[at : at + length] * 2 if piece is None else piece
            seed = seed[:at] + put + seed[at + length :]
        return seed

    return st.builds(apply, st.sampled_from(seeds), st.lists(change, min_size=1, max_size=4))


CONFIG = st.one_of(st.binary(max_size=80), mutated(CONFIGS, BYTE_PIECES))
DUMP = st.one_of(st.binary(max_size=80), mutated(DUMPS, BYTE_PIECES))
CELL = st.one_of(st.text(max_size=30), mutated(CELLS, TEXT_PIECES))
EDIT = st.one_of(st.text(max_size=30), mutated(EDITS, TEXT_PIECES))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the command runs, with a sound dump in it."""
    monkeypatch.chdir(tmp_path)
    assert program(["run", "I love AI", "--heads", "2", "-o", "x.json"]) == 0
    return tmp_path


def config(raw, folder):
    (folder / "fuzzed.yaml").write_bytes(raw)
    ends_well(["run", "-c", "fuzzed.yaml", "--brief", *LIMIT], folder)
    ends_well(["config", "check", "fuzzed.yaml"], folder)


def dump(raw, folder):
    (folder / "fuzzed").write_bytes(raw)
    ends_well(["show", "fuzzed", "--full"], folder)
    ends_well(["check", "fuzzed"], folder)
    ends_well(["diff", "fuzzed", "x.json"], folder)
    ends_well(["stats", "fuzzed"], folder)
    ends_well(["explain", "fuzzed", "output[0,0]"], folder)
    ends_well(["attend", "fuzzed", *LIMIT], folder)


def cell(text, folder):
    ends_well(["explain", "x.json", "--", text], folder)


def edit(text, folder):
    ends_well(["run", "I love AI", "--heads", "2", f"--edit={text}"], folder)


KINDS = {"config": (CONFIG, config), "dump": (DUMP, dump), "cell": (CELL, cell), "edit": (EDIT, edit)}


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(some, max_examples=25)
def test_some_broken_input_ends_in_a_documented_way(kind, data, folder):
    strategy, attempt = KINDS[kind]
    attempt(data.draw(strategy), folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(some, max_examples=1500)
def test_thousands_of_broken_inputs_end_in_a_documented_way(kind, data, folder):
    strategy, attempt = KINDS[kind]
    attempt(data.draw(strategy), folder)
