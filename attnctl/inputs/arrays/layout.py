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
from attnctl.base.namedtuple import NamedTuple
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
    STORED_SCALES,
    TABLE,
    W_O,
    X,
    gradient_of,
)
from attnctl.math.ops import Hide, LogSumExp

GroupsOf = Callable[[str, str], Groups]
"""From the name of an array and a layout of it to the axes of a file."""

MOST_TRIES = 20_000
"""Arrays that go together are read in far fewer; those that do not would be tried for ever."""


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


class Stuck(NamedTuple):
    """How far a search came: the number of arrays read, the one that no layout fits, the sizes so far."""

    depth: int
    name: str
    sizes: Sizes


class SearchRank(NamedTuple):
    """When an array is read: scores first, as they tell most; square matrices late, as they tell nothing.

    Gradients follow what they are by.
    """

    is_gradient: bool
    is_not_of_scores: bool
    is_square: bool
    fewest_axes: int


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
    stuck: Stuck = Stuck(-1, "", {})
    layouts: Mapping[str, Groups] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.axes = axes_among(self.shapes, self.of_all_keys)
        self.names = [name for name in TABLE if name in self.shapes]
        self.names.sort(key=self.rank)

    def rank(self, name: str) -> SearchRank:
        row = TABLE[name]
        shape = self.shapes[name]
        is_square = row.linear is not None and len(shape) == 2 and shape[0] == shape[1]
        return SearchRank(
            is_gradient=bool(row.gradient),
            is_not_of_scores=not row.of_scores,
            is_square=is_square,
            fewest_axes=-len(shape),
        )

    def find(self, known: Sizes) -> bool:
        return self.go(0, {}, dict(known))

    def go(self, depth: int, layouts: Mapping[str, Groups], sizes: dict[str, int]) -> bool:
        """Read the arrays from number `depth` on, where those before it have these layouts and sizes."""
        if depth == len(self.names):
            self.layouts = layouts
            self.sizes = sizes
            return consistent(sizes)

        name = self.names[depth]
        for layout in self.possible_layouts(name, layouts):
            for known in with_shared_heads(layout, sizes):
                self.tries += 1
                read = unify(layout, self.shapes[name], known)
                if read is None or self.tries > MOST_TRIES:
                    continue
                if self.go(depth + 1, {**layouts, name: layout}, read):
                    return True

        if depth > self.stuck.depth:
            self.stuck = Stuck(depth, name, dict(sizes))
        return False

    def possible_layouts(self, name: str, layouts: Mapping[str, Groups]) -> Iterator[Groups]:
        """The layouts this array may have, ours first; nn.Linear's where other matrices show it."""
        row = TABLE[name]
        if row.gradient in layouts and self.shapes[row.gradient] == self.shapes[name]:
            yield layouts[row.gradient]
            return

        for text in self.layout_texts(name, layouts):
            axes = self.axes(name, text)
            if ("batch",) in axes:  # inside others
                if self.batch:
                    yield axes
            elif self.batch and not row.once:
                yield (("batch",), *axes)
            else:
                yield axes
                if not self.documented:
                    yield ((), *axes)

    def layout_texts(self, name: str, layouts: Mapping[str, Groups]) -> Sequence[str]:
        """The layouts of the table of names in the order in which to try them, without any batch."""
        row = TABLE[name]
        texts = row.layouts if self.documented else (*row.layouts, *row.searched)
        if not row.linear:
            return texts

        # Of documented layouts W_O may be (out, in) only if it then gives as many columns as X has.
        is_bound = self.documented and name == W_O and X in self.shapes
        if is_bound and self.shapes[name][:1] != self.shapes[X][-1:]:
            return tuple(text for text in texts if text != row.linear)

        # Where all others are (out, in), as nn.Linear keeps them, so is this one.
        are_linear = []
        for other, layout in layouts.items():
            linear = TABLE[other].linear
            if linear:
                are_linear.append(layout == self.axes(other, linear))
        return (row.linear, *texts) if are_linear and all(are_linear) else texts

    def lay_out(self, name: str, array: Array) -> Array:
        """The array in our layout, with the batch axis where one was found."""
        layout = self.layouts[name]
        wanted = self.axes(name, TABLE[name].own)
        if "batch" in self.sizes and not TABLE[name].once:
            wanted = (("batch",), *wanted)

        lacking = [(axis,) for axis in names_in(wanted) if axis not in names_in(layout)]  # of one head
        whole = array.reshape((1,) * len(lacking) + array.shape)
        return arrange(whole, (*lacking, *layout), wanted, self.sizes)

    def misfit(self) -> str:
        """The message on the array at which the search got stuck."""
        _, name, known = self.stuck
        row = TABLE[name]
        shape = self.shapes[name]
        sizes = ", ".join(f"{axis} {size}" for axis, size in known.items())
        layouts = [self.axes(name, text) for text in (*row.layouts, *row.searched)]
        expected = " or ".join(map(layout_text, layouts))

        hint = ""
        if row.of_scores and len(shape) < 4 and known.get("head", 1) > 1:
            hint = "; weights averaged over heads cannot be checked (average_attn_weights=False keeps them)"
        if name == OUTPUT:
            renamed = f"{OUTPUT}={HEAD_OUTPUTS}"
            hint = f"; where it still has its heads, call it {HEAD_OUTPUTS} (--name {renamed})"

        problem = f"{name}: {dims(shape)} does not go with the other arrays ({sizes})"
        return f"{problem}; expected {expected}{hint}"


