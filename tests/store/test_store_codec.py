"""Ops and rules as JSON data."""

from dataclasses import fields, is_dataclass
from types import UnionType
from typing import get_args, get_origin, get_type_hints

import pytest

from attnctl.base.errors import AttnError
from attnctl.math.ops import OPS, Given, Hide, Repeat, Rotate, Scale, Sinusoid, Softmax
from attnctl.math.rules import RULES, Causal, Composed, Padding, VisibilityRule, Window
from attnctl.store.header import as_json_data, decode, op_of

TYPED = [
    (Given(), {"name": "Given"}),
    (Softmax(), {"name": "Softmax"}),
    (Repeat(2), {"name": "Repeat", "times": 2}),
    (Scale(4), {"name": "Scale", "d_k": 4}),
    (Scale(4, float("inf")), {"name": "Scale", "d_k": 4, "factor": "Infinity"}),
    (Sinusoid(3, 4, 5), {"name": "Sinusoid", "length": 3, "d_model": 4, "start": 5}),
    (Rotate(5.0, None, True), {"name": "Rotate", "theta": 5.0, "interleaved": True}),
    (Rotate(start=(1, 2)), {"name": "Rotate", "start": [1, 2]}),
    (
        Hide(2, rules=(Causal(), Window(3, 0), Padding((1, 2)))),
        {
            "name": "Hide",
            "offset": 2,
            "rules": [
                {"name": "causal"},
                {"name": "window", "left": 3, "right": 0},
                {"name": "padding", "lengths": [1, 2]},
            ],
        },
    ),
]


@pytest.mark.parametrize(("op", "data"), TYPED, ids=lambda value: type(value).__name__)
def test_an_op_is_this_data_and_back(op, data):
    assert as_json_data(op) == data
    assert op_of(data, "$") == op


def value_of(kind):
    """A value of an annotated type, other than any default."""
    if get_origin(kind) is UnionType:
        return value_of(next(each for each in get_args(kind) if each is not type(None)))
    if kind == tuple[VisibilityRule, ...]:
        hiding = [rule for rule in RULES.values() if issubclass(rule, VisibilityRule)]
        made = tuple(filled(rule) for rule in hiding if not issubclass(rule, Composed))
        together = tuple(rule for rule in made if not isinstance(rule, Padding))
        return (*made, *(rule(together) for rule in hiding if issubclass(rule, Composed)))
    if get_origin(kind) is tuple:
        return (value_of(get_args(kind)[0]),)
    if is_dataclass(kind):
        return filled(kind)
    return {int: 6, float: 0.75, bool: True, str: "word"}[kind]


def filled(kind):
    """A dataclass with every field set, none to its default."""
    hints = get_type_hints(kind)
    values = {each.name: value_of(hints[each.name]) for each in fields(kind)}
    return kind(**{each.name: each.default is not True and values[each.name] for each in fields(kind)})


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_op_there_is_comes_back_with_every_field(name):
    op = filled(OPS[name])
    data = as_json_data(op)
    assert set(data) == {"name"} | {each.name for each in fields(op)}
    assert op_of(data, "$") == op


WRONG = [
    ([], '$.op: expected an object with a "name", found a list'),
    ({}, '$.op: expected an object with a "name", found an object'),
    ({"name": 3}, '$.op: expected an object with a "name", found an object'),
    ({"name": "Placed"}, "$.op.name: unknown name 'Placed'; expected one of"),
    ({"name": "Softmax", "axis": 1}, "$.op.axis: Softmax has no such field"),
    ({"name": "Softmax", "a\nb": 1}, "$.op['a\\nb']: Softmax has no such field"),
    ({"name": "Repeat"}, "$.op.times: Repeat needs this field"),
    ({"name": "Repeat", "times": 2.0}, "$.op.times: expected a whole number, found 2.0"),
    ({"name": "Repeat", "times": True}, "$.op.times: expected a whole number, found true"),
    ({"name": "Repeat", "times": None}, "$.op.times: expected a whole number, found null"),
    ({"name": "Squeeze", "cap": "high"}, "$.op.cap: expected a number, found 'high'"),
    ({"name": "Squeeze", "cap": 10**400}, "$.op.cap: a whole number of 1329 bits is too large"),
    ({"name": "Rotate", "interleaved": 1}, "$.op.interleaved: expected true or false, found 1"),
    ({"name": "Rotate", "start": [1, "2"]}, "$.op.start[1]: expected a whole number, found '2'"),
    ({"name": "Rotate", "start": {}}, "$.op.start: expected a whole number or a list, found an object"),
    ({"name": "Hide", "rules": {}}, "$.op.rules: expected a list, found an object"),
    ({"name": "Hide", "rules": ["causal"]}, '$.op.rules[0]: expected an object with a "name"'),
    ({"name": "Hide", "rules": [{"name": "cause"}]}, "$.op.rules[0].name: unknown name 'cause'"),
    (
        {"name": "Hide", "rules": [{"name": "dilated"}]},
        "$.op.rules[0].name: unknown name 'dilated'; there is no dilated",
    ),
    ({"name": "Hide", "rules": [{"name": "window", "left": "x"}]}, "$.op.rules[0].left: expected"),
    ({"name": "Hide", "rules": [{"name": "window", "left": -1}]}, "$.op.rules[0]: window: -1 is not"),
]


@pytest.mark.parametrize(("data", "message"), WRONG, ids=[message for _, message in WRONG])
def test_anything_else_is_refused_with_its_path(data, message):
    with pytest.raises(AttnError) as found:
        op_of(data, "$.op")
    assert message in str(found.value)
    assert all(problem.startswith("$.op") for problem in found.value.problems)


def test_all_wrong_fields_are_told_at_once():
    with pytest.raises(AttnError) as found:
        op_of({"name": "Repeat", "a": 1, "b": 2}, "$.op")
    assert len(found.value.problems) == 3


def test_a_long_value_is_told_short():
    with pytest.raises(AttnError) as found:
        decode(int, "x" * 1000, "$")
    assert len(str(found.value)) < 100


@pytest.mark.parametrize("depth", [100, 600])
def test_rules_within_rules_have_an_end(depth):
    rule = {"name": "causal"}
    for _ in range(depth):
        rule = {"name": "any_of", "rules": [rule]}
    with pytest.raises(AttnError, match="rules within rules, more than 32 deep"):
        op_of({"name": "Hide", "rules": [rule]}, "$.op")
