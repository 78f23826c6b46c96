"""Capture in Python: a block of a program, a test, and functions that are the program's own."""

import json
import runpy

import pytest

import attnctl


def test_a_block_of_a_program(anew):
    with anew() as out:
        runpy.run_path("in_python.py")
    assert out.getvalue().splitlines() == [
        "3 (2, 4, 6, 8) True", "3 [0, 1, 2] 4", "['swapped'] in_python.py:18", "[]",
    ]  # fmt: skip


def test_a_test(anew, attnctl_capture):
    calls = attnctl_capture(module="layers.1.*")
    with anew():
        import layers

        layers.Model()(0)
    assert [attnctl.check(call).agrees for call in calls] == [True] * 2  # importing it runs it


@pytest.mark.parametrize(
    ("name", "lines"),
    [("main:attend", [15, 11]), ("__main__:attend", [15, 11]), ("main:Attention.forward", [16])],
)
def test_a_function_of_the_program_itself(captured, call, name, lines):
    done = captured("-o", "c.npz", "--function", name, "main.py")
    assert done.code == 0, done.err
    found = json.loads(call("check", "c.npz", "--json").out)
    found = found if isinstance(found, list) else [found]
    assert [one["call"]["at"] for one in found] == [f"main.py:{line}" for line in lines]
    assert {one["mistake"] for one in found} == {"no-scale"}
