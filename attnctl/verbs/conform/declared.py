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
from itertools import chain
from typing import Any, NamedTuple

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import open_input, refuse_os_errors
from attnctl.base.setting import ATTENTION, Flag, Form, Setting, list_of
from attnctl.base.values import SIZE, SWITCH, WORD, BadValueError, Plain, Reader, each, short_value, words
from attnctl.base.words import suggest
from attnctl.inputs.config import yaml
from attnctl.inputs.config.fields import FIELDS, KEYWORDS, lay_over, settings_with_flags
from attnctl.inputs.config.load import read_as
from attnctl.inputs.config.settings import SINUSOIDAL, Settings
from attnctl.math.kind import BACKWARD, CHUNKS, COTANGENT, GATE, KIND, LOGSUMEXP
from attnctl.record import Trace
from attnctl.verbs.conform.features import INPUTS_KEPT, MERGES, NAMES, OF_CAPTURES, read_calls
from attnctl.verbs.conform.judge import OF_MERGE, RETURNS
from attnctl.verbs.conform.profile import (
    AXES,
    CONVENTIONS,
    LIBRARIES,
    MASKS,
    NOTHING,
    Request,
    TargetProfile,
)
from attnctl.verbs.conform.relations import INVARIANTS, RELATIONS
from attnctl.verbs.conform.stored import ASKED_IN, EIGHT_BITS, STORED_IN, TYPES, is_small

TARGET = "The target"
ALWAYS_ON = "Attention that is always on in it"


def list_unusual(settings: Settings) -> dict[str, Any]:
    """The settings that are not as where nothing is asked for."""
    usual = NOTHING.to_dict()
    return {name: value for name, value in settings.to_dict().items() if usual.get(name) != value}


def read_layout(value: Any) -> str:
    """The axes of Q, K and V, and those of the output where they are others: bhnd, bhnd:bnhd."""
    parts = value.split(":") if isinstance(value, str) else [value]
    if len(parts) > 2:
        raise BadValueError(f"{short_value(value)} is not IN or IN:OUT; write axes like bhnd, or bhnd:bnhd")
    return ":".join(map(words(*AXES), parts))


def read_sizes(value: Any) -> tuple[int, ...]:
    """A number, several with commas between them, or a list of them."""
    if isinstance(value, str):
        parts: Any = [Plain(part.strip()) for part in value.split(",")]
    else:
        parts = value if isinstance(value, list) else [value]
    return tuple(sorted(set(each(parts, SIZE))))


SIZES_OF_BLOCKS = Reader(read_sizes, {}, "N,…")

ARRAYS = {
    setting.name: setting
    for setting in (
        Setting(
            "layout",
            Reader(read_layout, {}, f"<{'|'.join(AXES)}>[:OUT]"),
            "The axes of its arrays (batch, head, n, d), :OUT those of its output where they are "
            "others; left out, found out.",
            example="bhnd",
            flag=Flag("--layout", TARGET),
        ),
        Setting(
            "head_sizes",
            Reader(read_sizes, {}, "N,…"),
            "The only head sizes it accepts.",
            example=[64, 128],
            flag=Flag("--head-sizes", TARGET),
        ),
        Setting(
            "multiple_of",
            SIZE,
            "It accepts only numbers of queries and keys that are multiples of this.",
            example=16,
            flag=Flag("--multiple-of", TARGET),
        ),
        Setting(
            "mask_shape",
            words(*MASKS),
            "The axes of its mask (m keys); default: detected.",
            example="bhnm",
            flag=Flag("--mask-shape", TARGET),
        ),
    )
}


SAID_OTHERWISE = (FIELDS["dtype"], LOGSUMEXP, CHUNKS, BACKWARD, COTANGENT, GATE)
"""What cases and --returns say: the type, the way, and what comes back; and a gate, which reads X."""


def list_always() -> Iterator[Setting]:
    """The settings of attention, under their keywords, as a section of their own."""
    of_kind = {setting.keyword: setting for setting in KIND.values() if setting is not None}
    for name, setting in {**settings_with_flags(ATTENTION), **of_kind}.items():
        if setting.flag and setting not in SAID_OTHERWISE:
            # The cases say how many heads, too, where nothing is fixed.
            more = "" if name in {"heads", "kv_heads"} else setting.flag.more
            yield replace(setting, name=name, flag=replace(setting.flag, group=ALWAYS_ON, more=more))


