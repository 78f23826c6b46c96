"""The ground: what every room may use."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which is not imported: this is on the way of every start
if TYPE_CHECKING:
    from collections.abc import Mapping

__version__ = "0.2.0"

VIEWS: dict[str, str] = {}
"""By class, the function `lines(value, screen)` that draws a value of it; by role, what helps.

Each is "module:function". Values stand below their views, so the package registers them by name when it
is imported; `attnctl.base.display` finds them.
"""


def register_views(by_class: Mapping[str, str], *, plain_text: str, notebook: str) -> None:
    """Say which functions draw values; nothing is imported until one is drawn."""
    VIEWS.update(by_class, plain_text=plain_text, notebook=notebook)
