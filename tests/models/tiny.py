"""A tiny config.json of a family that has no case in `cases.py`, read off its entry in the package.

Each key that says a size says a small one; what else has to be small its entry says (`Stack.example`).
"""

from __future__ import annotations

import json
from typing import Any

from cases import CASES, IDS
from checkpoints import ROOT

from attnctl.models.families import FAMILIES
from attnctl.models.family import DEFAULTS, Stack
from attnctl.models.keys import Key

SIZES = {
    "layers": 2,
    "width": 16,
    "heads": 4,
    "kv_heads": 2,
    "d_k": 6,
    "vocab": 32,
    "longest": 64,
    "intermediate": 24,
}


def example_of(stack: Stack) -> dict[str, Any]:
    """The settings of a tiny stack of layers, each under the first name of its key."""
    settings = {**DEFAULTS, **stack.settings}
    sizes = {
        settings[name].names[0]: size for name, size in SIZES.items() if isinstance(settings[name], Key)
    }
    return {**sizes, **IDS, **stack.example}


def model_type_of(case: dict[str, Any]) -> str:
    if "model" not in case:
        return case["name"]
    made = ROOT / case["name"] / "config.json"
    if made.exists():
        return json.loads(made.read_text())["model_type"]
    return case["name"] if case["name"] in FAMILIES else case["name"].replace("-", "_")


WITH_CASES = {model_type_of(case) for case in CASES}

EVERY_CASE = [
    *CASES,
    *(
        {"name": kind, "settings": example_of(stacks[""]), "dtype": "bfloat16"}
        for kind, stacks in FAMILIES.items()
        if kind not in WITH_CASES
    ),
]
"""The cases, and one of each family that has none: all that it says is its name and its settings."""

UNFROZEN = [case["name"] for case in EVERY_CASE if not (ROOT / case["name"]).exists()]
"""The families of which no checkpoint is checked in yet."""
