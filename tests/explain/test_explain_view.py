"""Explanations on the screen and as JSON."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from explain_golden import CASES, FOLDER, PIPE, TERMINAL, base, shown, toy
from explained import close, evaluated

import attnctl
from attnctl.record.cells import parse_address
from attnctl.verbs.explain import Explainer
from attnctl.verbs.explain.view import json_pieces, number_for_people


@pytest.mark.parametrize("name", CASES)
def test_golden(name):
    assert CASES[name]() == (FOLDER / name).read_text(encoding="utf-8")


def test_every_golden_file_is_of_a_case():
    assert {path.name for path in FOLDER.iterdir()} == set(CASES)


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith(("80.txt", "140.txt"))])
def test_nothing_is_wider_than_the_terminal(name):
    width = 140 if name.endswith("140.txt") else 80
    assert all(len(line) <= width for line in CASES[name]().splitlines())


@pytest.mark.sample(4)
@pytest.mark.parametrize("screen", [PIPE, TERMINAL])
def test_full_leaves_nothing_out(screen):
    text = shown(base(), "Q[0,0,3]", screen, full=True)
    assert "more" not in text
    assert text.count("·") == 1024


def test_a_pipe_leaves_nothing_out_of_a_short_sum():
    text = shown(base(), "scores[0,0,0]", PIPE)
    assert "more" not in text
    assert text.count("·") == 128


def long_rows(keys=2000):
    """Attention over 2,000 keys, whose largest weights are those of keys 7 and 1900."""
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(2, 4)), rng.normal(size=(keys, 4)), rng.normal(size=(keys, 3))
    k[7], k[1900] = 24 * q[0], 21 * q[0]
    v[1900] = 3
    return attnctl.attend({"Q": q, "K": k, "V": v})


@pytest.mark.sample(2)
@pytest.mark.parametrize("screen", [PIPE, TERMINAL], ids=["pipe", "terminal"])
@pytest.mark.parametrize("cell", ["attention_weights[0,0,7]", "head_outputs[0,0,1]"])
def test_a_softmax_over_2000_keys_is_a_page(screen, cell):
    text = shown(long_rows(), cell, screen)
    assert len(text) < 2500
    assert re.search(r"… 1,988 more: -?[0-9]", text)
    assert "1900" in text
    tree = shown(long_rows(), cell, screen, depth=2)
    assert len(tree) < 20_000
    assert re.search("└── … (1988|1992|3976|3992) more [(]--full shows them[)]$", tree)


@pytest.mark.sample(3)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("cell", ["attention_weights[0,0,7]", "head_outputs[0,0,1]", "scores[0,0,7]"])
def test_json_of_a_long_sum_says_what_it_has_as_one_number(cell, full):
    trace = long_rows()
    explainer = Explainer(trace, full=full)
    found = json.loads("".join(json_pieces(explainer, explainer.root(parse_address(cell)))))
    assert close(evaluated(found["expression"]), found["value"])
    long = not full and not cell.startswith("scores")
    terms = [each["terms"] for each in found.get("left_out", ())]
    assert terms == ([1988] if long else [])
    assert (len(found["inputs"]) < 40) == (long or cell.startswith("scores"))


def test_what_the_rest_comes_to_is_what_the_trace_says():
    trace = long_rows()
    found = Explainer(trace, full=False).explain("head_outputs", (0, 0, 1))
    terms = trace["attention_weights"][0, 0] * trace["V"][0, :, 1]
    (rest,) = found.left_out
    smaller = terms[np.argsort(-np.abs(terms), kind="stable")[12:]]
    assert rest.value == pytest.approx(smaller.sum(), rel=1e-9)
    assert (rest.terms, found.unlisted) == (1988, 2 * 1988)


@pytest.mark.parametrize(
    ("value", "precision", "text"),
    [
        (0.41, 4, "0.41"),
        (1.2, 4, "1.2"),
        (3.0, 4, "3"),
        (-0.93456, 4, "-0.9346"),
        (-0.93456, 1, "-0.9"),
        (0.0, 4, "0"),
        (-0.0, 4, "0"),
        (0.00012345678, 4, "1.2346e-4"),
        (0.0012345, 4, "0.0012"),
        (0.04, 1, "4e-2"),
        (0.7, 0, "7e-1"),
        (2.7, 0, "3"),
        (1234567.0, 2, "1.23e6"),
        (123456.0, 0, "123456"),
        (-np.inf, 4, "-∞"),
        (np.inf, 4, "∞"),
        (np.nan, 4, "NaN"),
    ],
)
def test_numbers_for_people(value, precision, text):
    assert number_for_people(value, precision) == text


def as_json(trace, cell, depth=1):
    explainer = Explainer(trace)
    text = "".join(json_pieces(explainer, explainer.root(parse_address(cell), depth)))
    return json.loads(text, parse_constant=pytest.fail)


def test_json_typed_in():
    q, k = np.array([[0.41, -0.93]]), np.array([[1.2, 0.07]])
    trace = attnctl.attend({"Q": q, "K": k, "V": k})
    assert as_json(trace, "scores[0,0,0]") == {
        "cell": "scores[0,0,0]",
        "value": q[0] @ k[0],
        "formula": "Q Kᵀ",
        "expression": "(0.41 * 1.2 + (-0.93) * 0.07)",
        "step": "scores",
        "index": [0, 0, 0],
        "tokens": {},
        "inputs": [
            {"cell": "Q[0,0,0]", "value": 0.41, "step": "Q", "index": [0, 0, 0], "tokens": {}},
            {"cell": "K[0,0,0]", "value": 1.2, "step": "K", "index": [0, 0, 0], "tokens": {}},
            {"cell": "Q[0,0,1]", "value": -0.93, "step": "Q", "index": [0, 0, 1], "tokens": {}},
            {"cell": "K[0,0,1]", "value": 0.07, "step": "K", "index": [0, 0, 1], "tokens": {}},
        ],
    }


def test_json_of_what_is_hidden():
    score, weight = (
        as_json(toy(), f"{step}[0,cat,dog]") for step in ("masked_scores", "attention_weights")
    )
    assert (score["value"], score["expression"]) == ("-Infinity", "-Infinity")
    assert (weight["value"], weight["expression"]) == (0, "0")
    assert score["notes"] == weight["notes"] == ["hidden by causal"]
    assert score["tokens"] == {"query": "cat", "key": "dog"}


def nodes(data):
    yield data
    for each in data.get("inputs", ()):
        yield from nodes(each)


def test_json_inputs_are_nested_as_deep_as_asked():
    found = list(nodes(as_json(toy(), "attention_weights[0,dog,cat]", depth=9)))
    explained = [node for node in found if "expression" in node]
    assert {"embeddings", "positions", "W_Q", "W_K"} <= {node["step"] for node in explained}
    assert all(close(evaluated(node["expression"]), node["value"]) for node in explained)
    assert all(node.get("repeated") for node in found if "expression" not in node)


def test_json_has_the_parts_of_a_score():
    found = as_json(toy(), "scores[0,saw,dog]")
    assert list(found["parts"]) == ["token×token", "token×position", "position×token", "position×position"]
    assert sum(found["parts"].values()) == pytest.approx(found["value"], rel=1e-12)
    assert "parts" not in as_json(toy(positions="none"), "scores[0,saw,dog]")


def test_what_a_dump_has_in_place_of_the_arithmetic_is_shown_beside_it():
    trace = toy()
    scores = trace["scores"].copy()
    scores[0, 1, 0] = 7.5
    wrong = attnctl.Trace(trace.steps, {**trace, "scores": scores}, trace.header)
    text = shown(wrong, "scores[0,cat,the#1]", PIPE)
    assert " = 2.621\nbut 7.5 was recorded here\n" in text
    found = as_json(wrong, "scores[0,cat,the#1]")
    assert (found["value"], found["gives"]) == (7.5, pytest.approx(2.621, abs=1e-4))


def test_tokens_that_would_steer_a_terminal_are_shown():
    text = shown(attnctl.run("I\x1b[31m love AI"), "X[1,0]", TERMINAL)
    assert "X[love,0]" in text
    text = shown(attnctl.run("I\x1b[31m love AI"), "X[0,0]", TERMINAL)
    assert r'X["I\u001b[31m",0]' in text
    assert "\x1b" not in text


def test_rounding_that_is_seen_is_said():
    """Whatever order a machine adds up in, float16 moves some of these scores in the sixth digit."""
    trace = toy(dtype="float16")
    cells = [f"scores[{head},saw,{key}]" for head in (0, 1) for key in range(5)]
    texts = [shown(trace, cell, PIPE, precision=6) for cell in cells]
    assert any("\nrounding to float16 moved it from " in text for text in texts)
    assert any("\n  rest " in text for text in texts)
