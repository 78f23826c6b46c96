"""What someone declares of a target: `--claims FILE` and `--xfail FILE`, in YAML.

claims:

    features: [grouped heads, lengths]      # must be there: an exception is a failure
    without: [bias]                         # taken, but not claimed: skipped
    conventions: {causal corner: bottom-right}
    returns: [output, logsumexp]            # what comes back, in order; - is not judged
    head_sizes: [64, 128]                   # and multiple_of, layout, mask_shape, as the options say them
    always: {causal: true, window: [3, 0]}  # what is on whatever it is called with

xfail, known and filed; a feature with why, or with the types it is about:

    causal: corner is wrong, filed as 12
    grouped heads: {types: [float16], why: overflows}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import open_input
from attnctl.base.values import BadValueError, Path, json_path, shown
from attnctl.base.words import nearest
from attnctl.inputs.config import yaml
from attnctl.verbs.conform.case import TYPES
from attnctl.verbs.conform.conventions import KNOWN
from attnctl.verbs.conform.declared import FORM, Declared
from attnctl.verbs.conform.extra_outputs import RETURNS
from attnctl.verbs.conform.features import NAMES

Problems = Iterator[tuple[Path, str]]


@dataclass(frozen=True)
class Claims:
    """What a target is said to do."""

    features: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    conventions: Mapping[str, str] = field(default_factory=dict)
    returns: tuple[str, ...] = ()
    said: Declared = Declared()  # noqa: RUF009  (frozen)


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
        Declared(**FORM(declared_in(data))),
    )


def declared_in(data: Mapping[Any, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key in FORM.keys}


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
    if not isinstance(value, list) or value[:1] != [RETURNS[0]]:
        yield (key,), f"expected a list with the output first, like [{RETURNS[0]}, {RETURNS[1]}]"
        return
    for at, name in enumerate(value):
        yield from unknown_claim((key, at), name, RETURNS)


def features_problems(key: str, value: Any) -> Problems:
    if not isinstance(value, list):
        yield (key,), f"expected a list of features, like [{NAMES[0]}]"
        return
    for at, name in enumerate(value):
        yield from unknown_claim((key, at), name, NAMES)


def conventions_problems(key: str, value: Any) -> Problems:
    if not isinstance(value, dict):
        yield (key,), "expected names with values, like {causal corner: bottom-right}"
        return
    for name, said in value.items():
        problems = list(unknown_claim((key, name), name, list(KNOWN)))
        yield from problems or unknown_claim((key, name), said, KNOWN[name])


CHECKS: dict[str, Callable[[str, Any], Problems]] = {
    "features": features_problems,
    "without": features_problems,
    "conventions": conventions_problems,
    "returns": returns_problems,
}
"""The keys of claims that `declared` has no setting for, each with what says what is wrong with it."""


def claims_problems(data: Any) -> Problems:
    """What is wrong with a file of claims."""
    if not isinstance(data, dict):
        yield (), "expected features:, without:, conventions: and the like"
        return
    try:
        FORM(declared_in(data))
    except BadValueError as wrong:
        yield from wrong.problems
    for key, value in data.items():
        if key in CHECKS:
            yield from CHECKS[key](key, value)
        else:
            yield from unknown_claim((key,), key, (*CHECKS, *FORM.keys))


def xfail_problems(data: Any) -> Problems:
    """What is wrong with a file of known failures."""
    if not isinstance(data, dict):
        yield (), "expected features with why each is known to fail"
        return
    for name, value in data.items():
        yield from unknown_claim((name,), name, NAMES)
        if isinstance(value, str):
            if not value:
                yield (name,), "say why it is known to fail"
        elif not isinstance(value, dict) or not isinstance(value.get("why"), str):
            yield (name,), "expected why, as a text or as {types: [float16], why: …}"
        else:
            types = value.get("types", [])
            for at, each in enumerate(types if isinstance(types, list) else [types]):
                yield from unknown_claim((name, "types", at), each, list(TYPES))
            for key in value:
                yield from unknown_claim((name, key), key, ("types", "why"))


def unknown_claim(place: Path, name: Any, there: Any) -> Problems:
    if not isinstance(name, str) or name not in there:
        near = nearest(str(name), list(there), most=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(there)}"
        yield place, f"{shown(name)} is not known; {hint}"
