"""Values that show themselves as text and in notebooks, without importing what draws them."""

from __future__ import annotations

from collections.abc import Container
from importlib import import_module
from typing import Any

from attnctl.base import VIEWS


def find(view: str) -> Any:
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
