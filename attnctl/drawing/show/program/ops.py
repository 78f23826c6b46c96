"""How each op is written as a line of a program: a function for each, which gives its expression.

A function is handed a `Writing`, which has the op, the variables it reads and their shapes, and takes lines
that stand before the op's own (`let`), functions it calls (`helper`) and numbers it knows by itself
(`numbers`). What is here is held to each op's `apply` by the tests, which run the programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from math import log2
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.drawing.show.program.libraries import Library
from attnctl.drawing.show.program.rules import seen_by
from attnctl.math import Array, Shape, ops
from attnctl.math.axes import LEAD
from attnctl.math.kind import spans
from attnctl.math.ops import base, chunks, delta, lookups, models, norms, pages, products, scores, vectors
from attnctl.math.ops.base import parse_signature
from attnctl.math.ops.products import with_lead_numbered
from attnctl.math.rules import PerBatch, alibi_slopes, per_batch

PREFERRED = {
    "batch": "b", "head": "h", "kv_head": "h", "query": "q", "key": "k", "token": "n", "new": "n",
    "d_model": "m", "d_k": "d", "d_v": "v", "chunk": "c",
}  # fmt: skip
"""Letters of axes in an einsum; one that is taken gives way to the first that is free."""

OTHERS = "ijlopqrstuvwxyz"


class NotWrittenError(Exception):
    """There is no line for this yet; what it says completes "a program has no line for …"."""


@dataclass(frozen=True)
class Writing:
    """One line that is being written: its op, the variables it reads, and where more lines go."""

    library: Library
    name: str
    op: Any
    names: tuple[str, ...]
    shapes: tuple[Shape, ...]
    axes: tuple[tuple[str, ...], ...]
    """The axes of each input, as tables have them."""
    shape: Shape
    """That of the result."""
    arrays: tuple[Array, ...]
    """What stood in the inputs, for what depends on whether a row sees anything."""
    let: Callable[[str, str], str]
    """Write a line before, unless it is there, and give the name it has."""
    numbers: Callable[[str, Array], str]
    """Write numbers before, and give their name."""
    helper: Callable[[str, str], str]
    """Define a function, and give its name."""

    @property
    def x(self) -> str:
        return self.names[0]

    def call(self, function: str, *arguments: str) -> str:
        """A call of a function of the library."""
        return self.library.call(function, *arguments)

    @property
    def is_batched(self) -> bool:
        return len(self.shape) > 3

    def product(self, plain: str) -> str:
        """A contraction: in letters where the library is einsum, else as it is written."""
        return self.einsum() if self.library.einsum else plain

    def einsum(self) -> str:
        """The contraction of the first inputs that the signature of the op says."""
        takes, gives = self.spread_axes()
        letter_of = self.letters(takes)

        def spell(axes: Sequence[str]) -> str:
            return "".join(letter_of[axis] for axis in axes)

        pattern = f"{','.join(map(spell, takes))}->{spell(gives)}"
        return self.call("einsum", f'"{pattern}"', *self.names[: len(takes)])

    def letters(self, takes: Sequence[Sequence[str]]) -> dict[str, str]:
        """A letter for each axis of a signature, where it can be that of the axis that tables show."""
        shown: dict[str, str] = {}
        for axes, labels in zip(takes, self.axes, strict=False):
            shown.update(zip(axes, labels, strict=True))

        letter_of: dict[str, str] = {}
        for axis in dict.fromkeys(chain.from_iterable(takes)):
            wanted = PREFERRED.get(shown.get(axis, axis), "")
            candidates = [*wanted, *OTHERS]
            letter_of[axis] = next(letter for letter in candidates if letter not in letter_of.values())
        return letter_of

    def spread_axes(self) -> tuple[list[list[str]], list[str]]:
        """The axes of the first two inputs and of the result, leading ones by number from the right."""
        named, gives = parse_signature(self.op.signature)
        count = min(2, len(self.names))
        takes: list[list[str]] = []
        longest = 0
        for axes, shape in zip(named[:count], self.shapes, strict=False):
            own = there(axes, shape)
            lead = len(shape) - len(own) + own.count(LEAD)
            longest = max(longest, lead)
            takes.append(with_lead_numbered(own, lead))
        return takes, with_lead_numbered(there(gives, self.shape), longest)

    # --- where queries and keys stand ---

    def positions(self, tokens: int, start: PerBatch, name: str = "position", axes: int = 2) -> str:
        """The position of each token; of each member where they differ, so that it broadcasts."""
        if isinstance(start, int):
            return self.let(name, self.count_from(start, tokens))
        return self.numbers(name, np.arange(tokens) + per_batch(start, axes=axes))

    def count_from(self, start: int, count: int) -> str:
        """So many whole numbers from one on."""
        return self.call("arange", f"{start}, {start + count}" if start else f"{count}")

    def queries(self) -> str:
        """The positions of the queries, a row each."""
        count = self.shape[-2]
        offset = self.op.offset
        if isinstance(offset, int):
            return self.let("query", f"{self.count_from(offset, count)}[:, None]")
        return self.numbers("query", np.arange(count)[:, None] + per_batch(offset))

    def keys(self) -> str:
        return self.let("key", self.call("arange", str(self.shape[-1])))


def there(axes: tuple[str, ...], shape: Shape) -> tuple[str, ...]:
    """The axes of a signature that an array of this shape has, of those that may be lacking."""
    lacking = max(len(axes) - len(shape), 0)
    optional = [axis for axis in axes if axis.endswith("?")]
    left_out = optional[:lacking]
    return tuple(axis.rstrip("?") for axis in axes if axis not in left_out)


Writer = Callable[[Writing], str]

WRITERS: dict[type[base.Op], Writer] = {}
"""How each op is written."""


def writes(*kinds: type[base.Op]) -> Callable[[Writer], Writer]:
    def register(writer: Writer) -> Writer:
        WRITERS.update(dict.fromkeys(kinds, writer))
        return writer

    return register


# --- products ---


@writes(ops.MatMulT)
def matmul_t(w: Writing) -> str:
    a, b = w.names
    b_transposed = w.library.transposed(b)
    return w.product(f"{a} @ {b_transposed}")


@writes(ops.MatMul)
def matmul(w: Writing) -> str:
    a, b, *bias = w.names
    product = w.product(f"{a} @ {b}")
    return " + ".join([product, *bias])


@writes(vectors.Project)
def project(w: Writing) -> str:
    x, matrix, *bias = w.names
    has_members = len(w.shapes[0]) > 2
    rows = f"{x}[:, None]" if has_members else x
    product = w.product(f"{rows} @ {matrix}")
    added = [f"{each}[:, None]" for each in bias]
    return " + ".join([product, *added])


@writes(products.TMatMul)
def t_matmul(w: Writing) -> str:
    a, b = w.names
    return w.product(f"{w.library.transposed(a)} @ {b}")


@writes(products.SharedTMatMul, vectors.ProjectWeights)
def shared_t_matmul(w: Writing) -> str:
    a, b = w.names
    if len(w.shapes[0]) > 2:  # summed over members, too
        return w.einsum()
    return w.product(f"{w.library.transposed(a)} @ {b}")


@writes(vectors.ProjectBack)
def project_back(w: Writing) -> str:
    d, matrix = w.names
    each = f"({d} @ {w.library.transposed(matrix)})"
    return w.product(w.library.reduce("sum", each, -3))


@writes(products.SumRows, products.SumTokens, norms.SumProducts, norms.SumProductsOfHeads)
def sum_rows(w: Writing) -> str:
    (first, *_), gives = w.spread_axes()
    summed = tuple(place for place, axis in enumerate(first) if axis not in gives)
    over = summed[0] if len(summed) == 1 else summed
    factors = " * ".join(w.names)
    x = f"({factors})" if len(w.names) > 1 else factors
    return w.product(w.library.reduce("sum", x, over))


@writes(products.RowDot)
def row_dot(w: Writing) -> str:
    a, b = w.names
    return w.product(w.library.reduce("sum", f"({a} * {b})", -1))


# --- sums, copies ---


@writes(base.Copy, vectors.Rows)
def copy(w: Writing) -> str:
    if isinstance(w.op, base.Copy):
        return w.x
    count = w.shapes[1][-2]
    first = w.shapes[0][-2] - count if w.op.last else 0
    return f"{w.x}[..., {first}:{first + count}, :]"


@writes(base.Add)
def add(w: Writing) -> str:
    a, b = w.names
    return f"{a} + {b}"


@writes(models.AddScaled)
def add_scaled(w: Writing) -> str:
    a, b = w.names
    return f"{a} + {w.op.factor!r} * {b}"


@writes(base.AddAll)
def add_all(w: Writing) -> str:
    return " + ".join(w.names)


@writes(base.SumLike)
def sum_like(w: Writing) -> str:
    d, like = w.shapes
    before = len(d) - len(like)
    summed = []
    for axis, size in enumerate(d):
        is_spread = axis >= before and like[axis - before] == 1 and size > 1
        if axis < before or is_spread:
            summed.append(axis)
    if not summed:
        return w.x

    total = w.library.reduce("sum", w.x, tuple(summed), keep=True)
    return w.library.reshaped(total, like) if before else total


@writes(norms.ScaleColumns)
def scale_columns(w: Writing) -> str:
    x, factors = w.names
    return f"{x} * {factors}"


@writes(norms.ScaleHeads)
def scale_heads(w: Writing) -> str:
    x, factors = w.names
    return f"{x} * {factors}[:, None, None]"


# --- scores ---


@writes(ops.Scale)
def scale(w: Writing) -> str:
    if w.op.factor is None:
        return f"{w.x} / {w.library.root(w.op.d_k)}"
    return f"{w.x} * {w.op.factor!r}"


@writes(scores.Squeeze)
def squeeze(w: Writing) -> str:
    cap = w.op.cap
    bent = w.call("tanh", f"{w.x} / {cap!r}")
    return f"{cap!r} * {bent}"


@writes(scores.SqueezeBack)
def squeeze_back(w: Writing) -> str:
    d, y = w.names
    return f"{d} * (1 - ({y} / {w.op.cap!r}) ** 2)"


SOFTMAX = """\
def softmax(s):
    e = {np}.exp(s - s.max({axis}=-1, {keep}=True))
    return e / e.sum({axis}=-1, {keep}=True)
