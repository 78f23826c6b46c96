"""A value in one line of YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isinf
from typing import Any

from attnctl.base.values import quote

PLAIN = re.compile(r"[^\W\d_][\w'’-]*( [\w'’-]+)*")
"""Words that every YAML reader takes as they stand, but for these:"""
RESERVED = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}


def flow(value: Any) -> str:
    """The value in one line of YAML, every digit of its numbers kept."""
    match value:
        case str():
            return text(value)
        case bool():
            return "true" if value else "false"
        case None:
            return "inf"  # the open side of a window: nothing else in a config is None
        case int():
            return str(int(value))
        case float():
            return number(float(value))
        case Mapping():
            return "{" + ", ".join(f"{text(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
        case _:
            return "[" + ", ".join(map(flow, value)) + "]"


def number(value: float) -> str:
    """The shortest digits that read back the same; 1e-05 as 1.0e-05, which is a number in YAML 1.1, too."""
    if isinf(value):
        return ".inf" if value > 0 else "-.inf"
    digits = repr(value)
    return digits if "." in digits else digits.replace("e", ".0e")


def text(value: str) -> str:
    """The text, in quotes wherever some reader of YAML would take it for anything else."""
    return value if PLAIN.fullmatch(value) and value.lower() not in RESERVED else quote(value)
