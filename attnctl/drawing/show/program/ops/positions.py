"""How positions are written: sinusoids, rotations, and temperatures that go by position."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attnctl.drawing.show.program.ops.writing import Writing, writes
from attnctl.math.ops import models, vectors


@writes(vectors.Sinusoid)
def sinusoid(w: Writing) -> str:
    op = w.op
    is_counted = not (op.documents or op.given)
    place = w.positions(op.length, op.start) if is_counted else w.numbers("position", op.positions_of_rows)
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