"""

SOFTMAX_OF_SEEN = '''\
def softmax(s):
    """Shares of what is seen; zeros in a row that sees nothing."""
    top = s.max({axis}=-1, {keep}=True)
    e = {np}.exp(s - {np}.where(top == -{np}.inf, 0, top))
    return e / {np}.maximum(e.sum({axis}=-1, {keep}=True), 1e-300)
'''

LOGSUMEXP = """\
def log_sum_exp(s):
    top = s.max({axis}=-1, {keep}=True)
    return (top + {np}.log({np}.exp(s - top).sum({axis}=-1, {keep}=True)))[..., 0]
"""

LOGSUMEXP_OF_SEEN = '''\
def log_sum_exp(s):
    """Of what is seen; −∞ in a row that sees nothing."""
    top = s.max({axis}=-1, {keep}=True)
    total = {np}.exp(s - {np}.where(top == -{np}.inf, 0, top)).sum({axis}=-1, {keep}=True)
    return (top + {np}.log({np}.where(total == 0, 1, total)))[..., 0]
'''


def softmax_of(w: Writing, x: str, *, blind: bool) -> str:
    """Softmax over the last axis; `blind` where some row sees nothing."""
    own = w.library.softmax.format(x)
    if own:
        return w.library.without_nan(own) if blind else own
    function = w.helper("softmax", SOFTMAX_OF_SEEN if blind else SOFTMAX)
    return f"{function}({x})"


def logsumexp_of(w: Writing, x: str, *, blind: bool) -> str:
    if w.library.logsumexp:
        return w.library.logsumexp.format(x)
    function = w.helper("log_sum_exp", LOGSUMEXP_OF_SEEN if blind else LOGSUMEXP)
    return f"{function}({x})"


def is_blind(score: Array) -> bool:
    """True where a row sees nothing."""
    return bool(np.isneginf(score).all(axis=-1).any())


@writes(ops.Softmax)
def softmax(w: Writing) -> str:
    return softmax_of(w, w.x, blind=is_blind(w.arrays[0]))


@writes(scores.SoftmaxBack)
def softmax_back(w: Writing) -> str:
    a, d, mean = w.names
    return f"{a} * ({d} - {mean}[..., None])"


@writes(scores.LogSumExp)
def log_of_sum(w: Writing) -> str:
    return logsumexp_of(w, w.x, blind=is_blind(w.arrays[0]))


@writes(scores.LogSumExpBack)
def log_sum_exp_back(w: Writing) -> str:
    s, total, d = w.names
    share = w.call("exp", f"{s} - {total}[..., None]")
    if is_blind(w.arrays[0]):
        share = w.library.without_nan(share)
    return f"{share} * {d}[..., None]"


@writes(models.SinkSoftmax)
def sink_softmax(w: Writing) -> str:
    s, sink = w.names
    column = w.library.spread(f"{sink}[:, None, None]", (*w.shape[:-1], 1))
    both = w.let("with_sink", w.library.joined([s, column], -1))
    shares = softmax_of(w, both, blind=False)  # the sink at least is seen
    return f"{shares}[..., :-1]"


@writes(models.SinkBack)
def sink_back(w: Writing) -> str:
    a, mean = w.names
    of_keys = w.library.reduce("sum", a, -1)
    lost = f"((1 - {of_keys}) * {mean})"
    axes = (0, 2) if len(w.shapes[1]) > 2 else 1
    total = w.library.reduce("sum", lost, axes)
    return f"-{total}"


@writes(models.Remainder)
def remainder(w: Writing) -> str:
    return f"1 - {w.library.reduce('sum', w.x, -1)}"


@writes(models.RemainderBack)
def remainder_back(w: Writing) -> str:
    return w.library.spread(f"-{w.x}[..., None]", w.shape)


@writes(scores.Slope)
def slope(w: Writing) -> str:
    heads = w.shape[-3]
    if log2(heads).is_integer():
        numbers = w.call("arange", "1", str(heads + 1))
        slopes = w.let("slopes", f"2.0 ** (-8 * {numbers} / {heads})")
    else:
        slopes = w.numbers("slopes", alibi_slopes(heads))
    if w.op.places:
        distance = w.numbers("distance", w.op.distances(w.shape))
        return f"{w.x} - {slopes}[:, None, None] * {distance}"
    query = w.queries()
    key = w.keys()
    return f"{w.x} - {slopes}[:, None, None] * abs({query} - {key})"


@writes(scores.Hide)
def hide(w: Writing) -> str:
    s, *mask = w.names
    otherwise = f"-{w.library.np}.inf" if w.op.hidden else "0"
    if not w.op.rules:
        return w.call("where", mask[0], s, otherwise)
    if w.op.places:
        allowed = w.op.allowed((*w.shape[:-3], 1, *w.shape[-2:]))
        parts = [f"{w.numbers('allowed', allowed.astype(int))} > 0"]
    else:
        parts = [seen_by(w, rule) for rule in w.op.rules]
    if len(parts) + len(mask) > 1:
        parts = [f"({part})" for part in parts]
    seen = w.let("seen", " & ".join([*parts, *mask]))
    return w.call("where", seen, s, otherwise)


@writes(models.Buckets)
def buckets(w: Writing) -> str:
    """The buckets are numbers of the op's own: they follow from distances alone."""
    s, table = w.names
    query, key = w.op.positions(w.shape)
    of_cell = w.op.buckets(np.asarray(key - query), w.shapes[1][-1])
    if of_cell.ndim > 2:
        raise NotWrittenError("buckets of members that stand in other places")
    bucket = w.numbers("bucket", of_cell)
    return f"{s} + {table}[:, {bucket}]"


