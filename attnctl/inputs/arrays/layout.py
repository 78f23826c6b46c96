"""Which axis is which in anyone's arrays, told from names, sizes and one another.

The table of names says how each array may be laid out. A reading of a file picks one layout for
each array so that all sizes agree; our own is tried first, so another one is read only where ours
does not fit. What stands beside Q, K and V (masks, a sink, weights of norms) comes in any shape that
broadcasts; log-sum-exps come in base 2, too, and with a number for rows that see nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import field
from math import inf, log, prod

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.words import dims
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array, Shape, Sizes
from attnctl.math.axes import Groups, arrange, names_in, parse_axes, solve_sizes
from attnctl.math.derivation import Derivation
from attnctl.math.names import (
    BIAS,
    CHUNK_LOGSUMEXP,
    HEAD_OUTPUTS,
    LOGSUMEXP,
    MEMORY,
    NORM_WEIGHTS,
    OUTPUT,
    PAST_KEY,
    SINK,
    TABLE,
    W_O,
    X,
    gradient_of,
)
from attnctl.math.ops import Hide, LogSumExp

GroupsOf = Callable[[str, str], Groups]
"""From the name of an array and a layout of it to the axes of a file."""


def axes_among(there: Container[str], of_all_keys: Container[str] = ()) -> GroupsOf:
    """The axes of a file of these arrays, some of which go by the name of another one.

    Without a cache all keys are new; without memory, keys and values come from X. Arrays `of_all_keys`
    have a row for past keys, too, not for new ones alone.
    """
    same = {"token": "query"}
    if PAST_KEY not in there:
        same["new"] = "key"
    if MEMORY not in there:
        same["d_memory"] = "d_model"

    def groups(name: str, layout: str) -> Groups:
        own = {**same, "new": "key"} if name in of_all_keys else same
        return tuple(tuple(own.get(axis, axis) for axis in group) for group in parse_axes(layout))

    return groups


@dataclass
class LayoutSearch:
    """Looks for a layout of each array, one after the other, and goes back where one cannot be read.

    What it finds are `layouts` and `sizes`. `documented` keeps to the layouts that `attend` documents: no
    leading axis of size 1, no layout that only a search finds, and W_O is (out, in) only where its rows are
    the columns of X.
    """

    shapes: Mapping[str, Shape]
    batch: bool
    documented: bool = False
    of_all_keys: Container[str] = ()
    tries: int = 0
    stuck: tuple[int, str, Sizes] = (-1, "", {})
    layouts: Mapping[str, Groups] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.axes = axes_among(self.shapes, self.of_all_keys)
        self.names = [name for name in TABLE if name in self.shapes]
        self.names.sort(key=self.rank)

    def rank(self, name: str) -> tuple[bool, bool, bool, int]:
        """Scores first: they tell most. Square matrices tell nothing. Gradients follow what they are by."""
        row, shape = TABLE[name], self.shapes[name]
        square = row.linear is not None and len(shape) == 2 and shape[0] == shape[1]
        return bool(row.gradient), not row.of_scores, square, -len(shape)

    def find(self, known: Sizes) -> bool:
        return self.go(0, {}, dict(known))

    def go(self, at: int, layouts: Mapping[str, Groups], sizes: dict[str, int]) -> bool:
        if at == len(self.names):
            self.layouts, self.sizes = layouts, sizes
            return consistent(sizes)
        name = self.names[at]
        for layout in self.ways(name, layouts):
            for known in with_shared_heads(layout, sizes):
                self.tries += 1
                read, more = unify(layout, self.shapes[name], known), {**layouts, name: layout}
                if read is not None and self.tries <= 20_000 and self.go(at + 1, more, read):
                    return True
        if at > self.stuck[0]:
            self.stuck = (at, name, dict(sizes))
        return False

    def ways(self, name: str, layouts: Mapping[str, Groups]) -> Iterator[Groups]:
        """The layouts this array may have, ours first; nn.Linear's where other matrices show it."""
        row = TABLE[name]
        if row.gradient in layouts and self.shapes[row.gradient] == self.shapes[name]:
            yield layouts[row.gradient]
            return
        ways = row.layouts if self.documented else (*row.layouts, *row.searched)
        if row.linear:
            # Of documented layouts W_O may be (out, in) only if it then gives as many columns as X has.
            free = not self.documented or name != W_O or X not in self.shapes
            others = {
                layout == self.axes(other, linear)
                for other, layout in layouts.items()
                if (linear := TABLE[other].linear)
            }
            if not free and self.shapes[name][:1] != self.shapes[X][-1:]:
                ways = tuple(way for way in ways if way != row.linear)
            elif others == {True}:
                ways = (row.linear, *ways)
        for way in ways:
            own = self.axes(name, way)
            if ("batch",) in own:  # inside others
                yield from [own] if self.batch else ()
                continue
            if self.batch and not row.once:
                yield (("batch",), *own)
                continue
            yield own
            if not self.documented:
                yield ((), *own)

    def lay_out(self, name: str, array: Array) -> Array:
        """The array in our layout, with the batch axis where one was found."""
        own, layout = self.axes(name, TABLE[name].own), self.layouts[name]
        wanted = (("batch",), *own) if "batch" in self.sizes and not TABLE[name].once else own
        lacking = [(axis,) for axis in names_in(wanted) if axis not in names_in(layout)]  # of one head
        whole = array.reshape((1,) * len(lacking) + array.shape)
        return arrange(whole, (*lacking, *layout), wanted, self.sizes)

    def misfit(self) -> str:
        _, name, known = self.stuck
        row, shape = TABLE[name], self.shapes[name]
        told = ", ".join(f"{axis} {size}" for axis, size in known.items())
        ways = (self.axes(name, way) for way in (*row.layouts, *row.searched))
        wanted = " or ".join(f"({', '.join('·'.join(axes) or 'one' for axes in way)})" for way in ways)
        hint = ""
        if row.of_scores and len(shape) < 4 and known.get("head", 1) > 1:
            hint = "; weights averaged over heads cannot be checked (average_attn_weights=False keeps them)"
        if name == OUTPUT:
            renamed = f"{OUTPUT}={HEAD_OUTPUTS}"
            hint = f"; where it still has its heads, call it {HEAD_OUTPUTS} (--name {renamed})"
        return f"{name}: {dims(shape)} does not go with the other arrays ({told}); expected {wanted}{hint}"