ALWAYS = {setting.name: setting for setting in list_always()}
"""The options of `attend` that may be always on, by keyword."""

IN_CLAIMS = [setting for name, setting in ALWAYS.items() if name in KEYWORDS]
ALWAYS_FORM = Form("AlwaysForm", ALWAYS_ON, IN_CLAIMS, lambda given: lay_over(NOTHING, given))
"""The same in claims, where what flags give in parts is one key."""


def known(names: Sequence[str]) -> Reader:
    def read(value: Any) -> str:
        if value not in names:
            raise BadValueError(f"{short_value(value)} is not known; {suggest(str(value), names)}")
        return str(value)

    return Reader(read, {"enum": list(names)})


def read_returns(value: Any) -> tuple[str, ...]:
    """The names of what comes back, the output first: a list, or a text with commas between them."""
    parts = value.split(",") if isinstance(value, str) else value
    names = list_of(known(RETURNS))(parts)
    if names[:1] != RETURNS[:1]:
        raise BadValueError(f"the output comes first; write {RETURNS[0]},… or wrap it")
    return tuple(names)


RETURNED = Reader(read_returns, {}, "NAME,…")

IN_CONVENTIONS = [Setting(name, known(values), name) for name, values in CONVENTIONS.items()]
CONVENTIONS_FORM = Form("ConventionsForm", "In what programs differ.", IN_CONVENTIONS)

CLAIMS = Form(
    "ClaimsForm",
    TARGET,
    [
        Setting("features", list_of(known(NAMES)), "Features that it has: an exception is a failure."),
        Setting("without", list_of(known(NAMES)), "Features that it takes, but is not said to have."),
        Setting("conventions", CONVENTIONS_FORM, "How it does in what programs differ."),
        Setting("returns", RETURNED, "What it returns, in order."),
        Setting("deterministic", SWITCH, "Gradients have the same bits in every call."),
        *ARRAYS.values(),
        Setting("always", ALWAYS_FORM, "Attention that is always on."),
    ],
)

IN_TYPES = Setting("types", list_of(known(tuple(TYPES))), "The types in which it does.")
WHY = Form("WhyForm", "A feature that is known to fail.", [Setting("why", WORD, "Why it fails."), IN_TYPES])


def read_why(value: Any) -> tuple[str, tuple[str, ...]]:
    """Why a feature is known to fail, and the types in which it does: all, where none are said."""
    given = {"why": value} if isinstance(value, str) else value
    if not isinstance(given, dict) or not isinstance(given.get("why"), str):
        raise BadValueError("expected why, as a text or as {types: [float16], why: …}")
    if not given["why"]:
        raise BadValueError("say why it is known to fail")
    read = WHY(given)
    return read["why"], read.get("types", tuple(TYPES))


OF_ANY = (*NAMES, *OF_CAPTURES)
XFAIL = Form("XfailForm", "What fails.", [Setting(name, Reader(read_why, {}), name) for name in OF_ANY])


