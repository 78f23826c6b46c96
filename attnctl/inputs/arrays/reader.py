"""The one reader of anyone's arrays: brought to our layout, with the sizes of their axes.

`attend` reads strictly: our layout and those it documents. `check` and `explain` let it search. Keys and
values in pages, as serving kernels keep them, are read as K and V.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.namedtuple import NamedTuple
from attnctl.inputs.arrays import problems
from attnctl.inputs.arrays.counted import with_position_ids, with_positions_counted
from attnctl.inputs.arrays.documents import ends_elsewhere, with_corners
from attnctl.inputs.arrays.laid import Laid
from attnctl.inputs.arrays.layout import LayoutSearch, heads_shown, ill_placed, is_one_row, place, search
from attnctl.inputs.arrays.pages import (
    TOKENS_BEFORE_HEADS,
    read_gather,
    with_heads_before_tokens,
    with_slots_before_heads,
    with_table,
)
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.config.sizes import (
    given_places,
    key_count,
    stated_sizes,
    unrotatable,
)
from attnctl.math import Array, Shape, Sizes
from attnctl.math.axes import rearrange
from attnctl.math.names import (
    BIAS,
    BIAS_INDEX,
    BIAS_TABLE,
    CONCAT,
    EMBEDDINGS,
    GATE,
    HEAD_OUTPUTS,
    KEY_LENGTHS,
    MASK,
    MEMORY,
    OUTPUT,
    PAGE_LIST,
    PAGE_TABLE,
    PAGES,
    PAST_KEY,
    PAST_VALUE,
    PROJECTED,
    TABLE,
    W_O,
    WEIGHTS,
    Q,
    X,
    gradient_of,
)
from attnctl.math.ops.pages import Gather
from attnctl.math.rules import PerBatch

ZEROS_AND_ONES = "mask holds 0 and 1 alone: 1 may attend, 0 may not (other floats are added to the scores)"
AVERAGED = (
    "attention_weights are left out: averaged over heads, they tell nothing of any head "
    "(average_attn_weights=False keeps them by head)."
)
BEFORE_W_O = {HEAD_OUTPUTS: "it still has its heads", CONCAT: "its columns are those of the heads"}
"""What an output may be that does not fit W_O, and what shows it."""

TOKENS_FIRST = (X, MEMORY, *PROJECTED, CONCAT, OUTPUT)
"""The arrays that torch keeps as (token, batch, …) unless batch_first is said."""

TOKENS_THEN_HEADS = "(batch, n, head, d)"
ONES_ADDED = "mask holds 1 beside 0 and −∞: 1 is added to the scores, it does not say who may attend"
ZEROS = "mask holds nothing but floats 0: they are added to the scores and hide nothing"


OF_RELATIVE = (BIAS_TABLE, BIAS_INDEX, gradient_of(BIAS_TABLE))
"""What is read by the table of a relative bias, not by the axes of others."""


def heads_of_table(relative: Mapping[str, Array], others: Mapping[str, Array]) -> int | None:
    """The heads that Q has an axis for and the table of a relative bias, too; None where several may be."""
    table = relative.get(BIAS_TABLE)
    if table is None or Q not in others:
        return None
    axes = others[Q].shape[:-2]
    shared = {*table.shape} & {*axes}
    return shared.pop() if len(shared) == 1 else None


class Paged(NamedTuple):
    """Arrays in our layout, the settings that are left to ask for, and how pages were read, if any."""

    laid: Laid
    settings: Settings
    gather: Gather | None


def read_arrays(found: Mapping[str, Array], settings: Settings, **how: bool) -> Paged:
    """Read arrays, and documents whose queries are not their keys as a mask.

    `how` is that of `read_paged`. Raises AttnError for what cannot be read.
    """
    of_table = [name for name in OF_RELATIVE if name in found and BIAS_TABLE in found]
    relative = {name: found[name] for name in of_table}
    others = {name: array for name, array in with_position_ids(found).items() if name not in relative}
    is_open = settings.heads is None and not how.get("strictly")
    heads = heads_of_table(relative, others) if is_open else None
    paged = read_paged(others, settings.with_(heads=heads) if heads else settings, **how)
    raise_all(ends_elsewhere(found, paged.laid.sizes, settings))
    counted = with_positions_counted(paged.laid, settings)
    laid, settings = with_corners(counted, paged.settings)
    return Paged(replace(laid, relative=relative), settings, paged.gather)


def read_paged(
    found: Mapping[str, Array],
    settings: Settings,
    *,
    strictly: bool = False,
    batch_first: bool = False,
    ours: bool = False,
) -> Paged:
    """The arrays, laid out with K and V as their pages have them, and pages in their place again.

    Where all is read `strictly`, these are in place of other K and V. Beside a table Q is
    (batch, n, head, d), as kernels take it, where its heads can be shared so, no layout is said, and it is
    not `ours`; the one query of a sequence may come without an axis. Raises AttnError for pages that cannot
    be read.
    """
    reader = read_strictly if strictly else partial(read_any, batch_first=batch_first)
    notes: tuple[str, ...] = ()
    if not ours:
        found, notes = with_slots_before_heads(found, settings)
    if {*PAGE_LIST, *PAGES} <= found.keys():
        found = with_table(found)

    of_pages = {*PAGES, PAGE_TABLE, *PAGE_LIST}
    rest = {name: array for name, array in found.items() if name not in of_pages}
    is_read_without_table = PAGE_TABLE not in found and {*PROJECTED} <= rest.keys()
    if len(rest) == len(found) or is_read_without_table:
        return Paged(reader(rest, settings), settings, None)

    gather = read_gather(found, settings)
    by_head = {name: gather.apply(found[pages]) for name, pages in zip("KV", PAGES, strict=True)}
    if not ours and settings.layout in {None, *TOKENS_BEFORE_HEADS}:
        rest, settings = with_heads_before_tokens(rest, settings, by_head["K"])

    gathered = by_head
    if Q in rest and rest[Q].ndim == by_head["K"].ndim - 1:  # heads side by side
        gathered = {
            name: rearrange(array, "... head n d -> ... n (head d)") for name, array in by_head.items()
        }

    if not strictly:
        # K and V stand for themselves, unless they are repeated for the heads that share them.
        for name, array in gathered.items():
            if name in rest and rest[name].size > array.size:
                rest[f"{name}_shared"] = rest.pop(name)
        gathered = {name: array for name, array in gathered.items() if name not in rest}

    laid = reader(rest | gathered, settings)
    arrays = {name: array for name, array in laid.arrays.items() if name not in gathered}
    arrays |= {name: found[name] for name in PAGES}
    return Paged(replace(laid, arrays=arrays, notes=(*notes, *laid.notes)), settings, gather)


def read_strictly(found: Mapping[str, Array], settings: Settings) -> Laid:
    """The inputs in the layouts that `attend` documents. Raises AttnError for all that do not fit."""
    raise_all(problems.missing(found, settings))
    unusable = (problems.unusable(name, array, settings.dtype) for name, array in found.items())
    raise_all(chain(*unusable))
    inputs, notes = by_kind({name: found[name] for name in problems.inputs_among(found)})
    raise_all(problems.unlike_layout(shapes_of(inputs), settings))

    by_head = read_as(heads_first(inputs, settings), settings)
    by_token: Laid | AttnError | None = None
    of_four_axes = [name for name in PROJECTED if name in inputs and inputs[name].ndim == 4]
    if settings.layout is None and of_four_axes:
        by_token = read_as(heads_first(inputs, settings.with_(layout="bnhd")), settings)

    # Our own layout, (batch, head, n, d), goes before the other one where both fit.
    if isinstance(by_head, Laid):
        laid = by_head
        heads = laid.sizes["head"]
        rows = key_count(laid.sizes)
        if isinstance(by_token, Laid) and heads > rows:  # the other one is as likely
            place = settings.where(("layout",))
            note = f"Q, K and V are read as (batch, head, n, d): {heads} heads of {rows} rows."
            notes += (f"{note} If they are {TOKENS_THEN_HEADS}, write {place} bnhd.",)
    elif isinstance(by_token, Laid):
        laid = by_token
        notes += (f"Read {', '.join(of_four_axes)} as {TOKENS_THEN_HEADS}.",)
    else:
        raise by_head

    raise_all(unrotatable(settings, laid.sizes["d_k"]))
    return replace(laid, notes=notes)


def read_as(inputs: Mapping[str, Array], settings: Settings) -> Laid | AttnError:
    """The inputs laid out, or why they cannot be."""
    shapes = shapes_of(inputs)
    tried = LayoutSearch(shapes, problems.has_batch(shapes, settings), documented=True)
    batched = {problems.has_batch(shapes, settings, name) for name in PROJECTED}
    some_in_batch = settings.heads is None and len(batched) > 1

    try:
        if not some_in_batch:
            for known in sizes_known(inputs, settings):
                if tried.find(known):
                    return lay_out(inputs, tried)
        raise_all(problems.array_misfits(shapes, settings))
        return AttnError(tried.misfit())
    except AttnError as error:
        return error


def sizes_known(arrays: Mapping[str, Array], settings: Settings) -> list[Sizes]:
    """The sizes asked for; before them those with the heads that a sink or weights of norms show."""
    stated = stated_sizes(settings)
    shown = heads_shown(arrays)
    return [shown | stated, stated] if shown else [stated]


def read_any(found: Mapping[str, Array], settings: Settings, *, batch_first: bool = False) -> Laid:
    """Arrays under any of our names, in any layout in which they go together.

    Where they do not, weights averaged over heads are left out, and tokens may come before the
    batch; `notes` of what is laid out say so. Raises AttnError naming an array that does not go
    with the others all the same.
    """
    arrays, notes = by_kind(in_layout(found, settings))
    layout = settings.layout
    batches = [batch_first, not batch_first] if layout is None else [layout.startswith("b")]

    of_all_keys: tuple[str, ...] = ()  # usually these have rows of new keys alone
    if settings.cache_unrotated:
        is_normed_after = settings.qk_norm is not None and settings.qk_norm.after_rotation
        of_all_keys = ("K_rotated", "K_normed") if is_normed_after else ("K_rotated",)

    refused: AttnError | None = None
    for guess in guesses(arrays):
        try:
            known = sizes_known(guess.arrays, settings)
            laid = lay_out(guess.arrays, search(shapes_of(guess.arrays), known, batches, of_all_keys))
        except AttnError as error:
            refused = refused or error  # of the arrays as they are: that is what a person can mend
            continue
        if guess.arrays is arrays or not changes_too_much(arrays, laid):
            return replace(laid, notes=(*notes, *guess.notes))

    assert refused is not None
    raise refused


def in_layout(found: Mapping[str, Array], settings: Settings) -> Mapping[str, Array]:
    """The arrays, with heads split where a layout is said. Raises AttnError for one of another layout."""
    layout = settings.layout
    if layout is None:
        return found

    raise_all(problems.unlike_layout(shapes_of(found), settings))
    out = heads_first(found, settings)
    if "h" in layout:
        return out

    for name in (*PROJECTED, PAST_KEY, PAST_VALUE):
        if name in out and out[name].ndim == len(layout):
            heads = problems.heads_asked(name, settings)
            if out[name].shape[-1] % heads:
                raise AttnError(problems.refuse_split(name, out[name].shape, settings))
            out[name] = rearrange(out[name], "... n (head d) -> ... head n d", head=heads)
    return out


class Guess(NamedTuple):
    """Arrays as they may have been meant, and notes on what was changed."""

    arrays: Mapping[str, Array]
    notes: tuple[str, ...] = ()


def guesses(arrays: Mapping[str, Array]) -> Iterator[Guess]:
    """The arrays `in_any_order`; then again with the output taken for that of the heads."""
    yield from in_any_order(arrays)

    for other, why in BEFORE_W_O.items():
        if OUTPUT not in arrays or other in arrays:
            continue
        renamed = {other if name == OUTPUT else name: array for name, array in arrays.items()}
        note = f"Read {OUTPUT} as {other}: {why}."
        for ordered in in_any_order(renamed):
            yield Guess(ordered.arrays, (*ordered.notes, note))


def in_any_order(arrays: Mapping[str, Array]) -> Iterator[Guess]:
    """The arrays as they are; without averaged weights; with tokens before the batch; both."""
    yield Guess(arrays)

    is_averaged = WEIGHTS in arrays and arrays[WEIGHTS].ndim in {2, 3}
    without_weights = {name: array for name, array in arrays.items() if name != WEIGHTS}
    if is_averaged:
        yield Guess(without_weights, (AVERAGED,))

    turned = [name for name in TOKENS_FIRST if name in arrays and arrays[name].ndim == 3]
    if not turned:
        return

    note = f"Read {', '.join(turned)} as (token, batch, …)."
    swapped = dict(without_weights)
    for name in turned:
        swapped[name] = arrays[name].swapaxes(0, 1)
    with_weights = {**swapped, WEIGHTS: arrays[WEIGHTS]} if WEIGHTS in arrays else swapped

    yield Guess(with_weights, (note,))
    if is_averaged:
        yield Guess(swapped, (note, AVERAGED))


def changes_too_much(arrays: Mapping[str, Array], laid: Laid) -> bool:
    """True if weights were left out that are no averages over the heads of the others."""
    if WEIGHTS not in arrays or WEIGHTS in laid.arrays:
        return False

    sizes = laid.sizes
    averaged = [sizes.get("query"), sizes.get("key")]
    if "batch" in sizes:
        averaged.insert(0, sizes["batch"])
    return sizes["head"] == 1 or arrays[WEIGHTS].shape != tuple(averaged)


def as_array(name: str, value: Any) -> Array:
    """A NumPy array of lists, of torch, of JAX, or of anything with `__array__` or `__dlpack__`.

    A tensor is taken off its device and its graph. bfloat16, which NumPy has not, is the float32
    that holds it exactly.
    """
    if type(value) is np.ndarray and value.dtype.name != "bfloat16":
        return value  # without asking NumPy, of which a program may replace any part

    for method in ("detach", "cpu"):
        if hasattr(value, method):
            value = getattr(value, method)()
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        value = value.float()

    try:
        has_dlpack_alone = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        array = np.from_dlpack(value) if has_dlpack_alone else np.asarray(value)
    except ValueError as error:
        raise AttnError(f"{name}: its rows are of different lengths; give a matrix") from error
    except (TypeError, RuntimeError) as error:
        raise AttnError(f"{name}: {error}; give a NumPy array") from error

    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def by_kind(found: Mapping[str, Array]) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The arrays with their mask as what it holds, and a note where its type does not tell.

    Truth values and whole numbers say who may attend; so do floats that are all 0 and 1, as JSON
    has them. Other floats, and zeros alone, are added to the scores: the mask is a bias. Raises
    AttnError where there is a bias already.
    """
    out = dict(found)
    if MASK not in out:
        return out, ()

    mask = out.pop(MASK)
    if mask.dtype.kind != "f":
        return out | {MASK: mask.astype(bool)}, ()
    if np.isin(mask, (0, 1)).all() and mask.any():
        return out | {MASK: mask.astype(bool)}, (ZEROS_AND_ONES,)

    if BIAS in out:
        what = "mask holds floats, so it is added to the scores as bias is"
        raise AttnError(f"{what}; give their sum as bias")
    return out | {BIAS: mask}, () if mask.any() else (ZEROS,)


