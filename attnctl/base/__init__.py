"""The ground: what every room may use."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which is not imported: this is on the way of every start
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Any

__version__ = "0.2.0"

VIEWS: dict[str, str] = {}
"""What helps to show values, each as "module:function"; it stands above them, so the package says it."""


def register_views(*, plain_text: str, notebook: str) -> None:
    """Say which functions make text and a notebook's page of a value; nothing is imported until then."""
    VIEWS.update(plain_text=plain_text, notebook=notebook)


class Displayed:
    """A value that is printed as its command prints it to a pipe, and shown in notebooks as its page."""

    def __str__(self) -> str:
        from attnctl.base.format import function
        from attnctl.base.rooms import view_of

        view = view_of(type(self).__name__)
        return repr(self) if view is None else function(VIEWS["plain_text"])(function(view), self)

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]

    def _repr_mimebundle_(
        self, include: Container[str] | None = None, exclude: Container[str] | None = None
    ) -> dict[str, Any]:
        """Its page in a frame, and text for where frames are not shown."""
        from attnctl.base.format import function

        found: dict[str, Any] = function(VIEWS["notebook"])(self)
        return {
            kind: data
            for kind, data in found.items()
            if (include is None or kind in include) and (exclude is None or kind not in exclude)
        }
