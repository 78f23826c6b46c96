"""Values that show themselves as text and in notebooks, without importing what draws them.

Values stand below their views. The package registers the views by name when it is imported.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which is not imported: this is on the way of every start
if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from typing import Any

VIEWS: dict[str, str] = {}
"""By class, the function `lines(value, screen)` that draws a value of it; by role, what helps.

Each is "module:function".
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
        text: str = find("plain_text")(find(name), self) if name in VIEWS else repr(self)
        return text

    def _repr_html_(self) -> str:
        html: str = self._repr_mimebundle_()["text/html"]
        return html

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
