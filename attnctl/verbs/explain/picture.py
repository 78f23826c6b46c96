"""An explanation as a picture that moves: from q and k to what the query reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TextIO

from attnctl.drawing.show.cell import CellWay, way_of, write_cell_gif, write_cell_svg
from attnctl.verbs.explain.view import Question


def write_svg(found: Sequence[Question], stream: TextIO) -> None:
    """The first of these cells, moving. Raises AttnError where no way leads to it from Q and K."""
    write_cell_svg(way_to(found), stream)


def write_gif(found: Sequence[Question], stream: IO[bytes]) -> None:
    """The same as a GIF. Raises AttnError where resvg-py or Pillow is missing, too."""
    write_cell_gif(way_to(found), stream)


def way_to(found: Sequence[Question]) -> CellWay:
    explainer, address, depth = found[0]
    root = explainer.root(address, depth)
    return way_of(explainer.trace, root.step, root.cell)
