"""CSV in long form: a line for every number, ``step,head,row,column,value``.

Rows and columns are tokens where the axis has them, ``the#1`` and ``the#2`` where one is repeated,
indices where not; a step without heads leaves `head` empty, a vector leaves `row` empty. A leading
`batch` is there where a step has one, a leading `trace` where there are several traces. A text that
a spreadsheet would run as a formula (= + - @, a tab or a line end first) gets a ' before it; numbers
never do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TextIO

from attnctl.base.words import number_repeats, number_text
from attnctl.record import Trace
from attnctl.store.files import encode_json

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Characters that make a spreadsheet carry out the cell that begins with one."""

LEADING = ("batch", "head")


def write_csv(traces: Sequence[Trace], stream: TextIO) -> None:
    has_traces = len(traces) > 1
    has_batch = any("batch" in step.axes for trace in traces for step in trace.steps.values())

    columns = ["step", "head", "row", "column", "value"]
    if has_batch:
        columns.insert(0, "batch")
    if has_traces:
        columns.insert(0, "trace")
    stream.write(",".join(columns) + "\n")

    for number, trace in enumerate(traces):
        before = [str(number)] if has_traces else []
        for name in trace:
            stream.writelines(matrices(trace, name, before, batch=has_batch))


def matrices(trace: Trace, name: str, before: list[str], *, batch: bool) -> Iterator[str]:
    """The lines of a step, a row of it at a time."""
    array = trace[name]
    axes = trace.steps[name].axes

    # The last two axes are rows and columns, unless they are a batch or heads, which have columns here.
    in_matrix = sum(axis not in LEADING for axis in axes)
    outer = array.ndim - min(2, in_matrix)
    leading = [trace.labels(name, axis) for axis in range(outer)]
    row_labels = [""]
    column_labels = [""]
    for axis in range(outer, array.ndim):
        row_labels = column_labels
        column_labels = unique_cells(trace.labels(name, axis))

    for index in product(*map(range, array.shape[:outer])):
        members: list[str] = []
        heads: list[str] = []
        for axis, place in enumerate(index):
            labels = members if axes[axis] == "batch" else heads
            labels.append(leading[axis][place])

        member = ["/".join(members)] if batch else []
        start = ",".join([*before, *member, csv_cell(name), "/".join(heads)])

        matrix = array[index].reshape(len(row_labels), len(column_labels))
        for row, numbers in zip(row_labels, matrix, strict=True):
            lines = []
            for column, number in zip(column_labels, numbers.tolist(), strict=True):
                text = number_text(number) if isinstance(number, float) else json.dumps(number)
                lines.append(f"{start},{row},{column},{text}\n")
            yield "".join(lines)


def unique_cells(labels: Sequence[str]) -> list[str]:
    """Labels as cells, numbered where one is repeated: the#1, the#2."""
    return [csv_cell(label) for label in number_repeats(labels)]


def csv_cell(text: str) -> str:
    """A text as a cell: not run as a formula, quoted where needed, and valid UTF-8."""
    cell = encode_json(text).decode()
    if cell.startswith(FORMULA_STARTS):
        cell = f"'{cell}"
    if not any(sign in cell for sign in ',"\r\n'):
        return cell

    doubled = cell.replace('"', '""')
    return f'"{doubled}"'
