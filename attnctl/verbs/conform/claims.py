"""The files in which a target is declared, and the request that they and options make.

`--claims FILE` is YAML:

    features: [grouped heads, lengths]      # must be there: an exception is a failure
    without: [bias]                         # taken, but not claimed: skipped
    conventions: {causal corner: bottom-right}
    returns: [output, logsumexp]            # what comes back, in order; - is not judged
    deterministic: true                     # gradients have the same bits in every call
    head_sizes: [64, 128]                   # and multiple_of, layout, mask_shape, as the options say them
    always: {causal: true, window: [3, 0]}  # what is on whatever it is called with

`--xfail FILE` names features that are known to fail, with why, or with the types it is about:

    causal: corner is wrong, filed as 12
    grouped heads: {types: [float16], why: overflows}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import open_input
from attnctl.base.values import SWITCH, BadValueError, Path, json_path, show
from attnctl.base.words import suggest
from attnctl.inputs.config import yaml
from attnctl.verbs.conform.declared import FORM
from attnctl.verbs.conform.extra_outputs import RETURNS
from attnctl.verbs.conform.features import NAMES
from attnctl.verbs.conform.profile import CONVENTIONS, TYPES, TargetProfile

Problems = Iterator[tuple[Path, str]]


Known = tuple[str, tuple[str, ...]]
"""The reason why a feature is known to fail, and the types in which it does."""


def read_claims(path: str) -> dict[str, Any]:
    """The fields of a profile that a file says. Raises AttnError with every problem, each with its line."""
    data = read_yaml(path, claims_problems)
    given: dict[str, Any] = FORM(pick_declared(data))
    given |= {key: tuple(map(str, data[key])) for key in LISTS if key in data}
    said = data.get("conventions", {})
    given["conventions"] = {str(name): str(value) for name, value in said.items()}
    return given | ({"deterministic": SWITCH(data["deterministic"])} if "deterministic" in data else {})


def pick_declared(data: Mapping[Any, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key in FORM.keys}


def read_xfail(path: str) -> dict[str, Known]:
    """The features of a file that are known to fail. Raises AttnError with every problem."""
    entries = {
        name: {"why": value} if isinstance(value, str) else value
        for name, value in read_yaml(path, xfail_problems).items()
    }
    return {
        name: (str(entry["why"]), tuple(map(str, entry.get("types", TYPES))))
        for name, entry in entries.items()
    }


def read_yaml(path: str, problems: Callable[[Any], Problems]) -> dict[str, Any]:
    """Read the data of a YAML file. Raises AttnError with all its problems in order of lines."""
    try:
        with open_input(path) as stream:
            raw = stream.read()
    except OSError as error:
        raise AttnError(f"{path}: {error.strerror or error}") from None
    text = yaml.decode(raw, path)
    data, repeated = yaml.read(text, path)
    found = list(problems(data))
    lines = yaml.lines(text, [place for place, _ in found])
    placed = [(lines[place], f"{path}:{lines[place]} {json_path(place)}: {what}") for place, what in found]
    raise_all(what for _, what in sorted([*repeated, *placed]))
    return dict(data)


LISTS = {
    "features": (NAMES, f"a list of features, like [{NAMES[0]}]"),
    "without": (NAMES, f"a list of features, like [{NAMES[0]}]"),
    "returns": (RETURNS, f"a list with the output first, like [{RETURNS[0]}, {RETURNS[1]}]"),
}
"""The keys of claims that hold lists: the names there are, and what is expected."""

CLAIM_KEYS = ("features", "without", "conventions", "returns", "deterministic", *FORM.keys)


def claims_problems(data: Any) -> Problems:
    if not isinstance(data, dict):
        yield (), "expected features:, without:, conventions: and the like"
        return
    try:
        FORM(pick_declared(data))
    except BadValueError as wrong:
        yield from wrong.problems
    for key, value in data.items():
        if key in LISTS:
            yield from list_problems(key, value)
        elif key == "conventions":
            yield from conventions_problems(key, value)
        elif key == "deterministic":
            try:
                SWITCH(value)
            except BadValueError as wrong:
                yield from (((key, *place), words) for place, words in wrong.problems)
        else:
            yield from unknown_claim((key,), key, CLAIM_KEYS)


def list_problems(key: str, value: Any) -> Problems:
    known, expected = LISTS[key]
    if not isinstance(value, list) or (key == "returns" and value[:1] != [RETURNS[0]]):
        yield (key,), f"expected {expected}"
        return
    for at, name in enumerate(value):
        yield from unknown_claim((key, at), name, known)


def conventions_problems(key: str, value: Any) -> Problems:
    if not isinstance(value, dict):
        yield (key,), "expected names with values, like {causal corner: bottom-right}"
        return
    for name, said in value.items():
        problems = list(unknown_claim((key, name), name, list(CONVENTIONS)))
        yield from problems or unknown_claim((key, name), said, CONVENTIONS[name])


def xfail_problems(data: Any) -> Problems:
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


def unknown_claim(place: Path, name: Any, known: Sequence[str]) -> Problems:
    if not isinstance(name, str) or name not in known:
        yield place, f"{show(name)} is not known; {suggest(str(name), known)}"


def unknown_names(what: str, given: Iterable[str], known: Sequence[str]) -> list[str]:
    return [
        f"--{what} {name}: there is none of this name; {suggest(name, known)}"
        for name in given
        if name not in known
    ]


@dataclass(frozen=True)
class Request:
    """A run of the suite as it is asked for."""

    profile: TargetProfile = TargetProfile()
    """How the target is called, as far as it is documented or declared."""
    renames: Mapping[str, str] = field(default_factory=dict)
    dtypes: tuple[str, ...] = tuple(TYPES)
    only: tuple[str, ...] = ()
    """Features to run; none means all."""
    quick: bool = False
    xfail: Mapping[str, Known] = field(default_factory=dict)
    save: str | None = None
    """The folder for failing cases."""
    called: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """The words of the command line that name the target, before --replay FILE and after it."""
    jobs: int = 1
    backward: bool = False
    """Gradients are asked for."""
    merge: bool = False
    """The target merges two parts of attention."""
    published: str = ""
    """The suite of published cases that is run instead."""
    replay: str = ""
    """The file of the one case that is run instead."""
    framework: str = "numpy"
    """Whose arrays it takes."""
    device: str = ""
    timeout: float | None = None
