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
    several = len(traces) > 1
    batch = any("batch" in step.axes for trace in traces for step in trace.steps.values())
    columns = ["trace"] * several + ["batch"] * batch + ["step", "head", "row", "column", "value"]
    stream.write(",".join(columns) + "\n")
    for number, trace in enumerate(traces):
        for name in trace:
            stream.writelines(matrices(trace, name, [str(number)] * several, batch=batch))


def matrices(trace: Trace, name: str, before: list[str], *, batch: bool) -> Iterator[str]:
    """The lines of a step, a row of it at a time."""
    array, axes = trace[name], trace.steps[name].axes
    outer = array.ndim - min(2, sum(axis not in LEADING for axis in axes))
    labels = [
        [csv_cell(repeat) for repeat in number_repeats(trace.labels(name, axis))]
        for axis in range(outer, array.ndim)
    ]
    rows, columns = ([[""], [""], *labels])[-2:]
    leading = [trace.labels(name, axis) for axis in range(outer)]
    for index in product(*map(range, array.shape[:outer])):
        told = [(axes[axis], leading[axis][i]) for axis, i in enumerate(index)]
        member = ["/".join(label for axis, label in told if axis == "batch")] if batch else []
        heads = "/".join(label for axis, label in told if axis != "batch")
        start = ",".join([*before, *member, csv_cell(name), heads])
        for row, values in zip(rows, array[index].reshape(len(rows), len(columns)), strict=True):
            texts = (number_text(x) if isinstance(x, float) else json.dumps(x) for x in values.tolist())
            cells = zip(columns, texts, strict=True)
            yield "".join(f"{start},{row},{label},{text}\n" for label, text in cells)


def csv_cell(text: str) -> str:
    """A text as a cell: not run as a formula, quoted where needed, and valid UTF-8."""
    text = encode_json(text).decode()
    guarded = f"'{text}" if text.startswith(FORMULA_STARTS) else text
    quoted = any(sign in guarded for sign in ',"\r\n')
    return '"' + guarded.replace('"', '""') + '"' if quoted else guarded
