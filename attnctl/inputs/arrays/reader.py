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

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import all_of, dims, plural
from attnctl.inputs.arrays import problems
from attnctl.inputs.arrays.layout import LayoutSearch, heads_shown, ill_placed, is_one_row, place, search
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.config.sizes import key_count, stated_sizes, unrotatable
from attnctl.math import Array, Shape, Sizes
from attnctl.math.axes import rearrange
from attnctl.math.names import (
    BIAS,
    CONCAT,
    CU_SEQLENS,
    EMBEDDINGS,
    GATE,
    HEAD_OUTPUTS,
    KEY_LENGTHS,
    LAST_PAGE,
    MASK,
    MEMORY,
    OUTPUT,
    PAGE_ENDS,
    PAGE_LIST,
    PAGE_NUMBERS,
    PAGE_TABLE,
    PAGES,
    PAST_KEY,
    PAST_VALUE,
    POSITION_IDS,
    POSITIONS,
    PROJECTED,
    TABLE,
    W_O,
    WEIGHTS,
    Q,
    X,
    gradient_of,
)
from attnctl.math.ops.pages import Gather
from attnctl.math.ops.vectors import GivenPlaces
from attnctl.math.rules import Causal, Documents, PerBatch, Window
from attnctl.math.rules.visibility import document_of

ZEROS_AND_ONES = "mask holds 0 and 1 alone: 1 may attend, 0 may not (other floats are added to the scores)"
AVERAGED = (
    "attention_weights are left out: averaged over heads, they tell nothing of any head "
    "(average_attn_weights=False keeps them by head)."
)
BEFORE_W_O = {HEAD_OUTPUTS: "it still has its heads", CONCAT: "its columns are those of the heads"}
"""What an output may be that does not fit W_O, and what shows it."""

TOKENS_FIRST = (X, MEMORY, *PROJECTED, CONCAT, OUTPUT)
"""The arrays that torch keeps as (token, batch, …) unless batch_first is said."""

TOKENS_BEFORE_HEADS = ("bnhd", "nhd")
TOKENS_THEN_HEADS = "(batch, n, head, d)"
ONES_ADDED = "mask holds 1 beside 0 and −∞: 1 is added to the scores, it does not say who may attend"
ZEROS = "mask holds nothing but floats 0: they are added to the scores and hide nothing"


@dataclass(frozen=True)
class Laid:
    """Arrays in our layout, the size of each axis, and how many keys are real where that is given."""

    arrays: dict[str, Array]
    sizes: Sizes
    lengths: PerBatch | None
    notes: tuple[str, ...] = ()  # what was decided where an array could have meant something else
    places: GivenPlaces = ()
    """The positions of the tokens, where they are given."""
    one_row: bool = False
    """Whether weights of norms have one row for all heads: heads are then normed as one row."""


def read_arrays(
    found: Mapping[str, Array], settings: Settings, **how: bool
) -> tuple[Laid, Settings, Gather | None]:
    """The arrays in our layout, the settings that are left to ask for, and how pages are read.

    `how` is that of `read_paged`. Raises AttnError for what cannot be read.
    """
    laid, settings, gather = read_paged(with_position_ids(found), settings, **how)
    raise_all(ends_elsewhere(found, laid.sizes, settings))
    return *with_corners(laid, settings), gather


def read_paged(
    found: Mapping[str, Array],
    settings: Settings,
    *,
    strictly: bool = False,
    batch_first: bool = False,
    ours: bool = False,
) -> tuple[Laid, Settings, Gather | None]:
    """The arrays, laid out with K and V as their pages have them, and pages in their place again.

    Where all is read `strictly`, these are in place of other K and V. Beside a table Q is
    (batch, n, head, d), as kernels take it, where its heads can be shared so, no layout is said, and it is
    not `ours`; the one query of a sequence may come without an axis. Raises AttnError for pages that cannot
    be read.
    """
    reader = read_strictly if strictly else partial(read_any, batch_first=batch_first)
    if {*PAGE_LIST, *PAGES} <= found.keys():
        found = with_table(found)
    rest = {name: array for name, array in found.items() if name not in {*PAGES, PAGE_TABLE, *PAGE_LIST}}
    if len(rest) == len(found) or (PAGE_TABLE not in found and {*PROJECTED} <= rest.keys()):
        return reader(rest, settings), settings, None
    if without := [name for name in problems.TOGETHER if name not in found]:
        said = f"no {', '.join(without)} in the arrays; pages are read by {all_of(problems.TOGETHER)}"
        raise AttnError(said)
    raise_all(problems.page_misfits(found))
    gather = read_table(found[PAGE_TABLE], found[KEY_LENGTHS])
    raise_all(problems.unreadable_slots(found, gather, settings.dtype))
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
    laid = reader(rest | made, settings)
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


