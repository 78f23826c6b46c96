"""When a test lets an output pass, and how wrong that is."""

from __future__ import annotations

from math import inf, isfinite
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array

Outputs = tuple[Array, ...]


@dataclass(frozen=True)
class Criterion:
    """When an output passes: how close its numbers are, which share of them, and its direction."""

    rtol: float | None = None
    atol: float | None = None
    ratio: float | None = None
    cosine: float | None = None

    def words(self) -> str:
        """The options of the command line that say it."""
        said = {"rtol": self.rtol, "atol": self.atol, "ratio": self.ratio, "cosine": self.cosine}
        return " ".join(f"--{name} {value:g}" for name, value in said.items() if value is not None)

    @property
    def by_number(self) -> bool:
        return self.rtol is not None or self.atol is not None

    def outside(self, off: Array, right: Array) -> float:
        """The share of numbers that are too far off."""
        allowed = (self.atol or 0.0) + (self.rtol or 0.0) * np.abs(right)
        return float(np.mean(~(off <= allowed)))

    def passes(self, found: Array, right: Array, outside: float) -> bool:
        if self.by_number and outside > 1 - (1.0 if self.ratio is None else self.ratio):
            return False
        return self.cosine is None or cosine_of(found, right) >= self.cosine


def cosine_of(found: Array, right: Array) -> float:
    """Of all numbers as one vector; that of zeros is 0."""
    a, b = found.ravel().astype(np.float64), right.ravel().astype(np.float64)
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size else 0.0


ASSERT_CLOSE = {
    "float64": Criterion(1e-7, 1e-7),
    "float32": Criterion(1.3e-6, 1e-5),
    "float16": Criterion(1e-3, 1e-5),
    "bfloat16": Criterion(1.6e-2, 1e-5),
}
"""What torch.testing.assert_close takes where nothing is said."""


@dataclass(frozen=True)
class KernelOutcome:
    """What a kernel gave: whether it passes, and how wrong it is."""

    name: str
    passes: bool
    error: float
    """The largest difference; ∞ where there is one without end, or another shape."""
    relative: float
    """The largest difference, by the largest right number of the same array."""
    outside: float
    """The share of numbers outside the criterion."""

    def to_dict(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in ("name", "passes", "error", "relative", "outside")}
        return {name: "Infinity" if value == inf else value for name, value in found.items()}


@np.errstate(all="ignore")  # a wrong kernel's numbers may have no end
def hold(name: str, found: Outputs, right: Outputs, criterion: Criterion) -> KernelOutcome:
    """Hold what came out to what is right, array by array; all have to pass."""
    error = relative = outside = 0.0
    passes = True
    for array, expected in zip(found, right, strict=True):
        if array.shape != expected.shape:
            return KernelOutcome(name, False, inf, inf, 1.0)
        off = np.abs(array - expected)
        most = float(off.max(initial=0.0))
        most = most if isfinite(most) else inf
        beyond = criterion.outside(off, expected)
        passes &= criterion.passes(array, expected, beyond)
        error, outside = max(error, most), max(outside, beyond)
        relative = max(relative, most / float(np.abs(expected).max(initial=0.0) or 1.0))
    return KernelOutcome(name, passes, error, relative, outside)
