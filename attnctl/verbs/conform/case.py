"""A case: a small value that fixes every array of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.values import to_tuples
from attnctl.math import Array, Sizes
from attnctl.math.names import HEAD_OUTPUTS, gradient_of
from attnctl.math.rules import PerBatch

INPUTS = ("Q", "K", "V")
COTANGENT = gradient_of(HEAD_OUTPUTS)
"""The gradient of the loss by the output, which a backward pass begins with."""

FORWARD = (HEAD_OUTPUTS,)
GRADIENTS = tuple(map(gradient_of, INPUTS))
"""The outputs of a forward and of a backward pass that are judged, in order."""

CAPTURED = "captured"
ACTIVATIONS = "activations"
"""The fills of a call as it was captured, and of numbers drawn in its shape; an option's captured array."""


PLAIN = "plain"
MEMORIES = ("fortran", "strided", "transposed", "broadcast")
"""The ways in which arrays lie in memory: row after row, and others."""


@dataclass(frozen=True, eq=False)
class Captured:
    """A call of attention that a program made: its arrays by name, over (batch, head, row, column)."""

    name: str
    arrays: Mapping[str, Array]
    scale: float
    offset: PerBatch = 0
    """The keys before query 0."""


@dataclass(frozen=True)
class Case:
    """The sizes, the options and the numbers of one call; `keys` counts those of a cache too."""

    dtype: str = "float64"
    batch: int = 2
    heads: int = 2
    kv_heads: int = 2
    queries: int = 16
    keys: int = 16
    d_k: int = 16
    d_v: int = 16
    options: tuple[tuple[str, Any], ...] = ()
    fill: str = "random"
    magnitude: float = 1.0
    memory: str = PLAIN
    seed: int = 0
    call: Captured | None = None

    def __str__(self) -> str:
        heads = f"{self.heads}" if self.heads == self.kv_heads else f"{self.heads}/{self.kv_heads}"
        parts = [
            f"{self.dtype}, batch {self.batch}, heads {heads}, {self.queries} queries, {self.keys} keys"
        ]
        parts.append(f"d_k {self.d_k}")
        if self.d_v != self.d_k:
            parts.append(f"d_v {self.d_v}")
        parts += [f"{name} {value}" for name, value in self.options]

        # What is usual is not said.
        if self.fill not in {"random", CAPTURED}:
            parts.append(f"fill {self.fill}")
        if self.call and self.fill in {CAPTURED, ACTIVATIONS}:
            parts.append(f"captured {self.call.name}")
        if self.magnitude != 1:
            parts.append(f"inputs times {self.magnitude:g}")
        if self.memory != PLAIN:
            parts.append(f"arrays {self.memory}")
        return ", ".join(parts)

    @property
    def option_values(self) -> dict[str, Any]:
        return dict(self.options)

    @property
    def past(self) -> int:
        """Keys that come from a cache."""
        return int(self.option_values.get("cache", 0))

    @property
    def weights(self) -> int:
        """How many weights it has, with which the time of a call grows."""
        return self.batch * self.heads * self.queries * self.keys

    @property
    def sizes(self) -> Sizes:
        return {
            "batch": self.batch, "head": self.heads, "kv_head": self.kv_heads, "query": self.queries,
            "key": self.keys, "past": self.past, "d_k": self.d_k, "d_v": self.d_v,
        }  # fmt: skip

    @property
    def has_lengths(self) -> bool:
        """Whether its call is passed how many keys each member has."""
        return not {"key_lengths", "pages"}.isdisjoint(self.option_values)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The keys of each member that are no padding, where the case has key lengths."""
        captured = self.option_values.get("key_lengths")
        if isinstance(captured, tuple):
            return tuple(min(length, self.keys) for length in captured[: self.batch])

        # The first member lacks one key, each further one five more, around until one is left.
        most = max(self.keys - 1, 1)
        return tuple(max(1, self.keys - 1 - 5 * member % most) for member in range(self.batch))

    def of_size(self, n: int) -> Case:
        """So many queries, and as many keys."""
        return replace(self, queries=n, keys=n)

    def having(self, **options: Any) -> Case:
        return replace(self, options=tuple({**self.option_values, **options}.items()))

    def without(self, *names: str) -> Case:
        return replace(self, options=tuple(option for option in self.options if option[0] not in names))

    @classmethod
    def of(cls, data: Any) -> Case:
        """The case that a dump's header holds. Raises AttnError for what is none."""
        try:
            values = {field.name: data[field.name] for field in fields(cls) if field.name != "call"}
            values["options"] = tuple((name, to_tuples(value)) for name, value in data["options"])
            return cls(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise AttnError(f"conform.case: not a case of attnctl conform ({error})") from None
