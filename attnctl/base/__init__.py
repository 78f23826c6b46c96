"""The ground: what every room may use."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which is not imported: this is on the way of every start
if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from typing import Any

__version__ = "0.2.0"

VIEWS: dict[str, str] = {}
"""By class, the function `lines(value, screen)` that draws a value of it; by role, what helps.

Each is "module:function". Values stand below their views, so the package registers them by name when it
is imported.
"""


def register_views(by_class: Mapping[str, str], *, plain_text: str, notebook: str) -> None:
    """Say which functions draw values; nothing is imported until one is drawn."""
    VIEWS.update(by_class, plain_text=plain_text, notebook=notebook)


def find(view: str) -> Any:
    from importlib import import_module

    module, function = VIEWS[view].split(":")
    return getattr(import_module(module), function)


class Displayed:
    """A value that is printed as its command prints it to a pipe, and shown in notebooks as its page."""

    def __str__(self) -> str:
        name = type(self).__name__
        return find("plain_text")(find(name), self) if name in VIEWS else repr(self)

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]

    def _repr_mimebundle_(
        self, include: Container[str] | None = None, exclude: Container[str] | None = None
    ) -> dict[str, Any]:
        """Its page in a frame, and text for where frames are not shown."""
        found: dict[str, Any] = find("notebook")(self)
        return {
            kind: data
            for kind, data in found.items()
            if (include is None or kind in include) and (exclude is None or kind not in exclude)
        }
