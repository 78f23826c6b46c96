"""How each op is written as a line of a program: a function for each, which gives its expression.

A function is handed a `Writing`, which has the op, the variables it reads and their shapes, and takes lines
that stand before the op's own (`let`), functions it calls (`helper`) and numbers it knows by itself
(`numbers`). What is here is held to each op's `apply` by the tests, which run the programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log2
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.drawing.show.program.libraries import Library
from attnctl.drawing.show.program.rules import seen_by
from attnctl.math import Array, Shape, ops
from attnctl.math.axes import LEAD
from attnctl.math.kind import spans
from attnctl.math.ops import base, chunks, delta, lookups, models, norms, pages, products, scores, vectors
from attnctl.math.ops.base import parse_signature
from attnctl.math.rules import PerBatch, alibi_slopes, per_batch

PREFERRED = {
    "batch": "b", "head": "h", "kv_head": "h", "query": "q", "key": "k", "token": "n", "new": "n",
    "d_model": "m", "d_k": "d", "d_v": "v", "chunk": "c",
}  # fmt: skip
"""Letters of axes in an einsum; one that is taken gives way to the first that is free."""


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

    @property
    def is_batched(self) -> bool:
        return len(self.shape) > 3

    def product(self, plain: str) -> str:
        """A contraction: in letters where the library is einsum, else as it is written."""
        return self.einsum() if self.library.einsum else plain

    def einsum(self) -> str:
        """The contraction of the first inputs that the signature of the op says."""
        takes, gives = self.spread_axes()
        every = list(dict.fromkeys(axis for own in takes for axis in own))
        letters: dict[str, str] = {}
        shown = {axis: label for own, labels in zip(takes, self.axes, strict=False)
                 for axis, label in zip(own, labels, strict=False)}  # fmt: skip
        for axis in every:
            first = PREFERRED.get(shown.get(axis, axis), "")
            free = [first, *"ijlopqrstuvwxyz"] if first else [*"ijlopqrstuvwxyz"]
            letters[axis] = next(letter for letter in free if letter not in letters.values())
        spelled = ["".join(letters[axis] for axis in own) for own in (*takes, gives)]
        pattern = f"{','.join(spelled[:-1])}->{spelled[-1]}"
        return self.library.call("einsum", f'"{pattern}"', *self.names[: len(takes)])

    def spread_axes(self) -> tuple[list[list[str]], list[str]]:
        """The axes of the first two inputs and of the result, leading ones by number from the right."""
        named, gives = parse_signature(self.op.signature)
        named = tuple(map(there, named[: min(2, len(self.names))], self.shapes))
        gives = there(gives, self.shape)
        leads = [
            len(shape) - len(own) + own.count(LEAD) for shape, own in zip(self.shapes, named, strict=False)
        ]

        def spread(own: Sequence[str], lead: int) -> list[str]:
            before = [str(at) for at in range(lead, 0, -1)] if LEAD in own else []
            return [*before, *(axis for axis in own if axis != LEAD)]

        return [spread(own, lead) for own, lead in zip(named, leads, strict=True)], spread(
            gives, max(leads)
        )

    # --- where queries and keys stand ---

    def positions(self, tokens: int, start: PerBatch, name: str = "position", axes: int = 2) -> str:
        """The position of each token; of each member where they differ, so that it broadcasts."""
        if isinstance(start, int):
            first = f"{start}, {start + tokens}" if start else f"{tokens}"
            return self.let(name, self.library.call("arange", first))
        return self.numbers(name, np.arange(tokens) + per_batch(start, axes=axes))

    def queries(self) -> str:
        """The positions of the queries, a row each."""
        count, offset = self.shape[-2], self.op.offset
        if isinstance(offset, int):
            first = f"{offset}, {offset + count}" if offset else f"{count}"
            return self.let("query", f"{self.library.call('arange', first)}[:, None]")
        return self.numbers("query", np.arange(count)[:, None] + per_batch(offset))

    def keys(self) -> str:
        return self.let("key", self.library.call("arange", str(self.shape[-1])))


def there(axes: tuple[str, ...], shape: Shape) -> tuple[str, ...]:
    """The axes of a signature that an array of this shape has, of those that may be lacking."""
    lacking = len(axes) - len(shape)
    optional = [axis for axis in axes if axis.endswith("?")][: max(lacking, 0)]
    return tuple(axis.rstrip("?") for axis in axes if axis not in optional)


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
    return w.product(f"{a} @ {w.library.transposed(b)}")


@writes(ops.MatMul)
def matmul(w: Writing) -> str:
    a, b, *bias = w.names
    return " + ".join([w.product(f"{a} @ {b}"), *bias])


@writes(vectors.Project)
def project(w: Writing) -> str:
    x, matrix, *bias = w.names
    rows = f"{x}[:, None]" if len(w.shapes[0]) > 2 else x
    added = [f"{each}[:, None]" for each in bias]
    return " + ".join([w.product(f"{rows} @ {matrix}"), *added])


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
    takes, gives = w.spread_axes()
    summed = tuple(at for at, axis in enumerate(takes[0]) if axis not in gives)
    factors = " * ".join(w.names)
    x = f"({factors})" if len(w.names) > 1 else factors
    return w.product(w.library.reduce("sum", x, summed[0] if len(summed) == 1 else summed))


@writes(products.RowDot)
def row_dot(w: Writing) -> str:
    return w.product(w.library.reduce("sum", f"({w.names[0]} * {w.names[1]})", -1))


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
    return f"{w.names[0]} + {w.names[1]}"


@writes(models.AddScaled)
def add_scaled(w: Writing) -> str:
    return f"{w.names[0]} + {w.op.factor!r} * {w.names[1]}"


@writes(base.AddAll)
def add_all(w: Writing) -> str:
    return " + ".join(w.names)


@writes(base.SumLike)
def sum_like(w: Writing) -> str:
    d, like = w.shapes
    before = len(d) - len(like)
    axes = tuple(at for at in range(len(d)) if at < before or (like[at - before] == 1 and d[at] > 1))
    if not axes:
        return w.x
    total = w.library.reduce("sum", w.x, axes, keep=True)
    return w.library.reshaped(total, like) if before else total


@writes(norms.ScaleColumns)
def scale_columns(w: Writing) -> str:
    return f"{w.names[0]} * {w.names[1]}"


@writes(norms.ScaleHeads)
def scale_heads(w: Writing) -> str:
    return f"{w.names[0]} * {w.names[1]}[:, None, None]"


# --- scores ---


@writes(ops.Scale)
def scale(w: Writing) -> str:
    return f"{w.x} / {w.library.root(w.op.d_k)}" if w.op.factor is None else f"{w.x} * {w.op.factor!r}"


@writes(scores.Squeeze)
def squeeze(w: Writing) -> str:
    return f"{w.op.cap!r} * {w.library.call('tanh', f'{w.x} / {w.op.cap!r}')}"


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
    return f"{w.helper('softmax', SOFTMAX_OF_SEEN if blind else SOFTMAX)}({x})"


def logsumexp_of(w: Writing, x: str, *, blind: bool) -> str:
    if w.library.logsumexp:
        return w.library.logsumexp.format(x)
    return f"{w.helper('log_sum_exp', LOGSUMEXP_OF_SEEN if blind else LOGSUMEXP)}({x})"


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
    share = w.library.call("exp", f"{s} - {total}[..., None]")
    if is_blind(w.arrays[0]):
        share = w.library.without_nan(share)
    return f"{share} * {d}[..., None]"


@writes(models.SinkSoftmax)
def sink_softmax(w: Writing) -> str:
    s, sink = w.names
    column = w.library.spread(f"{sink}[:, None, None]", (*w.shape[:-1], 1))
    both = w.let("with_sink", w.library.joined([s, column], -1))
    return f"{softmax_of(w, both, blind=False)}[..., :-1]"


@writes(models.SinkBack)
def sink_back(w: Writing) -> str:
    a, mean = w.names
    lost = f"((1 - {w.library.reduce('sum', a, -1)}) * {mean})"
    axes = (0, 2) if len(w.shapes[1]) > 2 else 1
    return f"-{w.library.reduce('sum', lost, axes)}"


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
        lib = w.library
        slopes = f"2.0 ** (-8 * {lib.call('arange', '1', str(heads + 1))} / {heads})"
        slopes = w.let("slopes", slopes)
    else:
        slopes = w.numbers("slopes", alibi_slopes(heads))
    if w.op.places:
        distance = w.numbers("distance", w.op.distances(w.shape))
        return f"{w.x} - {slopes}[:, None, None] * {distance}"
    return f"{w.x} - {slopes}[:, None, None] * abs({w.queries()} - {w.keys()})"


@writes(scores.Hide)
def hide(w: Writing) -> str:
    s, *mask = w.names
    otherwise = f"-{w.library.np}.inf" if w.op.hidden else "0"
    if not w.op.rules:
        return w.library.call("where", mask[0], s, otherwise)
    if w.op.places:
        allowed = w.op.allowed((*w.shape[:-3], 1, *w.shape[-2:]))
        parts = [f"{w.numbers('allowed', allowed.astype(int))} > 0"]
    else:
        parts = [seen_by(w, rule) for rule in w.op.rules]
    if len(parts) + len(mask) > 1:
        parts = [f"({part})" for part in parts]
    return w.library.call("where", w.let("seen", " & ".join([*parts, *mask])), s, otherwise)


@writes(models.Buckets)
def buckets(w: Writing) -> str:
    """The buckets are numbers of the op's own: they follow from distances alone."""
    s, table = w.names
    query, key = w.op.positions(w.shape)
    of_cell = w.op.buckets(np.asarray(key - query), w.shapes[1][-1])
    if of_cell.ndim > 2:
        raise NotWrittenError("buckets of members that stand in other places")
    return f"{s} + {table}[:, {w.numbers('bucket', of_cell)}]"


