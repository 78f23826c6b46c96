"""From options to settings: flags over the config over defaults."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from attnctl.cli.options import Given
from attnctl.config.fields import FIELDS, laid
from attnctl.config.positions import ROPE_OPTIONS
from attnctl.config.settings import Settings
from attnctl.derivation import Rotary
from attnctl.errors import AttnError
from attnctl.values import Path


def settings_from(config: str | None, flags: Given, base: Settings | None = None, **more: Any) -> Settings:
    """The settings of a command line; `more` holds settings that are no flags of the table.

    Flags are laid over the config, or over `base` where there is none. Raises AttnError with
    every problem in the config, or with flags that have no meaning.
    """
    given = with_rotary_options(flags) | {name: each for name, each in more.items() if each is not None}
    base = base or Settings()
    if config is not None:
        from attnctl.config.load import load

        base = load(config)
    return replace(laid(base, given), where=placed(base.where, given))


def with_rotary_options(flags: Given) -> Given:
    """The flags with those of rotary positions made part of the positions."""
    keys = {key.keyword: key for key in ROPE_OPTIONS.keys.values()}
    options = {key.name: flags[name] for name, key in keys.items() if name in flags}
    others = {name: value for name, value in flags.items() if name not in keys}
    if not options:
        return others
    rotary = flags.get("positions")
    if not isinstance(rotary, Rotary):
        unused = ", ".join(key.flag.name for name, key in keys.items() if name in flags and key.flag)
        raise AttnError(f"{unused}: only rotary positions have that; add --positions rope")
    return others | {"positions": replace(rotary, **options)}


def placed(base: Callable[[Path], str], given: Collection[str]) -> Callable[[Path], str]:
    """Where a value was written: as a flag, or wherever the config has it."""
    configured = base is not Settings().where

    def where(path: Path) -> str:
        name = str(path[0])
        if configured and name not in given:
            return base(path)
        if not configured and name in {"sentence", "context"}:
            return name
        flag = FIELDS[name].flag if name in FIELDS else None
        return flag.name if flag else f"--{name.replace('_', '-')}"

    return where
