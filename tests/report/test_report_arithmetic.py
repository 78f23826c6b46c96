"""What the page says of a cell is what explain says: every cell of every variant, in Node."""

import json
import math
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from page_arithmetic import NODE, SCRIPTS, Said, as_said, said_by_pages, write
from registry_strategies import examples

import attnctl
from attnctl.base.words import number_text
from attnctl.inputs.plan.intended import trace_of_arrays
from attnctl.math.arithmetic import Number, Operation
from attnctl.math.filling import filler, form_of
from attnctl.math.notation import data as written_out
from attnctl.math.ops import OPS, Op
from attnctl.record import Trace
from attnctl.store.header import as_json_data
from attnctl.store.source import read
from attnctl.verbs.explain.view import number_for_people

VARIANTS = sorted((Path(__file__).parents[2] / "samples" / "variants").glob("*.json"))

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed")


def spoilt():
    """A run with a wrong weight, a NaN and an infinity in it."""
    trace = attnctl.run("I love AI", heads=2, causal=True, softcap=5.0)
    arrays = {name: array.copy() for name, array in trace.items()}
    arrays["attention_weights"][0, 1, 0] = 0.9
    arrays["scores"][1, 2, 0] = np.nan
    arrays["scaled_scores"][0, 0, 0] = np.inf
    return Trace(trace.steps, arrays, trace.header)


def foreign():
    """Anyone's arrays without a word of how they came about."""
    draw = np.random.RandomState(3)
    names = {"Q": (2, 4, 3), "K": (2, 4, 3), "V": (2, 4, 3), "attention_weights": (2, 4, 4)}
    return trace_of_arrays({name: draw.standard_normal(size) for name, size in names.items()})


EDITED = ("attention_weights[0,love,AI] = 0.5", "Q[1,I,:] = 0")
OTHERS = {
    "edited": lambda: attnctl.run("I love AI", heads=2, edits=list(EDITED)),
    "renormalized": lambda: attnctl.run(
        "I love AI", edits=["attention_weights[0,love,AI] = 0.5"], renormalize=True
    ),
    "float32": lambda: attnctl.run("I love AI", heads=2, positions="rope", dtype="float32", seed=4),
    "backward": lambda: attnctl.run(
        "I love AI", heads=2, kv_heads=1, backward=True, positions="rope", softcap=3.0, causal=True
    ),
    "chunks": lambda: attnctl.run("to be or not", heads=2, kv_heads=1, chunks="0:1,1:4", causal=True),
    "spoilt": spoilt,
    "foreign": foreign,
    "scores computed": lambda: attnctl.run("to be or not", heads=2, causal=True, softcap=3.0).select(
        ["Q", "K", "V", "attention_weights", "output"]
    ),
    "some steps": lambda: attnctl.run("I love AI", keep=["scores", "attention_weights", "output"]),
}


@pytest.fixture(scope="module")
def traces():
    others = [[make()] for make in OTHERS.values()]
    return [read(path) for path in VARIANTS] + others