def layout_text(layout: Groups) -> str:
    """(batch, query, head·d_k)."""
    axes = ["·".join(group) or "one" for group in layout]
    return f"({', '.join(axes)})"


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

    furthest = max(tried, key=lambda attempt: attempt.stuck.depth)
    raise AttnError(furthest.misfit())


def with_shared_heads(pattern: Groups, known: Sizes) -> Iterator[Sizes]:
    """The sizes known, and then those with fewer heads of keys, where nothing told how many there are."""
    yield known

    unknown = {*names_in(pattern)} - set(known)
    if "kv_head" in unknown and len(unknown) > 1 and "head" in known:
        heads = known["head"]
        for fewer in range(heads - 1, 0, -1):
            if heads % fewer == 0:
                yield {**known, "kv_head": fewer}


def unify(pattern: Groups, shape: Shape, known: Sizes) -> dict[str, int] | None:
    """The sizes known once an array of this shape is read so; None where it cannot be."""
    for group in pattern:
        unknown = [axis for axis in group if axis not in known]
        if len(unknown) > 1:  # nothing tells how many heads there are: one
            known = {**known, unknown[0]: known.get("head", 1)}

    sizes = solve_sizes(pattern, shape, known)
    if not sizes:
        return sizes

    # Scores without an axis of heads are of one head.
    axes = names_in(pattern)
    is_of_one_head = {"query", "key"} <= {*axes} and "head" not in axes
    if is_of_one_head and sizes.setdefault("head", 1) != 1:
        return None
    return sizes


def consistent(sizes: dict[str, int]) -> bool:
    """True if heads share evenly, and a cache and its new keys make up the keys."""
    if "past" in sizes and "new" in sizes:
        both = sizes["past"] + sizes["new"]
        if sizes.setdefault("key", both) != both:
            return False

    heads = sizes.get("head")
    kv_heads = sizes.get("kv_head")
    if not heads or not kv_heads:
        return True
    return heads % kv_heads == 0


# --- what stands beside Q, K and V ---


def place(name: str, array: Array, sizes: Sizes, keys: int) -> Array | None:
    """The array so that it broadcasts against what it goes with; None where it fits in no way.

    A mask shorter than the keys hides the rest; one of a single column is that column for all. It may be
    (batch, key) or (batch, query, key), too; without a batch axis a leading one of size 1 goes.
    """
    if not TABLE[name].of_scores:
        return by_head(name, array, sizes)

    lacking_keys = keys - array.shape[-1] if array.ndim and array.shape[-1] != 1 else 0
    if lacking_keys > 0:
        hidden = False if array.dtype == bool else -np.inf
        widths = [(0, 0)] * (array.ndim - 1) + [(0, lacking_keys)]
        array = np.pad(array, widths, constant_values=hidden)

    candidates = [array]
    if "batch" in sizes and array.ndim in {2, 3}:
        candidates.append(array[:, None, None] if array.ndim == 2 else array[:, None])
    elif "batch" not in sizes and array.shape[:1] == (1,):
        candidates.append(array[0])

    for candidate in candidates:
        if broadcasts(candidate.shape, score_sizes(sizes)):
            return candidate
    return None


def heads_shown(arrays: Mapping[str, Array]) -> dict[str, int]:
    """The number of heads that a sink shows, or norms' weights that each head has its own of."""
    shown: dict[str, int] = {}
    for axis, name in zip(("head", "kv_head"), NORM_WEIGHTS, strict=True):
        if name in arrays and arrays[name].ndim == 2 and len(arrays[name]) > 1:
            shown[axis] = len(arrays[name])

    if SINK in arrays:
        shown["head"] = int(arrays[SINK].size)
    return shown


def by_head(name: str, array: Array, sizes: Sizes) -> Array | None:
    """A sink as (head,), a norm's factor as (d_k,) or (head, d_k), axes of size 1 aside; else None."""
    axes = names_in(parse_axes(TABLE[name].own))
    whole = tuple(sizes.get(axis, array.size) for axis in axes)
    in_one_row = (prod(whole),)

    plain = without_ones(array.shape)
    if name in STORED_SCALES and array.size == 1:
        return np.broadcast_to(array.reshape(1), whole)
    if plain in {without_ones(whole), without_ones(in_one_row)}:
        return array.reshape(whole)
    if len(whole) > 1 and plain == without_ones(whole[-1:]):
        return array.reshape(whole[-1])
    return None