@writes(lookups.LookUp)
def look_up(w: Writing) -> str:
    return f"{w.x}[:, {w.numbers('index', w.op.numbers)}]"


# --- chunks of keys ---


class Parts(NamedTuple):
    """Chunks of keys: the variable that holds them, and whether a row sees nothing of one."""

    name: str
    blind: bool


def parts_of(w: Writing) -> Parts:
    score = w.arrays[0]
    cut = spans(w.op.chunks, score.shape[-1])
    blind = any(is_blind(score[..., start:stop]) for start, stop in cut)
    name = w.let("chunks", str([tuple(ends) for ends in cut]))
    return Parts(name, blind)


@writes(chunks.ChunkLogSumExp)
def chunk_log_sum_exp(w: Writing) -> str:
    parts = parts_of(w)
    each = logsumexp_of(w, f"{w.x}[..., start:stop]", blind=parts.blind)
    return w.library.stacked(f"{each} for start, stop in {parts.name}", -3)


@writes(chunks.ChunkOutputs)
def chunk_outputs(w: Writing) -> str:
    s, v = w.names
    parts = parts_of(w)
    weights = softmax_of(w, f"{s}[..., start:stop]", blind=parts.blind)
    each = f"{weights} @ {v}[..., start:stop, :]"
    return w.library.stacked(f"{each} for start, stop in {parts.name}", -4)