def adds_ones(mask: Array) -> bool:
    """True for a mask of floats that hides some keys by −∞, and adds 1 to others as if that showed them."""
    if mask.dtype.kind != "f" or not np.isneginf(mask).any():
        return False
    added = mask[~np.isneginf(mask)]
    return bool((added == 1).any() and np.isin(added, (0, 1)).all())


def begin_backward(found: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays, with `d_output` as the gradient by what the heads give where nothing projects it."""
    of_output = gradient_of(OUTPUT)
    of_heads = gradient_of(HEAD_OUTPUTS)
    if of_output not in found or {X, EMBEDDINGS, W_O, GATE, of_heads} & found.keys():
        return dict(found)
    return {of_heads if name == of_output else name: array for name, array in found.items()}


def heads_first(arrays: Mapping[str, Array], settings: Settings) -> dict[str, Array]:
    """The arrays with (batch, n, head, d) turned to (batch, head, n, d), where that is their layout."""
    out = dict(arrays)
    layout = settings.layout
    if layout not in TOKENS_BEFORE_HEADS:
        return out

    for name, array in arrays.items():
        has_heads = name in TABLE and (problems.has_vectors(name) or name == OUTPUT)
        if has_heads and array.ndim == len(layout):
            out[name] = array.swapaxes(-3, -2)
    return out


def shapes_of(arrays: Mapping[str, Array]) -> dict[str, Shape]:
    """The shapes of what has a layout: all we have a name for but masks and lengths."""
    return {
        name: array.shape
        for name, array in arrays.items()
        if name in TABLE and not (TABLE[name].broadcasts or TABLE[name].model) and TABLE[name].own
    }


def lay_out(arrays: Mapping[str, Array], found: LayoutSearch) -> Laid:
    sizes = complete(found.sizes, arrays)
    lengths = key_lengths(arrays, sizes)
    ours = {name: found.lay_out(name, array) for name, array in arrays.items() if name in found.layouts}

    # Masks, a sink and weights of norms come in any shape that broadcasts.
    beside = {name: array for name, array in arrays.items() if name in TABLE and TABLE[name].broadcasts}
    misplaced: list[str] = []
    for name, array in beside.items():
        placed = place(name, array, sizes, key_count(sizes))
        if placed is None:
            misplaced.append(ill_placed(name, array, sizes))
        else:
            ours[name] = placed
    raise_all(misplaced)

    one_row = any(is_one_row(name, array, sizes) for name, array in beside.items())
    return Laid(ours, sizes, lengths, places=given_places(arrays, sizes), one_row=one_row)


def complete(sizes: Sizes, there: Container[str]) -> dict[str, int]:
    """The sizes and those that follow: a sentence that attends to itself has its own keys."""
    out = dict(sizes)
    if (X in there or EMBEDDINGS in there) and MEMORY not in there:
        new = out.setdefault("new" if "past" in out else "key", out["query"])
        out.setdefault("key", new + out.get("past", 0))

    out.setdefault("head", out.get("kv_head", 1))
    out.setdefault("kv_head", out["head"])
    return out


def key_lengths(arrays: Mapping[str, Array], sizes: Sizes) -> PerBatch | None:
    """The number of keys that are real: one for all, or one for each member of the batch."""
    if KEY_LENGTHS not in arrays:
        return None

    lengths = arrays[KEY_LENGTHS].reshape(-1).tolist()
    members = sizes.get("batch", 1)
    keys = key_count(sizes)
    if len(lengths) != members or any(length not in range(keys + 1) for length in lengths):
        expected = f"{members} × a whole number from 0 to {keys} (the keys there are)"
        raise AttnError(f"{KEY_LENGTHS}: {lengths}, expected {expected}")

    whole = tuple(map(int, lengths))
    return whole if "batch" in sizes else whole[0]