@writes(lookups.LookUp)
def look_up(w: Writing) -> str:
    return f"{w.x}[:, {w.numbers('index', w.op.numbers)}]"


# --- chunks of keys ---


def parts_of(w: Writing) -> tuple[str, bool]:
    """The variable of the chunks, and whether a row sees nothing of one."""
    (score, *_) = w.arrays
    cut = spans(w.op.chunks, score.shape[-1])
    blind = any(is_blind(score[..., start:stop]) for start, stop in cut)
    return w.let("chunks", str([tuple(ends) for ends in cut])), blind


@writes(chunks.ChunkLogSumExp)
def chunk_log_sum_exp(w: Writing) -> str:
    parts, blind = parts_of(w)
    each = logsumexp_of(w, f"{w.x}[..., start:stop]", blind=blind)
    return w.library.stacked(f"{each} for start, stop in {parts}", -3)


@writes(chunks.ChunkOutputs)
def chunk_outputs(w: Writing) -> str:
    s, v = w.names
    parts, blind = parts_of(w)
    each = f"{softmax_of(w, f'{s}[..., start:stop]', blind=blind)} @ {v}[..., start:stop, :]"
    return w.library.stacked(f"{each} for start, stop in {parts}", -4)


@writes(chunks.MergeLogSumExp)
def merge_log_sum_exp(w: Writing) -> str:
    every = np.moveaxis(w.arrays[0], -3, -1)
    return logsumexp_of(w, w.library.moved_to_end(w.x, -3), blind=is_blind(every))


