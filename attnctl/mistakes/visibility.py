"""Fitted mistakes in who may see whom: other ends, other offsets, other lengths, some heads only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations, product

import numpy as np

from attnctl.math import Array
from attnctl.math.derivation import line
from attnctl.math.names import MASKED, WEIGHTS
from attnctl.math.ops import Hide, Softmax
from attnctl.math.rules import Causal, Padding, Seen, VisibilityRule, Window, per_batch
from attnctl.mistakes import wrong
from attnctl.mistakes.masks import HIDE
from attnctl.mistakes.mistake import Plant, Plants, WrongStep, about
from attnctl.mistakes.plants import (
    blocks_of_keys,
    closest,
    ends,
    find_mask,
    planted_best,
    rules_of_kind,
    swap_rule,
)
from attnctl.mistakes.positions import move_position

Ends = tuple[int | None, int | None]


def hiding(case: WrongStep, rule: VisibilityRule) -> WrongStep | None:
    hide, softmax = find_mask(case), case.op(WEIGHTS)
    more = Hide(hide.offset if hide else case.begin, rules=(rule,))
    if hide and (case.first == MASKED or MASKED not in case.record):
        return case.put(MASKED, replace(hide, rules=(*hide.rules, rule)))
    if not isinstance(softmax, Softmax):
        return None
    if hide or MASKED in case.derivation:
        return case.put(WEIGHTS, wrong.Then(more, softmax))
    new = line(MASKED, more, case.derivation[WEIGHTS].inputs[:1], "")
    return case.through(WEIGHTS, new.inputs[0], new)


def window_of(case: WrongStep) -> Ends:
    windows = rules_of_kind(case, Window)
    left = min((rule.left for rule in windows if rule.left is not None), default=None)
    right = min((rule.right for rule in windows if rule.right is not None), default=None)
    return left, 0 if rules_of_kind(case, Causal) else right


def other_windows(right: Ends, near: Sequence[int]) -> Iterator[Ends]:
    """Other ends: one of them, both by as much, both the same."""
    back, ahead = right
    for first in near[:2]:
        yield from ((first, last) for last in near[:2])
    for end in (*near, None):
        yield from ((end, ahead), (back, end), (end, end), (end, 0))
    for by in (-2, -1, 1, 2):
        if back is not None and ahead is not None and min(back, ahead) + by >= 0:
            yield back + by, ahead + by


def shown_ends(case: WrongStep) -> tuple[int, int] | None:
    """Read off the wrong step how far back and ahead queries see, where it shows that at all."""
    if case.first not in {MASKED, WEIGHTS} or not case.found.size:
        return None
    visible = case.found > 0
    if case.first == MASKED:
        top = case.found.max(axis=-1, keepdims=True)
        visible = case.found - top > case.record.precision(MASKED).vanishing
    rows, columns = (find_mask(case) or Hide()).positions(case.found.shape)
    distance = np.broadcast_to(rows - columns, visible.shape)[visible]
    return (max(int(distance.max()), 0), max(-int(distance.min()), 0)) if distance.size else None


def tried_ends(case: WrongStep) -> list[int]:
    """Ends of windows to try: those that are shown, or all near ones and some far ones."""
    if shown := shown_ends(case):
        return list(dict.fromkeys(shown))
    return ends(max(case.size("query") or 0, case.size("key") or 0))


def plant_other_window(case: WrongStep) -> Iterator[Plant]:
    right = window_of(case)
    if right in {(None, None), (None, 0)}:
        return
    ways = [way for way in dict.fromkeys(other_windows(right, tried_ends(case))) if way != right]
    rest = [rule for rule in rules_of_kind(case, VisibilityRule) if not isinstance(rule, (Causal, Window))]

    def say(way: Ends) -> str:
        back, ahead = ("any number" if end is None else str(end) for end in way)
        return f"keys up to {back} back and {ahead} ahead ({option(way)})"

    planted = HIDE.best(lambda hide, way: replace(hide, rules=(*rest, Window(*way))), lambda _: ways, say)
    yield from planted(case)


def option(way: Ends) -> str:
    back, ahead = way
    if ahead == 0:
        return " ".join([*Causal.setting.flags(value=True), *Window.setting.flags(back)])
    return " ".join(Window.setting.flags(way))


def other_offsets(case: WrongStep) -> list[int]:
    """Numbers of keys to move the diagonal by, where there is one."""
    if not any(rule.relative for rule in rules_of_kind(case, VisibilityRule)):
        return []
    return [by for end in tried_ends(case) for by in (end, -end) if by] + [-1, -2, -3]


def plant_unasked_mask(case: WrongStep) -> Iterator[Plant]:
    if not (find_mask(case) or WEIGHTS in case.derivation) or rules_of_kind(case, Window):
        return
    asked = bool(rules_of_kind(case, Causal))
    ways: list[Ends] = [] if asked else [(None, 0)]
    for end in tried_ends(case):
        ways += [(end, 0), (end, None)] if asked else [(end, end), (end, 0), (end, None), (None, end)]
    ways += [shown] if (shown := shown_ends(case)) and not asked else []
    rules = {way: Causal() if way == (None, 0) else Window(*way) for way in ways}
    yield from planted_best(case, ((option(way), hiding(case, rule)) for way, rule in rules.items()))


def plant_not_itself(case: WrongStep) -> Iterator[Plant]:
    one_query = case.size("query") == 1  # of which nobody can say whether it is itself or the last key
    program = None if one_query else hiding(case, Seen(lambda query, key: query != key))
    if program:
        yield Plant(program)


FROM_THE_FIRST = "begin the loop over keys at key 0: keys of a cache stand before the first query"


def plant_dropped_keys(case: WrongStep) -> Iterator[Plant]:
    keys = case.size("key") or 0
    ways: dict[str, VisibilityRule] = {}
    for count in filter(None, ends(keys)):
        ways[f"last {count}"] = seen_between(0, keys - count)
        ways[f"first {count}"] = seen_between(count, keys)
    for plant in planted_best(case, ((said, hiding(case, rule)) for said, rule in ways.items())):
        yield replace(plant, fix=FROM_THE_FIRST if plant.detail.startswith("first") else "")


def seen_between(first: int | Array, stop: int) -> Seen:
    return Seen(lambda _, key: (key >= first) & (key < stop))


BLOCKWISE: dict[str, Callable[[int, Array, Array], Array]] = {
    "whole blocks of {} keys are seen where they are cut by the diagonal": lambda b, q, k: k // b <= q // b,
    "blocks of {} keys that are cut by the diagonal are skipped": lambda b, q, k: k // b < q // b,
    "positions are counted within blocks of {}": lambda b, q, k: k % b <= q % b,
}


def plant_by_blocks(case: WrongStep) -> Iterator[Plant]:
    ways = product(BLOCKWISE.items(), blocks_of_keys(case))
    rules = {said.format(block): Seen(partial(seen, block)) for (said, seen), block in ways}
    for causal in rules_of_kind(case, Causal):
        yield from planted_best(case, ((said, swap_rule(case, causal, new)) for said, new in rules.items()))


def reaching_some(axis: str, at: int, name: str) -> Plants:
    """Plants a mask that reaches one along this axis only, or all but one."""

    def ways(case: WrongStep) -> list[tuple[int, int, bool]]:
        size = case.size(axis) or 1
        several = range(min(size, 64)) if size > 1 else ()
        return [(size, which, alone) for which in several for alone in (True, False)]

    def make(hide: Hide, way: tuple[int, int, bool]) -> Hide:
        size, which, alone = way
        reached = ((np.arange(size) == which) == alone).reshape(size, *(1,) * (-at - 1))
        return wrong.shown(hide, lambda s, seen: np.where(seen | ~reached, s, -np.inf))

    def say(way: tuple[int, int, bool]) -> str:
        return f"only {name} {way[1]}" if way[2] else f"every {name} but {way[1]}"

    return HIDE.best(make, ways, say)


# --- padding ---


def paddings(case: WrongStep) -> Iterator[tuple[Padding, tuple[int, ...]]]:
    for rule in rules_of_kind(case, Padding):
        if rule.lengths is not None:
            yield rule, rule.each


def plant_other_lengths(case: WrongStep) -> Iterator[Plant]:
    """Other lengths: all by as much, or each as it fits best."""
    keys = case.size("key") or 0
    for rule, lengths in paddings(case):
        found = lengths
        for member in range(len(lengths)) if len(lengths) * keys <= 1024 else ():
            options = [(*found[:member], other, *found[member + 1 :]) for other in range(keys + 1)]
            best = closest(case, ((way, swap_rule(case, rule, Padding(way))) for way in options))
            found = best[0] if best else found
        together = [tuple(length + by for length in lengths) for by in (-2, -1, 1, 2)]
        ways = {", ".join(map(str, way)): Padding(way) for way in (found, *together) if way != lengths}
        yield from planted_best(case, ((said, swap_rule(case, rule, new)) for said, new in ways.items()))


def plant_members_mixed_up(case: WrongStep) -> Iterator[Plant]:
    for rule, lengths in paddings(case):
        ways = [(length,) * len(lengths) for length in dict.fromkeys(lengths)]
        if len(lengths) <= 4:
            ways += [way for way in permutations(lengths) if way != lengths]
        yield from (Plant(swap_rule(case, rule, Padding(way))) for way in dict.fromkeys(ways))


def plant_padded_left(case: WrongStep) -> Iterator[Plant]:
    keys = case.size("key") or 0
    for rule, lengths in paddings(case):
        first = np.array([keys - length for length in lengths]).reshape(-1, 1, 1, 1)
        yield Plant(swap_rule(case, rule, seen_between(first, keys)))


def plant_padded_queries(case: WrongStep) -> Iterator[Plant]:
    hide = find_mask(case)
    offset = per_batch(hide.offset) if hide else 0
    for rule, lengths in paddings(case):
        stop = np.array(lengths).reshape(-1, 1, 1, 1) + offset

        def before(query: Array, key: Array, stop: Array = stop) -> Array:
            return (query < stop) & (key >= 0)

        yield Plant(swap_rule(case, rule, Seen(before)))


of_padding = about(MASKED, subject="padding", meant="padded")
of_weights = about(WEIGHTS)
of_some = about(MASKED, fitted=True)
of_diagonal = about(MASKED, subject="diagonal", fitted=True)

VISIBILITY = (
    of_some(
        "mask-some-heads",
        "the mask reaches {}",
        "let it broadcast over heads: mask[None], not mask put into one head",
        reaching_some("head", -3, "head"),
        why="A mask that was given a head axis of its own reaches one head only.",
        meant="heads causal",
        example="masked_scores[1:] = scaled_scores[1:]",
    ),
    of_some(
        "mask-some-members",
        "the mask reaches {}",
        "let it broadcast over the batch",
        reaching_some("batch", -4, "member of the batch"),
        why="A mask that was given a batch axis of its own reaches one member only.",
        meant="batch causal",
        example="masked_scores[1:] = scaled_scores[1:]",
    ),
    of_padding(
        "padding-members",
        "padding goes by the lengths of other members of the batch",
        "{lengths}, for each member its own",
        plant_members_mixed_up,
        why="The batch was sorted by length, and its lengths were not.",
        example="masked_scores = np.where(np.arange(keys) < lengths[::-1, None, None, None], "
        "scaled_scores, -np.inf)",
    ),
    of_padding(
        "padding-left",
        "the first keys are hidden where the last ones are padding",
        "{lengths}, or take out what stands on the left",
        plant_padded_left,
        why="Decoders are padded on the left, encoders on the right.",
        example="masked_scores = np.where(np.arange(keys) >= keys - lengths[:, None, None, None], "
        "scaled_scores, -np.inf)",
    ),
    of_padding(
        "padding-of-queries",
        "padding hides rows rather than columns",
        "hide keys: mask[:, None, None, :]",
        plant_padded_queries,
        why="mask[:, None, :, None] instead of mask[:, None, None, :].",
        example="masked_scores = np.where(np.arange(n)[:, None] < lengths[:, None, None, None], "
        "scaled_scores, -np.inf)",
    ),
    of_padding(
        "padding-lengths",
        "padding is taken to begin at {}",
        "{lengths}: key < length is seen",
        plant_other_lengths,
        fitted=True,
        why="[CLS] and [SEP] are not counted, or a length is an index of the last token.",
        example="masked_scores = np.where(np.arange(keys) < lengths[:, None, None, None] - 1, "
        "scaled_scores, -np.inf)",
    ),
    of_diagonal(
        "causal-offset",
        "the diagonal is {} where it should be",
        "{offset}, or say --causal-offset",
        HIDE.best(
            lambda hide, by: replace(hide, offset=move_position(hide.offset, by)),
            other_offsets,
            lambda by: f"{abs(by)} {'keys' if abs(by) > 1 else 'key'} {'ahead' if by > 0 else 'short'} of",
        ),
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
