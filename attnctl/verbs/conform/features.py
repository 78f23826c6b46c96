"""The features that a target is held to, and the cases of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from attnctl.verbs.conform.case import ACTIVATIONS, Case
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.profile import GROUPED, LENGTHS, OTHER_D_V
from attnctl.verbs.conform.relations import HIDDEN_MOVED, RELATIONS

BASE = Case(batch=2, heads=3, kv_heads=3, queries=12, keys=12, d_k=8, d_v=8)
"""Sizes that differ, so that no axis is taken for another."""

SMALL = replace(BASE, batch=1, heads=2, kv_heads=2, queries=7, keys=7)
"""A call that is made often."""

ATTENTION, HEAD_SIZES, LAYOUTS = "attention", "head sizes", "memory layouts"
LARGE, LARGE_VALUES = "large scores", "large values"
REPEATABLE, INPUTS_KEPT, PAIRS, RANDOM = "repeatable", "inputs kept", "pairs", "random"
REPEATABLE_GRADIENTS = "repeatable gradients"

CONVENTIONS = "conventions"

NAMES = (
    ATTENTION, HEAD_SIZES, LENGTHS, OTHER_D_V, GROUPED, LARGE, LARGE_VALUES, LAYOUTS, *OPTIONS,
    PAIRS, RANDOM, *RELATIONS, REPEATABLE, REPEATABLE_GRADIENTS, INPUTS_KEPT, CONVENTIONS,
)  # fmt: skip

CAPTURED_CALLS, DRAWN_ALIKE = OF_CAPTURES = ("captured calls", "activations")
"""The features of a capture: its calls whole, and cases drawn in their shape."""

MOST_SHAPES = 8
"""Captured calls in whose shape cases are drawn."""

MERGE = "merge"
MERGES = (MERGE, "peaked rows", "flat rows", "large scores", "nothing in one part", "nothing in both")

OPTIONAL = {
    HEAD_SIZES, LENGTHS, OTHER_D_V, GROUPED, LAYOUTS, PAIRS, RANDOM, CAPTURED_CALLS, "float_mask", "out",
}  # fmt: skip
"""Features that a target may refuse by an exception."""

HIDING = {"causal", "window", "sliding_window", "documents", "mask", "key_lengths", "pages"}
"""Options that hide keys, which show where scores are far from 0, and where blocks are partly hidden."""

RANDOM_CASES, QUICK_RANDOM_CASES = 40, 8


def square_case(n: int, d: int = 8, **others: object) -> Case:
    return replace(BASE, queries=n, keys=n, d_k=d, d_v=d, **others)  # type: ignore[arg-type]


def list_own_features(head_sizes: Sequence[int], *, quick: bool) -> dict[str, tuple[Case, ...]]:
    """List the features of every attention with their cases; `head_sizes` are all that it takes, if any."""
    plain = [
        replace(BASE, fill="who"),
        replace(BASE, fill="identity"),
        *(square_case(n, d, seed=n) for n, d in ((1, 8), (2, 16), (12, 8), (16, 16), (33, 32), (65, 16))),
        square_case(33, 8, magnitude=2.0),
        square_case(129, 16, batch=1, heads=2, kv_heads=2, seed=3),
        square_case(9, 8, heads=8, kv_heads=8, seed=8),
        square_case(9, 8, batch=1, heads=17, kv_heads=17, seed=17),
    ]
    more = [
        square_case(n, 16, batch=1, heads=2, kv_heads=2, seed=n) for n in (31, 63, 64, 127, 128, 257, 513)
    ]
    few, others = (1, 12, 20, 64, 80, 128, 256), (2, 3, 4, 16, 24, 32, 72, 96, 192)
    sizes = tuple(head_sizes) or (few if quick else tuple(sorted(few + others)))
    lengths = ((5, 12), (12, 5), (1, 33), (33, 1), (17, 64), (64, 17), (3, 130), (67, 130))
    unequal = [
        replace(BASE, queries=n, keys=m, seed=n, fill=fill)
        for n, m in lengths
        for fill in ("random", *(("who",) if n == 5 else ()))
    ]
    widths = ((8, 16), (16, 8), (64, 24), (256, 8), (8, 128))
    shared = [
        replace(BASE, heads=heads, kv_heads=kv, fill=fill, seed=seed)
        for heads, kv in ((4, 2), (4, 1), (6, 3))
        for fill, seed in (("heads", 0), ("random", heads))
    ]
    large = [
        *(square_case(n, 16, fill="large") for n in (12, 33)),
        square_case(70, 16, fill="large", batch=1),
        square_case(12, 16, fill="shifted"),
        square_case(70, 16, fill="shifted", batch=1),
    ]
    fills = (("values", 12), ("values", 33), ("channel", 12), ("tails", 33))
    values = [square_case(n, 16, fill=how) for how, n in fills]
    memories = ("fortran", "strided", "transposed", "broadcast")
    wide = [(d, how) for d in (72, 192, 256) for how in memories[1:]]
    layouts = [square_case(9, d, memory=how) for d, how in (wide[::4] if quick else wide)]
    return {
        ATTENTION: tuple(plain if quick else plain + more),
        HEAD_SIZES: tuple(square_case(9, d, heads=2, kv_heads=2, seed=d) for d in sizes),
        LENGTHS: tuple(unequal),
        OTHER_D_V: tuple(replace(BASE, d_k=k, d_v=v, seed=k) for k, v in widths),
        GROUPED: tuple(shared),
        LARGE: tuple(large),
        LARGE_VALUES: tuple(values),
        LAYOUTS: (*(replace(BASE, memory=how) for how in memories), *layouts),
    }


def option_cases(name: str, claimed: Sequence[str], *, lengths: bool, quick: bool) -> tuple[Case, ...]:
    """Make the cases of one option alone; of a cache with causal too, which goes with it."""
    cases: list[Case] = []
    values = OPTIONS[name].values
    for at, case in enumerate((BASE, square_case(33, 16, batch=2, heads=2, kv_heads=2))):
        for value in values(case):
            cases += [replace(case, fill=fill, seed=at).having(**{name: value})
                      for fill in (("who", "random") if at == 0 else ("random",))]  # fmt: skip
    if name == "cache":
        cases = [replace(case, queries=case.keys - case.past) for case in cases]
        cases = [case for case in cases if case.queries > 0]
        cases += [case.having(causal=True) for case in cases if "causal" in claimed]
    elif lengths:
        long = replace(BASE, queries=5, keys=17)
        cases += [replace(long, fill=fill).having(**{name: values(long)[0]}) for fill in ("who", "random")]
    if name in {"causal", "window", "sliding_window"} and not quick:
        cases.append(square_case(129, 16, batch=1).having(**{name: values(square_case(129))[0]}))
    if name == "pages":  # their numbers take more than 16 bits
        far = replace(SMALL, heads=1, kv_heads=1, batch=2, queries=2)
        cases.append(far.having(pages=(1, 2**16)))
    if name in HIDING:
        fills = ("large", "shifted") if name in {"causal", "mask"} else ("large",)
        cases += [square_case(13, 16, fill=fill).having(**{name: values(BASE)[0]}) for fill in fills]
        uneven = replace(square_case(130, 16, heads=2, kv_heads=2), queries=67 if lengths else 130)
        cases.append(uneven.having(**{name: values(uneven)[-1]}))
    return tuple(cases)


def activation_cases(calls: Sequence[Case], *, causal: bool, groups: bool) -> tuple[Case, ...]:
    """Make cases drawn in the shape of some of the captured calls, spread over all."""
    some = calls[:: -(-len(calls) // MOST_SHAPES) or 1]
    sizes = (
        replace(BASE, kv_heads=1 if groups else BASE.heads),
        *(square_case(n, 16, batch=1, seed=n) for n in (33, 257)),
    )
    cases = [replace(case, fill=ACTIVATIONS, call=own.call) for own in some for case in sizes]
    return (*cases, *(case.having(causal=True) for case in cases if causal))


def relation_cases(claimed: Sequence[str], shape: Sequence[int]) -> dict[str, tuple[Case, ...]]:
    """Make the cases of relations between two calls; all are of one `shape`, where it is given."""
    batch, heads, n, d = shape or (2, 2, 33, 16)
    large = square_case(n, d, batch=batch, heads=heads, kv_heads=heads)
    sizes = (large,) if shape else (BASE, large, square_case(130, 16, heads=4, kv_heads=4))
    hiding = [name for name in OPTIONS if name in {*HIDING, "float_mask"} & {*claimed}]
    hidden = [case.having(**{name: OPTIONS[name].values(case)[0]}) for case in sizes for name in hiding]
    causal = [case.having(causal=True) for case in sizes[:1] if "causal" in claimed]
    return {
        name: tuple(dict.fromkeys((*sizes, *(hidden if name == HIDDEN_MOVED else causal))))
        for name in RELATIONS
    }


def may_go_together(names: Sequence[str]) -> bool:
    """Not those that mean the same, nor those that are passed by the same keyword."""
    apart = ({"window", "sliding_window"}, {"mask", "float_mask"}, {"documents", "pages"})
    return not any(both <= set(names) for both in apart)


def combine_options(case: Case, names: Sequence[str], pick: int = 0) -> Case:
    values = {name: OPTIONS[name].values(case) for name in names}
    out = case.having(**{name: value[pick % len(value)] for name, value in values.items()})
    return replace(out, queries=out.keys - out.past) if out.past else out


def pairs_cases(claimed: Sequence[str]) -> tuple[Case, ...]:
    return tuple(
        combine_options(replace(BASE, keys=14, queries=14, seed=at), names, at)
        for at, names in enumerate(combinations(claimed, 2))
        if may_go_together(names)
    )


def random_cases(
    claimed: Sequence[str], *, lengths: bool, groups: bool, widths: bool, quick: bool
) -> tuple[Case, ...]:
    cases: list[Case] = []
    for seed in range(QUICK_RANDOM_CASES if quick else RANDOM_CASES):
        draw = np.random.RandomState(seed)
        keys, kv_heads = int(draw.randint(1, 80)), int(draw.randint(1, 4))
        d_k = int(draw.choice([8, 16, 32, 64]))
        case = Case(
            batch=int(draw.randint(1, 4)),
            heads=kv_heads * int(draw.randint(1, 4) if groups else 1),
            kv_heads=kv_heads,
            queries=int(draw.randint(1, 80)) if lengths else keys,
            keys=keys,
            d_k=d_k,
            d_v=int(draw.choice([8, 16, 24, 64])) if widths else d_k,
            magnitude=float(draw.choice([0.5, 1.0, 1.5])),
            seed=seed,
        )
        chosen = [name for name in claimed if draw.uniform() < 0.3 and (name != "cache" or keys > 1)]
        chosen = [name for name in chosen if name != "float_mask" or "mask" not in chosen]
        if may_go_together(chosen):
            cases.append(combine_options(case, chosen, seed))
    return tuple(cases)
