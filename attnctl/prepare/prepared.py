"""What stands between settings and a trace: the kind of attention and the arrays it starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from attnctl.config.settings import Settings
from attnctl.derivation import Axes, Derivation, Rotary, Variant, derive
from attnctl.execute import carry_out, empty_rows
from attnctl.trace import Trace

Array = NDArray[Any]
Named = dict[str, tuple[Array, str]]
"""Arrays by name, each with how it came about."""


@dataclass(frozen=True)
class Prepared:
    """All that a run needs: the kind of attention, its arrays, and what the dump says of it."""

    variant: Variant
    given: dict[str, Array]
    header: dict[str, Any]
    dtype: str

    @property
    def derivation(self) -> Derivation:
        """The lines to carry out."""
        return derive(self.variant)

    def run(self) -> Trace:
        """Carry it out."""
        return self.record(carry_out(self.derivation, self.given, self.dtype))

    def record(self, arrays: dict[str, Array]) -> Trace:
        """The trace of these values."""
        steps = {step.name: step for step in self.derivation}
        header = dict(self.header)
        empty = empty_rows(arrays["attention_weights"])
        if empty:
            header["empty_rows"] = empty
        return Trace(steps, arrays, header)


def mask_axes(named: Mapping[str, tuple[Array, str]]) -> dict[str, Axes]:
    """The axes of a given mask and bias: the last ones of the scores', as many as it has."""
    full = ("batch", "head", "query", "key")
    return {name: full[-named[name][0].ndim :] for name in ("mask", "bias") if name in named}


def rotary(settings: Settings) -> Rotary | None:
    """The rotary positions, if these are the ones that were asked for."""
    return settings.positions if isinstance(settings.positions, Rotary) else None


def by(shape: tuple[int, ...]) -> str:
    """(4, 8) -> '4 × 8'."""
    return " × ".join(map(str, shape)) or "a single number"
