"""Cases of what kernels are used for: a few new queries, many keys, and sizes about those of blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from attnctl.verbs.conform.case import Case
from attnctl.verbs.conform.options import OPTIONS, TREE

# --- decode: a few new queries after the keys that are there ---

DECODE_STEPS = ((1, 1), (1, 12), (2, 15), (1, 16), (3, 33), (4, 64), (1, 127), (1, 200), (2, 256))
"""New queries, and the keys before them: kernels have ways of their own for so few."""

MOST_NEW = 4
FEW_NEW = 3
BELOW = 1
"""The seed with which the first query's scores are all far below 0, where they are large."""

TREES = ((7, 12), (15, 33))
"""Tokens of a tree of guesses, and the keys before them."""

MORE_PASTS = (1, 8, 15, 31, 32, 63, 65, 128, 255, 1023)

BESIDE_DECODE = ("window", "sliding_window", "mask", "bias", "scale", "softcap", "alibi", "sinks",
                 "positions")  # fmt: skip
"""Options that a way of its own for one query may forget, or take for a few queries as for the first."""


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
            cases.append(replace(far, fill="large", seed=BELOW))

    for name in ("mask", "float_mask"):
        if name in claimed:
            cases += [add_tree(step, name) for step in list_tree_steps(cached=cached, groups=groups)]

    for queries in (1, FEW_NEW):
        step = make_step(queries, 18, cached=cached, groups=groups, number=1)
        for name in BESIDE_DECODE:
            if name in claimed:
                value = OPTIONS[name].values(step)[0]
                own = step.having(**{name: value})
                cases.append(add_ragged(own, ways[0]))
    return tuple(dict.fromkeys(cases))


def list_tree_steps(*, cached: bool, groups: bool) -> Iterator[Case]:
    """Make the calls that verify a tree of guesses: tokens, each behind the one that it goes on from."""
    for number, (queries, past) in enumerate(TREES):
        yield make_step(queries, past, cached=cached, groups=groups, number=number)


def add_tree(step: Case, name: str) -> Case:
    """Ask for the mask of a tree; causal would hide nothing beside it, and is not asked for."""
    return step.having(**{name: TREE})


