"""A score split by what it came from: tokens, their positions, biases.

Where positions are added, X = embeddings + positions, and queries and keys are linear in X. With
t what came from the token, p what came from its position and b the bias, q·k is
(t + p + b)·(t' + p' + b'): four products of tokens and positions, and those that a bias is in.
Rotary positions, shared heads, a cache and every other line that is linear keep the parts apart. What no
position was added to (the other sentence of cross-attention, the keys of a cache) counts as token.
"""

from __future__ import annotations

from itertools import product
from math import fsum, isfinite, sqrt

from attnctl.math import Array, Cell
from attnctl.math.names import POSITIONS
from attnctl.math.ops import MatMulT, Scale
from attnctl.record import Trace
from attnctl.record.linear import NotFollowedError, course

Parts = dict[str, float]  # what each pair of parts gave to a score, by name; they add up to the score
Sides = dict[str, Array]  # a row of Q or K in parts that add up to it

TOKEN, POSITION, BIAS = "token", "position", "bias"
REST = "rest"  # what the parts do not account for: rounding, or a number that was changed on the way
CLOSE = 1e-12  # a rest below this part of the score is not worth a line


def parts_of(trace: Trace, step: str, cell: Cell) -> Parts | None:
    """The parts of a cell of `scores` or `scaled_scores`; None for others, and without positions."""
    line = trace.steps[step]
    if any(name not in trace for name in line.inputs):
        return None
    value = float(trace[step][cell])
    match line.op:
        case MatMulT():
            parts = parts_of_product(trace, line.inputs, cell)
        case Scale(d_k, factor):
            whole = parts_of(trace, line.inputs[0], cell)
            by = 1 / sqrt(d_k) if factor is None else factor
            parts = {name: part * by for name, part in whole.items() if name != REST} if whole else None
        case _:
            return None
    if parts is None or not isfinite(value):
        return None
    rest = value - fsum(parts.values())
    return parts | ({REST: rest} if abs(rest) > CLOSE * abs(value) else {})


def parts_of_product(trace: Trace, inputs: tuple[str, ...], cell: Cell) -> Parts | None:
    """None where no position was added."""
    *lead, row, column = cell
    try:
        query = parts_of_row(trace, inputs[0], (*lead, row))
        key = parts_of_row(trace, inputs[1], (*lead, column))
    except NotFollowedError:
        return None
    if POSITION not in query | key:
        return None
    parts = {f"{a}×{b}": 0.0 for a, b in product((TOKEN, POSITION), repeat=2)}
    parts |= {BIAS: 0.0} if BIAS in query | key else {}
    for (a, left), (b, right) in product(query.items(), key.items()):
        name = BIAS if BIAS in {a, b} else f"{a}×{b}"
        parts[name] = fsum([parts[name], *(left * right).tolist()])
    return parts


def parts_of_row(trace: Trace, name: str, at: Cell) -> Sides:
    """The row of Q or K at ([batch,] head, row) in parts. Raises NotFollowedError where lines mix them."""
    out: Sides = {}
    for leaf in trace.steps.values():
        if leaf.symbol == "W" or any(input_ in trace for input_ in leaf.inputs):
            continue
        if lines := course(trace, leaf.name, name):
            part = POSITION if leaf.name == POSITIONS else BIAS if leaf.symbol == "b" else TOKEN
            pushed = lines.push(leaf.name, trace[leaf.name].astype(float))
            row = pushed[at[len(at) + 1 - pushed.ndim :]].astype(float)  # it may lack leading axes
            out[part] = out[part] + row if part in out else row
    return out
