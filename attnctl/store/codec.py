"""Ops and rules as plain JSON data, and back.

Generic over the frozen dataclasses of `attnctl.math.ops` and the rules inside them: a new op needs no
change here. ``Hide(rules=(Causal(),))`` is ``{"name": "Hide", "rules": [{"name": "causal"}]}``;
fields that have their default are left out.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from math import isfinite
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.values import short
from attnctl.base.words import did_you_mean, number_text
from attnctl.math import ops
from attnctl.math.rules import RULES, Rule

NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""How a number that JSON has no digits for is written: as one of these strings."""

MOST_NAMED = 24  # names of ops or rules that a message lists

GONE = {"dilated": "there is no dilated window any more; run it again with its mask"}
"""Names that older dumps have, and what to do."""

TYPE_WORDS: dict[Any, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    type(None): "null",
}
"""Types as messages call them; any other is a list."""

DEEPEST = 32  # how deep rules may stand within rules, as deep as a config can say


def kind_name(kind: type) -> str:
    """The name of a dataclass in a dump: its own `name` if it has one (rules do)."""
    return str(getattr(kind, "name", kind.__name__))


def as_json_data(value: Any) -> Any:
    """Anything a header or an op holds as strict JSON data: no tuples, NumPy scalars, NaN or infinity."""
    if isinstance(value, (str, int)) and not isinstance(value, np.generic):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        told = ((field, getattr(value, field.name)) for field in fields(value))
        changed = {field.name: part for field, part in told if part != default(field)}
        return {"name": kind_name(type(value))} | as_json_data(changed)
    if isinstance(value, dict):
        return {str(key): as_json_data(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json_data(item) for item in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return as_json_data(value.tolist())
    if isinstance(value, float) and not isfinite(value):
        return number_text(value)
    return value


def default(field: Field[Any]) -> Any:
    """The default of a dataclass field; MISSING, which equals nothing else, where it has none."""
    return field.default_factory() if field.default_factory is not MISSING else field.default


def op_of(data: Any, path: str) -> ops.Op:
    return record(ops.OPS, data, path)


def decode(kind: Any, data: Any, path: str, depth: int = 0) -> Any:
    """JSON data as a value of this annotated type; AttnError with the path where it is none."""
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    options = tuple(kind for option in options for kind in kinds_of(option))
    named = {kind_name(kind): kind for kind in options if isinstance(kind, type) and is_dataclass(kind)}
    if named and (isinstance(data, dict) or len(named) == len(options)):
        return record(named, data, path, depth)
    for option in options:
        if get_origin(option) is tuple and isinstance(data, list):
            inside = get_args(option)[0]
            return tuple(decode(inside, item, f"{path}[{i}]", depth) for i, item in enumerate(data))
        if option is float and type(data) is int:
            try:
                return float(data)
            except OverflowError:
                raise AttnError(f"{path}: {show_value(data)} is too large for a number") from None
        if option is float and isinstance(data, str) and data in NOT_FINITE:
            return NOT_FINITE[data]
        if type(data) is option:
            return data
    expected = " or ".join(TYPE_WORDS.get(option, "a list") for option in options)
    raise AttnError(f"{path}: expected {expected}, found {show_value(data)}")


def kinds_of(option: Any) -> list[Any]:
    """The rules that a kind of rule stands for; any other type stands for itself."""
    if isinstance(option, type) and issubclass(option, Rule):
        return [rule for rule in RULES.values() if issubclass(rule, option)]
    return [option]


def record(kinds: dict[str, type], data: Any, path: str, depth: int = 0) -> Any:
    if depth > DEEPEST:
        raise AttnError(f"{path[:60]}…: rules within rules, more than {DEEPEST} deep")
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise AttnError(f'{path}: expected an object with a "name", found {show_value(data)}')
    name = data["name"]
    if name not in kinds:
        some = ", ".join(list(kinds)[:MOST_NAMED]) + ", …" * (len(kinds) > MOST_NAMED)
        near = GONE.get(name) or did_you_mean(name, list(kinds), f"expected one of {some}")
        raise AttnError(f"{path}.name: unknown name {name!r}; {near}")
    kind = kinds[name]
    hints, known = get_type_hints(kind), {field.name: field for field in fields(kind)}
    unknown = [key for key in data if key != "name" and key not in known]
    missing = [key for key, field_ in known.items() if default(field_) is MISSING and key not in data]
    if unknown or missing:
        problems = [f"{under(path, key)}: {name} has no such field" for key in unknown]
        raise AttnError(problems + [f"{path}.{key}: {name} needs this field" for key in missing])
    given = {key: decode(hints[key], data[key], f"{path}.{key}", depth + 1) for key in known if key in data}
    try:
        return kind(**given)
    except AttnError as error:  # the dataclass's own checks
        raise AttnError(f"{path}: {problem}" for problem in error.problems) from None


def under(path: str, key: str) -> str:
    """The path of a key in an object: $.steps.Q, or $.steps['a b'] where it is no plain word."""
    return f"{path}.{key}" if key.isidentifier() and len(key) <= 40 else f"{path}[{show_value(key)}]"


def show_value(data: Any) -> str:
    if isinstance(data, dict):
        return "an object"
    if isinstance(data, list):
        return "a list"
    if isinstance(data, int) and not isinstance(data, bool) and data.bit_length() > 128:
        return f"a whole number of {data.bit_length()} bits"
    words = {None: "null", True: "true", False: "false"}
    return short(words[data] if data is None or isinstance(data, bool) else repr(data))
