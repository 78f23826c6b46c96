"""Fitted mistakes in who may see whom: other ends, other offsets, blocks, keys that are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from attnctl.base.namedtuple import NamedTuple
from attnctl.math import Array
from attnctl.math.derivation import line
from attnctl.math.names import MASKED, WEIGHTS
from attnctl.math.ops import Hide, Softmax
from attnctl.math.rules import Causal, Seen, VisibilityRule, Window
from attnctl.mistakes import wrong
from attnctl.mistakes.masks import HIDE
from attnctl.mistakes.mistake import Plant, WrongStep, about
from attnctl.mistakes.plants import (
    blocks_of_keys,
    ends,
    find_mask,
    planted_best,
    rules_of_kind,
    swap_rule,
)
from attnctl.mistakes.positions import move_position


class SeenEnds(NamedTuple):
    """How far back and ahead a query sees; None where it sees any key."""

    back: int | None
    ahead: int | None


ANY_BEFORE = SeenEnds(None, 0)
"""The ends of the causal mask."""

NO_END = SeenEnds(None, None)


def hiding(case: WrongStep, rule: VisibilityRule) -> WrongStep | None:
    """The program that hides by one rule more: in its mask, or where softmax reads the scores."""
    hide = find_mask(case)
    softmax = case.op(WEIGHTS)
    if hide and (case.first == MASKED or MASKED not in case.record):
        return case.put(MASKED, replace(hide, rules=(*hide.rules, rule)))
    if not isinstance(softmax, Softmax):
        return None

    offset = hide.offset if hide else case.begin
    more = Hide(offset, rules=(rule,))
    if hide or MASKED in case.derivation:
        return case.put(WEIGHTS, wrong.Then(more, softmax))

    scores = case.derivation[WEIGHTS].inputs[:1]
    new = line(MASKED, more, scores, "")
    return case.through(WEIGHTS, new.inputs[0], new)


def window_of(case: WrongStep) -> SeenEnds:
    """The ends that all windows and the causal rule leave together."""
    windows = rules_of_kind(case, Window)
    back = min((rule.left for rule in windows if rule.left is not None), default=None)
    ahead = min((rule.right for rule in windows if rule.right is not None), default=None)

    is_causal = bool(rules_of_kind(case, Causal))
    return SeenEnds(back, 0 if is_causal else ahead)


def other_windows(right: SeenEnds, near: Sequence[int]) -> Iterator[SeenEnds]:
    """Other ends: one of them, both by as much, both the same."""
    for back in near[:2]:
        for ahead in near[:2]:
            yield SeenEnds(back, ahead)

    for end in (*near, None):
        yield SeenEnds(end, right.ahead)
        yield SeenEnds(right.back, end)
        yield SeenEnds(end, end)
        yield SeenEnds(end, 0)

    if right.back is None or right.ahead is None:
        return
    for by in (-2, -1, 1, 2):
        if min(right.back, right.ahead) + by >= 0:
            yield SeenEnds(right.back + by, right.ahead + by)


def shown_ends(case: WrongStep) -> SeenEnds | None:
    """Read off the wrong step how far back and ahead queries see, where it shows that at all."""
    if case.first not in {MASKED, WEIGHTS} or not case.found.size:
        return None

    visible = case.found > 0
    if case.first == MASKED:
        top = case.found.max(axis=-1, keepdims=True)
        visible = case.found - top > case.record.precision(MASKED).vanishing

    hide = find_mask(case) or Hide()
    rows, columns = hide.positions(case.found.shape)
    distance = np.broadcast_to(rows - columns, visible.shape)[visible]
    if not distance.size:
        return None

    farthest_back = int(distance.max())
    farthest_ahead = -int(distance.min())
    return SeenEnds(max(farthest_back, 0), max(farthest_ahead, 0))


def tried_ends(case: WrongStep) -> list[int]:
    """SeenEnds of windows to try: those that are shown, or all near ones and some far ones."""
    shown = shown_ends(case)
    if shown:
        return [end for end in dict.fromkeys(shown) if end is not None]
    size = max(case.size("query") or 0, case.size("key") or 0)
    return ends(size)


def plant_other_window(case: WrongStep) -> Iterator[Plant]:
    right = window_of(case)
    if right in {NO_END, ANY_BEFORE}:
        return

    others = dict.fromkeys(other_windows(right, tried_ends(case)))
    ways = [way for way in others if way != right]
    rules = rules_of_kind(case, VisibilityRule)
    rest = [rule for rule in rules if not isinstance(rule, (Causal, Window))]

    def make(hide: Hide, way: SeenEnds) -> Hide:
        return replace(hide, rules=(*rest, Window(*way)))

    yield from HIDE.best(make, lambda _: ways, say_window)(case)


def say_window(way: SeenEnds) -> str:
    back, ahead = ("any number" if end is None else str(end) for end in way)
    return f"keys up to {back} back and {ahead} ahead ({option(way)})"


def option(way: SeenEnds) -> str:
    """What to write on a command line for a window."""
    if way.ahead == 0:
        return " ".join([*Causal.setting.flags(value=True), *Window.setting.flags(way.back)])
    return " ".join(Window.setting.flags(tuple(way)))


def other_offsets(case: WrongStep) -> list[int]:
    """Numbers of keys to move the diagonal by, where there is one."""
    rules = rules_of_kind(case, VisibilityRule)
    if not any(rule.relative for rule in rules):
        return []

    moves: list[int] = []
    for end in filter(None, tried_ends(case)):
        moves += (end, -end)
    return [*moves, -1, -2, -3]


def plant_unasked_mask(case: WrongStep) -> Iterator[Plant]:
    has_place = find_mask(case) or WEIGHTS in case.derivation
    if not has_place or rules_of_kind(case, Window):
        return

    programs: list[tuple[str, WrongStep | None]] = []
    for window in dict.fromkeys(unasked_windows(case)):
        rule = Causal() if window == ANY_BEFORE else Window(*window)
        programs.append((option(window), hiding(case, rule)))
    yield from planted_best(case, programs)


def unasked_windows(case: WrongStep) -> Iterator[SeenEnds]:
    """Windows that hide more than what is meant."""
    if rules_of_kind(case, Causal):
        for end in tried_ends(case):
            yield SeenEnds(end, 0)
            yield SeenEnds(end, None)
        return

    yield ANY_BEFORE
    for end in tried_ends(case):
        yield SeenEnds(end, end)
        yield SeenEnds(end, 0)
        yield SeenEnds(end, None)
        yield SeenEnds(None, end)

    shown = shown_ends(case)
    if shown:
        yield shown


def plant_not_itself(case: WrongStep) -> Iterator[Plant]:
    # Of one query nobody can say whether it is itself or the last key.
    if case.size("query") == 1:
        return
    program = hiding(case, Seen(lambda query, key: query != key))
    if program:
        yield Plant(program)


FROM_THE_FIRST = "begin the loop over keys at key 0: keys of a cache stand before the first query"


def plant_dropped_keys(case: WrongStep) -> Iterator[Plant]:
    keys = case.size("key") or 0
    ways: dict[str, VisibilityRule] = {}
    for count in filter(None, ends(keys)):
        ways[f"last {count}"] = seen_between(0, keys - count)
        ways[f"first {count}"] = seen_between(count, keys)

    programs = ((said, hiding(case, rule)) for said, rule in ways.items())
    for plant in planted_best(case, programs):
        lacks_first = plant.detail.startswith("first")
        yield replace(plant, fix=FROM_THE_FIRST if lacks_first else "")


def seen_between(first: int | Array, stop: int) -> Seen:
    return Seen(lambda _, key: (key >= first) & (key < stop))


def cut_blocks_seen(block: int, query: Array, key: Array) -> Array:
    return key // block <= query // block


def cut_blocks_skipped(block: int, query: Array, key: Array) -> Array:
    return key // block < query // block


def counted_in_blocks(block: int, query: Array, key: Array) -> Array:
    return key % block <= query % block


BLOCKWISE: dict[str, Callable[[int, Array, Array], Array]] = {
    "whole blocks of {} keys are seen where they are cut by the diagonal": cut_blocks_seen,
    "blocks of {} keys that are cut by the diagonal are skipped": cut_blocks_skipped,
    "positions are counted within blocks of {}": counted_in_blocks,
}


def plant_by_blocks(case: WrongStep) -> Iterator[Plant]:
    rules: dict[str, Seen] = {}
    for (said, seen), block in product(BLOCKWISE.items(), blocks_of_keys(case)):
        rules[said.format(block)] = Seen(partial(seen, block))

    for causal in rules_of_kind(case, Causal):
        programs = ((said, swap_rule(case, causal, rule)) for said, rule in rules.items())
        yield from planted_best(case, programs)


def other_offset(hide: Hide, by: int) -> Hide:
    return replace(hide, offset=move_position(hide.offset, by))


def say_offset(by: int) -> str:
    """2 keys ahead of."""
    keys = "keys" if abs(by) > 1 else "key"
    side = "ahead" if by > 0 else "short"
    return f"{abs(by)} {keys} {side} of"


of_weights = about(WEIGHTS)
of_diagonal = about(MASKED, subject="diagonal", fitted=True)

VISIBILITY = (
    of_diagonal(
        "causal-offset",
        "the diagonal is {} where it should be",
        "{offset}, or say --causal-offset",
        HIDE.best(other_offset, other_offsets, say_offset),
        why="np.tril(…, k=1), or a step of decoding whose position is one too far.",
        meant="causal",
        example="masked_scores = np.where(np.tril(np.ones((n, n), bool), k=2), scaled_scores, -np.inf)",
    ),
    of_diagonal(
        "window-other",
        "a query sees {}",
        "{window}, or ask for what is seen here",
        plant_other_window,
        why="A window of W keys in all, or W on each side.",
        meant="window",
        example="i, j = np.indices((n, n))\n"
        "masked_scores = np.where(abs(i - j) <= 3, scaled_scores, -np.inf)",
    ),
    of_weights(
        "mask-diagonal",
        "a query cannot see itself, which nothing asks for",
        "hide nothing but what the rules hide",
        plant_not_itself,
        why="A mask of “the others” from another task.",
        example="attention_weights = softmax(np.where(np.eye(n, dtype=bool), -np.inf, scaled_scores))",
    ),
    of_diagonal(
        "mask-by-blocks",
        "{}",
        "compare the positions of queries and keys in the sentence within each tile",
        plant_by_blocks,
        why="Positions within a tile are compared, not positions in the sentence.",
        meant="long causal",
        example="i, j = np.indices((n, n))\n"
        "masked_scores = np.where(j % 4 <= i % 4, scaled_scores, -np.inf)",
    ),
    of_weights(
        "keys-dropped",
        "the {} keys are left out",
        "round the number of blocks of keys up, and hide what is past the last one",
        plant_dropped_keys,
        fitted=True,
        why="The loop runs over keys // block blocks: the rest is never read.",
        example="attention_weights = softmax(np.where(np.arange(n) < n - 1, scaled_scores, -np.inf))",
    ),
    of_weights(
        "mask-unasked",
        "the scores are masked as {} would mask them, which was not asked for",
        "add {} if that is meant, or leave the mask out",
        plant_unasked_mask,
        fitted=True,
        why="is_causal stayed on from a decoder.",
        example="attention_weights = softmax(np.where(np.tril(np.ones((n, n), bool)), scaled_scores, "
        "-np.inf))",
    ),
)
