"""Formats that several kinds of values are written in, by the module that writes them."""

from __future__ import annotations

from attnctl.base.format import Format

FOUND_JSON = Format("json", ".json", "attnctl.store.files:write_found")


def pictures_by(module: str) -> tuple[Format, Format]:
    resvg = "attnctl.drawing.pictures.png:require_resvg"
    svg = Format("svg", ".svg", f"{module}:write_svg", text=True, picture=True)
    return svg, Format("png", ".png", f"{module}:write_png", binary=True, picture=True, needs=resvg)


def workbook(module: str) -> Format:
    openpyxl = "attnctl.drawing.show.workbook.book:require_openpyxl"
    return Format("xlsx", ".xlsx", f"{module}:write_xlsx", binary=True, single=True, needs=openpyxl)


def page(writer: str) -> Format:
    return Format("html", ".html", writer, binary=True)


OF_HEADS = (
    FOUND_JSON,
    Format("csv", ".csv", "attnctl.verbs.stats.view:write_csv", text=True),
    *pictures_by("attnctl.verbs.stats.picture"),
    page("attnctl.pages.tables:write_stats"),
)
"""What each head does, in a dump or over a corpus."""
