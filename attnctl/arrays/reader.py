"""The one reader of anyone's arrays: brought to our layout, with the sizes of their axes.

`attend` reads strictly: our layout and those it documents. `check` and `explain` let it search.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from attnctl.array import Array, Shape
from attnctl.arrays.layout import Reading, Search, Sizes, search
from attnctl.arrays.problems import (
    has_batch,
    has_vectors,
    inputs_among,
    misfits,
    missing,
    mixed,
    unlike_layout,
    unrotatable,
    unusable,
)
from attnctl.config.settings import Settings
from attnctl.errors import AttnError, raise_all
from attnctl.names import (
    BIAS,
    CONCAT,
    EMBEDDINGS,
    KEY_LENGTHS,
    MASK,
    MEMORY,
    OUTPUT,
    PROJECTED,
    TABLE,
    WEIGHTS,
    X,
)
from attnctl.rules import PerBatch
from attnctl.words import dims

ZEROS_AND_ONES = "mask holds 0 and 1 alone: 1 may attend, 0 may not (other floats are added to the scores)"
AVERAGED = (
    "attention_weights are left out: averaged over heads, they tell nothing of any head "
    "(average_attn_weights=False keeps them by head)."
)
TOKENS_FIRST = (X, MEMORY, *PROJECTED, CONCAT, OUTPUT)
"""The arrays that torch keeps as (token, batch, …) unless batch_first is said."""

ZEROS = "mask holds nothing but floats 0: they are added to the scores and hide nothing"


class Facts(NamedTuple):
    """What the arrays show of the run: sizes and whether there is a batch axis."""

    batch: int | None
    heads: int
    kv_heads: int
    queries: int
    keys: int
    d_k: int
    past: int


@dataclass(frozen=True)
class Laid:
    """Arrays in our layout, the size of each axis, and how many keys are real where that is given."""

    arrays: dict[str, Array]
    sizes: Sizes
    facts: Facts
    lengths: PerBatch | None
    notes: tuple[str, ...] = ()
    """What was decided where an array could have meant something else."""


def read_strictly(found: Mapping[str, Array], settings: Settings) -> Laid:
    """The inputs of attention, read in the layouts that `attend` documents.

    Raises AttnError with every array that is missing, not finite or does not fit.
    """
    raise_all(missing(found, settings))
    raise_all(problem for name, array in found.items() for problem in unusable(name, array, settings.dtype))
    inputs, notes = by_kind({name: found[name] for name in inputs_among(found)})
    raise_all(unlike_layout(shapes_of(inputs), settings))
    inputs = heads_first(inputs, settings)
    shapes = shapes_of(inputs)
    tried = Search(shapes, has_batch(shapes, settings), documented=True)
    reading = None if mixed(shapes, settings) else tried.reading(asked(settings))
    if reading is None:
        raise_all(misfits(shapes, settings))
        raise AttnError(tried.misfit())
    laid = laid_out(inputs, reading)
    raise_all(unrotatable(settings, laid.facts.d_k))
    return replace(laid, notes=notes)


def read_any(found: Mapping[str, Array], settings: Settings, *, batch_first: bool = False) -> Laid:
    """Arrays under any of our names, in any layout in which they go together.

    Where they do not, weights averaged over heads are left out, and tokens may come before the
    batch; `notes` of what is laid out say so. Raises AttnError naming an array that does not go
    with the others all the same.
    """
    arrays, notes = by_kind(found)
    refused: AttnError | None = None
    for changed, said in readings(arrays):
        try:
            laid = laid_out(changed, search(shapes_of(changed), asked(settings), batch_first=batch_first))
        except AttnError as error:
            refused = refused or error
        else:
            if changed is arrays or not changes_too_much(arrays, laid):
                return replace(laid, notes=(*notes, *said))
    assert refused is not None
    raise refused


def readings(arrays: Mapping[str, Array]) -> Iterator[tuple[Mapping[str, Array], tuple[str, ...]]]:
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
    """Whether weights were left out that are no averages over the heads of the others."""
    sizes, batch = laid.sizes, laid.facts.batch
    if WEIGHTS not in arrays or WEIGHTS in laid.arrays:
        return False
    rows = (sizes.get("query"), sizes.get("key"))
    return sizes["head"] == 1 or arrays[WEIGHTS].shape != (rows if batch is None else (batch, *rows))


def as_array(name: str, value: Any) -> Array:
    """A NumPy array of lists, of torch, of JAX, or of anything with `__array__` or `__dlpack__`.

    A tensor is taken off its device and its graph. bfloat16, which NumPy has not, is the float32
    that holds it exactly.
    """
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


def written_masks(settings: Settings) -> dict[str, Array]:
    """The mask and the bias that settings write out."""
    written = {MASK: (settings.mask, bool), BIAS: (settings.bias, np.float64)}
    return {name: np.array(rows, dtype) for name, (rows, dtype) in written.items() if rows is not None}


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
        raise AttnError(
            "mask holds floats, so it is added to the scores as bias is; give their sum as bias"
        )
    return out | {BIAS: mask}, notes if mask.any() else (ZEROS,)


def heads_first(arrays: Mapping[str, Array], settings: Settings) -> dict[str, Array]:
    """The arrays with (batch, n, head, d) turned to (batch, head, n, d), where that is their layout."""
    turned = has_vectors if settings.layout == "bnhd" else lambda _: False
    return {
        name: array.swapaxes(1, 2) if turned(name) and array.ndim == 4 else array
        for name, array in arrays.items()
    }


def shapes_of(arrays: Mapping[str, Array]) -> dict[str, Shape]:
    """The shapes of what has a layout: all we have a name for but masks and lengths."""
    return {
        name: array.shape
        for name, array in arrays.items()
        if name in TABLE and not (TABLE[name].broadcasts or TABLE[name].model) and name != KEY_LENGTHS
    }


def asked(settings: Settings) -> Sizes:
    """The sizes that settings say."""
    said = {"head": settings.heads, "kv_head": settings.kv_heads}
    said |= {name: getattr(settings, name) for name in ("d_model", "d_k", "d_v")}
    return {axis: size for axis, size in said.items() if size is not None}


def laid_out(arrays: Mapping[str, Array], reading: Reading) -> Laid:
    """The arrays in our layout. Raises AttnError for masks and lengths that do not fit the others."""
    sizes = complete(reading.sizes, arrays)
    facts = facts_of(sizes)
    lengths = key_lengths(arrays, facts)
    ours = {name: reading.lay_out(name, array) for name, array in arrays.items() if name in reading.layouts}
    masks = {name: widened(array, facts) for name, array in arrays.items() if name in {MASK, BIAS}}
    placed = {name: beside_scores(mask, sizes) for name, mask in masks.items()}
    raise_all(ill_placed(name, masks[name], sizes) for name, mask in placed.items() if mask is None)
    ours |= {name: mask for name, mask in placed.items() if mask is not None}
    return Laid(ours, sizes, facts, lengths)


def complete(sizes: Sizes, there: Container[str]) -> Sizes:
    """The sizes and those that follow: a sentence that attends to itself has its own keys."""
    out = dict(sizes)
    if (X in there or EMBEDDINGS in there) and MEMORY not in there:
        new = out.setdefault("new" if "past" in out else "key", out["query"])
        out.setdefault("key", new + out.get("past", 0))
    out.setdefault("head", out.get("kv_head", 1))
    out.setdefault("kv_head", out["head"])
    return out


def facts_of(sizes: Sizes) -> Facts:
    """The sizes in the form that options are turned into rules from."""
    s = sizes
    keys = s.get("key", s.get("query", 0))
    return Facts(
        s.get("batch"), s["head"], s["kv_head"], s.get("query", 0), keys, s.get("d_k", 0), s.get("past", 0)
    )


def key_lengths(arrays: Mapping[str, Array], facts: Facts) -> PerBatch | None:
    """How many keys are real: one number, or one for each member of the batch."""
    if KEY_LENGTHS not in arrays:
        return None
    lengths = arrays[KEY_LENGTHS].reshape(-1).tolist()
    members = facts.batch or 1
    if len(lengths) != members or any(length not in range(facts.keys + 1) for length in lengths):
        expected = f"{members} × a whole number from 0 to {facts.keys} (the keys there are)"
        raise AttnError(f"{KEY_LENGTHS}: {lengths}, expected {expected}")
    whole = tuple(map(int, lengths))
    return whole[0] if facts.batch is None else whole


# --- masks ---


def widened(mask: Array, facts: Facts) -> Array:
    """A mask shorter than the keys hides the rest; one of a single column is that column for all."""
    short = facts.keys - mask.shape[-1] if mask.ndim and mask.shape[-1] != 1 else 0
    if short <= 0:
        return mask
    fill = False if mask.dtype == bool else -np.inf
    return np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, short)], constant_values=fill)


def score_sizes(sizes: Sizes) -> list[int | str]:
    """The shape of the scores, an axis of unknown size by its name."""
    batch = ["batch"] if "batch" in sizes else []
    return [sizes.get(axis, axis) for axis in (*batch, *TABLE[MASK].axes)]


def beside_scores(mask: Array, sizes: Sizes) -> Array | None:
    """A mask as it broadcasts against the scores; (batch, key) and (batch, query, key) where it does not.

    Without a batch axis a leading one of size 1 goes. None where it fits in no way.
    """
    ways = [mask]
    if "batch" in sizes and mask.ndim in {2, 3}:
        ways.append(mask[:, None, None] if mask.ndim == 2 else mask[:, None])
    elif "batch" not in sizes and mask.shape[:1] == (1,):
        ways.append(mask[0])
    return next((way for way in ways if broadcasts(way.shape, score_sizes(sizes))), None)


def broadcasts(shape: Shape, scores: Sequence[int | str]) -> bool:
    """Whether an array of this shape can be laid over the scores; a size that is not known fits any."""
    pairs = zip(reversed(shape), reversed(scores), strict=False)
    fits = all(a in {1, b} or isinstance(b, str) for a, b in pairs)
    return fits and 1 <= len(shape) <= len(scores)


def ill_placed(name: str, mask: Array, sizes: Sizes) -> str:
    """That a mask or bias does not go with the scores."""
    scores = dims(score_sizes(sizes))
    return f"{name}: {dims(mask.shape)} does not fit scores of {scores} ([batch ×] head × query × key)"
