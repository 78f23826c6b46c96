"""The window rule: a query sees only keys near it."""

from __future__ import annotations

from typing import Any, ClassVar

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.setting import Flag, Setting
from attnctl.base.values import BadValueError, Json, Plain, Reader, each, is_unlimited, show, whole
from attnctl.math.rules.base import Mask, Positions, Span, VisibilityRule, within

FAR = 2**53
"""Further than any two positions are apart: larger limits need not fit NumPy's integers."""

KEYS = whole(0, 10**30)
END: Json = {"anyOf": [{"type": "integer", "minimum": 0}, {"enum": [None, "inf"]}]}


def read_end(value: Any) -> int | None:
    """Read the reach of a window: a number of keys, or None without limit."""
    return None if is_unlimited(value) else KEYS(value)


def read_ends(value: Any) -> tuple[int | None, int | None]:
    """L or [L, R]: how many keys back and ahead."""
    if not isinstance(value, list):
        return read_end(value), read_end(value)
    if len(value) != 2:
        raise BadValueError(
            f"a list of {len(value)}; write [back, ahead], like [3, 0], or one number for both"
        )
    left, right = each(value, read_end)
    return left, right


def ends_of_text(text: str) -> Any:
    """'3,0' -> ['3', '0'], as a config has it; '3' -> '3'."""
    ends = [Plain(part.strip()) for part in text.split(",")]
    if len(ends) > 2 or not all(ends):
        raise BadValueError(f"{show(Plain(text))} is not L or L,R; write whole numbers or inf, like 3,0")
    return ends if len(ends) == 2 else ends[0]


ENDS = Reader(
    read_ends, {"anyOf": [END, {"type": "array", "items": END, "minItems": 2, "maxItems": 2}]}, "L[,R]"
)


@dataclass(frozen=True)
class Window(VisibilityRule):
    """A query sees `left` keys back and `right` keys ahead, ends included; None is no limit.

    Mistral's ``sliding_window: W`` is Causal with ``Window(W - 1)`` (a query sees W keys, itself
    among them).
    """

    name: ClassVar[str] = "window"
    words: ClassVar[str] = "A query sees keys from {left} before it to {right} after it."
    relative: ClassVar[bool] = True
    setting: ClassVar[Setting] = Setting(
        name,
        ENDS,
        "L and R: query i sees keys i - L to i + R, ends included; one number is both, inf opens a side.",
        [3, 0],
        Flag(
            "--window",
            more="A model's sliding_window W is --causal --window W-1.",
            parts=ends_of_text,
        ),
    )
    left: int | None = None
    right: int | None = None

    def __post_init__(self) -> None:
        for side in (self.left, self.right):
            if side is not None and side < 0:
                raise AttnError(
                    f"window: {side} is not a number of keys; use 0 or more, or None for no limit"
                )

    def allows(self, query: Positions, key: Positions) -> Mask:
        """query − left <= key <= query + right."""
        import numpy as np

        near = np.ones(np.broadcast_shapes(query.shape, key.shape), dtype=bool)
        if self.left is not None:
            near &= key >= query - min(self.left, FAR)
        if self.right is not None:
            near &= key <= query + min(self.right, FAR)
        return near

    def visible_to_any(self, first: int, last: int, keys: int) -> Span:
        """From the left end of the first query's window to the right end of the last one's."""
        start = 0 if self.left is None else within(first - self.left, keys)
        stop = keys if self.right is None else within(last + self.right + 1, keys)
        return start, stop

    def visible_to_all(self, first: int, last: int, keys: int) -> Span:
        """From the left end of the last query's window to the right end of the first one's."""
        start = 0 if self.left is None else within(last - self.left, keys)
        stop = keys if self.right is None else within(first + self.right + 1, keys)
        return start, stop
