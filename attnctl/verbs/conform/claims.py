"""What someone declares of a target: `--claims FILE` and `--xfail FILE`, in YAML.

claims:

    features: [grouped heads, lengths]      # must be there: an exception is a failure
    without: [bias]                         # taken, but not claimed: skipped
    conventions: {causal corner: bottom-right}
    returns: [output, logsumexp]            # what comes back, in order; - is not judged

xfail, known and filed; a feature with why, or with the types it is about:

    causal: corner is wrong, filed as 12
    grouped heads: {types: [float16], why: overflows}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from attnctl.config import yaml
from attnctl.errors import AttnError, raise_all
from attnctl.files import open_input
from attnctl.values import Path, json_path, shown
from attnctl.verbs.conform.case import TYPES
from attnctl.verbs.conform.conventions import KNOWN
from attnctl.verbs.conform.extra_outputs import RETURNS
from attnctl.verbs.conform.features import NAMES
from attnctl.words import nearest

Problems = Iterator[tuple[Path, str]]


@dataclass(frozen=True)
class Claims:
    """What a target is said to do."""

    features: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    conventions: Mapping[str, str] = field(default_factory=dict)
    returns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Known:
    """A feature that is known to fail."""

    why: str
    types: tuple[str, ...] = tuple(TYPES)


def read_claims(path: str) -> Claims:
    """The claims of a file. Raises AttnError with every problem, each with its line."""
    data = read(path, claims_problems)
    return Claims(
        tuple(map(str, data.get("features", ()))),
        tuple(map(str, data.get("without", ()))),
        {str(name): str(value) for name, value in data.get("conventions", {}).items()},
        tuple(map(str, data.get("returns", ()))),
    )


def read_xfail(path: str) -> dict[str, Known]:
    """The features of a file that are known to fail. Raises AttnError with every problem."""
    out = {}
    for name, value in read(path, xfail_problems).items():
        told = {"why": value} if isinstance(value, str) else value
        out[name] = Known(str(told["why"]), tuple(map(str, told.get("types", TYPES))))
    return out


def read(path: str, problems: Callable[[Any], Problems]) -> dict[str, Any]:
    """The data of a YAML file, once nothing is wrong with it."""
    try:
        with open_input(path) as stream:
            raw = stream.read()
    except OSError as error:
        raise AttnError(f"{path}: {error.strerror or error}") from None
    text = yaml.decode(raw, path)
    data, repeated = yaml.read(text, path)
    found = list(problems(data))
    lines = yaml.lines(text, [place for place, _ in found])
    told = [(lines[place], f"{path}:{lines[place]} {json_path(place)}: {what}") for place, what in found]
    raise_all(what for _, what in sorted([*repeated, *told]))
    return dict(data)


def returns_problems(key: str, value: Any) -> Problems:
    """What is wrong with a list of outputs."""
    if not isinstance(value, list) or value[:1] != [RETURNS[0]]:
        yield (key,), f"expected a list with the output first, like [{RETURNS[0]}, {RETURNS[1]}]"
        return
    for at, name in enumerate(value):
        yield from unknown((key, at), name, RETURNS)


def claims_problems(data: Any) -> Problems:
    """What is wrong with a file of claims."""
    if not isinstance(data, dict):
        yield (), "expected features:, without: and conventions:"
        return
    for key, value in data.items():
        if key in {"features", "without"}:
            if not isinstance(value, list):
                yield (key,), f"expected a list of features, like [{NAMES[0]}]"
                continue
            for at, name in enumerate(value):
                yield from unknown((key, at), name, NAMES)
        elif key == "conventions":
            if not isinstance(value, dict):
                yield (key,), "expected names with values, like {causal corner: bottom-right}"
                continue
            for name, said in value.items():
                problems = list(unknown((key, name), name, list(KNOWN)))
                yield from problems or unknown((key, name), said, KNOWN[name])
        elif key == "returns":
            yield from returns_problems(key, value)
        else:
            yield from unknown((key,), key, ("features", "without", "conventions", "returns"))


def xfail_problems(data: Any) -> Problems:
    """What is wrong with a file of known failures."""
    if not isinstance(data, dict):
        yield (), "expected features with why each is known to fail"
        return
    for name, value in data.items():
        yield from unknown((name,), name, NAMES)
        if isinstance(value, str):
            if not value:
                yield (name,), "say why it is known to fail"
        elif not isinstance(value, dict) or not isinstance(value.get("why"), str):
            yield (name,), "expected why, as a text or as {types: [float16], why: …}"
        else:
            types = value.get("types", [])
            for at, each in enumerate(types if isinstance(types, list) else [types]):
                yield from unknown((name, "types", at), each, list(TYPES))
            for key in value:
                yield from unknown((name, key), key, ("types", "why"))


def unknown(place: Path, name: Any, there: Any) -> Problems:
    """That there is no such name, and which is meant."""
    if not isinstance(name, str) or name not in there:
        near = nearest(str(name), list(there), most=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(there)}"
        yield place, f"{shown(name)} is not known; {hint}"
