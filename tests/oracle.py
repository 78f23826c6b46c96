"""Attention one number at a time: plain loops over lists, sharing no code with the package.

Everything is a list of floats within lists; every formula is written as its paper writes it. Each
number a step records is rounded to the type of number asked for, so that low precision can be held
to it too.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = list[float]
Matrix = list[Row]
Heads = list[Matrix]
Steps = dict[str, Any]

HIDDEN = -math.inf


@dataclass(frozen=True)
class Kind:
    """What kind of attention: one member of a batch, all its heads."""

    scale: float | None = None
    softcap: float | None = None
    alibi: bool = False
    causal: bool = False
    window: tuple[int | None, int | None] | None = None
    length: int | None = None
    offset: int = 0
    sinusoidal: bool = False
    rotary: tuple[float, int, bool] | None = None
    """theta, how many columns turn, and whether pairs are neighbours."""
    norm: tuple[str, float, bool, bool] | None = None
    """Of Q and K: rms or layer, eps, whether all heads are one row, and whether 1 + weight multiplies."""
    norm_last: bool = False
    """Whether the norm comes after the rotation."""
    unrotated: bool = False
    """Whether past keys are yet to be rotated."""
    dtype: str = "float64"


def rounding(dtype: str) -> Callable[[float], float]:
    """The nearest number of this type."""
    if dtype == "float64":
        return float
    code = {"float32": "f", "float16": "e"}[dtype]
    return lambda x: x if math.isinf(x) else struct.unpack(code, struct.pack(code, x))[0]


def rounded(value: Any, near: Callable[[float], float]) -> Any:
    return [rounded(each, near) for each in value] if isinstance(value, list) else near(value)


def matmul(a: Matrix, b: Matrix, bias: Row | None = None) -> Matrix:
    out = []
    for row in a:
        line = []
        for column in range(len(b[0])):
            products = [row[i] * b[i][column] for i in range(len(b))]
            line.append(math.fsum([*products, bias[column] if bias else 0.0]))
        out.append(line)
    return out


def added(a: Matrix, b: Matrix) -> Matrix:
    return [[x + y for x, y in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]


def transposed(a: Matrix) -> Matrix:
    return [[row[i] for row in a] for i in range(len(a[0]))]


def sinusoids(first: int, count: int, d_model: int) -> Matrix:
    """Vaswani et al. 2017: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same)."""
    out = []
    for pos in range(first, first + count):
        row = []
        for column in range(d_model):
            i = column // 2
            angle = pos / 10000 ** (2 * i / d_model)
            row.append(math.cos(angle) if column % 2 else math.sin(angle))
        out.append(row)
    return out


def turned(x: Matrix, first: int, theta: float, dims: int, *, neighbours: bool) -> Matrix:
    """Su et al. 2021: the pair number i of the row at position m turns by m · theta^(−2i/dims)."""
    out = []
    for m, row in enumerate(x, start=first):
        new = list(row)
        for i in range(dims // 2):
            left, right = (2 * i, 2 * i + 1) if neighbours else (i, i + dims // 2)
            angle = m / theta ** (2 * i / dims)
            new[left] = row[left] * math.cos(angle) - row[right] * math.sin(angle)
            new[right] = row[left] * math.sin(angle) + row[right] * math.cos(angle)
        out.append(new)
    return out


def slope(head: int, heads: int) -> float:
    """Press et al. 2022: 2^(−8/n), 2^(−16/n), …; every other one of the next power of two fills up."""
    power = 1
    while power * 2 <= heads:
        power *= 2
    if head < power:
        return 2 ** (-8 * (head + 1) / power)
    return 2 ** (-8 * (2 * (head - power) + 1) / (2 * power))


def sees(kind: Kind, i: int, j: int) -> bool:
    """Whether query i may attend to key j, by the rules alone."""
    here = i + kind.offset
    if kind.causal and j > here:
        return False
    if kind.window is not None:
        left, right = kind.window
        if left is not None and j < here - left:
            return False
        if right is not None and j > here + right:
            return False
    return kind.length is None or j < kind.length


def softmax(row: Row, sink: float = HIDDEN) -> Row:
    """The keys' shares; a sink has one of its own, as gpt-oss has it."""
    top = max(*row, sink)
    if top == HIDDEN:
        return [0.0] * len(row)
    grown = [0.0 if s == HIDDEN else math.exp(s - top) for s in [*row, sink]]
    return [e / math.fsum(grown) for e in grown[:-1]]


def normed(x: Heads, kind: Kind, weight: Any, bias: Any) -> Heads:
    """Zhang & Sennrich 2019 (rms), Ba et al. 2016 (layer); weights are (d,), or a row for each head."""
    assert kind.norm is not None
    how, eps, one_row, plus_one = kind.norm
    out: Heads = [[[] for _ in head] for head in x]
    for token in range(len(x[0])):
        rows = [[y for head in x for y in head[token]]] if one_row else [head[token] for head in x]
        for h, head in enumerate(x):
            row = rows[0 if one_row else h]
            mean = math.fsum(row) / len(row) if how == "layer" else 0.0
            size = math.sqrt(math.fsum((y - mean) ** 2 for y in row) / len(row) + eps)
            for i, y in enumerate(head[token]):
                factor = part(weight, h, i, 0.0 if plus_one else 1.0) + (1.0 if plus_one else 0.0)
                out[h][token].append((y - mean) / size * factor + part(bias, h, i, 0.0))
    return out


def part(factor: Any, head: int, column: int, missing: float) -> float:
    if factor is None:
        return missing
    row = factor[head] if isinstance(factor[0], list) else factor
    return float(row[column])


