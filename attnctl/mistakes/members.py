"""Mistakes in what is one member's or one head's: masks that reach some of them, padding, lengths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations

import numpy as np

from attnctl.base.namedtuple import NamedTuple
from attnctl.math import Array
from attnctl.math.names import HEAD_OUTPUTS, MASKED, WEIGHTS
from attnctl.math.ops import Hide, MatMul, Softmax
from attnctl.math.rules import Padding, Seen, per_batch
from attnctl.mistakes import wrong
from attnctl.mistakes.masks import HIDE
from attnctl.mistakes.mistake import Plant, Plants, WrongStep, about
from attnctl.mistakes.plants import closest, find_mask, planted_best, rules_of_kind, square, swap_rule
from attnctl.mistakes.visibility import seen_between

MOST_REACHED = 64
"""Heads or members that a mask is tried to reach alone: more would take longer than they tell."""


class Reach(NamedTuple):
    """One of so many along an axis that a mask reaches alone, or does not."""

    size: int
    which: int
    alone: bool


def reaching_some(axis: str, at: int, name: str) -> Plants:
    """Plants a mask that reaches one along this axis only, or all but one."""

    def reaches(case: WrongStep) -> Iterator[Reach]:
        """The first few along the axis, each reached alone, and left out alone."""
        size = case.size(axis) or 1
        if size == 1:
            return
        for which in range(min(size, MOST_REACHED)):
            yield Reach(size, which, alone=True)
            yield Reach(size, which, alone=False)

    def make(hide: Hide, way: Reach) -> Hide:
        is_one = np.arange(way.size) == way.which
        axes_behind = (1,) * (-at - 1)
        reached = (is_one == way.alone).reshape(way.size, *axes_behind)
        return wrong.shown(hide, lambda s, seen: np.where(seen | ~reached, s, -np.inf))

    def say(way: Reach) -> str:
        return f"only {name} {way.which}" if way.alone else f"every {name} but {way.which}"

    return HIDE.best(make, reaches, say)


# --- padding ---


class MemberLengths(NamedTuple):
    """A rule of padding, and how many keys each member of the batch has by it."""

    rule: Padding
    lengths: tuple[int, ...]


def paddings(case: WrongStep) -> Iterator[MemberLengths]:
    for rule in rules_of_kind(case, Padding):
        if rule.lengths is not None:
            yield MemberLengths(rule, rule.each)


MOST_FITTED = 1024
"""Lengths that are tried, of all members: each member's are as many as there are keys."""


def plant_other_lengths(case: WrongStep) -> Iterator[Plant]:
    """Other lengths: all by as much, or each as it fits best."""
    for padding in paddings(case):
        lengths = padding.lengths
        moved = [tuple(length + by for length in lengths) for by in (-2, -1, 1, 2)]
        ways = [fit_lengths(case, padding), *moved]

        programs: dict[str, WrongStep] = {}
        for way in ways:
            if way != lengths:
                said = ", ".join(map(str, way))
                programs[said] = swap_rule(case, padding.rule, Padding(way))
        yield from planted_best(case, programs.items())


def fit_lengths(case: WrongStep, padding: MemberLengths) -> tuple[int, ...]:
    """The length of each member in turn as it fits best; as they are where that takes too long."""
    keys = case.size("key") or 0
    fitted = padding.lengths
    if len(fitted) * keys <= MOST_FITTED:
        for member in range(len(fitted)):
            fitted = fit_length(case, MemberLengths(padding.rule, fitted), member, keys)
    return fitted


def fit_length(case: WrongStep, padding: MemberLengths, member: int, keys: int) -> tuple[int, ...]:
    """The lengths with that of one member as it fits best, the others as they are."""
    lengths = padding.lengths
    before = lengths[:member]
    behind = lengths[member + 1 :]

    def programs() -> Iterator[tuple[tuple[int, ...], WrongStep]]:
        for other in range(keys + 1):
            way = (*before, other, *behind)
            yield way, swap_rule(case, padding.rule, Padding(way))

    best = closest(case, programs())
    if best is None:
        return lengths
    way, _ = best
    return way


MOST_PERMUTED = 4
"""Members whose lengths are tried in every order: of more there are too many orders."""


def plant_members_mixed_up(case: WrongStep) -> Iterator[Plant]:
    for rule, lengths in paddings(case):
        ways = [(length,) * len(lengths) for length in dict.fromkeys(lengths)]
        if len(lengths) <= MOST_PERMUTED:
            ways += [way for way in permutations(lengths) if way != lengths]
        for way in dict.fromkeys(ways):
            yield Plant(swap_rule(case, rule, Padding(way)))


def by_member(numbers: Iterable[int]) -> Array:
    """(member,) -> (member, 1, 1, 1), to go with (member, head, query, key)."""
    return np.array(list(numbers)).reshape(-1, 1, 1, 1)


def plant_padded_left(case: WrongStep) -> Iterator[Plant]:
    keys = case.size("key") or 0
    for rule, lengths in paddings(case):
        first = by_member(keys - length for length in lengths)
        yield Plant(swap_rule(case, rule, seen_between(first, keys)))


def plant_padded_queries(case: WrongStep) -> Iterator[Plant]:
    hide = find_mask(case)
    offset = per_batch(hide.offset) if hide else 0
    for rule, lengths in paddings(case):
        stop = by_member(lengths) + offset

        def before(query: Array, key: Array, stop: Array = stop) -> Array:
            # What every key is keeps the shape (…, query, key).
            is_key = key >= 0
            return (query < stop) & is_key

        yield Plant(swap_rule(case, rule, Seen(before)))


HIDDEN_BY = (-np.inf, -1e4)
"""What hides the scores of a row: of the second all keys have one weight."""


