"""From options to settings: flags over the config over defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from typing import Any

from attnctl.api import with_rules
from attnctl.cli.options import AttentionOptions, Positions
from attnctl.config.settings import Path, Settings
from attnctl.derivation import Rotary
from attnctl.engine.memory import parse_size
from attnctl.errors import AttnError, raise_all

LARGEST_SEED = 2**32 - 1
MOST_KEYS = 2**31 - 1


def settings_from(options: AttentionOptions, base: Settings | None = None, **more: Any) -> Settings:
    """The settings of a command line; `more` holds flags of one command alone (seed, d_model, …).

    Flags are laid over the config, or over `base` where there is none. Raises AttnError with
    every problem in the config, or with every flag that has no meaning.
    """
    raise_all(senseless(options, more))
    if more.get("max_memory") is not None:
        more["max_memory"] = parse_size(more["max_memory"])
    base = base or Settings()
    if options.config is not None:
        from attnctl.config.load import load

        base = load(options.config)
    named = {name: getattr(options, name) for name in ("heads", "kv_heads", "scale", "causal_offset")}
    named |= {"dtype": options.dtype.value if options.dtype else None, **more}
    flags = {name: value for name, value in named.items() if value is not None}
    settings = replace(base, **flags, where=placed(base.where, set(flags)))
    return with_rules(
        settings,
        causal=options.causal,
        window=None if options.window is None else parse_window(options.window),
        softcap=options.softcap,
        positions=position_setting(options),
    )


def placed(base: Callable[[Path], str], flags: set[str]) -> Callable[[Path], str]:
    """Where a value was written: as a flag, or wherever the config has it."""
    configured = base is not Settings().where

    def where(path: Path) -> str:
        name = str(path[0])
        if name in flags or not configured:
            return (
                name
                if name in {"sentence", "context"} and not configured
                else f"--{name.replace('_', '-')}"
            )
        return base(path)

    return where


def senseless(options: AttentionOptions, more: dict[str, Any]) -> list[str]:
    """Flags whose value can mean nothing."""
    problems = []
    for name in ("scale", "softcap", "theta"):
        value = getattr(options, name)
        positive = name != "scale"
        if value is not None and (not isfinite(value) or (positive and value <= 0)):
            problems.append(f"--{name}: {value} is not a {'positive ' if positive else ''}finite number")
    seed = more.get("seed")
    if seed is not None and not 0 <= seed <= LARGEST_SEED:
        problems.append(f"--seed: {seed} is not a seed; use 0 to {LARGEST_SEED}")
    offset = options.causal_offset
    if offset is not None and abs(offset) > MOST_KEYS:
        problems.append(f"--causal-offset: {offset} is more keys than there can be; use up to {MOST_KEYS}")
    dims = options.rotary_dims
    if dims is not None and (dims < 2 or dims % 2):
        problems.append(f"--rotary-dims: {dims} is not a number of columns to rotate; use 2, 4, 6, …")
    rotary = {"--theta": options.theta, "--rotary-dims": dims, "--interleaved": options.interleaved or None}
    unused = [flag for flag, value in rotary.items() if value is not None]
    if unused and options.positions is not Positions.rope:
        problems.append(f"{', '.join(unused)}: only rotary positions have that; add --positions rope")
    return problems


def parse_window(text: str) -> tuple[int | None, int | None]:
    """'3' -> (3, 3), '3,0' -> (3, 0), 'inf,0' -> (None, 0)."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 2 or not all(part == "inf" or (part.isascii() and part.isdigit()) for part in parts):
        raise AttnError(f"--window: {text!r} is not L or L,R; write whole numbers from 0, or inf, like 3,0")
    left, right = (None if part == "inf" else int(part) for part in (parts * 2)[:2])
    return left, right


def position_setting(options: AttentionOptions) -> Any:
    """The positions that were asked for, None where none were."""
    if options.positions is None:
        return None
    if options.positions is Positions.rope:
        return Rotary(options.theta or Rotary.theta, options.rotary_dims, options.interleaved)
    return options.positions.value