def search(
    shapes: Mapping[str, Shape],
    sizes: Sequence[Sizes],
    batches: Sequence[bool] = (False, True),
    of_all_keys: Container[str] = (),
) -> LayoutSearch:
    """Find how to read arrays of these shapes, in any layout we know.

    Several `sizes` known beforehand are tried in turn, and a batch, or none. Arrays `of_all_keys` have a
    row for past keys, too. Raises AttnError naming an array that does not go together with the others.
    """
    tried: list[LayoutSearch] = []
    for known in sizes:
        tried = [LayoutSearch(shapes, batch, of_all_keys=of_all_keys) for batch in batches]
        for attempt in tried:
            if attempt.find(known):
                return attempt
    raise AttnError(max(tried, key=lambda attempt: attempt.stuck[0]).misfit())


def with_shared_heads(pattern: Groups, known: Sizes) -> Iterator[Sizes]:
    """The sizes known, and then those with fewer heads of keys, where nothing told how many there are."""
    yield known
    unknown = {*names_in(pattern)} - set(known)
    if "kv_head" in unknown and len(unknown) > 1 and "head" in known:
        heads = known["head"]
        yield from ({**known, "kv_head": few} for few in range(heads - 1, 0, -1) if heads % few == 0)


def unify(pattern: Groups, shape: Shape, known: Sizes) -> dict[str, int] | None:
    """The sizes known once an array of this shape is read so; None where it cannot be."""
    for group in pattern:
        unknown = [axis for axis in group if axis not in known]
        if len(unknown) > 1:  # nothing tells how many heads there are: one
            known = {**known, unknown[0]: known.get("head", 1)}
    sizes = solve_sizes(pattern, shape, known)
    axes = names_in(pattern)
    if sizes and {"query", "key"} <= {*axes} and "head" not in axes and sizes.setdefault("head", 1) != 1:
        return None
    return sizes


def consistent(sizes: dict[str, int]) -> bool:
    """True if heads share evenly, and a cache and its new keys make up the keys."""
    if "past" in sizes and "new" in sizes:
        both = sizes["past"] + sizes["new"]
        if sizes.setdefault("key", both) != both:
            return False
    head, kv_head = sizes.get("head"), sizes.get("kv_head")
    return not (head and kv_head and head % kv_head)


# --- what stands beside Q, K and V ---


def place(name: str, array: Array, sizes: Sizes, keys: int) -> Array | None:
    """The array so that it broadcasts against what it goes with; None where it fits in no way.

    A mask shorter than the keys hides the rest; one of a single column is that column for all. It may be
    (batch, key) or (batch, query, key), too; without a batch axis a leading one of size 1 goes.
    """
    if not TABLE[name].of_scores:
        return by_head(name, array, sizes)
    short = keys - array.shape[-1] if array.ndim and array.shape[-1] != 1 else 0
    if short > 0:
        fill = False if array.dtype == bool else -np.inf
        array = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, short)], constant_values=fill)
    ways = [array]
    if "batch" in sizes and array.ndim in {2, 3}:
        ways.append(array[:, None, None] if array.ndim == 2 else array[:, None])
    elif "batch" not in sizes and array.shape[:1] == (1,):
        ways.append(array[0])
    return next((way for way in ways if broadcasts(way.shape, score_sizes(sizes))), None)


