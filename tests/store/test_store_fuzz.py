"""Any bytes at all, and damaged dumps: read, or refused in one clear error."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnctl.base.errors import AttnError
from attnctl.store.source import read

GOLDEN = Path(__file__).parent / "golden"


def compressed():
    stream = io.BytesIO()
    np.savez_compressed(stream, Q=np.arange(40.0).reshape(5, 8), mask=np.eye(3, dtype=bool))
    return stream.getvalue()


def alone():
    stream = io.BytesIO()
    np.save(stream, np.arange(6.0).reshape(2, 3))
    return stream.getvalue()


SEEDS = {path.suffix: path.read_bytes() for path in GOLDEN.glob("typed.*") if path.suffix != ".csv"}
SEEDS |= {"compressed": compressed(), ".npy": alone()}
NUMBER = re.compile(rb"\d+")
TRICKS = [
    b"-1",
    b"0",
    b"65536",
    b"4294967295",
    b"18446744073709551615",
    b"1e999",
    b"[" * 99,
    b"null",
    b"{}",
    b'"',
]


@st.composite
def damaged(draw, data):
    """A dump with a few bytes flipped, cut, repeated or replaced, or a number changed for another."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1))
        size = draw(st.integers(0, 8))
        kind = draw(st.sampled_from(["flip", "cut", "end", "repeat", "replace", "number"]))
        if kind == "flip":
            data = data[:at] + bytes([data[at] ^ (1 << size % 8)]) + data[at + 1 :]
        elif kind == "cut":
            data = data[:at] + data[at + size :]
        elif kind == "end":
            data = data[: at + 1]
        elif kind == "repeat":
            data = data[: at + size] + data[at:]
        elif kind == "replace":
            data = data[:at] + draw(st.binary(max_size=8)) + data[at + size :]
        elif found := NUMBER.search(data, at):
            data = data[: found.start()] + draw(st.sampled_from(TRICKS)) + data[found.end() :]
        data = data or b"x"
    return data


def read_whole(path):
    """Every number of a file, or one clear error."""
    problems = ()
    try:
        for trace in read(path):
            for array in trace.values():
                array.tobytes()
    except AttnError as error:
        problems = error.problems
    assert all(problem.isprintable() and len(problem) < 500 for problem in problems)


FAST = settings(max_examples=150, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=1000, suppress_health_check=list(HealthCheck), deadline=None)


def check_damaged(seed, data, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(data.draw(damaged(SEEDS[seed])))
    read_whole(path)


@pytest.mark.parametrize("seed", SEEDS)
@given(data=st.data())
@FAST
def test_a_damaged_dump_is_read_or_refused(seed, data, tmp_path):
    check_damaged(seed, data, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@given(data=st.data())
@LONG
def test_thousands_of_damaged_dumps_are_read_or_refused(seed, data, tmp_path):
    check_damaged(seed, data, tmp_path)


BEGINNINGS = [
    b"",
    b"{",
    b"[",
    b"PK\3\4",
    b"\x93NUMPY\1\0",
    b'{"schema": "attnctl/trace/1", "steps": {',
    b"\0" * 8 + b"{",
]


@pytest.mark.parametrize("start", BEGINNINGS)
@given(rest=st.binary(max_size=200))
@FAST
def test_any_bytes_are_read_or_refused(start, rest, tmp_path):
    (tmp_path / "x").write_bytes(start + rest)
    read_whole(tmp_path / "x")
