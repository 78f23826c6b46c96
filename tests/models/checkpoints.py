"""The tiny checkpoints beside the tests, whole: a case that shares another's tensors gets a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent / "checkpoints"
NAMES = sorted(path.name for path in ROOT.iterdir() if path.is_dir())


def folder_of(name: str, scratch: Path) -> Path:
    """The folder of a checkpoint with its tensors in it."""
    own = ROOT / name
    if not (own / "of").exists():
        return own
    whole = scratch / name
    shutil.copytree(ROOT / (own / "of").read_text(), whole, copy_function=shutil.copyfile)
    shutil.copyfile(own / "config.json", whole / "config.json")
    return whole


def expected_of(name: str) -> dict[str, np.ndarray]:
    """What transformers computes from it."""
    with np.load(ROOT / name / "expected.npz") as found:
        return dict(found)