def without_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def is_one_row(name: str, array: Array, sizes: Sizes) -> bool:
    """True if a norm's weight has the columns of all heads in one row, as OLMo2 has it."""
    if name not in NORM_WEIGHTS or len(without_ones(array.shape)) != 1:
        return False
    return "d_k" in sizes and array.size > sizes["d_k"]


def score_sizes(sizes: Sizes) -> list[int | str]:
    batch = ["batch"] if "batch" in sizes else []
    return [sizes.get(axis, axis) for axis in (*batch, *TABLE[BIAS].axes)]


def broadcasts(shape: Shape, scores: Sequence[int | str]) -> bool:
    """True if an array of this shape can be laid over the scores; a size that is not known fits any."""
    if not 1 <= len(shape) <= len(scores):
        return False

    for size, of_scores in zip(reversed(shape), reversed(scores), strict=False):
        if isinstance(of_scores, int) and size not in {1, of_scores}:
            return False
    return True


def ill_placed(name: str, array: Array, sizes: Sizes) -> str:
    if TABLE[name].of_scores:
        scores = dims(score_sizes(sizes))
        return f"{name}: {dims(array.shape)} does not fit scores of {scores} ([batch ×] head × query × key)"
    *heads, d = (sizes.get(axis, axis) for axis in names_in(parse_axes(TABLE[name].own)))
    ways = f"{d} (one for each head)"
    if heads:
        ways = f"{d} (d_k) or {dims((*heads, d))} (head × d_k)"
    return f"{name}: {dims(array.shape)}, expected {ways}"


# --- log-sum-exps ---

SUMS = (LOGSUMEXP, CHUNK_LOGSUMEXP)
OF_BASE = {**dict.fromkeys(SUMS, log(2)), gradient_of(LOGSUMEXP): 1 / log(2)}
"""What makes natural numbers of those in base 2: L = L₂ ln 2, and so d_L = d_L₂ / ln 2."""


def in_base_e(arrays: Mapping[str, Array], settings: Settings) -> dict[str, Array]:
    """The arrays with natural log-sum-exps. Raises AttnError where there are none to say it of."""
    needless = []
    for option, names in (("lse_base", OF_BASE), ("lse_empty", SUMS)):
        if getattr(settings, option) is not None and not arrays.keys() & {*names}:
            place = settings.where((option,))
            needless.append(f"{place}: nothing read here is a log-sum-exp; leave it out")
    raise_all(needless)

    natural = dict(arrays)
    if settings.lse_base == "2":
        for name, factor in OF_BASE.items():
            if name in arrays:
                natural[name] = times(arrays[name], factor)
    return natural


def times(array: Array, factor: float) -> Array:
    """The product in as many digits as the array has; bfloat16 comes as float32."""
    product = (array.astype(np.float64) * factor).astype(array.dtype)
    if array.dtype != np.float32:
        return product

    # Of a bfloat16 the lower half of the bits is empty.
    lower_half = np.ascontiguousarray(array).view(np.uint32) & 0xFFFF
    if lower_half.any():
        return product

    mantissa, exponent = np.frexp(product)
    in_eight_bits = np.rint(mantissa * 2**8) / 2**8
    return np.ldexp(in_eight_bits, exponent).astype(array.dtype)


def with_empty_rows(
    arrays: Mapping[str, Array], derivation: Derivation, empty: float | None, keys: int
) -> dict[str, Array]:
    """The arrays with −∞ for rows that see nothing and were written down as another number."""
    out = dict(arrays)
    if empty is None:
        return out

    for name in SUMS:
        if name not in arrays or name not in derivation:
            continue
        is_of_chunks = name == CHUNK_LOGSUMEXP
        *lead, heads, queries = arrays[name].shape
        if is_of_chunks:
            lead = lead[:-1]

        # Scores of 0 with keys hidden: their sums are −∞ just where a row sees nothing.
        scores = hide_keys(np.zeros((*lead, heads, queries, keys)), arrays, derivation)
        op = derivation[name].op if is_of_chunks else LogSumExp()
        sees_nothing = np.isneginf(op.apply(scores))
        out[name] = np.where(sees_nothing & (arrays[name] == empty), -inf, arrays[name])

    return out


def hide_keys(s: Array, arrays: Mapping[str, Array], derivation: Derivation) -> Array:
    for step in derivation:
        if isinstance(step.op, Hide):
            s = step.op.apply(s, *(arrays[name] for name in step.inputs[1:]))
        elif BIAS in step.inputs:
            s = np.where(np.isneginf(arrays[BIAS]), -inf, s)
    return s
