"""What programs make of the same numbers, made once.

Hundreds of programs are tried on a few rows, and many differ in what these rows do not show: windows
of a hundred sizes, keys that only later queries see. From where such programs come to the same numbers, bit
by bit, what follows is that of the one before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field
from weakref import ref

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.namedtuple import NamedTuple
from attnctl.math import Array
from attnctl.math.derivation import Step

FEWEST = 2**12
"""The numbers of a result, or of what it is made of, that take longer to compute than to find."""

MOST = 2**16
"""The most numbers of a result that is kept."""

RESULTS = 16
"""Results that are kept."""

OF_A_STEP = 4
"""Results of one step that another one is compared with."""


class MadeValue(NamedTuple):
    """A result, and what it was made of, as long as that lives: later its identity may be another's."""

    step: Step
    inputs: list[ref[Array]]
    value: Array

    def is_of(self, inputs: Sequence[Array]) -> bool:
        return all(one() is other for one, other in zip(self.inputs, inputs, strict=True))


@dataclass
class MadeOnce:
    """Results of the last programs, those that were used last at the end."""

    results: dict[tuple[int, ...], MadeValue] = field(default_factory=dict)
    of_step: dict[str, deque[Array]] = field(default_factory=dict)

    def apply(self, step: Step, inputs: Sequence[Array]) -> Array:
        """The op of a step on its inputs: the very array of before, where that has the same numbers."""
        key = (id(step.op), *map(id, inputs))
        known = self.results.pop(key, None)
        if known is not None and known.is_of(inputs):
            self.results[key] = known
            return known.value

        value = step.op.apply(*inputs)
        if not is_worth_keeping(value, inputs):
            return value
        value = self.as_before(step.name, value)
        self.results[key] = MadeValue(step, [ref(array) for array in inputs], value)
        if len(self.results) > RESULTS:
            del self.results[next(iter(self.results))]
        return value

    def as_before(self, name: str, value: Array) -> Array:
        earlier = self.of_step.setdefault(name, deque(maxlen=OF_A_STEP))
        for other in earlier:
            if are_same_bits(other, value):
                return other
        earlier.append(value)
        return value


def is_worth_keeping(value: Array, inputs: Sequence[Array]) -> bool:
    """False for a large result, or a part of one, and for what is made sooner than found."""
    if value.size > MOST or value.base is not None:
        return False
    return max(value.size, *(array.size for array in inputs)) >= FEWEST


def are_same_bits(one: Array, other: Array) -> bool:
    """True for the same numbers, NaN and the sign of 0 among them, in the same places."""
    if one.shape != other.shape or one.dtype != other.dtype or one.strides != other.strides:
        return False
    if one.dtype != np.float64:
        return bool(one.dtype == bool and np.array_equal(one, other))
    last = (-1,) * one.ndim
    if one[last] != other[last] and one[last] == one[last]:
        return False  # as it mostly is
    return bool(np.array_equal(one.view(np.int64), other.view(np.int64)))
