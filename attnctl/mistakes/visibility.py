"""Fitted mistakes in who may see whom: other ends, other offsets, other lengths, some heads only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations, product
from typing import NamedTuple

import numpy as np

from attnctl.math import Array
from attnctl.math.derivation import line
from attnctl.math.names import HEAD_OUTPUTS, MASKED, WEIGHTS
from attnctl.math.ops import Hide, MatMul, Softmax
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
    square,
    swap_rule,
)
from attnctl.mistakes.positions import move_position

Ends = tuple[int | None, int | None]


def hiding(case: WrongStep, rule: VisibilityRule) -> WrongStep | None:
    hide = find_mask(case)
    softmax = case.op(WEIGHTS)
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
    has_place = find_mask(case) or WEIGHTS in case.derivation
    if not has_place or rules_of_kind(case, Window):
        return

    is_causal = bool(rules_of_kind(case, Causal))
    windows: list[Ends] = [] if is_causal else [(None, 0)]
    for end in tried_ends(case):
        if is_causal:
            windows += [(end, 0), (end, None)]
        else:
            windows += [(end, end), (end, 0), (end, None), (None, end)]
    shown = shown_ends(case)
    if shown and not is_causal:
        windows.append(shown)

    rules = {window: Causal() if window == (None, 0) else Window(*window) for window in windows}
    yield from planted_best(case, ((option(window), hiding(case, rule)) for window, rule in rules.items()))


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


MOST_REACHED = 64
"""Heads or members that a mask is tried to reach alone: more would take longer than they tell."""


class Reach(NamedTuple):
    """One of so many along an axis that a mask reaches alone, or does not."""

    size: int
    which: int
    alone: bool


def reaching_some(axis: str, at: int, name: str) -> Plants:
    """Plants a mask that reaches one along this axis only, or all but one."""

    def reaches(case: WrongStep) -> list[Reach]:
        """The first few along the axis, each reached alone, and left out alone."""
        size = case.size(axis) or 1
        if size == 1:
            return []
        several = range(min(size, MOST_REACHED))
        return [Reach(size, which, alone) for which in several for alone in (True, False)]

    def make(hide: Hide, way: Reach) -> Hide:
        is_one = np.arange(way.size) == way.which
        behind = (1,) * (-at - 1)
        reached = (is_one == way.alone).reshape(way.size, *behind)
        return wrong.shown(hide, lambda s, seen: np.where(seen | ~reached, s, -np.inf))

    def say(way: Reach) -> str:
        return f"only {name} {way.which}" if way.alone else f"every {name} but {way.which}"

    return HIDE.best(make, reaches, say)


# --- padding ---


def paddings(case: WrongStep) -> Iterator[tuple[Padding, tuple[int, ...]]]:
    for rule in rules_of_kind(case, Padding):
        if rule.lengths is not None:
            yield rule, rule.each


MOST_FITTED = 1024
"""Lengths that are tried, of all members: each member's are as many as there are keys."""


def plant_other_lengths(case: WrongStep) -> Iterator[Plant]:
    """Other lengths: all by as much, or each as it fits best."""
    keys = case.size("key") or 0
    for rule, lengths in paddings(case):
        fitted = lengths
        if len(lengths) * keys <= MOST_FITTED:
            for member in range(len(lengths)):
                fitted = fit_length(case, rule, fitted, member, keys)

        moved = [tuple(length + by for length in lengths) for by in (-2, -1, 1, 2)]
        ways = {", ".join(map(str, way)): Padding(way) for way in (fitted, *moved) if way != lengths}
        yield from planted_best(case, ((said, swap_rule(case, rule, new)) for said, new in ways.items()))


def fit_length(
    case: WrongStep, rule: Padding, lengths: tuple[int, ...], member: int, keys: int
) -> tuple[int, ...]:
    """The lengths with that of one member as it fits best, the others as they are."""
    before = lengths[:member]
    behind = lengths[member + 1 :]
    options = [(*before, other, *behind) for other in range(keys + 1)]
    best = closest(case, ((option, swap_rule(case, rule, Padding(option))) for option in options))
    return best[0] if best else lengths


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


HIDDEN_BY = (-np.inf, -1e4)
"""What hides the scores of a row: of the second all keys have one weight."""


def plant_mask_of_queries(case: WrongStep) -> Iterator[Plant]:
    """A mask of keys that hides rows: those of padding have one weight for all keys, or none."""
    hide = find_mask(case)
    if hide is None or not square(case):
        return
    lengths_of_rows = [np.reshape(lengths, (-1, 1, 1, 1)) for _, lengths in paddings(case)]
    mask = given_mask_of_keys(case)
    for hidden in HIDDEN_BY:
        if mask is not None:

            def by_mask(s: Array, shown: Array, hidden: float = hidden) -> Array:
                return hide.apply(np.where(np.broadcast_to(shown, mask.shape).swapaxes(-1, -2), s, hidden))

            yield Plant(case.put(MASKED, wrong.By(by_mask)))
        for stop in lengths_of_rows if np.isfinite(hidden) else ():

            def by_length(s: Array, stop: Array = stop, hidden: float = hidden) -> Array:
                return np.where(np.arange(s.shape[-2])[:, None] < stop, s, hidden)

            yield Plant(case.put(MASKED, wrong.By(by_length), case.derivation[MASKED].inputs[:1]))


