"""The features that a target is held to, and the cases of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.verbs.conform.case import Case
from attnctl.verbs.conform.layout import is_merged, split_axes, stands_in_columns
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.profile import TargetProfile

BASE = Case(batch=2, heads=3, kv_heads=3, queries=12, keys=12, d_k=8, d_v=8)
"""Sizes that differ, so that no axis is taken for another."""

SMALL = replace(BASE, batch=1, heads=2, kv_heads=2, queries=7, keys=7)
"""A call that is made often."""

ATTENTION, LENGTHS, HEAD_SIZES = "attention", "lengths", "head sizes"
OTHER_D_V, GROUPED, LARGE, LAYOUTS = "d_v ≠ d_k", "grouped heads", "large scores", "memory layouts"
REPEATABLE, INPUTS_KEPT, PAIRS, RANDOM = "repeatable", "inputs kept", "pairs", "random"
REPEATABLE_GRADIENTS = "repeatable gradients"

CONVENTIONS = "conventions"

NAMES = (
    ATTENTION,
    HEAD_SIZES,
    LENGTHS,
    OTHER_D_V,
    GROUPED,
    LARGE,
    LAYOUTS,
    *OPTIONS,
    PAIRS,
    RANDOM,
    REPEATABLE,
    REPEATABLE_GRADIENTS,
    INPUTS_KEPT,
    CONVENTIONS,
)
"""Every feature, in order."""

MERGE = "merge"
MERGES = (MERGE, "peaked rows", "flat rows", "large scores", "nothing in one part", "nothing in both")
"""The features of a merge of two parts."""

OPTIONAL = {HEAD_SIZES, LENGTHS, OTHER_D_V, GROUPED, LAYOUTS, PAIRS, RANDOM, "float_mask", "out"}
"""Features that a target may refuse by an exception."""

RANDOM_CASES, QUICK_RANDOM_CASES = 40, 8


@dataclass(frozen=True)
class Feature:
    """Something that a target can do, and the cases that show it."""

    name: str
    cases: tuple[Case, ...] = ()
    skipped: str = ""
    """The reason why it is not run."""


def square_case(n: int, d: int = 8, **others: object) -> Case:
    return replace(BASE, queries=n, keys=n, d_k=d, d_v=d, **others)  # type: ignore[arg-type]


def list_own_features(head_sizes: Sequence[int], *, quick: bool) -> Iterator[Feature]:
    """List the features of every attention; `head_sizes` are the only ones taken, where there are any."""
    plain = [
        replace(BASE, fill="who"),
        replace(BASE, fill="identity"),
        *(square_case(n, d, seed=n) for n, d in ((1, 8), (2, 16), (12, 8), (16, 16), (33, 32), (65, 16))),
        square_case(33, 8, magnitude=2.0),
        square_case(129, 16, batch=1, heads=2, kv_heads=2, seed=3),
    ]
    more = [
        square_case(n, 16, batch=1, heads=2, kv_heads=2, seed=n) for n in (31, 63, 64, 127, 128, 257, 513)
    ]
    yield Feature(ATTENTION, tuple(plain if quick else plain + more))
    sizes = tuple(head_sizes) or (
        (1, 12, 20, 64, 80, 128, 256)
        if quick
        else (1, 2, 3, 4, 12, 16, 20, 24, 32, 64, 72, 80, 96, 128, 192, 256)
    )
    yield Feature(HEAD_SIZES, tuple(square_case(9, d, heads=2, kv_heads=2, seed=d) for d in sizes))
    lengths = ((5, 12), (12, 5), (1, 33), (33, 1), (17, 64), (64, 17), (3, 130))
    yield Feature(
        LENGTHS, tuple(replace(BASE, queries=n, keys=m, seed=n, fill=fill) for n, m in lengths
                       for fill in ("random", *(("who",) if n == 5 else ()))),
    )  # fmt: skip
    widths = ((8, 16), (16, 8), (64, 24), (256, 8), (8, 128))
    yield Feature(OTHER_D_V, tuple(replace(BASE, d_k=k, d_v=v, seed=k) for k, v in widths))
    shared = [
        replace(BASE, heads=heads, kv_heads=kv, fill=fill, seed=seed)
        for heads, kv in ((4, 2), (4, 1), (6, 3))
        for fill, seed in (("heads", 0), ("random", heads))
    ]
    yield Feature(GROUPED, tuple(shared))
    large = replace(BASE, d_k=16, d_v=16, fill="large")
    yield Feature(
        LARGE, (large, replace(large, queries=33, keys=33), replace(large, queries=70, keys=70, batch=1))
    )
    yield Feature(
        LAYOUTS,
        tuple(replace(BASE, memory=how) for how in ("fortran", "strided", "transposed", "broadcast")),
    )


def option_feature(name: str, claimed: Sequence[str], *, lengths: bool, quick: bool) -> Feature:
    """Make the cases of one option alone; of a cache with causal too, which goes with it."""
    cases: list[Case] = []
    for at, case in enumerate((BASE, square_case(33, 16, batch=2, heads=2, kv_heads=2))):
        for value in OPTIONS[name].values(case):
            cases += [replace(case, fill=fill, seed=at).having(**{name: value})
                      for fill in (("who", "random") if at == 0 else ("random",))]  # fmt: skip
    if name == "cache":
        cases = [replace(case, queries=case.keys - case.past) for case in cases]
        cases = [case for case in cases if case.queries > 0]
        cases += [case.having(causal=True) for case in cases if "causal" in claimed]
    elif lengths:
        longer = replace(BASE, queries=5, keys=17)
        value = OPTIONS[name].values(longer)[0]
        cases += [replace(longer, fill=fill).having(**{name: value}) for fill in ("who", "random")]
    if name in {"causal", "window", "sliding_window"} and not quick:
        value = OPTIONS[name].values(square_case(129))[0]
        cases.append(square_case(129, 16, batch=1).having(**{name: value}))
    if name in {"causal", "mask"}:
        value = OPTIONS[name].values(BASE)[0]
        cases.append(square_case(13, 16, fill="large").having(**{name: value}))
    return Feature(name, tuple(cases))


def may_go_together(names: Sequence[str]) -> bool:
    return not {"window", "sliding_window"} <= set(names)  # they mean the same


def combine_options(case: Case, names: Sequence[str], pick: int = 0) -> Case:
    """Give a case these options, each at one of its values."""
    values = {name: OPTIONS[name].values(case) for name in names}
    out = case.having(**{name: each[pick % len(each)] for name, each in values.items()})
    return replace(out, queries=out.keys - out.past) if out.past else out


def pairs_feature(claimed: Sequence[str]) -> Feature:
    cases = [
        combine_options(replace(BASE, keys=14, queries=14, seed=at), names, at)
        for at, names in enumerate(combinations(claimed, 2))
        if may_go_together(names)
    ]
    return Feature(PAIRS, tuple(cases), "" if cases else "it has fewer than two options")


def random_feature(
    claimed: Sequence[str], *, lengths: bool, groups: bool, widths: bool, quick: bool
) -> Feature:
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
        if may_go_together(chosen):
            cases.append(combine_options(case, chosen, seed))
    return Feature(RANDOM, tuple(cases))


# --- cases of the sizes that a target takes ---


def fit_case(case: Case, profile: TargetProfile) -> Case:
    for fit in (with_heads, with_columns, with_tokens, in_layout):
        case = fit(case, profile)
    return case


def list_lacking(profile: TargetProfile) -> dict[str, str]:
    """Name the features that such arrays have no room for, each with why."""
    axes, lacking = profile.axes, {}
    if profile.tokens:
        lacking[LENGTHS] = f"it takes {profile.tokens} queries and as many keys alone"
    if "h" not in split_axes(axes):
        lacking[GROUPED] = f"the layout {axes} has one head"
    elif is_merged(axes) and not profile.tells_kv_heads:
        lacking[GROUPED] = "heads stand side by side, and nothing tells it how many kv heads there are"
    if profile.packed:
        alike = [] if stands_in_columns(profile.packed, axes) else [GROUPED]
        lacking |= dict.fromkeys([LENGTHS, OTHER_D_V, *alike], "Q, K and V come in one array")
    return lacking


def with_heads(case: Case, profile: TargetProfile) -> Case:
    """Take the fixed numbers of heads, and keep how many share a kv head as far as possible."""
    heads = profile.heads or case.heads
    share = case.heads // case.kv_heads
    if fixed := profile.always.kv_heads:
        return replace(case, heads=profile.heads or fixed * share, kv_heads=fixed)
    fewer = max(kv for kv in range(1, max(heads // share, 1) + 1) if heads % kv == 0)
    return replace(case, heads=heads, kv_heads=fewer)


def with_columns(case: Case, profile: TargetProfile) -> Case:
    d_k = fit_width(case.d_k, profile)
    d_v = d_k if case.d_v == case.d_k else fit_width(case.d_v, profile, of_k=False)
    return replace(case, d_k=d_k, d_v=d_v)


def fit_width(d: int, profile: TargetProfile, *, of_k: bool = True) -> int:
    if profile.head_sizes:
        return min((size for size in profile.head_sizes if size >= d), default=max(profile.head_sizes))
    if profile.rotary is not None and of_k:
        return max(d + d % 2, profile.rotary.dims or 2)
    return d


def with_tokens(case: Case, profile: TargetProfile) -> Case:
    """Round the queries, the keys of a cache and the new keys up to multiples, or take those fixed."""
    if profile.tokens and not case.past:
        return replace(case, queries=profile.tokens, keys=profile.tokens)
    past, new = round_up(case.past, profile), round_up(case.keys - case.past, profile)
    queries = new if case.queries == case.keys - case.past else round_up(case.queries, profile)
    cached = case.having(cache=past) if past != case.past else case
    return replace(cached, queries=queries, keys=past + new)


def round_up(n: int, profile: TargetProfile) -> int:
    return -(-n // profile.multiple_of) * profile.multiple_of


def in_layout(case: Case, profile: TargetProfile) -> Case:
    """Cut the case to its layout: (head, n, d) has no batch, (n, d) one head."""
    axes, lacking = profile.axes, list_lacking(profile)
    if "h" not in split_axes(axes):
        case = replace(case, heads=1)
    if GROUPED in lacking:
        case = replace(case, kv_heads=case.heads)
    if OTHER_D_V in lacking:
        case = replace(case, d_v=case.d_k)
    if LENGTHS in lacking:
        case = replace(case, queries=case.keys - case.past)
    if "b" not in axes or profile.batch:
        case = replace(case, batch=profile.batch or 1)
    shared = case.batch > 1 and axes[0] == "b" and not profile.packed
    return case if shared or case.memory != "broadcast" else replace(case, memory="plain")
