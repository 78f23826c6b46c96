"""The trace that Python users get: the record of a run, and what can be done with it."""

from __future__ import annotations

from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np

from attnctl.base import Displayed
from attnctl.base.errors import AttnError
from attnctl.math.names import WEIGHTS
from attnctl.record import Trace as AnyTrace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnctl.drawing.pictures.draw import Picture
    from attnctl.drawing.show.tables import StepTable
    from attnctl.verbs.explain import Explanation

LEADING = ("batch", "head")


class Trace(Displayed, AnyTrace):
    """The steps of a run and their arrays, by name: ``trace["attention_weights"]``."""

    @classmethod
    def of(cls, other: AnyTrace) -> Trace:
        """Make one of a plain trace: the steps, arrays and header stay."""
        return cls(other.steps, other.arrays, other.header)

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to a file in the format that the suffix names: .json .npz .csv .md …

        Raises AttnError for a suffix that names none, and where the file cannot be written.
        """
        from attnctl.formats import write

        write([self], fspath(path))

    def explain(self, cell: str) -> Explanation:
        """The arithmetic behind one cell: ``print(trace.explain("scores[0,love,AI]"))``.

        Raises AttnError where there is no such cell, or where what it came from is not there.
        """
        from attnctl.verbs.explain import explain

        return explain(self, cell)

    def table(
        self, step: str, *, heads: Sequence[int] | None = None, precision: int = 4, full: bool = False
    ) -> StepTable:
        """A step for any Rich console or layout; as a string, the text that a pipe gets.

        Raises AttnError for a step or head that is not there.
        """
        from attnctl.drawing.show.tables import table

        return table(self, step, heads=heads, precision=precision, full=full)

    def plot(
        self,
        step: str = WEIGHTS,
        *,
        head: int | Sequence[int] | None = None,
        log: bool = False,
        without_first: bool = False,
        precision: int = 2,
    ) -> Picture:
        """A step as a picture, a panel a head: ``trace.plot("scores").save("scores.svg")``.

        `log` colours by the logarithm; `without_first` leaves out the first key. Notebooks show it.
        Raises AttnError for a step or head that is not there, and for a logarithm of negative numbers.
        """
        from attnctl.drawing.show import View
        from attnctl.drawing.show.picture import picture_of

        heads = None if head is None else tuple(int(number) for number in np.atleast_1d(head))
        view = View((step,), heads, precision, log=log, without_first=without_first)
        return picture_of([self], view)

    def to_dataframe(self) -> Any:
        """A pandas.DataFrame with a row for each number: step, head, row, column, value.

        Rows and columns are tokens where the axis has them, as in CSV. Raises AttnError where
        pandas is not installed.
        """
        try:
            pd: Any = import_module("pandas")  # no import statement: its types are not installed with it
        except ImportError:
            raise AttnError("a data frame needs pandas; pip install pandas") from None
        parts = []
        for name, step in self.steps.items():
            array = np.asarray(self[name], dtype=np.float64)
            outer = array.ndim - min(2, sum(axis not in LEADING for axis in step.axes))
            inner = [self.labels(name, axis) for axis in range(outer, array.ndim)]
            places: dict[str, Any] = dict(zip(step.axes, map(range, array.shape[:outer]), strict=False))
            places |= dict(zip(("row", "column")[-len(inner) :], inner, strict=True)) if inner else {}
            index = pd.MultiIndex.from_product(places.values(), names=places) if places else None
            part = pd.DataFrame({"value": array.reshape(-1)}, index).reset_index(drop=not places)
            parts.append(part.assign(step=name))
        whole = pd.concat(parts, ignore_index=True)
        leading = [axis for axis in LEADING if axis in whole]
        whole = whole.astype(dict.fromkeys(leading, "Int64"))  # <NA> where a step has no heads
        first = ["step", *leading]
        return whole[[*first, *(column for column in whole if column not in {*first, "value"}), "value"]]


class Traces(list[Trace]):
    """Traces of several sentences or layers: a list, and in a notebook one page."""

    _repr_mimebundle_ = Displayed._repr_mimebundle_
