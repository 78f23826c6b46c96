"""A line of a program as it is written: its op, the variables it reads, and lines that it needs before it.

A writer is handed a `Writing`, and gives the op's expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.drawing.show.program.libraries import Library
from attnctl.math import Array, Shape
from attnctl.math.axes import LEAD
from attnctl.math.ops import base
from attnctl.math.ops.base import parse_signature
from attnctl.math.ops.products import with_lead_numbered
from attnctl.math.rules import PerBatch, per_batch

PREFERRED = {
    "batch": "b", "head": "h", "kv_head": "h", "query": "q", "key": "k", "token": "n", "new": "n",
    "d_model": "m", "d_k": "d", "d_v": "v", "chunk": "c",
}  # fmt: skip
"""Letters of axes in an einsum; one that is taken gives way to the first that is free."""

OTHERS = "ijlopqrstuvwxyz"


class NotWrittenError(Exception):
    """There is no line for this yet; what it says completes "a program has no line for …"."""


@dataclass(frozen=True)
class Writing:
    """One line that is being written: its op, the variables it reads, and where more lines go."""

    library: Library
    name: str
    op: Any
    names: tuple[str, ...]
    shapes: tuple[Shape, ...]
    axes: tuple[tuple[str, ...], ...]
    """The axes of each input, as tables have them."""
    shape: Shape
    """That of the result."""
    arrays: tuple[Array, ...]
    """What stood in the inputs, for what depends on whether a row sees anything."""
    let: Callable[[str, str], str]
    """Write a line before, unless it is there, and give the name it has."""
    numbers: Callable[[str, Array], str]
    """Write numbers before, and give their name."""
    helper: Callable[[str, str], str]
    """Define a function, and give its name."""

    @property
    def x(self) -> str:
        return self.names[0]

    def call(self, function: str, *arguments: str) -> str:
        """A call of a function of the library."""
        return self.library.call(function, *arguments)

    @property
    def is_batched(self) -> bool:
        return len(self.shape) > 3

    def product(self, plain: str) -> str:
        """A contraction: in letters where the library is einsum, else as it is written."""
        return self.einsum() if self.library.einsum else plain

    def einsum(self) -> str:
        """The contraction of the first inputs that the signature of the op says."""
        takes, gives = self.spread_axes()
        letter_of = self.letters(takes)

        def spell(axes: Sequence[str]) -> str:
            return "".join(letter_of[axis] for axis in axes)

        pattern = f"{','.join(map(spell, takes))}->{spell(gives)}"
        return self.call("einsum", f'"{pattern}"', *self.names[: len(takes)])

    def letters(self, takes: Sequence[Sequence[str]]) -> dict[str, str]:
        """A letter for each axis of a signature, where it can be that of the axis that tables show."""
        shown: dict[str, str] = {}
        for axes, labels in zip(takes, self.axes, strict=False):
            shown.update(zip(axes, labels, strict=True))

        letter_of: dict[str, str] = {}
        for axis in dict.fromkeys(chain.from_iterable(takes)):
            wanted = PREFERRED.get(shown.get(axis, axis), "")
            candidates = [*wanted, *OTHERS]
            letter_of[axis] = next(letter for letter in candidates if letter not in letter_of.values())
        return letter_of

    def spread_axes(self) -> tuple[list[list[str]], list[str]]:
        """The axes of the first two inputs and of the result, leading ones by number from the right."""
        named, gives = parse_signature(self.op.signature)
        count = min(2, len(self.names))
        takes: list[list[str]] = []
        longest = 0
        for axes, shape in zip(named[:count], self.shapes, strict=False):
            own = there(axes, shape)
            lead = len(shape) - len(own) + own.count(LEAD)
            longest = max(longest, lead)
            takes.append(with_lead_numbered(own, lead))
        return takes, with_lead_numbered(there(gives, self.shape), longest)

    # --- where queries and keys stand ---

    def positions(self, tokens: int, start: PerBatch, name: str = "position", axes: int = 2) -> str:
        """The position of each token; of each member where they differ, so that it broadcasts."""
        if isinstance(start, int):
            return self.let(name, self.count_from(start, tokens))
        return self.numbers(name, np.arange(tokens) + per_batch(start, axes=axes))

    def count_from(self, start: int, count: int) -> str:
        """So many whole numbers from one on."""
        return self.call("arange", f"{start}, {start + count}" if start else f"{count}")

    def queries(self) -> str:
        """The positions of the queries, a row each."""
        count = self.shape[-2]
        offset = self.op.offset
        if isinstance(offset, int):
            return self.let("query", f"{self.count_from(offset, count)}[:, None]")
        return self.numbers("query", np.arange(count)[:, None] + per_batch(offset))

    def keys(self) -> str:
        return self.let("key", self.call("arange", str(self.shape[-1])))


def there(axes: tuple[str, ...], shape: Shape) -> tuple[str, ...]:
    """The axes of a signature that an array of this shape has, of those that may be lacking."""
    lacking = max(len(axes) - len(shape), 0)
    optional = [axis for axis in axes if axis.endswith("?")]
    left_out = optional[:lacking]
    return tuple(axis.rstrip("?") for axis in axes if axis not in left_out)


Writer = Callable[[Writing], str]

WRITERS: dict[type[base.Op], Writer] = {}
"""How each op is written."""


def writes(*kinds: type[base.Op]) -> Callable[[Writer], Writer]:
    def register(writer: Writer) -> Writer:
        WRITERS.update(dict.fromkeys(kinds, writer))
        return writer

    return register
