"""The matrix on Textual's line API: only the cells that are visible are formatted."""

from __future__ import annotations

from textual import events
from textual.geometry import Size
from textual.strip import Strip

from attnctl.drawing.screen.text import pad_left, pad_right, shorten
from attnctl.verbs.explore.matrix import HEAT_CELL, Matrix
from attnctl.verbs.explore.tui.lines import LineView, strip_of
from attnctl.verbs.explore.view import Parts, TextSpan
from attnctl.verbs.explore.walk import NUMBERS


class MatrixGrid(LineView, can_focus=False):
    """A matrix that scrolls under its labels; a click on a cell goes there.

    It is that of the head one stands in, or of one so many heads on.
    """

    def __init__(self, heads_on: int = 0, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own word)
        super().__init__(id=id)
        self.heads_on = heads_on
        self.matrix: Matrix | None = None
        self.mode, self.row, self.column = NUMBERS, 0, 0

    def show(self, matrix: Matrix, mode: str, row: int, column: int) -> None:
        """Show this matrix, its cursor in view."""
        self.matrix, self.mode, self.row, self.column = matrix, mode, row, column
        width = matrix.label_width + matrix.columns * self.cell
        self.virtual_size = Size(width, matrix.rows + 1)
        self.into_view()
        self.refresh()

    @property
    def cell(self) -> int:
        assert self.matrix is not None
        return self.matrix.cell_width(self.mode, self.size.width - self.matrix.label_width - 1)

    @property
    def page(self) -> int:
        return max(1, self.scrollable_content_region.height - 1)

    def into_view(self) -> None:
        """Scroll as little as brings the cursor into view."""
        assert self.matrix is not None
        cell, region = self.cell, self.scrollable_content_region
        room = max(cell, region.width - self.matrix.label_width)
        x, y = self.scroll_offset
        left, right = self.column * cell, (self.column + 1) * cell
        x = left if left < x else max(x, right - room)
        y = self.row if self.row < y else max(y, self.row - self.page + 1)
        self.scroll_to(x, y, animate=False)

    def on_resize(self) -> None:
        """Keep the cursor in view."""
        if self.matrix is not None:
            self.into_view()

    def render_line(self, y: int) -> Strip:
        """The labels of the columns, or a row of the matrix."""
        width = self.scrollable_content_region.width
        matrix = self.matrix
        x, top = self.scroll_offset
        row = y - 1 + top
        if matrix is None or row >= matrix.rows or not matrix.columns:
            return Strip.blank(width)
        cell, room = self.cell, width - matrix.label_width
        first = x // cell
        columns = range(first, min(matrix.columns, (x + room) // cell + 1))
        shift = x - first * cell
        if y == 0:
            label: Parts = [TextSpan(pad_right(matrix.corner, matrix.label_width), "aside")]
            body = self.heading(columns, cell)
        else:
            style = "label+cursor" if row == self.row else "label"
            label = [
                TextSpan(pad_right(matrix.row_labels[row], matrix.label_width - 1), style),
                TextSpan(" "),
            ]
            body = self.cells(row, columns, cell)
        shown = strip_of(body, self.system).crop_extend(shift, shift + max(0, room), None)
        return Strip.join([strip_of(label, self.system), shown]).crop_extend(0, width, None)

    def heading(self, columns: range, cell: int) -> Parts:
        """The labels of these columns; of a heat map only that of the cursor has room."""
        assert self.matrix is not None
        labels = self.matrix.column_labels
        if cell > HEAT_CELL:
            return [
                TextSpan(
                    f" {pad_left(labels[at], cell - 2)} ", "label+cursor" if at == self.column else "label"
                )
                for at in columns
            ]
        if self.column not in columns:
            return []
        before = (self.column - columns.start) * cell
        room = len(columns) * cell
        text = shorten(labels[self.column], max(1, room))
        before = min(before, max(0, room - len(text)))
        return [TextSpan(" " * before), TextSpan(text, "label+cursor")]

    def cells(self, row: int, columns: range, cell: int) -> Parts:
        assert self.matrix is not None
        out: Parts = []
        for column, spans in zip(columns, self.matrix.row(self.mode, row, columns, cell), strict=True):
            here = row == self.row and column == self.column and not self.heads_on
            out += [TextSpan(text, f"{style}+cursor" if here else style) for text, style in spans]
        return out

    async def on_click(self, event: events.Click) -> None:
        """Go to the cell under the mouse."""
        matrix = self.matrix
        if matrix is None or not matrix.values.size:
            return
        x, top = self.scroll_offset
        row = event.y - 1 + top if event.y else self.row
        column = (event.x - matrix.label_width + x) // self.cell
        column = self.column if event.x < matrix.label_width else column
        if row < matrix.rows and column < matrix.columns:
            event.stop()
            if self.heads_on:
                await self.app.run_action(f"head({self.heads_on})")
            await self.app.run_action(f"cell({row},{column})")