def read_strictly(found: Mapping[str, Array], settings: Settings) -> Laid:
    """The inputs in the layouts that `attend` documents. Raises AttnError for all that do not fit."""
    raise_all(problems.missing(found, settings))
    unusable = (problems.unusable(name, array, settings.dtype) for name, array in found.items())
    raise_all(chain(*unusable))
    inputs, notes = by_kind({name: found[name] for name in problems.inputs_among(found)})
    raise_all(problems.unlike_layout(shapes_of(inputs), settings))
    ways = [(heads_first(inputs, settings), "")]  # our own, (batch, head, n, d), comes first
    four = [name for name in PROJECTED if name in inputs and inputs[name].ndim == 4]
    if settings.layout is None and four:
        turned = heads_first(inputs, settings.with_(layout="bnhd"))
        ways.append((turned, f"Read {', '.join(four)} as {TOKENS_THEN_HEADS}."))
    read = [(read_as(array, settings), said) for array, said in ways]
    fits = [(laid, said) for laid, said in read if isinstance(laid, Laid)]
    if not fits:
        first = read[0][0]
        assert isinstance(first, AttnError)
        raise first
    laid, said = fits[0]
    if len(fits) > 1 and laid.sizes["head"] > key_count(laid.sizes):  # another layout is as likely
        rows, place = key_count(laid.sizes), settings.where(("layout",))
        said = (
            f"Q, K and V are read as (batch, head, n, d): {laid.sizes['head']} heads of {rows} rows. "
            f"If they are {TOKENS_THEN_HEADS}, write {place} bnhd."
        )
    raise_all(unrotatable(settings, laid.sizes["d_k"]))
    return replace(laid, notes=(*notes, *([said] if said else [])))


def read_as(inputs: Mapping[str, Array], settings: Settings) -> Laid | AttnError:
    shapes = shapes_of(inputs)
    tried = LayoutSearch(shapes, problems.has_batch(shapes, settings), documented=True)
    batched = {problems.has_batch(shapes, settings, name) for name in PROJECTED}
    mixed = settings.heads is None and len(batched) > 1  # only some of them are in a batch
    try:
        for known in [] if mixed else sizes_known(inputs, settings):
            if tried.find(known):
                return lay_out(inputs, tried)
        raise_all(problems.array_misfits(shapes, settings))
        return AttnError(tried.misfit())
    except AttnError as error:
        return error


def sizes_known(arrays: Mapping[str, Array], settings: Settings) -> list[Sizes]:
    """The sizes asked for; before them those with the heads that a sink or weights of norms show."""
    told, shown = stated_sizes(settings), heads_shown(arrays)
    return [shown | told, told] if shown else [told]


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
        normed = settings.qk_norm is not None and settings.qk_norm.after_rotation
        of_all_keys = ("K_rotated", "K_normed") if normed else ("K_rotated",)
    refused: AttnError | None = None
    for changed, why in readings(arrays):
        try:
            known = sizes_known(changed, settings)
            laid = lay_out(changed, search(shapes_of(changed), known, batches, of_all_keys))
        except AttnError as error:
            refused = refused or error
        else:
            if changed is arrays or not changes_too_much(arrays, laid):
                return replace(laid, notes=(*notes, *why))
    assert refused is not None
    raise refused


def in_layout(found: Mapping[str, Array], settings: Settings) -> Mapping[str, Array]:
    """The arrays, with heads split where a layout is said. Raises AttnError for one of another layout."""
    layout = settings.layout
    if layout is None:
        return found
    raise_all(problems.unlike_layout(shapes_of(found), settings))
    out = heads_first(found, settings)
    for name in (*PROJECTED, PAST_KEY, PAST_VALUE) if "h" not in layout else ():
        if name in out and out[name].ndim == len(layout):
            heads = problems.heads_asked(name, settings)
            if out[name].shape[-1] % heads:
                raise AttnError(problems.refuse_split(name, out[name].shape, settings))
            out[name] = rearrange(out[name], "... n (head d) -> ... head n d", head=heads)
    return out


def readings(arrays: Mapping[str, Array]) -> Iterator[tuple[Mapping[str, Array], tuple[str, ...]]]:
    """The arrays `in_any_order`; then again with the output taken for that of the heads."""
    yield from in_any_order(arrays)
    for other, why in BEFORE_W_O.items():
        if OUTPUT in arrays and other not in arrays:
            changed = {other if name == OUTPUT else name: array for name, array in arrays.items()}
            for ordered, said in in_any_order(changed):
                yield ordered, (*said, f"Read {OUTPUT} as {other}: {why}.")


