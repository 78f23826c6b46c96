"""Mistakes in splitting heads, sharing them and bringing them together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnctl.ops import Copy, Given, Merge, Op, Project, Repeat
from attnctl.verbs.check import wrong
from attnctl.verbs.check.mistake import Case, Mistake, Plant, everywhere_or_once

SPLITS = (
    (
        wrong.split_by_reshape,
        "heads are split by reshape(heads, n, d) without a transpose, which mixes tokens",
    ),
    (wrong.split_interleaved, "heads take their columns in turn, not in blocks"),
)
MERGES = (
    (wrong.merge_interleaved, "the columns of the heads are interleaved"),
    (
        wrong.merge_by_reshape,
        "heads are merged by reshape(n, heads·d) without a transpose, which mixes tokens",
    ),
)


def several(case: Case) -> bool:
    """Whether there are heads to mix up."""
    return (case.size("head") or 1) > 1 or (case.size("kv_head") or 1) > 1


def split(case: Case) -> Iterator[Plant]:
    """Q, K and V split into heads the wrong way; those that are given, after they were written down."""
    if not several(case):
        return
    made = [name for name in ("Q", "K", "V") if isinstance(case.op(name), Project)]
    given = [name for name in ("Q", "K", "V") if isinstance(case.op(name), Given)]
    for move, detail in SPLITS:
        for names in everywhere_or_once(*made):
            ops = {name: wrong.Arranged(case.derivation[name].op, after=move) for name in names}
            yield Plant(case.put_all(ops), detail)
        if given:
            yield Plant(case.put_all(reading(case, given, move)), detail)


def reading(case: Case, names: Sequence[str], move: wrong.Move) -> dict[str, Op]:
    """What the steps that read these become when they read them moved."""
    return {
        step.name: wrong.Arranged(
            step.op, tuple(move if each in names else wrong.unmoved for each in step.inputs)
        )
        for step in case.derivation
        if set(step.inputs) & set(names)
    }


def merged(case: Case) -> Iterator[Plant]:
    """The heads of a token not side by side."""
    if isinstance(case.op("concat"), Merge) and several(case):
        for move, detail in MERGES:
            yield Plant(case.put("concat", wrong.Arranged(Copy(), after=move)), detail)


def tiled(case: Case) -> Iterator[Plant]:
    """h0 h1 h0 h1, for keys and values or one of them."""
    shared = {name: case.op(name) for name in ("K_shared", "V_shared")}
    times = {name: op.times for name, op in shared.items() if isinstance(op, Repeat)}
    for names in everywhere_or_once(*times):
        ops = {name: wrong.Arranged(Copy(), after=wrong.tiled(times[name])) for name in names}
        yield Plant(case.put_all(ops))


HEADS = (
    Mistake(
        "heads-split-wrong",
        ("Q", "K", "V", "scores", "head_outputs"),
        "{}",
        "take x.reshape(n, heads, d).swapaxes(0, 1)",
        split,
    ),
    Mistake(
        "heads-merged-wrong",
        ("concat",),
        "{}",
        "take z.swapaxes(0, 1).reshape(n, heads * d)",
        merged,
    ),
    Mistake(
        "kv-heads-tiled",
        ("K_shared", "V_shared"),
        "kv heads are repeated h0 h1 h0 h1",
        "repeat each for its own group, h0 h0 h1 h1: np.repeat(x, groups, axis=head), not np.tile",
        tiled,
    ),
)
