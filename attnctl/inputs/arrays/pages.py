"""Keys and values in pages, as serving kernels keep them: what a table reads of them, in K and V."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import all_of, dims, plural
from attnctl.inputs.arrays.problems import unusable
from attnctl.inputs.arrays.reader import TOKENS_BEFORE_HEADS, Laid
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.math.names import (
    HEAD_OUTPUTS,
    KEY_LENGTHS,
    LAST_PAGE,
    OUTPUT,
    PAGE_ENDS,
    PAGE_LIST,
    PAGE_NUMBERS,
    PAGE_TABLE,
    PAGES,
    PROJECTED,
    Q,
)
from attnctl.math.ops.pages import Gather

TOGETHER = (*PAGES, PAGE_TABLE, KEY_LENGTHS)


def read_paged(
    found: Mapping[str, Array],
    settings: Settings,
    lay_out: Callable[[Mapping[str, Array], Settings], Laid],
    *,
    strictly: bool = False,
    ours: bool = False,
) -> tuple[Laid, Settings, Gather | None]:
    """The arrays, laid out with K and V as their pages have them, and pages in their place again.

    Where all is read `strictly`, these are in place of other K and V. Beside a table Q is
    (batch, n, head, d), as kernels take it, where its heads can be shared so, no layout is said, and it is
    not `ours`; the one query of a sequence may come without an axis. Raises AttnError for pages that cannot
    be read.
    """
    if {*PAGE_LIST, *PAGES} <= found.keys():
        found = with_table(found)
    rest = {name: array for name, array in found.items() if name not in {*PAGES, PAGE_TABLE, *PAGE_LIST}}
    if len(rest) == len(found) or (PAGE_TABLE not in found and {*PROJECTED} <= rest.keys()):
        return lay_out(rest, settings), settings, None
    raise_all(lacking(found))
    raise_all(misfits(found))
    gather = read_table(found[PAGE_TABLE], found[KEY_LENGTHS])
    raise_all(unreadable(found, gather, settings.dtype))
    read = {name: gather.apply(found[pages]) for name, pages in zip("KV", PAGES, strict=True)}
    axes, heads = read["K"].ndim, read["K"].shape[-3]
    by_token = not ours and settings.layout in {None, *TOKENS_BEFORE_HEADS}
    for name in (Q, OUTPUT, HEAD_OUTPUTS) if by_token else ():
        array = rest.get(name, np.zeros(0))
        if array.ndim == axes - 1 and settings.heads is None:
            rest[name] = array[..., None, :]
        elif array.ndim == axes and array.shape[-2] % heads == 0:
            rest[name] = array.swapaxes(-3, -2)
            settings = settings.with_(layout=None)
    if Q in rest and rest[Q].ndim == axes - 1:  # heads side by side
        read = {name: rearrange(array, "... head n d -> ... n (head d)") for name, array in read.items()}
    for name in () if strictly else read.keys() & rest.keys():
        if rest[name].size > read[name].size:  # repeated for the heads that share it
            rest[f"{name}_shared"] = rest.pop(name)
    made = read if strictly else {name: read[name] for name in read.keys() - rest.keys()}
    laid = lay_out(rest | made, settings)
    others = {name: array for name, array in laid.arrays.items() if name not in made}
    return replace(laid, arrays=others | {name: found[name] for name in PAGES}), settings, gather


def with_table(found: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays with the table and the lengths that a list of pages says, as FlashInfer has it."""
    ends, numbers, last = (found[name].reshape(-1) for name in PAGE_LIST)
    counts, slots = np.diff(ends), found[PAGES[0]].shape[1:2]
    right = ends[:1].tolist() == [0] and (counts > 0).all() and ends[-1] == numbers.size
    if not right or counts.size != last.size:
        expected = f"whole numbers that go up from 0 to the {numbers.size} of {PAGE_NUMBERS}"
        raise AttnError(f"{PAGE_ENDS}: {ends.tolist()}, expected {expected}, one for each of {LAST_PAGE}")
    there = np.arange(counts.max()) < counts[:, None]
    table = np.zeros(there.shape, int)
    table[there] = numbers
    return {**found, PAGE_TABLE: table, KEY_LENGTHS: (counts - 1) * sum(slots) + last}


def read_table(table: Array, lengths: Array) -> Gather:
    """How pages are read by this table: of several sequences, or of one."""
    pages = np.clip(np.atleast_2d(table).astype(float), -1, 2**31).astype(int)
    each = tuple(map(int, lengths.reshape(-1)))
    return Gather(tuple(map(tuple, pages.tolist())), each if table.ndim == 2 else each[0])


def unreadable(found: Mapping[str, Array], gather: Gather, dtype: str) -> Iterator[str]:
    """Numbers that are no keys or values; a free slot may hold anything."""
    page, slot, there = gather.rows(found[PAGES[0]].shape[1])
    for name in PAGES:
        free = np.ones(found[name].shape[:2], bool)
        free[page[there], slot[there]] = False
        yield from unusable(name, np.where(free[..., None, None], 0, found[name]), dtype)


def lacking(found: Mapping[str, Array]) -> Iterator[str]:
    if without := [name for name in TOGETHER if name not in found]:
        yield f"no {', '.join(without)} in the arrays; pages are read by {all_of(TOGETHER)}"


def misfits(found: Mapping[str, Array]) -> Iterator[str]:
    """Why a table reads no pages: their axes, its numbers, or too few of them."""
    k, v, table, lengths = (found[name] for name in TOGETHER)
    flat = [name for name in PAGES if found[name].ndim != 4 or not found[name].size]
    yield from (f"{name}: {dims(found[name].shape)}, expected (page, slot, head, d)" for name in flat)
    if not flat and k.shape[:3] != v.shape[:3]:
        agree = "they must agree in all but d_k and d_v"
        yield f"{PAGES[0]} is {dims(k.shape)} but {PAGES[1]} is {dims(v.shape)}; {agree}"
    if table.ndim not in {1, 2} or not is_whole(table):
        expected = "whole numbers, (batch, page) or (page,)"
        yield f"{PAGE_TABLE}: {dims(table.shape)} of {table.dtype}, expected {expected}"
    elif not is_whole(lengths):
        yield f"{KEY_LENGTHS}: {lengths.reshape(-1).tolist()}, expected how many keys each sequence has"
    elif lengths.size != len(np.atleast_2d(table)):
        rows = plural(len(np.atleast_2d(table)), "row")
        yield f"{KEY_LENGTHS}: {plural(lengths.size, 'number')}, but {PAGE_TABLE} has {rows}; give one each"
    elif not flat:
        yield from find_misread(table, lengths.reshape(-1), *k.shape[:2])


def is_whole(numbers: Array) -> bool:
    return numbers.dtype.kind in "iuf" and bool(numbers.size) and not (numbers % 1).any()


def find_misread(table: Array, lengths: Array, pages: int, slots: int) -> Iterator[str]:
    """Sequences that are longer than their pages, and pages that there are not."""
    for member, (row, length) in enumerate(zip(np.atleast_2d(table), lengths, strict=True)):
        needed = -(-int(length) // slots)
        if needed > len(row):
            held = f"{plural(len(row), 'page')} of {slots} slots hold {plural(len(row) * slots, 'key')}"
            yield f"{PAGE_TABLE}: {held}, but sequence {member} has {length:g}; give it {needed} pages"
        wrong = [at for at, page in enumerate(row[:needed]) if not 0 <= page < pages]
        for at in wrong[:1]:
            place = [member, at][2 - table.ndim :]
            yield f"{PAGE_TABLE}: page {row[at]:g} at {place}, but there are pages 0 to {pages - 1}"
