"""Mistakes in who may see whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from attnctl.math import Array
from attnctl.math.names import MASKED, WEIGHTS
from attnctl.math.ops import Copy, Hide, Op, Softmax
from attnctl.math.rules import Causal, Documents, Padding, Seen, VisibilityRule
from attnctl.mistakes import wrong
from attnctl.mistakes.mistake import Plant, Plants, WrongStep, about
from attnctl.mistakes.plants import (
    Way,
    at,
    find_mask,
    rule_instead,
    rules_of_kind,
    spoken,
    spoken_after,
    square,
    swap_rule,
)

HIDE = at(MASKED, Hide)

FILLS_NEAR = (-100.0, -30.0, -20.0, -15.0, -10.0, -7.0, -5.0, -3.0, -1.0, 1.0)
FILLS = (-1e9, -1e4, float(np.finfo(np.float16).min), float(np.finfo(np.float32).min), 0.0, 1e-9)
"""Those near the scores last: drawn numbers show them, and the largest do not tell them from the others."""

OWN = "themselves plus "
"""What is said before a number that is added to scores, in place of one that stands for them."""

MOST_APART = 0.1
"""The part of their size by which numbers in the place of −∞ may be apart and still be one number."""


def given_mask(case: WrongStep) -> bool:
    return len(case.derivation[MASKED].inputs) > 1


def more_than_padding(case: WrongStep) -> bool:
    rules = rules_of_kind(case, VisibilityRule)
    return given_mask(case) or any(not isinstance(rule, (Padding, Documents)) for rule in rules)


MOST_DIGITS = 16
"""Digits of the number that is looked for, at most: as many as float64 has."""


def plant_partly_ignored(case: WrongStep) -> Iterator[Plant]:
    hide = find_mask(case)
    if hide is None or not has_several_rules(case):
        return

    for rule in hide.rules:
        if not isinstance(rule, (Padding, Documents)):  # which have mistakes of their own for that
            yield Plant(swap_rule(case, rule), f"the {rule.name} rule is ignored beside the others")

    if given_mask(case):
        scores = case.derivation[MASKED].inputs[:1]
        yield Plant(case.put(MASKED, hide, scores), "the given mask is ignored beside the others")


def plant_joined_otherwise(case: WrongStep) -> Iterator[Plant]:
    """Rules joined by or; one within another, as a window in causal, is named as ignored beside it."""
    hide = find_mask(case)
    if hide is None or not has_several_rules(case):
        return

    joined = case.put(MASKED, wrong.SeenByAny(hide.offset, hide.at, hide.places, hide.rules))
    ignored = [plant.case for plant in plant_partly_ignored(case)]
    value = joined.value(anyway=True)
    others = [each.value(anyway=True) for each in ignored]
    if value is None:
        yield Plant(joined)
        return

    for other in others:
        if other is not None and same_seen(value, other):
            return
    yield Plant(joined)


def same_seen(value: Array, other: Array) -> bool:
    return value.shape == other.shape and np.array_equal(value, other, equal_nan=True)


def has_several_rules(case: WrongStep) -> bool:
    hide = find_mask(case)
    return hide is not None and len(hide.rules) + given_mask(case) > 1


def plant_after_softmax(case: WrongStep) -> Iterator[Plant]:
    hide = find_mask(case)
    if hide is None or not isinstance(case.op(WEIGHTS), Softmax):
        return

    def weights_shown(s: Array, seen: Array) -> Array:
        return np.where(seen, wrong.softmax(s), 0.0)

    scores, *mask = case.derivation[MASKED].inputs
    ops = {MASKED: Copy(), WEIGHTS: wrong.shown(hide, weights_shown)}
    reads = {MASKED: (scores,), WEIGHTS: (MASKED, *mask)}
    yield Plant(case.put_all(ops, reads))


def finite(hide: Hide, fill: float) -> Hide:
    return replace(hide, hidden=fill)


def added(hide: Hide, number: float) -> Hide:
    def add(s: Array, seen: Array) -> Array:
        return np.where(seen, s, s + number)

    return wrong.shown(hide, add)


def filled(way: Callable[[Hide, float], Hide], fill: float) -> Way:
    number = f"{fill:.3g}".replace("e+0", "e").replace("e+", "e")
    said = f"{OWN}{number}" if way is added else number
    return lambda hide: {said: way(hide, fill)}


def every_fill() -> Iterator[Way]:
    """Each number in the place of −∞, or added to scores where it is large enough to hide them."""
    for fill in FILLS:
        yield filled(finite, fill)
        if abs(fill) > 1:
            yield filled(added, fill)


def fills_shown(case: WrongStep) -> Array:
    """The numbers in place of −∞: those there, or what weights show, s + ln(w / w_s), s a seen score."""
    right = case.expected.value
    found = case.found
    if case.first == MASKED:
        is_filled = np.isneginf(right) & np.isfinite(found)
        return found[is_filled]

    scores = case.array_of(case.derivation[MASKED].inputs[0])
    if case.first != WEIGHTS or not isinstance(case.op(WEIGHTS), Softmax) or scores is None:
        return found[:0]

    # Of each row the key of most weight is the seen one that tells most exactly.
    top = right.argmax(axis=-1)[..., None]
    seen_score = np.take_along_axis(np.broadcast_to(scores, right.shape), top, -1)
    seen_weight = np.take_along_axis(found, top, -1)
    with np.errstate(all="ignore"):
        shown = seen_score + np.log(found / seen_weight)

    sees_some = right.max(axis=-1, keepdims=True) > 0
    is_hidden = (right == 0) & sees_some
    return shown[is_hidden & np.isfinite(shown)]


def fill_shown(case: WrongStep) -> float | None:
    """The number that stands in the place of −∞, where scores or weights show one and the same."""
    if not find_mask(case):
        return None
    fills = fills_shown(case)
    if not fills.size:
        return None

    fill = float(np.median(fills))
    apart = float(np.ptp(fills))
    if apart > MOST_APART * abs(fill):
        return None

    # The shortest number that all of them may be.
    for digits in range(1, MOST_DIGITS + 1):
        short = float(f"{fill:.{digits}g}")
        if abs(short - fill) <= apart:
            return short
    return fill


def shows_no_fill(case: WrongStep) -> bool:
    return fill_shown(case) is None


def plant_shown_fill(case: WrongStep) -> Iterator[Plant]:
    hide = find_mask(case)
    fill = fill_shown(case)
    if hide and fill is not None:
        yield Plant(case.put(MASKED, finite(hide, fill)), spoken(fill))


def plant_added_to_nan(case: WrongStep) -> Iterator[Plant]:
    """−∞ added to scores of which some are NaN where they are hidden."""
    hide = find_mask(case)
    if hide is None:
        return
    scores = case.array_of(case.derivation[MASKED].inputs[0])
    if scores is None or not np.isnan(scores).any():
        return

    def add_mask(s: Array, seen: Array) -> Array:
        return s + np.where(seen, 0.0, -np.inf)

    yield Plant(case.put(MASKED, wrong.shown(hide, add_mask)))


def other_corners(case: WrongStep) -> Iterator[tuple[str, Hide]]:
    """The mask aligned with a corner that is not its own."""
    hide = find_mask(case)
    queries = case.size("query")
    keys = case.size("key")
    if not hide or not queries or not keys:
        return
    if not any(rule.relative for rule in hide.rules):
        return

    corners = {"top left": 0, "bottom right": keys - queries}
    for corner, first in corners.items():
        offset = first + case.begin
        if offset != hide.offset:
            yield corner, replace(hide, offset=offset)


def plant_other_corner(case: WrongStep) -> Iterator[Plant]:
    for corner, hide in other_corners(case):
        yield Plant(case.put(MASKED, hide), corner)


def near_misses(mistake: str) -> Plants:
    """Plants the rules that people write in place of those there are, as far as they make this mistake."""

    def plants(case: WrongStep) -> Iterator[Plant]:
        keys = case.size("key") or 0
        for rule in rules_of_kind(case, VisibilityRule):
            for name, detail, other in rule.mistaken(keys):
                if name == mistake:
                    yield Plant(swap_rule(case, rule, other), detail or rule.name)

    return plants


def inverted(hide: Hide) -> Hide:
    """What should be hidden is seen, and the other way about."""
    return wrong.shown(hide, lambda s, seen: np.where(seen, -np.inf, s))


def given_inverted(hide: Hide) -> Op | dict[str, Op]:
    """The given mask alone is inverted; where there is no rule beside it, that is all of it."""
    if not hide.rules:
        return {}
    return wrong.Arranged(hide, (wrong.keep_positions, np.logical_not))


def given_transposed(hide: Hide) -> Op:
    return wrong.Arranged(hide, (wrong.keep_positions, wrong.transpose))


def without_rule(_: VisibilityRule) -> list[tuple[str, list[VisibilityRule]]]:
    return [("", [])]


def sees_the_future(_: Causal) -> list[tuple[str, list[VisibilityRule]]]:
    """A query sees itself and what comes after it."""
    return [("", [Seen(lambda query, key: key >= query)])]


FINITE = (
    "mask-finite", "hidden scores are {} instead of −∞, which changes the result",
    "use -np.inf, and set the weights of rows that see no key to zero",
)  # fmt: skip

of_strided = about(MASKED, meant="strided")
of_mask = about(MASKED, meant="causal")

MASKS = (
    of_mask(
        "mask-inverted",
        "the mask is inverted, so that what should be hidden is seen",
        "hide where the mask is False: np.where(mask, scores, -np.inf)",
        HIDE.instead(inverted),
        HIDE.where(given_mask).instead(given_inverted),
        rule_instead(Causal, sees_the_future),
        seen="InseeFrLab/torchTextClassifiers#92",
        why="True means “may attend” in one library and “is hidden” in the next.",
        example="masked_scores = np.where(hidden, scaled_scores, -np.inf)",
    ),
    of_mask(
        "mask-ignored",
        "{}, so that every key is seen",
        "before softmax, take np.where(mask, scores, -np.inf)",
        HIDE.where(more_than_padding).without("the mask is ignored"),
        why="The mask is built and never passed on, or a fused kernel drops it silently.",
        example="masked_scores = scaled_scores",
    ),
    of_mask(
        "mask-joined-by-or",
        "a key is seen where any of the rules shows it, not only where all of them do",
        "combine masks that are True where a key is seen with &: what any rule hides is hidden",
        plant_joined_otherwise,
        why="Masks that are True where a key is hidden are joined by or; those that show keys, by and.",
        meant="masked causal",
        example="masked_scores = np.where(np.tril(np.ones((n, n), bool)) | mask, scaled_scores, -np.inf)",
    ),
    of_mask(
        "padding-ignored",
        "padding is seen",
        "{lengths}",
        rule_instead(Padding, without_rule),
        why="The tokenizer's attention_mask is not passed on.",
        meant="padded",
        example="masked_scores = scaled_scores",
    ),
    about(MASKED, WEIGHTS, meant="causal")(
        "mask-after-softmax",
        "the mask is applied after softmax, so that rows no longer sum to 1",
        "hide scores before softmax: np.where(mask, scores, -np.inf)",
        plant_after_softmax,
        seen="lucidrains/memory-compressed-attention#2",
        why="It looks the same in a picture: the hidden cells are 0.",
        example="masked_scores = scaled_scores\n"
        "attention_weights = np.where(hidden, 0, softmax(scaled_scores))",
    ),
    about(MASKED, meant="padded", explains_nan=True)(
        "nan-added-to-mask",
        "keys that are hidden hold NaN, and −∞ is added to their scores: NaN + −∞ is NaN",
        "write −∞ with np.where(mask, scores, -np.inf), or zeros into slots that are free",
        plant_added_to_nan,
        seen="deepbeepmeep/Wan2GP#1628",
        why="Free slots of a cache are memory that nobody wrote, and a mask that is added keeps NaN.",
        example="K = np.where(np.arange(keys)[:, None] < lengths[:, None, None, None], K, np.nan)\n"
        "masked_scores = scaled_scores + np.where(hidden, -np.inf, 0)\n"
        "del X, W_Q, W_K, W_V",
    ),
    about(MASKED, meant="blind")(
        *FINITE,
        HIDE.instead(*every_fill()),
        seen="TransformerLensOrg/TransformerLens#318; ohdearquant/lattice#361; awslabs/gluonts#1401",
        why="-1e9 stands in many tutorials; a row that sees nothing then gets equal weights.",
        example="masked_scores = np.where(mask, scaled_scores, -1e9)",
        equivalent="a convention, as zeros are in rows that see nothing",
        slight="masked_scores = np.where(mask, scaled_scores, -20)",
    ),
    of_mask(
        "mask-added",
        "the boolean mask is added to the scores, 1 to those that may be seen",
        "hide where it is False: np.where(mask, scores, -np.inf)",
        HIDE.instead(lambda hide: wrong.shown(hide, np.add)),
        why="A boolean mask is handed to a function that adds what it is given.",
        meant="masked",
        example="masked_scores = scaled_scores + mask",
    ),
    of_mask(
        "mask-transposed",
        "the mask is transposed",
        "rows of the mask are queries, columns are keys",
        HIDE.where(square).where(given_mask).instead(given_transposed),
        across=True,
        why="(key, query) where (query, key) is meant: symmetric masks do not show it.",
        meant="masked",
        example="masked_scores = np.where(mask.swapaxes(-1, -2), scaled_scores, -np.inf)",
    ),
    of_mask(
        "causal-strict",
        "a query cannot see itself",
        "{offset}, the last one counted in",
        near_misses("causal-strict"),
        why="np.triu without k=1 takes the diagonal along.",
        example="masked_scores = np.where(np.triu(np.ones((n, n), bool)), -np.inf, scaled_scores)",
    ),
    of_mask(
        "causal-aligned-wrong",
        "the mask is aligned {}",
        "{offset}; --causal-offset says which is meant (0 is top left, keys − queries bottom right)",
        plant_other_corner,
        why="Top-left and bottom-right are the same for as many queries as keys; FlashAttention takes the "
        "other one.",
        meant="cached",
        example="masked_scores = np.where(np.tril(np.ones((n, keys), bool)), scaled_scores, -np.inf)",
    ),
    of_mask(
        "window-off-by-one",
        "the window is ({}), off by one",
        "{window}",
        near_misses("window-off-by-one"),
        why="“A window of W” counts the query itself in one library and not in the next.",
        meant="window",
        example="i, j = np.indices((n, n))\n"
        "masked_scores = np.where(abs(i - j) <= 2, scaled_scores, -np.inf)",
    ),
    of_strided(
        "rule-off-by-one",
        "a size of a rule is one off, as if it were {}",
        "count as the rule does: both ends in, from 0 on",
        near_misses("rule-off-by-one"),
        why="“The last N” counts the token itself in one program and not in the next.",
        example="i, j = np.indices((n, n))\n"
        "masked_scores = np.where((j <= i) & ((i - j) % 4 == 0), scaled_scores, -np.inf)",
    ),
    of_strided(
        "rule-both-ways",
        "the {} rule is applied both ways: what comes after a query is seen as what comes before it",
        "keep the half that hides the future, or join the rule with causal",
        near_misses("rule-both-ways"),
        why="A pattern is written with abs(i − j), and the causal mask beside it is left out.",
        example="i, j = np.indices((n, n))\n"
        "masked_scores = np.where(abs(i - j) % 3 == 0, scaled_scores, -np.inf)",
    ),
    of_strided(
        "rule-from-the-end",
        "positions of the {} rule are counted from the last key, not from the first",
        "count queries and keys from the first key on",
        near_misses("rule-from-the-end"),
        why="The sequence is padded on the left, or the pattern was flipped together with it.",
        example="i, j = np.indices((n, n))[:, ::-1, ::-1]\n"
        "masked_scores = np.where((j <= i) & ((i - j) % 3 == 0), scaled_scores, -np.inf)",
    ),
)

PARTIAL_MASKS = (
    of_mask(
        "mask-ignored", "{}", "hide what any rule hides: combine all of them with &", plant_partly_ignored
    ),
    about(MASKED, fitted=True)(
        *FINITE,
        plant_shown_fill,
        HIDE.where(shows_no_fill).fitted(finite, FILLS_NEAR, spoken),
        HIDE.where(shows_no_fill).fitted(added, FILLS_NEAR, spoken_after(OWN)),
    ),
)