@writes(chunks.MergeLogSumExp)
def merge_log_sum_exp(w: Writing) -> str:
    every = np.moveaxis(w.arrays[0], -3, -1)
    return logsumexp_of(w, w.library.moved_to_end(w.x, -3), blind=is_blind(every))


@writes(chunks.Shares)
def shares(w: Writing) -> str:
    parts, whole, *sink = w.names
    for logit in sink:
        whole = w.let("with_sink_too", w.call("logaddexp", whole, f"{logit}[:, None]"))
    if len(w.shapes[1]) > 2:
        whole = f"{whole}[:, None]"
    share = w.call("exp", f"{parts} - {whole}")
    return w.library.without_nan(share) if np.isneginf(w.arrays[1]).any() else share


@writes(chunks.MergeChunks)
def merge_chunks(w: Writing) -> str:
    share, outputs = w.names
    return w.product(w.library.reduce("sum", f"({share}[..., None] * {outputs})", -4))


# --- positions ---


@writes(vectors.Sinusoid)
def sinusoid(w: Writing) -> str:
    op = w.op
    is_counted = not (op.documents or op.given)
    place = w.positions(op.length, op.start) if is_counted else w.numbers("position", op.places)
    column = w.let("column", w.call("arange", str(op.d_model)))
    angle = w.let("angle", f"{place}[:, None] / 10000.0 ** (2 * ({column} // 2) / {op.d_model})")
    return w.call("where", f"{column} % 2 == 0", w.call("sin", angle), w.call("cos", angle))