def given_mask_of_keys(case: WrongStep) -> Array | None:
    """The given mask, if it says the same of every query."""
    given = case.derivation[MASKED].inputs[1:]
    mask = case.array_of(given[0]) if given else None
    return mask if mask is not None and mask.dtype == bool and mask.shape[-2] == 1 else None


def plant_unpadded_queries(case: WrongStep) -> Iterator[Plant]:
    """Outputs of 0 but where the mask shows the key of the same number, though queries are no keys."""
    mask = given_mask_of_keys(case) if MASKED in case.derivation else None
    if mask is None or square(case) or not isinstance(case.op(HEAD_OUTPUTS), MatMul):
        return
    queries, keys = case.size("query") or 0, mask.shape[-1]
    kept = np.zeros((*mask.shape[:-2], queries, 1), bool)
    both = min(queries, keys)
    kept[..., :both, 0] = mask[..., 0, :both]
    yield Plant(case.put(HEAD_OUTPUTS, wrong.By(lambda a, v: np.where(kept, a @ v, 0))))


def plant_mask_of_members(case: WrongStep) -> Iterator[Plant]:
    """The given masks of a batch in another order than its members and their heads."""
    hide = find_mask(case)
    given = case.derivation[MASKED].inputs[1:] if MASKED in case.derivation else ()
    mask = case.array_of(given[0]) if given else None
    heads = case.size("head") or 1
    if hide is None or mask is None or mask.ndim != 4 or len(mask) < 2:
        return

    members = len(mask)
    folded = np.arange(members * heads).reshape(members, heads) % members
    numbers = np.arange(members)
    orders = {"turned around": numbers[::-1], "each has the next one's": np.roll(numbers, -1)}
    if mask.shape[1] == 1 and heads > 1:
        orders["repeated b0 b1 b0 b1 beside heads of b0 b0 b1 b1"] = folded
    for said, order in orders.items():
        moved = mask[np.reshape(order, (members, -1)), np.zeros(1, int)]
        if mask.shape[1] > 1:
            moved = mask[np.reshape(order, -1)]

        def by_others(s: Array, _: Array, moved: Array = moved) -> Array:
            return hide.apply(s, moved)

        yield Plant(case.put(MASKED, wrong.By(by_others)), said)


LEAST_TOLD = 2
"""Differences of scores for each number of a bias by distance, at least."""


def plant_bias_by_distance(case: WrongStep) -> Iterator[Plant]:
    """A number for each head and distance, as the weights show it."""
    if case.first != WEIGHTS or not isinstance(case.op(WEIGHTS), Softmax):
        return
    scores = case.array_of(case.derivation[WEIGHTS].inputs[0])
    if scores is None or scores.shape != case.found.shape:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        added = np.log(case.found.astype(float)) - scores
    bias = by_distance(added)
    if bias is not None:
        yield Plant(case.put(WEIGHTS, wrong.By(lambda s: wrong.softmax(s + bias))))


def by_distance(added: Array) -> Array | None:
    """The bias that goes by key − query, up to a number for each row; None where it does not."""
    *_, queries, keys = added.shape
    by_head = added.reshape(-1, *added.shape[-3:])
    steps = np.diff(by_head, axis=-1)
    distance = np.arange(1, keys) - np.arange(queries)[:, None]
    distances = queries + keys - 2
    if not np.isfinite(steps).all() or steps[:, 0].size < LEAST_TOLD * distances:
        return None

    grown = np.zeros((added.shape[-3], distances + 1))
    for number, apart in enumerate(range(2 - queries, keys)):
        grown[:, number + 1] = steps[:, :, distance == apart].mean(axis=(0, 2))
    bias = np.cumsum(grown, axis=-1)
    at = np.arange(keys) - np.arange(queries)[:, None] + queries - 1
    return bias[:, at]


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
    about(MASKED, meant="batch masked")(
        "mask-members",
        "the masks of the batch are not those of its members: {}",
        "repeat each member's mask for its own heads, or give it an axis of heads: mask[:, None]",
        plant_mask_of_members,
        seen="sooftware/attentions#4",
        why="Batch and heads are one axis, and the mask is tiled where it should be repeated.",
        example="masked_scores = np.where(mask[::-1], scaled_scores, -np.inf)",
    ),
    about(HEAD_OUTPUTS, meant="cross masked")(
        "queries-unpadded",
        "outputs of queries are 0 where the mask hides the key of the same number",
        "take padding out of keys by their mask, and out of queries by one of their own",
        plant_unpadded_queries,
        across=True,
        seen="vllm-project/vllm-omni#5865",
        why="What takes padding out was written for sentences that attend to themselves.",
        example="both = min(n, keys)\n"
        "kept = np.zeros((n, 1), bool)\n"
        "kept[:both, 0] = mask[..., 0, :both].reshape(-1, both)[0]\n"
        "head_outputs = head_outputs * kept",
    ),
    about(WEIGHTS, fitted=True, across=True)(
        "bias-unasked",
        "a number for each head and distance key − query is added to the scores, which nothing asks for",
        "leave the relative bias out, or give it as bias",
        plant_bias_by_distance,
        seen="huggingface/transformers#8518",
        why="T5 has a relative bias where a sentence attends to itself, and none across.",
        example="attention_weights = softmax(scaled_scores + np.sin(distance))",
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
        plant_mask_of_queries,
        seen="hyunwoongko/transformer#40",
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
