"""Choose the steps a page keeps of a trace, so that it can be mailed and opens at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field, replace
from math import ceil, sqrt

import numpy as np
from numpy.linalg import norm

from attnctl.base.dataclass import dataclass
from attnctl.base.words import all_of
from attnctl.math import Array
from attnctl.math.names import HEAD_OUTPUTS, OUTPUT, WEIGHTS
from attnctl.math.ops import Given
from attnctl.record import Trace
from attnctl.record.linear import NotFollowedError, course

ROOM = 9 << 19
"""Bytes of numbers in one page: 4.5 MiB become less than 6 MB of text."""


NARROW = np.dtype("float16")
GRAIN = 1 << 14
"""Steps from 0 to 1 that weights are rounded to there: digits that are not there deflate."""


@dataclass
class Kept:
    """The steps of a trace that a page holds, pictures of those that are too large, and words of it."""

    trace: Trace
    pictures: dict[str, tuple[Array, int]] = field(default_factory=dict)
    """Weights by blocks, and how many tokens a side of a block has."""
    said: list[str] = field(default_factory=list)
    norms: Array | None = None
    """What a weight on each key is worth, (head, key): ‖V W_O‖ (Kobayashi et al. 2020, section 3)."""


def choose_kept(traces: Sequence[Trace]) -> list[Kept]:
    """Choose what one page keeps of these traces: all of them have the same room."""
    return [keep_within(trace, ROOM // max(1, len(traces))) for trace in traces]


def keep_within(trace: Trace, room: int) -> Kept:
    """Everything where there is room for it, else the weights first and then the smaller steps.

    Matrices of a checkpoint, which are its own to keep, have less room.
    """
    norms = value_norms(trace)
    given = [
        name for name, step in trace.steps.items() if step.symbol == "W" and isinstance(step.op, Given)
    ]
    # Bytes of weight matrices in a page: those of a checkpoint are many times what they make of a sentence.
    large = sum(trace[name].nbytes for name in given) > 1 << 18
    left = given if large and WEIGHTS in trace else []
    sizes = {name: trace[name].nbytes for name in trace if name not in left}
    if not left and sum(sizes.values()) <= room:
        return Kept(trace, norms=norms)
    found = Kept(trace)
    held: set[str] = set()
    if WEIGHTS in trace:
        found = with_weights(trace, room)
        room -= sum(array.nbytes for array, _ in found.pictures.values())
        room -= found.trace[WEIGHTS].nbytes if WEIGHTS in found.trace else 0
        held.add(WEIGHTS)
    for name in sorted((name for name in sizes if name not in held), key=sizes.__getitem__):
        if sizes[name] > room:
            break
        held.add(name)
        room -= sizes[name]
    steps = {name: step for name, step in found.trace.steps.items() if name in held}
    found.trace, found.norms = replace(found.trace, steps=steps), norms
    left = [name for name in trace if name not in held]
    if left:
        found.said.append(
            f"Left out, so that the page stays small: {all_of(left)}. To see one of them, write a page of "
            f"it alone: --step {left[-1]} -o FILE.html; .npz keeps every number."
        )
    return found


def value_norms(trace: Trace) -> Array | None:
    """How much a weight of 1 on each head and key adds to the output, ‖V W_O‖ where W_O alone follows.

    None where weights are not mixed as they are, or where that is another for each query.
    """
    weights, name, *_ = (*(trace.steps[HEAD_OUTPUTS].inputs if HEAD_OUTPUTS in trace else ()), "", "")
    if weights != WEIGHTS or OUTPUT not in trace or name not in trace or trace[name].ndim != 3:
        return None
    values, lines = trace[name].astype(np.float64), course(trace, HEAD_OUTPUTS, OUTPUT)
    if lines is None:
        return None
    with np.errstate(all="ignore"), suppress(NotFollowedError):
        whole, turned = (lines.push(HEAD_OUTPUTS, rows) for rows in (values, values[:, ::-1]))
        own = np.eye(len(values))[:, :, None, None]
        norms = np.array([norm(lines.push(HEAD_OUTPUTS, values * head), axis=-1) for head in own])
        is_same = np.allclose(turned[::-1], whole)  # whichever query it is
        if is_same and np.isfinite(norms).all() and norms.shape == trace[WEIGHTS].shape[::2]:
            return norms
    return None


def with_weights(trace: Trace, room: int) -> Kept:
    """The trace with its weights in as many digits as there is room for, or by blocks."""
    weights = trace[WEIGHTS]
    if weights.nbytes <= room:
        return Kept(trace)
    if weights.size * NARROW.itemsize <= room:
        four = (np.rint(weights * GRAIN) / GRAIN).astype(NARROW)
        arrays = {**{name: trace[name] for name in trace}, WEIGHTS: four}
        said = f"{WEIGHTS} are kept to four decimals here, as float16; -o FILE.npz keeps every digit."
        notes = [*trace.header.get("notes", ()), said]
        return Kept(replace(trace, arrays=arrays, header=trace.header | {"notes": notes}), {}, [said])
    matrices = max(1, int(np.prod(weights.shape[:-2])))
    # Blocks along a side of a matrix that is shown by blocks.
    most = min(256, int(sqrt(room / NARROW.itemsize / matrices)))
    side = ceil(max(weights.shape[-2:]) / max(1, most))
    steps = {name: step for name, step in trace.steps.items() if name != WEIGHTS}
    queries, keys = weights.shape[-2:]
    said = (
        f"{WEIGHTS} ({queries:,} × {keys:,} a head) are shown by blocks of {side} × {side}: each square is "
        f"what {side} queries give to {side} keys together, on average. To see every number: a shorter "
        f"sentence, attnctl show DUMP --step {WEIGHTS} --head 0, or -o FILE.npz."
    )
    return Kept(replace(trace, steps=steps), {WEIGHTS: (by_blocks(weights, side), side)}, [said])


def by_blocks(weights: Array, side: int) -> Array:
    """(…, query, key) -> by blocks: the sum over a block's keys, the mean over its queries."""
    queries, keys = weights.shape[-2:]
    starts = [range(0, size, side) for size in (queries, keys)]
    counts = np.diff([*starts[0], queries])[:, None]
    kind = np.result_type(weights, np.float32)
    by_key = np.add.reduceat(weights, starts[1], axis=-1, dtype=kind)
    return (np.add.reduceat(by_key, starts[0], axis=-2) / counts).astype(NARROW)