def find_senseless(always: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """What is always on and cannot be, with its place among the settings."""
    if always.positions == SINUSOIDAL or isinstance(always.positions, list):
        yield ("positions",), "such positions are added to X, and a target is given Q, K and V"
    heads = always.heads
    kv_heads = always.kv_heads
    if heads and kv_heads and heads % kv_heads:
        yield ("kv_heads",), f"{kv_heads} cannot be shared by {heads} heads; write a divisor of {heads}"


def read_file(path: str | None, form: Form) -> dict[str, Any]:
    """What a file says, if there is one. Raises AttnError with every problem, each with its line."""
    if not path:
        return {}
    with refuse_os_errors(path), open_input(path) as stream:
        return dict(read_as(yaml.decode(stream.read(), path), path, form))


def unknown_names(option: str, names: Iterable[str], known: Sequence[str]) -> list[str]:
    unknown = [name for name in names if name not in known]
    return [f"--{option} {name}: there is none of this name; {suggest(name, known)}" for name in unknown]


# --- the request ---

FRAMEWORKS = ("numpy", "torch", "jax")


def make_request(
    *,
    given: Mapping[str, Any],
    always: Callable[[Settings], Settings] = lambda claimed: claimed,
    like: str | None = None,
    claims: str | None = None,
    xfail: str | None = None,
    dtypes: Sequence[str] = (),
    inputs: str | Sequence[Trace] | None = None,
    **asked: Any,
) -> Request:
    """Read what is asked for. Raises AttnError with every name that there is not.

    `given` holds fields of the profile as claims do, without `always`, which lays options over what
    claims say is always on; `inputs` are captured calls; `asked` are fields of the request.
    """
    calls = read_calls(inputs) if inputs is not None else ()
    only = [RELATIONS if name == INVARIANTS else (name,) for name in asked.get("only", ())]
    asked["only"] = tuple(chain(*only))

    features: tuple[str, ...] = (*MERGES, INPUTS_KEPT) if asked.get("merge") else NAMES
    if calls:
        features += OF_CAPTURES
    types = [read_types(name) for name in dtypes]
    raise_all(
        [
            *unknown_names("like", [like] if like else (), list(LIBRARIES)),
            *unknown_names("feature", asked["only"], features),
            *unknown_names("dtype", [word for each in types for word in each.asked], list(ASKED_IN)),
            *unknown_names("dtype", [each.stored for each in types if each.stored], list(STORED_IN)),
            *unknown_names("framework", [asked.get("framework", "numpy")], FRAMEWORKS),
        ]
    )

    handed = {each.computed: each.own for each in types if each.own != each.computed}
    stored = {each.computed: each.stored for each in types if each.stored}
    computed = [each.computed for each in types]

    small = [each.computed for each in types if each.computed in EIGHT_BITS or is_small(each.stored)]
    if small and asked.get("backward"):
        raise AttnError(f"--dtype {small[0]}: nothing goes back through eight bits; leave --backward out")

    # What is given overrules claims, and these what a library does.
    profile = LIBRARIES[like] if like else TargetProfile()
    profile = profile.lay_over(read_file(claims, CLAIMS))
    of_arrays = {"handed": handed, "stored": stored}
    profile = profile.lay_over({**given, **of_arrays, "always": always(profile.always)})
    raise_all(f"{profile.always.where(path)}: {what}" for path, what in find_senseless(profile.always))
    if asked.get("merge") and profile.returns not in {(), *OF_MERGE}:
        ways = " or ".join(map(",".join, OF_MERGE))
        raise AttnError(f"returns: {','.join(profile.returns)} is no merge; write {ways}")

    options = {"like": like, "returns": ",".join(given.get("returns", ())), "claims": claims}
    options |= {name: asked.get(name) for name in ("framework", "device", "timeout")}
    return Request(
        profile=profile,
        flags=spell_flags(options, asked.get("renames", {})),
        dtypes=tuple(name for name in ASKED_IN if name in (computed or TYPES)),
        xfail=read_file(xfail, XFAIL),
        calls=calls,
        **asked,
    )


class ArrayTypes(NamedTuple):
    """The types of a target's arrays, as --dtype says them."""

    own: str
    """Of Q and the arrays beside it."""
    computed: str
    """The type that it computes in, where that is another: autocast."""
    stored: str
    """The type of K, V and a cache; empty where it is that of Q."""

    @property
    def asked(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.own, self.computed)))


def read_types(text: str) -> ArrayTypes:
    """float32, float32:bfloat16 (arrays of float32, bfloat16 within), or bfloat16/float8_e4m3 (K and V)."""
    types, _, stored = text.partition("/")
    own, colon, inside = types.partition(":")
    return ArrayTypes(own, inside if colon else own, stored)


def spell_flags(options: Mapping[str, Any], renames: Mapping[str, str]) -> tuple[str, ...]:
    """The words of the command line that say how the target is called."""
    flags: list[str] = []
    for name, value in options.items():
        if value and value != "numpy":  # which is so without being said
            flags += [f"--{name}", str(value)]
    for theirs, ours in renames.items():
        flags += ["--map", f"{theirs}={ours}"]
    return tuple(flags)
