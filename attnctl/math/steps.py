"""A line of a derivation, name = op(inputs), and the list of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from attnctl.base.dataclass import dataclass
from attnctl.math.ops import Given, Op

Axes = tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """One line of the derivation: name = op(inputs)."""

    name: str
    op: Op
    inputs: tuple[str, ...]
    axes: Axes
    formula: str
    symbol: str


@dataclass(frozen=True)
class Derivation:
    """The lines in order; each reads only names that stand above it."""

    steps: tuple[Step, ...]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __getitem__(self, name: str) -> Step:
        return self.by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    @cached_property
    def by_name(self) -> dict[str, Step]:
        """The lines by name."""
        return {step.name: step for step in self.steps}

    @property
    def given(self) -> tuple[str, ...]:
        """The names that must be handed in."""
        return tuple(step.name for step in self.steps if isinstance(step.op, Given))


Lines = Iterator[Step]
