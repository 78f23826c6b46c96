"""The settings that may be declared of a target, by options and in claims alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from attnctl.base.setting import ATTENTION, Flag, Form, Setting
from attnctl.base.values import SIZE, BadValueError, Plain, Reader, each, show, words
from attnctl.inputs.config.fields import FIELDS, KEYWORDS, lay_over, settings_with_flags
from attnctl.inputs.config.settings import SINUSOIDAL, Settings
from attnctl.math.kind import BACKWARD, CHUNKS, COTANGENT, KIND, LOGSUMEXP
from attnctl.verbs.conform.profile import AXES, MASKS, NOTHING

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
    [*ARRAYS.values(), Setting("always", ALWAYS_FORM, "Attention that is always on.")],
)


def find_senseless(always: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Name the settings that have no meaning for a function of Q, K and V."""
    if always.positions == SINUSOIDAL or isinstance(always.positions, list):
        yield ("positions",), "such positions are added to X, and a target is given Q, K and V"
    heads, kv_heads = always.heads, always.kv_heads
    if heads and kv_heads and heads % kv_heads:
        yield ("kv_heads",), f"{kv_heads} cannot be shared by {heads} heads; write a divisor of {heads}"