ROTATE_HALVES = '''\
def rotate(x, angle):
    """Turn each pair of columns, which are half the columns apart, by its angle."""
    half = x.shape[-1] // 2
    a, b, cos, sin = x[..., :half], x[..., half:], {np}.cos(angle), {np}.sin(angle)
    return {np}.concatenate([a * cos - b * sin, a * sin + b * cos], {axis}=-1)
'''

ROTATE_NEIGHBOURS = '''\
def rotate(x, angle):
    """Turn each pair of neighbouring columns by its angle."""
    a, b, cos, sin = x[..., 0::2], x[..., 1::2], {np}.cos(angle), {np}.sin(angle)
    return {np}.stack([a * cos - b * sin, a * sin + b * cos], {axis}=-1).reshape(x.shape)
'''


@writes(vectors.Rotate)
def rotate(w: Writing) -> str:
    op = w.op
    angle = angle_of(w)
    function = w.helper("rotate", ROTATE_NEIGHBOURS if op.interleaved else ROTATE_HALVES)

    width = w.shapes[0][-1]
    first = op.first
    stop = first + 2 * angle.pairs
    is_whole = first == 0 and stop == width
    columns = w.x if is_whole else f"{w.x}[..., {first}:{stop}]"
    sign = "-" if op.back else ""
    turned = f"{function}({columns}, {sign}{angle.name})"
    if op.factor != 1:
        turned = f"{op.factor!r} * {turned}"
    if is_whole:
        return turned

    parts = [turned]
    if first > 0:
        parts.insert(0, f"{w.x}[..., :{first}]")
    if stop < width:
        parts.append(f"{w.x}[..., {stop}:]")
    return w.library.joined(parts, -1)


class Angle(NamedTuple):
    """The variable of the angle of each token and pair of columns, and how many pairs there are."""

    name: str
    pairs: int


def angle_of(w: Writing) -> Angle:
    op = w.op
    *_, tokens, width = w.shapes[0]
    forward = replace(op, back=False) if op.back else op
    angles = forward.angles(np.zeros(w.shapes[0]))
    pairs = angles.shape[-1]
    if op.places or op.documents or not isinstance(op.start, int):
        return Angle(w.numbers("angle", angles), pairs)

    place = w.positions(tokens, op.start)
    if op.frequencies:
        frequency = w.numbers("frequency", np.array(op.frequencies))
        return Angle(w.let("angle", f"{place}[:, None] * {frequency}"), pairs)

    dims = op.dims or width - op.first
    pair = w.call("arange", str(pairs))
    return Angle(w.let("angle", f"{place}[:, None] * {op.theta!r} ** (-2 * {pair} / {dims})"), pairs)


