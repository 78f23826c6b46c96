"""How what is done to scores is written: scales, softmax, masks and their way back."""

from __future__ import annotations

from math import log2

import numpy as np

from attnctl.drawing.show.program.ops.writing import NotWrittenError, Writing, writes
from attnctl.drawing.show.program.rules import seen_by
from attnctl.math import Array, ops
from attnctl.math.ops import lookups, models, scores
from attnctl.math.rules import alibi_slopes


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