def heads_shown(arrays: Mapping[str, Array]) -> dict[str, int]:
    """The number of heads that a sink shows, or norms' weights that each head has its own of."""
    weights = {"head": arrays.get(NORM_WEIGHTS[0]), "kv_head": arrays.get(NORM_WEIGHTS[1])}
    shown = {
        axis: len(array)
        for axis, array in weights.items()
        if array is not None and array.ndim == 2 and len(array) > 1
    }
    return shown | ({"head": int(arrays[SINK].size)} if SINK in arrays else {})


def by_head(name: str, array: Array, sizes: Sizes) -> Array | None:
    """A sink as (head,), a norm's factor as (d_k,) or (head, d_k), axes of size 1 aside; else None."""
    whole = tuple(sizes.get(axis, array.size) for axis in names_in(parse_axes(TABLE[name].own)))
    plain = without_ones(array.shape)
    if plain in {without_ones(whole), without_ones((prod(whole),))}:
        return array.reshape(whole)
    return array.reshape(whole[-1]) if len(whole) > 1 and plain == without_ones(whole[-1:]) else None


def without_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def is_one_row(name: str, array: Array, sizes: Sizes) -> bool:
    """True if a norm's weight has the columns of all heads in one row, as OLMo2 has it."""
    size = array.size
    return name in NORM_WEIGHTS and len(without_ones(array.shape)) == 1 and size > sizes.get("d_k", size)


def score_sizes(sizes: Sizes) -> list[int | str]:
    batch = ["batch"] if "batch" in sizes else []
    return [sizes.get(axis, axis) for axis in (*batch, *TABLE[BIAS].axes)]


def broadcasts(shape: Shape, scores: Sequence[int | str]) -> bool:
    """True if an array of this shape can be laid over the scores; a size that is not known fits any."""
    pairs = zip(reversed(shape), reversed(scores), strict=False)
    fits = all(a in {1, b} or isinstance(b, str) for a, b in pairs)
    return fits and 1 <= len(shape) <= len(scores)


def ill_placed(name: str, array: Array, sizes: Sizes) -> str:
    if TABLE[name].of_scores:
        scores = dims(score_sizes(sizes))
        return f"{name}: {dims(array.shape)} does not fit scores of {scores} ([batch ×] head × query × key)"
    *heads, d = (sizes.get(axis, axis) for axis in names_in(parse_axes(TABLE[name].own)))
    ways = f"{d} (d_k) or {dims((*heads, d))} (head × d_k)" if heads else f"{d} (one for each head)"
    return f"{name}: {dims(array.shape)}, expected {ways}"


# --- log-sum-exps ---

SUMS = (LOGSUMEXP, CHUNK_LOGSUMEXP)
OF_BASE = {**dict.fromkeys(SUMS, log(2)), gradient_of(LOGSUMEXP): 1 / log(2)}
"""What makes natural numbers of those in base 2: L = L₂ ln 2, and so d_L = d_L₂ / ln 2."""


def in_base_e(arrays: Mapping[str, Array], settings: Settings) -> dict[str, Array]:
    """The arrays with natural log-sum-exps. Raises AttnError where there are none to say it of."""
    raise_all(
        f"{settings.where((option,))}: nothing read here is a log-sum-exp; leave it out"
        for option, names in (("lse_base", OF_BASE), ("lse_empty", SUMS))
        if getattr(settings, option) is not None and not arrays.keys() & {*names}
    )
    if settings.lse_base != "2":
        return dict(arrays)
    return {**arrays, **{name: times(arrays[name], by) for name, by in OF_BASE.items() if name in arrays}}


def times(array: Array, factor: float) -> Array:
    """The product in as many digits as the array has; bfloat16 comes as float32."""
    product = (array.astype(np.float64) * factor).astype(array.dtype)
    if array.dtype != np.float32 or (np.ascontiguousarray(array).view(np.uint32) & 0xFFFF).any():
        return product
    mantissa, exponent = np.frexp(product)
    return np.ldexp(np.rint(mantissa * 2**8) / 2**8, exponent).astype(array.dtype)


def with_empty_rows(
    arrays: Mapping[str, Array], derivation: Derivation, empty: float | None, keys: int
) -> dict[str, Array]:
    """The arrays with −∞ for rows that see nothing and were written down as another number."""
    out = dict(arrays)
    for name in SUMS if empty is not None else ():
        if name in arrays and name in derivation:
            *lead, heads, queries = arrays[name].shape
            rows = (*(lead[:-1] if name == CHUNK_LOGSUMEXP else lead), heads, queries)
            op = derivation[name].op if name == CHUNK_LOGSUMEXP else LogSumExp()
            nothing = np.isneginf(op.apply(hide_keys(np.zeros((*rows, keys)), arrays, derivation)))
            out[name] = np.where(nothing & (arrays[name] == empty), -inf, arrays[name])
    return out


def hide_keys(s: Array, arrays: Mapping[str, Array], derivation: Derivation) -> Array:
    for step in derivation:
        if isinstance(step.op, Hide):
            s = step.op.apply(s, *(arrays[name] for name in step.inputs[1:]))
        elif BIAS in step.inputs:
            s = np.where(np.isneginf(arrays[BIAS]), -inf, s)
    return s
