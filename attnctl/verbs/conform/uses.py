"""Cases of what kernels are used for: a few new queries after the keys that are there."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from attnctl.verbs.conform.case import Case
from attnctl.verbs.conform.options import OPTIONS

# --- decode: a few new queries after the keys that are there ---

DECODE_STEPS = ((1, 1), (1, 12), (2, 15), (1, 16), (3, 33), (4, 64), (1, 127), (1, 200), (2, 256))
"""New queries, and the keys before them: kernels have ways of their own for so few."""

MOST_NEW = 4
MORE_PASTS = (1, 2, 7, 8, 15, 16, 31, 32, 63, 64, 65, 127, 128, 255, 256, 511, 1023)

BESIDE_DECODE = ("window", "sliding_window", "mask", "bias", "scale", "softcap", "alibi", "sinks")
"""Options that a way of its own for one query may forget."""


def decode_cases(
    claimed: Collection[str],
    *,
    cached: bool,
    groups: bool,
    quick: bool,
) -> tuple[Case, ...]:
    """Make calls of one to four new queries, with causal, shared heads and ragged lengths in turn.

    Where the keys before them are no argument of their own, all keys are handed over at once.
    """
    steps = list(DECODE_STEPS)
    if not quick:
        steps += product(range(1, MOST_NEW + 1), MORE_PASTS)

    ways = list(list_decode_ways(claimed))
    cases: list[Case] = []
    for number, (queries, past) in enumerate(dict.fromkeys(steps)):
        plain = make_step(queries, past, cached=cached, groups=groups, number=number)
        taken = [ways[0], ways[number % len(ways)]] if quick else ways
        cases += [add_ragged(plain, way) for way in taken]

        if queries == 1 and "key_lengths" in claimed:
            far = add_ragged(plain, ways[-1])
            cases.append(replace(far, fill="large"))

    one_query = make_step(1, 18, cached=cached, groups=groups, number=1)
    for name in BESIDE_DECODE:
        if name in claimed:
            value = OPTIONS[name].values(one_query)[0]
            own = one_query.having(**{name: value})
            cases.append(add_ragged(own, ways[0]))
    return tuple(dict.fromkeys(cases))


def list_decode_ways(claimed: Collection[str]) -> Iterator[dict[str, Any]]:
    """List what is asked for beside a few queries; lengths are filled in case by case."""
    causal = {"causal": True} if "causal" in claimed else {}
    yield causal
    yield {}
    for slots in (4, 16) if "pages" in claimed else ():
        yield {"pages": (slots, 1), **causal}
    if "key_lengths" in claimed:
        yield {"key_lengths": ()}
        yield {"key_lengths": (), **causal}


def make_step(queries: int, past: int, *, cached: bool, groups: bool, number: int) -> Case:
    """Make the call that adds some queries to the keys before them."""
    heads = 2
    kv_heads = 2
    if groups:
        kv_heads = 1 + number % 2
        heads = 2 * kv_heads

    step = Case(
        batch=2 + number % 2,
        heads=heads,
        kv_heads=kv_heads,
        queries=queries,
        keys=past + queries,
        d_k=16,
        d_v=16,
        seed=number,
    )
    return step.having(cache=past) if cached else step


def add_ragged(case: Case, way: dict[str, Any]) -> Case:
    """Ask for these options; of lengths, the first member has all keys and others ever fewer."""
    if "key_lengths" not in way:
        return case.having(**way)
    shortest = min(MOST_NEW, case.keys)
    lengths = []
    for member in range(case.batch):
        fewer = case.keys - member * case.keys // 3
        lengths.append(max(fewer, shortest))
    asked = {**way, "key_lengths": tuple(lengths)}
    return case.having(**asked)