@writes(models.Temper)
def temper(w: Writing) -> str:
    op = w.op
    tokens = w.shapes[0][-2]
    if not isinstance(op.start, int):
        factor = w.numbers("factor", op.factors(tokens))
        return f"{w.x} * {factor}"

    place = w.positions(tokens, op.start)
    moved = f"({place} + {op.first})" if op.first else place
    grown = w.call("log1p", f"{moved} // {op.every}")
    return f"{w.x} * (1 + {op.beta!r} * {grown})[:, None]"


# --- heads, caches, pages ---


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


# --- gates and norms ---


@writes(models.Gate)
def gate(w: Writing) -> str:
    x, own = w.names
    if w.library.name in {"torch", "jax"}:
        return f"{x} * {w.library.sigmoid(own)}"
    grown = w.call("exp", f"-{own}")
    return f"{x} / (1 + {grown})"


@writes(models.GateBack)
def gate_back(w: Writing) -> str:
    d, x, own = w.names
    open_ = w.let("opened", w.library.sigmoid(own))
    return f"{d} * {x} * {open_} * (1 - {open_})"


@writes(delta.Sigmoid)
def sigmoid(w: Writing) -> str:
    return w.library.sigmoid(w.x)


@writes(delta.SwishGate)
def swish_gate(w: Writing) -> str:
    x, own = w.names
    grown = w.call("exp", f"-{own}")
    return f"{x} * {own} / (1 + {grown})"


class Normed(NamedTuple):
    """A row without its weight as an expression, and the root that it was divided by as a variable."""

    text: str
    root: str


def normed(w: Writing, norm: Any, x: str) -> Normed:
    if norm.centred:
        mean = mean_of_row(w, norm, x)
        x = w.let(f"{x}_centred", f"{x} - {mean}")
    square = mean_of_row(w, norm, f"({x}**2)")
    root = w.let(f"root_of_{x}", w.call("sqrt", f"{square} + {norm.eps!r}"))
    return Normed(f"{x} / {root}", root)


def mean_of_row(w: Writing, norm: Any, x: str) -> str:
    """The mean over what a norm takes as one row."""
    over: Any = (-3, -1) if norm.heads else -1
    return w.library.reduce("mean", x, over, keep=True)


def factor_of(norm: Any, weight: str, shape: Shape) -> str:
    by_head = f"{weight}[:, None, :]" if len(shape) == 2 else weight
    return f"(1 + {by_head})" if norm.plus_one else by_head


@writes(norms.RMSNorm, norms.LayerNorm)
def norm(w: Writing) -> str:
    x, *factors = w.names
    text = normed(w, w.op, x).text
    if factors:
        weight = factor_of(w.op, factors[0], w.shapes[1])
        text = f"{text} * {weight}"
    if len(factors) > 1:
        bias = factors[1]
        by_head = f"{bias}[:, None, :]" if len(w.shapes[2]) == 2 else bias
        text = f"{text} + {by_head}"
    return text


@writes(norms.NormBack)
def norm_back(w: Writing) -> str:
    d, x, *weight = w.names
    norm = w.op.norm
    text, root = normed(w, norm, x)
    n = w.let(f"{x}_unweighted", text)
    g = d
    if weight:
        factor = factor_of(norm, weight[0], w.shapes[2])
        g = w.let(f"{d}_weighted", f"{d} * {factor}")

    along = mean_of_row(w, norm, f"({g} * {n})")
    taken_off = f"{g} - {n} * {along}"
    if norm.centred:
        mean = mean_of_row(w, norm, g)
        taken_off = f"{taken_off} - {mean}"
    return f"({taken_off}) / {root}"


@writes(norms.NormWeightBack)
def norm_weight_back(w: Writing) -> str:
    d, x = w.names
    n = w.let(f"{x}_unweighted", normed(w, w.op.norm, x).text)
    last = len(w.shapes[0]) - 1
    kept = {last, last - 2} if w.op.by_head else {last}
    summed = tuple(axis for axis in range(last + 1) if axis not in kept)
    return w.library.reduce("sum", f"({d} * {n})", summed)
