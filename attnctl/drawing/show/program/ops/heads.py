"""How heads, caches and pages are written: what is split, repeated, put behind each other or gathered."""

from __future__ import annotations

from attnctl.drawing.show.program.ops.writing import Writing, writes
from attnctl.math.ops import models, pages, vectors


@writes(vectors.Append)
def append(w: Writing) -> str:
    return w.library.joined(list(w.names), -2)


@writes(vectors.Repeat)
def repeat(w: Writing) -> str:
    return w.library.repeated(w.x, w.op.times, -3)


@writes(vectors.SumGroups)
def sum_groups(w: Writing) -> str:
    *lead, heads, keys, width = w.shapes[0]
    times = w.op.times
    groups = w.library.reshaped(w.x, (*lead, heads // times, times, keys, width))
    return w.library.reduce("sum", groups, -3)


@writes(vectors.Merge)
def merge(w: Writing) -> str:
    return w.library.reshaped(w.library.heads_exchanged(w.x), w.shape)


@writes(vectors.Split)
def split(w: Writing) -> str:
    *lead, heads, queries, width = w.shape
    by_query = w.library.reshaped(w.x, (*lead, queries, heads, width))
    return w.library.heads_exchanged(by_query)


@writes(models.Beside)
def beside(w: Writing) -> str:
    own, shared = w.names
    own_shape, shared_shape = w.shapes
    shape = (*own_shape[:-1], shared_shape[-1])
    spread = w.library.spread(f"{shared}[..., None, :, :]", shape)
    return w.library.joined([own, spread], -1)


@writes(models.OwnColumns)
def own_columns(w: Writing) -> str:
    return f"{w.x}[..., :{w.shape[-1]}]"


@writes(models.SharedColumns)
def shared_columns(w: Writing) -> str:
    first = w.shapes[0][-1] - w.shape[-1]
    return w.library.reduce("sum", f"{w.x}[..., {first}:]", -3)


@writes(pages.Gather)
def gather(w: Writing) -> str:
    slots = w.op.rows(w.shapes[0][1])
    page = w.numbers("page", slots.page)
    slot = w.numbers("slot", slots.slot)
    rows = w.library.heads_exchanged(f"{w.x}[{page}, {slot}]")
    if slots.there.all():
        return rows

    there = w.numbers("there", slots.there)
    beside = "[:, None, :, None]" if slots.there.ndim > 1 else "[:, None]"
    return w.call("where", f"{there}{beside}", rows, "0")