def in_any_order(arrays: Mapping[str, Array]) -> Iterator[tuple[Mapping[str, Array], tuple[str, ...]]]:
    """The arrays as they are; without averaged weights; with tokens before the batch; both."""
    yield arrays, ()
    averaged = WEIGHTS in arrays and arrays[WEIGHTS].ndim in {2, 3}
    rest = {name: array for name, array in arrays.items() if name != WEIGHTS}
    if averaged:
        yield rest, (AVERAGED,)
    turned = [name for name in TOKENS_FIRST if name in arrays and arrays[name].ndim == 3]
    if turned:
        said = f"Read {', '.join(turned)} as (token, batch, …)."
        swapped = {name: array.swapaxes(0, 1) if name in turned else array for name, array in rest.items()}
        kept = {WEIGHTS: arrays[WEIGHTS]} if WEIGHTS in arrays else {}
        yield swapped | kept, (said,)
        if averaged:
            yield swapped, (said, AVERAGED)


def changes_too_much(arrays: Mapping[str, Array], laid: Laid) -> bool:
    """True if weights were left out that are no averages over the heads of the others."""
    sizes, batch = laid.sizes, laid.sizes.get("batch")
    if WEIGHTS not in arrays or WEIGHTS in laid.arrays:
        return False
    rows = (sizes.get("query"), sizes.get("key"))
    return sizes["head"] == 1 or arrays[WEIGHTS].shape != (rows if batch is None else (batch, *rows))


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
        by_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        array = np.from_dlpack(value) if by_dlpack else np.asarray(value)
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
    out, notes = dict(found), tuple[str, ...]()
    if MASK not in out:
        return out, notes
    mask = out.pop(MASK)
    if mask.dtype.kind != "f":
        return out | {MASK: mask.astype(bool)}, notes
    if np.isin(mask, (0, 1)).all() and mask.any():
        return out | {MASK: mask.astype(bool)}, (ZEROS_AND_ONES,)
    if BIAS in out:
        what = "mask holds floats, so it is added to the scores as bias is"
        raise AttnError(f"{what}; give their sum as bias")
    return out | {BIAS: mask}, notes if mask.any() else (ZEROS,)


def adds_ones(mask: Array) -> bool:
    """True for a mask of floats that hides some keys by −∞, and adds 1 to others as if that showed them."""
    if mask.dtype.kind != "f" or not np.isneginf(mask).any():
        return False
    added = mask[~np.isneginf(mask)]
    return bool((added == 1).any() and np.isin(added, (0, 1)).all())