def prefill_cases(sizes: Sequence[Case], claimed: Collection[str]) -> tuple[Case, ...]:
    """Make the second part of a prompt: what is after a cache, or all keys with the last queries alone."""
    if "causal" not in claimed:
        return tuple(sizes)  # nothing of them is a part of a prompt, which is said
    cases: list[Case] = []
    for case in sizes:
        for before in dict.fromkeys([case.keys // 2, case.keys - 1]):
            if not before:
                continue
            part = replace(case, queries=case.keys - before).having(causal=True)
            cases.append(part.having(cache=before) if "cache" in claimed else part)
    return tuple(cases)


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

    asked = dict(way)
    asked["key_lengths"] = tuple(lengths)
    return case.having(**asked)


# --- many keys: beyond 4,096, where tables, counters and offsets of 16 bits end ---

ONE_HEAD = Case(batch=1, heads=1, kv_heads=1, d_k=8, d_v=8)
"""The least work that a call may be, where it has many tokens."""

MANY = 4097
SQUARE = 1030
"""Queries and keys of a call whose last rows alone are judged."""

WIDE_WINDOW = 1500

ALONG = (
    "causal", "window", "sliding_window", "mask", "bias", "alibi", "key_lengths", "pages", "cache", "sinks",
)  # fmt: skip
"""Options that have to do with how many keys there are."""


def many_keys_cases(claimed: Collection[str], *, lengths: bool, quick: bool) -> tuple[Case, ...]:
    """Make calls of few queries and more than 4,096 keys, and of as many queries as keys."""
    square = ONE_HEAD.of_size(SQUARE)
    cases = [square]
    if "causal" in claimed:
        cases.append(square.having(causal=True))
    if not (lengths and quick):
        cases.append(ONE_HEAD.of_size(MANY))

    few = replace(square, queries=3, keys=MANY, d_k=16, d_v=16)
    if lengths:
        cases.append(few)
    about_keys = ALONG if lengths else ("cache",)
    for name in about_keys:
        if name in claimed:
            cases += [add_causal(case, name, claimed) for case in long_cases(few, name)]
    return tuple(cases)


def long_cases(few: Case, name: str) -> list[Case]:
    """Make the calls of one option; what has a size of its own is about as large as the keys are many."""
    several = replace(few, batch=2, heads=2, kv_heads=2)
    if name == "cache":
        newest = replace(few, queries=1)
        return [newest.having(cache=MANY - 1)]
    if name == "key_lengths":
        lengths = (MANY, WIDE_WINDOW)
        return [several.having(key_lengths=lengths)]
    if name == "pages":
        whole = replace(several, keys=MANY - 1)
        return [whole.having(pages=(16, 1))]
    if name == "window":
        return [few.having(window=(size, size)) for size in (WIDE_WINDOW, 200)]
    if name == "sliding_window":
        return [few.having(sliding_window=size) for size in (WIDE_WINDOW, 200)]
    value = OPTIONS[name].values(few)[-1]
    return [few.having(**{name: value})]


def add_causal(case: Case, name: str, claimed: Collection[str]) -> Case:
    """Windows are of what is before a query; a cache and pages are read by the newest."""
    if name in {"cache", "pages", "sliding_window"} and "causal" in claimed:
        return case.having(causal=True)
    return case


# --- sizes about those of a kernel's blocks ---

QUICK_BLOCKS, BLOCKS = (64, 128), (16, 32, 64, 128, 256, 512, 1024)
"""The sizes of blocks that kernels have, where none are said."""

MOST_QUICK_BLOCKS, MOST_BLOCKS = 2, 8
"""How many sizes are taken of those that a target's source has."""

REST = 5
"""Keys in a last block that is not full, behind two that are."""


def block_cases(claimed: Collection[str], sizes: Sequence[int], *, lengths: bool) -> tuple[Case, ...]:
    """Make calls of one query or key less than a block has, as many, one more, and two blocks and some."""
    cases: list[Case] = []
    for block in sizes:
        rest = 2 * block + REST
        for count in (max(block - 1, 1), block, block + 1, rest):
            cases += cases_of_size(count, claimed, lengths=lengths)
        cases += edge_cases(block, claimed, lengths=lengths)
    return tuple(dict.fromkeys(cases))


def cases_of_size(count: int, claimed: Collection[str], *, lengths: bool) -> Iterator[Case]:
    """Make calls of so many queries, and of so many keys, with little beside them where that may be."""
    two_heads = replace(ONE_HEAD, heads=2, kv_heads=2, seed=count)
    case = two_heads.of_size(count)
    if lengths:
        yield replace(case, queries=3)
        yield replace(case, keys=7)
    else:
        yield case
    if "causal" in claimed:
        yield case.having(causal=True)


def edge_cases(block: int, claimed: Collection[str], *, lengths: bool) -> Iterator[Case]:
    """Make calls whose windows, lengths and caches end where a block does, or one key beside that."""
    keys = 2 * block + REST
    square = replace(ONE_HEAD, seed=block).of_size(keys)
    case = replace(square, batch=3, heads=2, kv_heads=2)
    if lengths:
        case = replace(case, queries=3)
    ends = (block, block + 1, max(block - 1, 1))

    if "key_lengths" in claimed:
        yield case.having(key_lengths=ends)
    if "window" in claimed:
        # Of its queries some see from the first key of a block on, some up to the last one.
        yield square.having(window=(block, block))
    for end in ends:
        if "cache" in claimed:
            step = replace(case, queries=1, keys=end + 1).having(cache=end)
            yield add_causal(step, "cache", claimed)
