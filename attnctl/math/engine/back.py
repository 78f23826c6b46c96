"""The backward pass a tile of queries at a time: no gradient by scores is ever whole.

A tile makes its scores and weights again from Q and K, as FlashAttention-2 does (Dao 2023, algorithm 2),
with the ops of the derivation; what is by query it fills, what is by key it adds to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from attnctl.math import Array
from attnctl.math.engine.tiles import Lead, Stretch, after_head, over_cores
from attnctl.math.names import TABLE
from attnctl.math.steps import Step


def of_scores(steps: Iterable[Step]) -> list[Step]:
    """The gradients that have, or read, numbers for each query and key."""
    scores = {step.name for step in steps if step.is_n_by_n}
    return [step for step in steps if TABLE[step.name].gradient and {step.name, *step.inputs} & scores]


def back_stretch(steps: Sequence[Step], keep: Collection[str]) -> list[Step]:
    """These gradients, where all are by query or by key and no scores are kept whole; else none."""
    back = of_scores(steps)
    rows = [step for step in back if not step.is_n_by_n]
    fits = all("head" in step.axes and after_head(step)[:1] in {("query",), ("key",)} for step in rows)
    return back if fits and not any(step.is_n_by_n and step.name in keep for step in steps) else []


def needs_whole(steps: Sequence[Step], keep: Collection[str]) -> bool:
    """True if gradients need all the numbers by query and key at once."""
    return bool(of_scores(steps)) and not back_stretch(steps, keep)


def fill_backward(forward: Stretch, back: Sequence[Step], values: Mapping[str, Array]) -> dict[str, Array]:
    """The gradients of a stretch that are by query or by key, heads over the machine's cores."""
    steps = [*(step for step in forward.steps if step.is_n_by_n), *back]
    lead, sizes = forward.lead, {"query": forward.queries, "key": forward.keys}
    made = {step.name for step in steps} | forward.outside.keys()
    outside = {
        name: np.broadcast_to(values[name], (*lead, *values[name].shape[-len(own) :]))
        for step in back
        for name in step.inputs
        if name not in made and (own := axes_by_head(name))
    }
    wide = np.result_type(forward.dtype, np.float32)
    out = {
        step.name: np.zeros((*lead, sizes[after_head(step)[0]], values_size(step, values, forward)), wide)
        for step in back
        if not step.is_n_by_n
    }
    axes = {**forward.axes, **{name: axes_by_head(name) for name in outside}}
    bare = replace(forward, steps=steps, outside={**forward.outside, **outside}, axes=axes, kept={})
    most = bare.whole_rows()

    def work(head: Lead) -> None:
        room: dict[str, Array] = {}  # the same memory from one tile to the next

        def scratch(name: str) -> Array:
            return room.setdefault(name, np.empty(most * forward.keys, forward.dtype))

        for rows in bare.cut_queries(most):
            cuts = {"query": rows, "key": bare.visible_keys(head, rows)}

            def add(step: Step, made: Array, cuts: Mapping[str, slice] = cuts) -> None:
                if step.name in out:
                    bare.cut(out[step.name], after_head(step), head, cuts)[...] += made

            with np.errstate(all="ignore"):
                bare.compute_tile(steps, head, rows, cuts["key"], scratch, add)

    list(over_cores(work, list(np.ndindex(*lead)), prod(lead) * forward.queries * forward.keys))
    return {name: array.astype(forward.dtype, copy=False) for name, array in out.items()}


def axes_by_head(name: str) -> tuple[str, ...]:
    """The axes that one head has of an array that gradients read; all of them where no head has its own."""
    axes = TABLE[name].axes
    return axes[axes.index("head") + 1 :] if "head" in axes else axes


def values_size(step: Step, values: Mapping[str, Array], forward: Stretch) -> int:
    """The columns of a gradient: those of the row-wise input that it is a sum of."""
    known = {**forward.outside, **values}
    last = next(name for name in reversed(step.inputs) if name in known and TABLE[name].axes[-1] != "key")
    return int(known[last].shape[-1])