def begin_backward(found: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays, with `d_output` as the gradient by what the heads give where nothing projects it."""
    theirs, ours = gradient_of(OUTPUT), gradient_of(HEAD_OUTPUTS)
    unprojected = theirs in found and not {X, EMBEDDINGS, W_O, GATE, ours} & found.keys()
    return {ours if name == theirs and unprojected else name: array for name, array in found.items()}


def heads_first(arrays: Mapping[str, Array], settings: Settings) -> dict[str, Array]:
    """The arrays with (batch, n, head, d) turned to (batch, head, n, d), where that is their layout."""
    out = dict(arrays)
    layout = settings.layout or ""
    for name, array in arrays.items() if layout in TOKENS_BEFORE_HEADS else ():
        if name in TABLE and (problems.has_vectors(name) or name == OUTPUT) and array.ndim == len(layout):
            out[name] = array.swapaxes(-3, -2)
    return out


def with_documents(found: Mapping[str, Array], settings: Settings) -> Settings:
    """The settings with the documents that the arrays say, Q, K and V of three axes then as (n, head, d).

    Raises AttnError for numbers that do not go up from 0.
    """
    there = {name: found[name].reshape(-1).tolist() for name in CU_SEQLENS if name in found}
    if not there or any(isinstance(rule, Documents) for rule in settings.rules):
        return settings
    raise_all(
        f"{name}: {ends}, expected whole numbers that go up from 0 to the number of tokens, like [0, 5, 12]"
        for name, ends in there.items()
        if ends[:1] != [0] or len(ends) < 2 or ends != sorted(map(int, ends))
    )
    own = [tuple(there.get(f"cu_seqlens_{side}", next(iter(there.values()))))[:-1] for side in "kq"]
    rule = Documents(own[0], own[1] if own[1] != own[0] else ())
    packed = settings.layout is None and Q in found and found[Q].ndim == 3
    settings = settings.with_(rules=(*settings.rules, rule))
    return settings.with_(layout="nhd") if packed else settings


def ends_elsewhere(found: Mapping[str, Array], sizes: Sizes, settings: Settings) -> Iterator[str]:
    """What is wrong with documents on arrays of these sizes."""
    for name, axis in zip(CU_SEQLENS, ("query", "query", "key"), strict=True):
        if name in found and (end := int(found[name].reshape(-1)[-1])) != sizes.get(axis, end):
            tokens = f"{sizes[axis]} rows of {'K' if axis == 'key' else 'Q'}"
            yield f"{name}: the last document ends at {end}, but there are {tokens}; write where each ends"
    for rule in apart(settings):
        if len(rule.of_queries) != len(rule.starts):
            there = f"{plural(len(rule.of_queries), 'document')} of queries, and {len(rule.starts)} of keys"
            yield f"documents: {there}; say where as many begin"


def apart(settings: Settings) -> list[Documents]:
    """Documents whose queries are not their keys."""
    return [rule for rule in settings.rules if isinstance(rule, Documents) and rule.of_queries]


def with_corners(laid: Laid, settings: Settings) -> tuple[Laid, Settings]:
    """What is causal in documents whose queries are not their keys, as a mask.

    The last query of each is beside its last key, as in flash-attention.
    """
    moved = [rule for rule in settings.rules if isinstance(rule, (Causal, Window))]
    for documents in apart(settings) if moved else ():
        queries, keys = laid.sizes["query"], key_count(laid.sizes)
        row, own = np.arange(queries), documents.of_queries
        ahead = np.array([*documents.starts[1:], keys]) - np.array([*own[1:], queries])
        at = row + ahead[document_of(row, own) - 1]
        seen = np.logical_and.reduce([rule.allows(at[:, None], np.arange(keys)) for rule in moved])
        said = f"The last query of each document is read as beside its last key ({moved[0].name})."
        arrays = {**laid.arrays, MASK: laid.arrays.get(MASK, np.True_) & seen}
        laid = replace(laid, arrays=arrays, notes=(*laid.notes, said))
        rules = tuple(rule for rule in settings.rules if rule not in moved)
        settings = settings.with_(rules=rules)
    return laid, settings


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
    beside = {name: array for name, array in arrays.items() if name in TABLE and TABLE[name].broadcasts}
    placed = {name: place(name, array, sizes, key_count(sizes)) for name, array in beside.items()}
    raise_all(ill_placed(name, beside[name], sizes) for name, array in placed.items() if array is None)
    ours |= {name: array for name, array in placed.items() if array is not None}
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


def with_position_ids(found: Mapping[str, Array]) -> Mapping[str, Array]:
    """The arrays with whole numbers under the name of learned positions as position_ids."""
    if POSITIONS not in found or found[POSITIONS].dtype.kind not in "iu":
        return found
    return {POSITION_IDS if name == POSITIONS else name: array for name, array in found.items()}


def given_places(arrays: Mapping[str, Array], sizes: Sizes) -> GivenPlaces:
    """The positions of the tokens: (n), (batch, n), or these three times, of time, height and width.

    Raises AttnError for others.
    """
    if POSITION_IDS not in arrays:
        return ()
    found, tokens, members = arrays[POSITION_IDS], sizes.get("query", 0), sizes.get("batch", 1)
    whole = np.array_equal(found, np.rint(found)) and (np.abs(found) < 2**31).all()
    alone = found.shape[-1:] == (tokens,) and whole
    if alone and found.ndim == 1:
        rows = found[None, None]
    elif alone and found.ndim == 2 and len(found) in {1, members}:
        rows = found[None]
    elif alone and found.ndim == 2 and len(found) == 3:
        rows = found[:, None]
    elif alone and found.ndim == 3 and len(found) in {1, 3} and found.shape[1] in {1, members}:
        rows = found
    else:
        wanted = f"({tokens}), ({members}, {tokens}) or (3, {members}, {tokens}) whole numbers"
        raise AttnError(f"{POSITION_IDS}: {dims(found.shape)}, expected {wanted}, one for each query")
    if rows.shape[1] > 1 and (rows == rows[:, :1]).all():
        rows = rows[:, :1]
    return tuple(tuple(tuple(map(int, row)) for row in part) for part in rows.tolist())


def key_lengths(arrays: Mapping[str, Array], sizes: Sizes) -> PerBatch | None:
    """The number of keys that are real: one for all, or one for each member of the batch."""
    if KEY_LENGTHS not in arrays:
        return None
    lengths = arrays[KEY_LENGTHS].reshape(-1).tolist()
    members, keys = sizes.get("batch", 1), key_count(sizes)
    if len(lengths) != members or any(length not in range(keys + 1) for length in lengths):
        expected = f"{members} × a whole number from 0 to {keys} (the keys there are)"
        raise AttnError(f"{KEY_LENGTHS}: {lengths}, expected {expected}")
    whole = tuple(map(int, lengths))
    return whole if "batch" in sizes else whole[0]