def projected(x: Matrix, w: Heads, b: Matrix | None) -> Heads:
    return [matmul(x, w[head], b[head] if b else None) for head in range(len(w))]


def attend(given: Steps, kind: Kind) -> Steps:
    """Every step that follows from what is given, by the names they are recorded under.

    `given` holds Q K V, or X (embeddings where positions are added) [memory] W_Q W_K W_V [b_Q b_K
    b_V], and [past_key past_value W_O b_O bias mask sink Q_norm_weight K_norm_weight Q_norm_bias
    K_norm_bias]; bias and mask are (head, query, key), sinks (head,).
    """
    near = rounding(kind.dtype)
    at = {name: rounded(value, near) for name, value in given.items() if name != "mask"}
    out: Steps = {}

    def record(name: str, value: Any) -> Any:
        out[name] = rounded(value, near)
        return out[name]

    q, k, v = queries_keys_values(at, kind, record)
    share = len(q) // len(k)
    if share > 1:
        k = record("K_shared", [k[head // share] for head in range(len(q))])
        v = record("V_shared", [v[head // share] for head in range(len(q))])
    weights = attention_weights(q, k, at, given.get("mask"), kind, record)
    z = record("head_outputs", [matmul(weights[h], v[h]) for h in range(len(q))])
    concat = record("concat", [[x for head in z for x in head[i]] for i in range(len(q[0]))])
    if "W_O" in at:
        record("output", matmul(concat, at["W_O"], at.get("b_O")))
    elif "W_Q" in at:
        record("output", concat)
    return out


def queries_keys_values(
    at: Steps, kind: Kind, record: Callable[[str, Any], Any]
) -> tuple[Heads, Heads, Heads]:
    past = len(at["past_key"][0]) if "past_key" in at else 0
    if "W_Q" in at:
        x = at["X"]
        if kind.sinusoidal:
            positions = record("positions", sinusoids(past, len(x), len(x[0])))
            x = record("X", added(x, positions))
        memory = at.get("memory", x)
        if kind.sinusoidal and "memory" in at:
            memory = added(memory, sinusoids(past, len(memory), len(memory[0])))
        q = record("Q", projected(x, at["W_Q"], at.get("b_Q")))
        k = record("K", projected(memory, at["W_K"], at.get("b_K")))
        v = record("V", projected(memory, at["W_V"], at.get("b_V")))
    else:
        q, k, v = at["Q"], at["K"], at["V"]
    if not kind.norm_last:
        q, k = head_norms(at, q, k, kind, record)
    if kind.unrotated and "past_key" in at:
        k = record("present_key", [old + new for old, new in zip(at["past_key"], k, strict=True)])
    if kind.rotary is not None:
        theta, dims, neighbours = kind.rotary
        q = record(
            "Q_rotated", [turned(head, kind.offset, theta, dims, neighbours=neighbours) for head in q]
        )
        first = 0 if kind.unrotated else past
        k = record("K_rotated", [turned(head, first, theta, dims, neighbours=neighbours) for head in k])
    if kind.norm_last:
        q, k = head_norms(at, q, k, kind, record)
    if "past_key" in at:
        if not kind.unrotated:
            k = record("present_key", [old + new for old, new in zip(at["past_key"], k, strict=True)])
        v = record("present_value", [old + new for old, new in zip(at["past_value"], v, strict=True)])
    return q, k, v


def head_norms(
    at: Steps, q: Heads, k: Heads, kind: Kind, record: Callable[[str, Any], Any]
) -> tuple[Heads, Heads]:
    if kind.norm is None:
        return q, k
    return (
        record("Q_normed", normed(q, kind, at.get("Q_norm_weight"), at.get("Q_norm_bias"))),
        record("K_normed", normed(k, kind, at.get("K_norm_weight"), at.get("K_norm_bias"))),
    )


def attention_weights(
    q: Heads, k: Heads, at: Steps, mask: Any, kind: Kind, record: Callable[[str, Any], Any]
) -> Heads:
    bias, sink = at.get("bias"), at.get("sink")

    def each(change: Callable[[float, int, int, int], float], scores: Heads) -> Heads:
        return [
            [[change(s, h, i, j) for j, s in enumerate(row)] for i, row in enumerate(head)]
            for h, head in enumerate(scores)
        ]

    heads, scale = len(q), 1 / math.sqrt(len(q[0][0])) if kind.scale is None else kind.scale
    s = record("scores", [matmul(q[h], transposed(k[h])) for h in range(heads)])
    s = record("scaled_scores", each(lambda s, h, i, j: s * scale, s))
    if kind.softcap is not None:
        cap = kind.softcap
        s = record("softcapped_scores", each(lambda s, h, i, j: cap * math.tanh(s / cap), s))
    if kind.alibi:
        name = "biased_scores" if bias is None else "alibi_scores"
        s = record(name, each(lambda s, h, i, j: s - slope(h, heads) * abs(i + kind.offset - j), s))
    if bias is not None:
        s = record("biased_scores", each(lambda s, h, i, j: s + bias[h][i][j], s))
    if mask is not None or kind.causal or kind.window is not None or kind.length is not None:
        s = record(
            "masked_scores",
            each(
                lambda s, h, i, j: s if sees(kind, i, j) and (mask is None or mask[h][i][j]) else HIDDEN,
                s,
            ),
        )
    if sink is None:
        return record("attention_weights", [[softmax(row) for row in head] for head in s])
    a = record("attention_weights", [[softmax(row, sink[h]) for row in s[h]] for h in range(heads)])
    record("sink_weights", [[1 - math.fsum(row) for row in head] for head in a])
    return a