@pytest.mark.slow
def test_the_page_says_of_every_cell_what_explain_says(traces, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    paths = [write(each, folder / f"{number}.html") for number, each in enumerate(traces)]
    names = [path.stem for path in VARIANTS] + list(OTHERS)
    said, count = {}, 0
    for found in said_by_pages(paths, most=3):
        where = (found["page"], found["trace"])
        if where not in said:
            said[where] = Said(traces[where[0]][where[1]], most=3)
        assert as_said(found) == said[where](found["step"], found["cell"]), (names[where[0]], found)
        count += 1
    assert count > 9000


def as_the_page_has_it(expr):
    """An expression as arithmetic.mjs makes it; what JSON has no numbers for as words."""
    match expr:
        case Number(value, source, spread):
            number = {"kind": "number", "value": value if math.isfinite(value) else number_text(value)}
            number |= {"source": {"input": source[0], "cell": list(source[1])}} if source else {}
            return number | ({"spread": pytest.approx(spread)} if spread else {})
        case Operation("+" | "-" | "*" | "/" as sign, parts):
            kind = {"+": "sum", "-": "subtraction", "*": "product", "/": "quotient"}[sign]
            return {"kind": kind, "parts": [as_the_page_has_it(part) for part in parts]}
        case Operation(name, (inside,)):
            return {"kind": "call", "name": name, "inside": as_the_page_has_it(inside)}


def filled_in(op, inputs, result):
    """The form of an op as a page has it with its arrays, and what explain makes of every cell."""
    inputs = [*inputs, result] if op.recurrent else inputs
    form, arrays, cells = form_of(op, result.ndim, inputs), list(inputs), list(np.ndindex(result.shape))

    def number_of(table):
        arrays.append(table)
        return len(arrays) - 1

    written = as_json_data(written_out(form, number_of))
    held = [
        {"values": as_json_data(each.astype(float).ravel().tolist()), "shape": each.shape}
        for each in arrays
    ]
    return {"form": written, "arrays": held, "cells": cells}, map(filler(form, inputs), cells)


@pytest.mark.sample(3)
@pytest.mark.parametrize("_", range(3))
# An example is one of every op: what any of them leaves out is drawn anew with all of the others.
@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.filter_too_much],
)
@given(data=st.data())
def test_the_page_fills_in_the_form_of_every_op_as_explain_does(data, _):
    cases, expected = [], []
    for kind in OPS.values():
        if kind.apply is not Op.apply:
            op, inputs, result = data.draw(examples(kind))
            with np.errstate(all="ignore"):
                case, exprs = filled_in(op, inputs, result)
                expected.append(list(map(as_the_page_has_it, exprs)))
            cases.append(case)
    command = [NODE, Path(__file__).parent / "forms.mjs", SCRIPTS]
    done = subprocess.run(command, input=json.dumps(cases).encode(), capture_output=True, check=True)
    for case, found, wanted in zip(cases, json.loads(done.stdout), expected, strict=True):
        for one, other in zip(found, wanted, strict=True):
            assert one == other, case["form"]


def test_no_term_is_left_out_where_all_are_asked_for(tmp_path):
    trace = attnctl.run("I love AI and AI loves me", causal=True)
    path = write([trace], tmp_path / "x.html")
    explain = Said(trace)
    found = [each for each in said_by_pages([path]) if each["step"] == "attention_weights"]
    assert [as_said(each) for each in found] == [
        explain("attention_weights", each["cell"]) for each in found
    ]
    assert found[-1]["symbols"].count("exp") == 8


NUMBERS = [
    *(0.0, -0.0, 1.0, -1.0, 0.03125, -0.03125, 0.09375, 0.00005, 0.00015, 1e-3, 9.99949e-4, 0.00099999),
    *(
        1e6,
        999999.99995,
        999999.9999,
        -1e6,
        1.00005e10,
        1.00015e10,
        5e-324,
        1.7976931348623157e308,
        0.1,
        1 / 3,
    ),
    *(123456.78125, 2.5e-5, 1.5e-5, 8.5, 1e21, 1e22, 12345.00005, math.inf, -math.inf, math.nan, 0.12345),
]
"""Ties, bounds of the two ways to write a number, and what has no digits."""


def test_numbers_are_written_as_explain_writes_them():
    draw = np.random.RandomState(5)
    spread = draw.standard_normal(3000) * 10.0 ** draw.randint(-12, 12, 3000)
    bits = [struct.unpack("<d", draw.bytes(8))[0] for _ in range(1000)]
    ties = [(draw.randint(-(10**6), 10**6) + 0.5) / 2 ** draw.randint(0, 9) for _ in range(1000)]
    values = [*NUMBERS, *spread.tolist(), *bits, *ties]
    data, precisions = np.array(values).tobytes(), (4, 2, 0)
    program = (
        f"import {{ forPeople }} from {json.dumps((SCRIPTS / 'numbers.mjs').as_uri())};"
        "import { readFileSync } from 'node:fs';"
        "const view = new Float64Array(new Uint8Array(readFileSync(0)).buffer);"
        f"const all = {list(precisions)}.map((p) => Array.from(view, (each) => forPeople(each, p)));"
        "console.log(JSON.stringify(all));"
    )
    command = [NODE, "--input-type=module", "-e", program]
    done = subprocess.run(command, input=data, capture_output=True, check=True)
    want = [[number_for_people(value, precision) for value in values] for precision in precisions]
    assert json.loads(done.stdout) == want


@pytest.mark.sample(6)
@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.mjs")), ids=lambda path: path.name)
def test_the_scripts_are_sound(path):
    subprocess.run([NODE, "--check", path], check=True, capture_output=True)