def plant_mask_of_queries(case: WrongStep) -> Iterator[Plant]:
    """A mask of keys that hides rows: those of padding have one weight for all keys, or none."""
    hide = find_mask(case)
    if hide is None or not square(case):
        return

    lengths_of_rows = [by_member(lengths) for _, lengths in paddings(case)]
    mask = given_mask_of_keys(case)
    for hidden in HIDDEN_BY:
        if mask is not None:

            def by_mask(s: Array, shown: Array, hidden: float = hidden) -> Array:
                of_rows = np.broadcast_to(shown, mask.shape).swapaxes(-1, -2)
                return hide.apply(np.where(of_rows, s, hidden))

            yield Plant(case.put(MASKED, wrong.By(by_mask)))

        # Rows that see nothing are another mistake.
        if not np.isfinite(hidden):
            continue
        for stop in lengths_of_rows:

            def by_length(s: Array, stop: Array = stop, hidden: float = hidden) -> Array:
                queries = np.arange(s.shape[-2])[:, None]
                return np.where(queries < stop, s, hidden)

            scores = case.derivation[MASKED].inputs[:1]
            yield Plant(case.put(MASKED, wrong.By(by_length), scores))


def given_mask(case: WrongStep) -> Array | None:
    """The mask that was handed in, if there is one."""
    if MASKED not in case.derivation:
        return None
    _, *given = case.derivation[MASKED].inputs
    return case.array_of(given[0]) if given else None


def given_mask_of_keys(case: WrongStep) -> Array | None:
    """The given mask, if it says the same of every query."""
    mask = given_mask(case)
    if mask is None or mask.dtype != bool or mask.shape[-2] != 1:
        return None
    return mask


def plant_unpadded_queries(case: WrongStep) -> Iterator[Plant]:
    """Outputs of 0 but where the mask shows the key of the same number, though queries are no keys."""
    mask = given_mask_of_keys(case)
    if mask is None or square(case) or not isinstance(case.op(HEAD_OUTPUTS), MatMul):
        return

    queries = case.size("query") or 0
    keys = mask.shape[-1]
    both = min(queries, keys)
    kept = np.zeros((*mask.shape[:-2], queries, 1), bool)
    kept[..., :both, 0] = mask[..., 0, :both]

    def only_kept(weights: Array, values: Array) -> Array:
        return np.where(kept, weights @ values, 0)

    yield Plant(case.put(HEAD_OUTPUTS, wrong.By(only_kept)))


def plant_mask_of_members(case: WrongStep) -> Iterator[Plant]:
    """The given masks of a batch in another order than its members and their heads."""
    hide = find_mask(case)
    mask = given_mask(case)
    if hide is None or mask is None or mask.ndim != 4 or len(mask) < 2:
        return

    has_one_for_all_heads = mask.shape[1] == 1
    for said, order in orders_of_members(case, mask).items():
        if has_one_for_all_heads:
            by_head = np.reshape(order, (len(mask), -1))
            moved = mask[by_head, np.zeros(1, int)]
        else:
            moved = mask[np.reshape(order, -1)]

        def by_others(s: Array, _: Array, moved: Array = moved) -> Array:
            return hide.apply(s, moved)

        yield Plant(case.put(MASKED, wrong.By(by_others)), said)


LEAST_TOLD = 2
"""Differences of scores for each number of a bias by distance, at least."""


def orders_of_members(case: WrongStep, mask: Array) -> dict[str, Array]:
    """Whose mask each member reads, or each of its heads, by what is wrong."""
    members = len(mask)
    heads = case.size("head") or 1
    numbers = np.arange(members)
    orders = {"turned around": numbers[::-1], "each has the next one's": np.roll(numbers, -1)}
    if mask.shape[1] == 1 and heads > 1:
        folded = np.arange(members * heads).reshape(members, heads) % members
        orders["repeated b0 b1 b0 b1 beside heads of b0 b0 b1 b1"] = folded
    return orders


def plant_bias_by_distance(case: WrongStep) -> Iterator[Plant]:
    """A number for each head and distance, as the weights show it."""
    if case.first != WEIGHTS or not isinstance(case.op(WEIGHTS), Softmax):
        return
    scores = case.array_of(case.derivation[WEIGHTS].inputs[0])
    if scores is None or scores.shape != case.found.shape:
        return

    # Up to a number for each row, which softmax takes off again.
    with np.errstate(divide="ignore", invalid="ignore"):
        added = np.log(case.found.astype(float)) - scores

    bias = by_distance(added)
    if bias is not None:
        yield Plant(case.put(WEIGHTS, wrong.By(lambda s: wrong.softmax(s + bias))))


def by_distance(added: Array) -> Array | None:
    """The bias that goes by key − query, up to a number for each row; None where it does not."""
    *_, heads, queries, keys = added.shape
    by_head = added.reshape(-1, heads, queries, keys)
    steps = np.diff(by_head, axis=-1)
    distances = queries + keys - 2
    steps_of_head = steps[:, 0].size
    if not np.isfinite(steps).all() or steps_of_head < LEAST_TOLD * distances:
        return None

    # From one key to the next the bias grows by a number of its distance alone.
    distance = np.arange(1, keys) - np.arange(queries)[:, None]
    grown = np.zeros((heads, distances + 1))
    for number, apart in enumerate(range(2 - queries, keys)):
        grown[:, number + 1] = steps[:, :, distance == apart].mean(axis=(0, 2))

    bias = np.cumsum(grown, axis=-1)
    at = np.arange(keys) - np.arange(queries)[:, None] + queries - 1
    return bias[:, at]


of_padding = about(MASKED, subject="padding", meant="padded")
of_some = about(MASKED, fitted=True)

MEMBERS = (
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
)
