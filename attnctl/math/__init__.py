"""The nouns all the math is about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
else:  # the help of a command has the flags of all rules, and starts without NumPy
    Array = Any
Shape = tuple[int, ...]
Sizes = Mapping[str, int]
"""The size of each axis by its name in a layout; one that nobody knows is not there."""
Cell = tuple[int, ...]
"""The index of one number."""
Keep = Collection[str] | None
"""The names of the steps to keep; None keeps all."""
Progress = Callable[[int, int], None]
"""What is told how much of the work is done, and how much there is."""