@writes(chunks.Shares)
def shares(w: Writing) -> str:
    parts, whole, *sink = w.names
    for logit in sink:
        whole = w.let("with_sink_too", w.library.call("logaddexp", whole, f"{logit}[:, None]"))
    if len(w.shapes[1]) > 2:
        whole = f"{whole}[:, None]"
    share = w.library.call("exp", f"{parts} - {whole}")
    return w.library.without_nan(share) if np.isneginf(w.arrays[1]).any() else share


@writes(chunks.MergeChunks)
def merge_chunks(w: Writing) -> str:
    share, outputs = w.names
    return w.product(w.library.reduce("sum", f"({share}[..., None] * {outputs})", -4))


# --- positions ---


@writes(vectors.Sinusoid)
def sinusoid(w: Writing) -> str:
    lib, op = w.library, w.op
    is_counted = not (op.documents or op.given)
    place = w.positions(op.length, op.start) if is_counted else w.numbers("position", op.places)
    column = w.let("column", lib.call("arange", str(op.d_model)))
    angle = w.let("angle", f"{place}[:, None] / 10000.0 ** (2 * ({column} // 2) / {op.d_model})")
    return lib.call("where", f"{column} % 2 == 0", lib.call("sin", angle), lib.call("cos", angle))


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
    op, lib = w.op, w.library
    angle, pairs = angle_of(w)
    turned = w.helper("rotate", ROTATE_NEIGHBOURS if op.interleaved else ROTATE_HALVES)
    width, first, stop = w.shapes[0][-1], op.first, op.first + 2 * pairs
    is_whole = (first, stop) == (0, width)
    own = w.x if is_whole else f"{w.x}[..., {first}:{stop}]"
    text = f"{turned}({own}, {'-' if op.back else ''}{angle})"
    if op.factor != 1:
        text = f"{op.factor!r} * {text}"
    if is_whole:
        return text
    before = [f"{w.x}[..., :{first}]"] * (first > 0)
    behind = [f"{w.x}[..., {stop}:]"] * (stop < width)
    return lib.joined([*before, text, *behind], -1)


def angle_of(w: Writing) -> tuple[str, int]:
    """The angle of each token and pair of columns, and how many pairs there are."""
    op, lib = w.op, w.library
    forward = op if not op.back else replace(op, back=False)
    angles = forward.angles(np.zeros(w.shapes[0]))
    pairs = angles.shape[-1]
    if op.places or op.documents or not isinstance(op.start, int):
        return w.numbers("angle", angles), pairs
    place = w.positions(w.shapes[0][-2], op.start)
    if op.frequencies:
        return w.let(
            "angle", f"{place}[:, None] * {w.numbers('frequency', np.array(op.frequencies))}"
        ), pairs
    dims = op.dims or w.shapes[0][-1] - op.first
    pair = lib.call("arange", str(pairs))
    return w.let("angle", f"{place}[:, None] * {op.theta!r} ** (-2 * {pair} / {dims})"), pairs


