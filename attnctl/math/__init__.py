"""The nouns all the math is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
else:  # the help of a command has the flags of all rules, and starts without NumPy
    Array = Any
Shape = tuple[int, ...]
Cell = tuple[int, ...]
"""The index of one number."""
