"""Keys and values in pages, as serving kernels keep them: which way round they are, and what reads them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import all_of
from attnctl.inputs.arrays import problems
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array
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
    Q,
)
from attnctl.math.ops.pages import Gather

TOKENS_BEFORE_HEADS = ("bnhd", "nhd")

SLOTS_THEN_HEADS = "(page, slot, head, d)"
HEADS_THEN_SLOTS = "(page, head, slot, d)"


def with_slots_before_heads(
    found: Mapping[str, Array], settings: Settings
) -> tuple[Mapping[str, Array], tuple[str, ...]]:
    """Pages of heads before slots turned into ours, where they can only be read so, and what is said of it.

    Where both fit they are as documented; that is said if their heads are more than their slots.
    """
    if not {*PAGES, Q} <= found.keys() or any(found[name].ndim != 4 for name in PAGES):
        return found, ()

    _, first, second, _ = found[PAGES[0]].shape
    if may_be_read(found, settings, slots=first, kv_heads=second):
        may_be_turned = second > first and may_be_read(found, settings, slots=second, kv_heads=first)
        if not may_be_turned:
            return found, ()
        read = f"Pages are read as {SLOTS_THEN_HEADS}: {first} slots of {second} heads."
        return found, (f"{read} If they are {HEADS_THEN_SLOTS}, swap these axes: pages.swapaxes(1, 2).",)

    if not may_be_read(found, settings, slots=second, kv_heads=first):
        return found, ()
    turned = {name: found[name].swapaxes(1, 2) for name in PAGES}
    return {**found, **turned}, (f"Read pages as {HEADS_THEN_SLOTS}.",)


def may_be_read(found: Mapping[str, Array], settings: Settings, *, slots: int, kv_heads: int) -> bool:
    """Whether pages of so many slots hold every key, and their heads can be shared by those of Q."""
    q = found[Q]
    tokens_first = settings.layout in {None, *TOKENS_BEFORE_HEADS}
    heads = settings.heads
    if heads is None and q.ndim > 2:
        heads = q.shape[-2 if tokens_first or q.ndim == 3 else -3]
    if heads is not None and kv_heads and heads % kv_heads:
        return False

    if LAST_PAGE in found:
        return not (found[LAST_PAGE] > slots).any()
    if PAGE_TABLE not in found or KEY_LENGTHS not in found:
        return True
    columns = np.atleast_2d(found[PAGE_TABLE]).shape[-1]
    return not (found[KEY_LENGTHS] > columns * slots).any()


def read_gather(found: Mapping[str, Array], settings: Settings) -> Gather:
    """How pages are read by the table beside them. Raises AttnError for pages that cannot be read."""
    lacking = [name for name in problems.TOGETHER if name not in found]
    if lacking:
        together = all_of(problems.TOGETHER)
        raise AttnError(f"no {', '.join(lacking)} in the arrays; pages are read by {together}")
    raise_all(problems.page_misfits(found))

    gather = read_table(found[PAGE_TABLE], found[KEY_LENGTHS])
    raise_all(problems.unreadable_slots(found, gather, settings.dtype))
    return gather


def with_heads_before_tokens(
    arrays: Mapping[str, Array], settings: Settings, k: Array
) -> tuple[dict[str, Array], Settings]:
    """Turn Q and outputs as kernels that read pages have them, (batch, n, head, d), like K, by head.

    Settings whose layout has been heeded come without it. The one query of a sequence gets its axis.
    """
    turned = dict(arrays)
    kv_heads = k.shape[-3]

    for name in (Q, OUTPUT, HEAD_OUTPUTS):
        if name not in arrays:
            continue
        array = arrays[name]
        if array.ndim == k.ndim - 1 and settings.heads is None:
            turned[name] = array[..., None, :]
        elif array.ndim == k.ndim and array.shape[-2] % kv_heads == 0:
            turned[name] = array.swapaxes(-3, -2)
            settings = settings.with_(layout=None)

    return turned, settings


def with_table(found: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays with the table and the lengths that a list of pages says, as FlashInfer has it."""
    ends, numbers, in_last_page = (found[name].reshape(-1) for name in PAGE_LIST)
    counts = np.diff(ends)  # the pages of each sequence

    begins_at_0 = ends[:1].tolist() == [0]
    goes_up = begins_at_0 and (counts > 0).all() and ends[-1] == numbers.size
    if not goes_up or counts.size != in_last_page.size:
        expected = f"whole numbers that go up from 0 to the {numbers.size} of {PAGE_NUMBERS}"
        raise AttnError(f"{PAGE_ENDS}: {ends.tolist()}, expected {expected}, one for each of {LAST_PAGE}")

    is_page = np.arange(counts.max()) < counts[:, None]
    table = np.zeros(is_page.shape, int)
    table[is_page] = numbers

    # Pages without an axis of slots are refused later, in the words for any table.
    slots = sum(found[PAGES[0]].shape[1:2])
    lengths = (counts - 1) * slots + in_last_page
    return {**found, PAGE_TABLE: table, KEY_LENGTHS: lengths}


def read_table(table: Array, lengths: Array) -> Gather:
    """How pages are read by this table: of several sequences, or of one."""
    # Numbers far out of range stay out of range, and fit into an int.
    pages = np.clip(np.atleast_2d(table).astype(float), -1, 2**31).astype(int)
    rows = tuple(map(tuple, pages.tolist()))
    of_each = tuple(map(int, lengths.reshape(-1)))
    return Gather(rows, of_each if table.ndim == 2 else of_each[0])