@writes(models.Temper)
def temper(w: Writing) -> str:
    op = w.op
    if not isinstance(op.start, int):
        return f"{w.x} * {w.numbers('factor', op.factors(w.shapes[0][-2]))}"
    place = w.positions(w.shapes[0][-2], op.start)
    moved = f"({place} + {op.first})" if op.first else place
    grown = w.library.call("log1p", f"{moved} // {op.every}")
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
    groups = w.library.reshaped(w.x, (*lead, heads // w.op.times, w.op.times, keys, width))
    return w.library.reduce("sum", groups, -3)


@writes(vectors.Merge)
def merge(w: Writing) -> str:
    return w.library.reshaped(w.library.heads_exchanged(w.x), w.shape)


@writes(vectors.Split)
def split(w: Writing) -> str:
    *lead, heads, queries, width = w.shape
    return w.library.heads_exchanged(w.library.reshaped(w.x, (*lead, queries, heads, width)))


@writes(models.Beside)
def beside(w: Writing) -> str:
    own, shared = w.names
    spread = w.library.spread(f"{shared}[..., None, :, :]", (*w.shapes[0][:-1], w.shapes[1][-1]))
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
    page, slot, there = w.op.rows(w.shapes[0][1])
    places = w.numbers("page", page), w.numbers("slot", slot)
    rows = w.library.heads_exchanged(f"{w.x}[{', '.join(places)}]")
    if there.all():
        return rows
    lead = "[:, None, :, None]" if there.ndim > 1 else "[:, None]"
    return w.library.call("where", f"{w.numbers('there', there)}{lead}", rows, "0")


# --- gates and norms ---


@writes(models.Gate)
def gate(w: Writing) -> str:
    x, own = w.names
    if w.library.name in {"torch", "jax"}:
        return f"{x} * {w.library.sigmoid(own)}"
    return f"{x} / (1 + {w.library.call('exp', f'-{own}')})"


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
    return f"{x} * {own} / (1 + {w.library.call('exp', f'-{own}')})"


def normed(w: Writing, norm: Any, x: str) -> tuple[str, str]:
    """A row without its weight as an expression, and the root that it was divided by as a variable."""
    lib = w.library
    over: Any = (-3, -1) if norm.heads else -1
    if norm.centred:
        x = w.let(f"{x}_centred", f"{x} - {lib.reduce('mean', x, over, keep=True)}")
    square = lib.reduce("mean", f"({x}**2)", over, keep=True)
    root = w.let(f"root_of_{x}", lib.call("sqrt", f"{square} + {norm.eps!r}"))
    return f"{x} / {root}", root


def factor_of(norm: Any, weight: str, shape: Shape) -> str:
    by_head = f"{weight}[:, None, :]" if len(shape) == 2 else weight
    return f"(1 + {by_head})" if norm.plus_one else by_head


@writes(norms.RMSNorm, norms.LayerNorm)
def norm(w: Writing) -> str:
    x, *factors = w.names
    text, _ = normed(w, w.op, x)
    if factors:
        text = f"{text} * {factor_of(w.op, factors[0], w.shapes[1])}"
    if len(factors) > 1:
        bias = f"{factors[1]}[:, None, :]" if len(w.shapes[2]) == 2 else factors[1]
        text = f"{text} + {bias}"
    return text


@writes(norms.NormBack)
def norm_back(w: Writing) -> str:
    d, x, *weight = w.names
    own, lib = w.op.norm, w.library
    over: Any = (-3, -1) if own.heads else -1
    text, root = normed(w, own, x)
    n = w.let(f"{x}_unweighted", text)
    g = w.let(f"{d}_weighted", f"{d} * {factor_of(own, weight[0], w.shapes[2])}") if weight else d
    mean = lib.reduce("mean", f"({g} * {n})", over, keep=True)
    centre = f" - {lib.reduce('mean', g, over, keep=True)}" if own.centred else ""
    return f"({g} - {n} * {mean}{centre}) / {root}"


@writes(norms.NormWeightBack)
def norm_weight_back(w: Writing) -> str:
    d, x = w.names
    text, _ = normed(w, w.op.norm, x)
    n = w.let(f"{x}_unweighted", text)
    rank = len(w.shapes[0])
    kept = {rank - 1, *([rank - 3] if w.op.by_head else [])}
    return w.library.reduce("sum", f"({d} * {n})", tuple(at for at in range(rank) if at not in kept))
