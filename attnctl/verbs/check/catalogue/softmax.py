"""Mistakes in softmax itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnctl.names import WEIGHTS
from attnctl.ops import Copy, Softmax
from attnctl.verbs.check import wrong
from attnctl.verbs.check.mistake import Case, Mistake, Plant, instead


def raw(case: Case) -> Iterator[Plant]:
    """Scores used as weights; hidden ones as they are, or 0."""
    if isinstance(case.op(WEIGHTS), Softmax):
        yield Plant(case.put(WEIGHTS, Copy()))
        yield Plant(case.put(WEIGHTS, wrong.Arranged(Copy(), after=without_infinity)))


def without_infinity(s: np.ndarray) -> np.ndarray:
    """Hidden scores as zeros."""
    return np.where(np.isneginf(s), 0.0, s)


def dropout(case: Case) -> Iterator[Plant]:
    """Survivors grown by one and the same factor, the others 0: p follows from the factor."""
    if case.first != WEIGHTS or not isinstance(case.op(WEIGHTS), Softmax):
        return
    right, found = case.expected.value, case.found
    shown = (right > 2 * case.expected.error) & np.isfinite(found)
    kept, lost = shown & (found != 0), shown & (found == 0)
    if kept.any() and lost.any():
        factor = float(np.median(found[kept] / right[kept]))
        if factor > 1 and np.isfinite(factor):
            op = wrong.Dropped(kept, factor)
            yield Plant(case.put(WEIGHTS, op), f"{1 - 1 / factor:.3g}")


def overflowing(case: Case) -> Iterator[Plant]:
    """exp overflows where its argument is not held down by the row's maximum."""
    told = ~case.record.unseen(case.found) if case.first == WEIGHTS else True
    if isinstance(case.op(WEIGHTS), Softmax) and (np.isnan(case.found) & told).any():
        for dtype in ("float32", "float64", "float16"):
            yield Plant(case.put(WEIGHTS, wrong.Bare(dtype)), dtype)


SOFTMAX = (
    Mistake(
        "softmax-over-queries",
        (WEIGHTS,),
        "softmax runs over queries",
        "use axis=-1",
        instead(WEIGHTS, lambda _: wrong.SoftmaxOver(-2), Softmax),
    ),
    Mistake(
        "softmax-over-heads",
        (WEIGHTS,),
        "softmax runs over heads",
        "use axis=-1",
        instead(WEIGHTS, lambda _: wrong.SoftmaxOver(-3), Softmax),
    ),
    Mistake("no-softmax", (WEIGHTS,), "there is no softmax", "take softmax over keys (axis=-1)", raw),
    Mistake(
        "dropout-left-on",
        (WEIGHTS,),
        "dropout is on (p = {}), so that some weights are 0 and the others too large",
        "call model.eval(), or set dropout to 0",
        dropout,
    ),
    Mistake(
        "nan-where-nothing-is-seen",
        (WEIGHTS,),
        "softmax divides 0 by 0 in rows that see nothing",
        "give such rows zeros, np.where(mask.any(-1, keepdims=True), weights, 0)",
        instead(WEIGHTS, lambda _: wrong.NaNWhereNothingIsSeen(), Softmax),
    ),
    Mistake(
        "no-max-subtraction",
        (WEIGHTS,),
        "exp overflows {}, as the row maximum is not subtracted",
        "take np.exp(s - s.max(axis=-1, keepdims=True))",
        overflowing,
    ),
)
