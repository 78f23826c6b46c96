"""What shows itself in a notebook: as a page of its own, in a frame that can do nothing else."""

from __future__ import annotations

from collections.abc import Container
from importlib import import_module
from typing import Any


class Shown:
    """Shows itself in notebooks as the page that `-o FILE.html` writes.

    The page is made when it is asked for, so that nobody else pays for importing what makes it.
    """

    def _repr_html_(self) -> str:
        """The page in a frame."""
        html: str = self._repr_mimebundle_()["text/html"]
        return html

    def _repr_mimebundle_(
        self, include: Container[str] | None = None, exclude: Container[str] | None = None
    ) -> dict[str, Any]:
        """The page in a frame, and what there is to read where frames are not shown."""
        found: dict[str, Any] = import_module("attnctl.report.notebook").bundle(self)
        return {
            kind: data
            for kind, data in found.items()
            if (include is None or kind in include) and (exclude is None or kind not in exclude)
        }
