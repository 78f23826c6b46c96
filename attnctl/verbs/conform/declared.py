"""What is declared of a target, by options and in files, and the request that they make.

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
from dataclasses import replace
from typing import Any

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import open_input
from attnctl.base.setting import ATTENTION, Flag, Form, Setting
from attnctl.base.values import (
    SIZE,
    SWITCH,
    BadValueError,
    Path,
    Plain,
    Reader,
    each,
    json_path,
    show,
    words,
)
from attnctl.base.words import suggest
from attnctl.inputs.config import yaml
from attnctl.inputs.config.fields import FIELDS, KEYWORDS, lay_over, settings_with_flags
from attnctl.inputs.config.settings import SINUSOIDAL, Settings
from attnctl.math.kind import BACKWARD, CHUNKS, COTANGENT, KIND, LOGSUMEXP
from attnctl.verbs.conform.extras import RETURNS
from attnctl.verbs.conform.features import NAMES
from attnctl.verbs.conform.profile import AXES, CONVENTIONS, MASKS, NOTHING, TYPES, Known

TARGET, ALWAYS_ON = "The target", "Attention that is always on in it"


def list_unusual(settings: Settings) -> dict[str, Any]:
    """Return the settings that are not as usual, as a config has them."""
    usual = NOTHING.to_dict()
    return {name: value for name, value in settings.to_dict().items() if usual.get(name) != value}


def read_layout(value: Any) -> str:
    """The axes of Q, K and V, and those of the output where they are others: bhnd, bhnd:bnhd."""
    parts = value.split(":") if isinstance(value, str) else [value]
    if len(parts) > 2:
        raise BadValueError(f"{show(value)} is not IN or IN:OUT; write axes like bhnd, or bhnd:bnhd")
    return ":".join(map(words(*AXES), parts))


def read_sizes(value: Any) -> tuple[int, ...]:
    """A number, several with commas between them, or a list of them."""
    parts = [Plain(part.strip()) for part in value.split(",")] if isinstance(value, str) else value
    return tuple(sorted(set(each(parts if isinstance(parts, list) else [parts], SIZE))))


ARRAYS = {
    setting.name: setting
    for setting in (
        Setting(
            "layout",
            Reader(read_layout, {}, f"<{'|'.join(AXES)}>[:OUT]"),
            "The axes of its arrays (batch, head, n, d), :OUT those of its output where they are others; "
            "left out, found out.",
            "bhnd",
            Flag("--layout", TARGET),
        ),
        Setting(
            "head_sizes",
            Reader(read_sizes, {}, "N,…"),
            "The only head sizes that it takes.",
            [64, 128],
            Flag("--head-sizes", TARGET),
        ),
        Setting(
            "multiple_of",
            SIZE,
            "It takes numbers of queries and keys that are multiples of this.",
            16,
            Flag("--multiple-of", TARGET),
        ),
        Setting(
            "mask_shape",
            words(*MASKS),
            "The axes of its mask (m keys); left out, found out.",
            "bhnm",
            Flag("--mask-shape", TARGET),
        ),
    )
}
"""The options that say what arrays it takes, by keyword."""


SAID_OTHERWISE = (FIELDS["dtype"], LOGSUMEXP, CHUNKS, BACKWARD, COTANGENT)
"""The settings that cases and --returns say: the type, that a call goes forward, and what comes back."""


def list_always() -> Iterator[Setting]:
    """The settings of attention, under their keywords, as a section of their own."""
    of_kind = {each.keyword: each for each in KIND.values() if each is not None}
    for name, setting in {**settings_with_flags(ATTENTION), **of_kind}.items():
        if setting.flag and setting not in SAID_OTHERWISE:
            # The cases say how many heads, too, where nothing is fixed.
            more = "" if name in {"heads", "kv_heads"} else setting.flag.more
            yield replace(setting, name=name, flag=replace(setting.flag, group=ALWAYS_ON, more=more))


ALWAYS = {setting.name: setting for setting in list_always()}
"""The options of `attend` that may be always on, by keyword."""

ALWAYS_FORM = Form(
    "AlwaysForm",
    ALWAYS_ON,
    [setting for name, setting in ALWAYS.items() if name in KEYWORDS],
    lambda given: lay_over(NOTHING, given),
)
"""The same in claims, where what flags give in parts is one key."""

FORM = Form(
    "DeclaredForm",
    TARGET,
    [
        Setting("deterministic", SWITCH, "Gradients have the same bits in every call."),
        *ARRAYS.values(),
        Setting("always", ALWAYS_FORM, "Attention that is always on."),
    ],
)


def find_senseless(always: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Name the settings that have no meaning for a function of Q, K and V."""
    if always.positions == SINUSOIDAL or isinstance(always.positions, list):
        yield ("positions",), "such positions are added to X, and a target is given Q, K and V"
    heads, kv_heads = always.heads, always.kv_heads
    if heads and kv_heads and heads % kv_heads:
        yield ("kv_heads",), f"{kv_heads} cannot be shared by {heads} heads; write a divisor of {heads}"


# --- files ---

Problems = Iterator[tuple[Path, str]]


def read_claims(path: str) -> dict[str, Any]:
    """The fields of a profile that a file says. Raises AttnError with every problem, each with its line."""
    data = read_yaml(path, claims_problems)
    given: dict[str, Any] = FORM(pick_declared(data))
    given |= {key: tuple(map(str, data[key])) for key in LISTS if key in data}
    said = data.get("conventions", {})
    given["conventions"] = {str(name): str(value) for name, value in said.items()}
    return given


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

CLAIM_KEYS = ("features", "without", "conventions", "returns", *FORM.keys)


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
