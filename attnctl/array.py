"""The nouns all the math is about."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]
