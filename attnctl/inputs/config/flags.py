"""Settings as a command line gives them: flags over a config over defaults."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import is_dataclass, replace
from typing import Any

from attnctl.base.errors import AttnError
from attnctl.base.setting import Given
from attnctl.base.values import Path
from attnctl.inputs.config.fields import FIELDS, IN_PARTS, KEYWORDS, lay_over
from attnctl.inputs.config.settings import Settings


def settings_from(config: str | None, flags: Given, base: Settings | None = None, **more: Any) -> Settings:
    """The settings of a command line; `more` holds settings that are no flags of the table.

    Flags are laid over the config, or over `base` where there is none. Raises AttnError with
    every problem in the config, or with flags that have no meaning.
    """
    base = base or Settings()
    if config is not None:
        from attnctl.inputs.config.load import load

        base = load(config)
    every = {**combine_parts(flags, base), **more}
    given = {name: value for name, value in every.items() if value is not None}
    where = place_of_setting(base.where, given)
    return replace(lay_over(base, given), where=where, named=base.named.union(given))


WHOLE = {
    "positions": "rotary positions have that; add --positions rope",
    "qk_norm": "norms of Q and K have that; add --qk-norm rms or --qk-norm layer",
}
"""The words on a flag of a part where the whole is not asked for."""


def combine_parts(flags: Given, base: Settings) -> Given:
    """The flags, those of a part of a setting laid over it: --theta over the rotary positions."""
    given = dict(flags)
    for name, form in IN_PARTS.items():
        parts = {key.name: given.pop(key.keyword) for key in form.keys.values() if key.keyword in flags}
        if not parts:
            continue
        setting = given.get(name, getattr(base, name))
        if not is_dataclass(setting):
            unused = ", ".join(form.keys[part].flag_name for part in parts)
            raise AttnError(f"{unused}: only {WHOLE[name]}")
        given[name] = replace(setting, **parts)  # type: ignore[type-var]
    return given


def place_of_setting(base: Callable[[Path], str], given: Collection[str]) -> Callable[[Path], str]:
    """Return the place a value was written at: its flag, or its line in the config."""
    configured = base is not Settings().where

    def where(path: Path) -> str:
        name = str(path[0])
        if configured and name not in given:
            return base(path)
        if not configured and name in {"sentence", "context"}:
            return name
        return FIELDS[name].flag_name if name in FIELDS else f"--{name.replace('_', '-')}"

    return where


def by_flag(given: Given) -> Given:
    """The settings that are given, by their flag."""
    spelled = {name: f"--{name.replace('_', '-')}" for name in given}
    return {KEYWORDS[name].flag_name if name in KEYWORDS else spelled[name]: given[name] for name in given}
