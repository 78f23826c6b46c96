"""Mistakes in who may see whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from attnctl.math.names import MASKED, WEIGHTS
from attnctl.math.ops import Copy, Hide, Softmax
from attnctl.math.rules import Causal, Padding, VisibilityRule, Window
from attnctl.mistakes import wrong
from attnctl.mistakes.mistake import Mistake, Plant, WrongStep
from attnctl.mistakes.plants import (
    Way,
    at,
    either,
    find_mask,
    rule_instead,
    rules_of,
    spoken,
    spoken_after,
    square,
    swap_rule,
)

HIDE = at(MASKED, Hide)

FILLS_NEAR = (-100.0, -30.0, -10.0, -3.0, -1.0, 1.0)
FILLS = (0.0, -1e9, -1e4, float(np.finfo(np.float16).min), float(np.finfo(np.float32).min))


def given_mask(case: WrongStep) -> bool:
    return len(case.derivation[MASKED].inputs) > 1


def more_than_padding(case: WrongStep) -> bool:
    return given_mask(case) or any(not isinstance(rule, Padding) for rule in rules_of(case, VisibilityRule))


def plant_partly_ignored(case: WrongStep) -> Iterator[Plant]:
    hide = find_mask(case)
    if hide is None or len(hide.rules) + given_mask(case) < 2:
        return
    for rule in hide.rules:
        if not isinstance(rule, Padding):
            yield Plant(swap_rule(case, rule), f"the {rule.name} rule is ignored")
    if given_mask(case):
        scores = case.derivation[MASKED].inputs[:1]
        yield Plant(case.put(MASKED, hide, scores), "the given mask is ignored")


def plant_after_softmax(case: WrongStep) -> Iterator[Plant]:
    hide = find_mask(case)
    if hide and isinstance(case.op(WEIGHTS), Softmax):
        inputs = case.derivation[MASKED].inputs
        ops = {MASKED: Copy(), WEIGHTS: wrong.SoftmaxThenHide(hide)}
        yield Plant(case.put_all(ops, {MASKED: inputs[:1], WEIGHTS: (MASKED, *inputs[1:])}))


def finite(hide: Hide, fill: float) -> Hide:
    return replace(hide, hidden=fill)


def added(hide: Hide, number: float) -> Hide:
    return wrong.shown(hide, lambda s, seen: np.where(seen, s, s + number))


def filled(way: Callable[[Hide, float], Hide], fill: float) -> Way:
    said = f"{fill:.3g}".replace("e+0", "e").replace("e+", "e")
    return lambda hide: {said: way(hide, fill)}


def plant_other_corner(case: WrongStep) -> Iterator[Plant]:
    hide = find_mask(case)
    queries, keys = case.size("query"), case.size("key")
    if hide and queries and keys and any(rule.relative for rule in hide.rules):
        for first, corner in ((0, "top left"), (keys - queries, "bottom right")):
            if (offset := first + case.begin) != hide.offset:
                yield Plant(case.put(MASKED, replace(hide, offset=offset)), corner)


def off_by_one(rule: Window) -> Iterable[tuple[str, list[Window]]]:
    for left, right in ((-1, -1), (1, 1), (-1, 0), (1, 0), (0, -1), (0, 1)):
        ends = [None if end is None else end + by for end, by in ((rule.left, left), (rule.right, right))]
        if all(end is None or end >= 0 for end in ends):
            yield ", ".join("∞" if end is None else str(end) for end in ends), [Window(*ends)]


INVERTED = either(
    HIDE.instead(lambda hide: wrong.shown(hide, lambda s, seen: np.where(seen, -np.inf, s))),
    HIDE.where(given_mask).instead(
        lambda hide: wrong.Arranged(hide, (wrong.keep_positions, np.logical_not)) if hide.rules else {}
    ),
    rule_instead(Causal, lambda _: [("", [wrong.Seen(lambda query, key: key >= query)])]),
)
"""Everything inverted; the given mask alone; a triangle turned over."""

MASKS = (
    Mistake(
        "mask-inverted",
        (MASKED,),
        "the mask is inverted, so that what should be hidden is seen",
        "hide where the mask is False: np.where(mask, scores, -np.inf)",
        INVERTED,
        why="True means “may attend” in one library and “is hidden” in the next.",
        meant="causal",
        example="masked_scores = np.where(hidden, scaled_scores, -np.inf)",
    ),
    Mistake(
        "mask-ignored",
        (MASKED,),
        "{}, so that every key is seen",
        "before softmax, take np.where(mask, scores, -np.inf)",
        HIDE.where(more_than_padding).without("the mask is ignored"),
        why="The mask is built and never passed on, or a fused kernel drops it silently.",
        meant="causal",
        example="masked_scores = scaled_scores",
    ),
    Mistake(
        "mask-after-softmax",
        (MASKED, WEIGHTS),
        "the mask is applied after softmax, so that rows no longer sum to 1",
        "hide scores before softmax: np.where(mask, scores, -np.inf)",
        plant_after_softmax,
        why="It looks the same in a picture: the hidden cells are 0.",
        meant="causal",
        example=(
            "masked_scores = scaled_scores\nattention_weights = np.where(hidden, 0, softmax(scaled_scores))"
        ),
    ),
    Mistake(
        "mask-finite",
        (MASKED,),
        "hidden scores are {} instead of −∞, and it shows",
        "use -np.inf, and give rows that see nothing zeros",
        HIDE.instead(
            *(filled(way, fill) for fill in FILLS for way in ((finite, added) if fill else (finite,)))
        ),
        why="-1e9 stands in many tutorials; a row that sees nothing then gets equal weights.",
        meant="blind",
        example="masked_scores = np.where(mask, scaled_scores, -1e9)",
    ),
    Mistake(
        "mask-added",
        (MASKED,),
        "the boolean mask is added to the scores, 1 to those that may be seen",
        "hide where it is False: np.where(mask, scores, -np.inf)",
        HIDE.instead(lambda hide: wrong.shown(hide, np.add)),
        why="A boolean mask is handed to a function that adds what it is given.",
        meant="masked",
        example="masked_scores = scaled_scores + mask",
    ),
    Mistake(
        "mask-transposed",
        (MASKED,),
        "the mask is transposed",
        "rows of the mask are queries, columns are keys",
        HIDE.where(square)
        .where(given_mask)
        .instead(lambda hide: wrong.Arranged(hide, (wrong.keep_positions, wrong.transpose))),
        across=True,
        why="(key, query) where (query, key) is meant: symmetric masks do not show it.",
        meant="masked",
        example="masked_scores = np.where(mask.T, scaled_scores, -np.inf)",
    ),
    Mistake(
        "causal-strict",
        (MASKED,),
        "a query cannot see itself",
        "hide key > query only: np.triu(…, k=1), or np.tril(…) for what is seen",
        rule_instead(Causal, lambda _: [("", [wrong.Seen(lambda query, key: key < query)])]),
        why="np.triu without k=1 takes the diagonal along.",
        meant="causal",
        example="masked_scores = np.where(np.triu(np.ones((n, n), bool)), -np.inf, scaled_scores)",
    ),
    Mistake(
        "causal-aligned-wrong",
        (MASKED,),
        "the mask is aligned {}",
        "say which is meant with --causal-offset (0 is top left, keys − queries bottom right), and use "
        "np.tril(…, k=offset)",
        plant_other_corner,
        why=(
            "Top-left and bottom-right are the same for as many queries as keys; FlashAttention takes "
            "the other one."
        ),
        meant="cached",
        example="masked_scores = np.where(np.tril(np.ones((n, keys), bool)), scaled_scores, -np.inf)",
    ),
    Mistake(
        "padding-ignored",
        (MASKED,),
        "padding is seen",
        "hide keys from each sequence's length on",
        rule_instead(Padding, lambda _: [("", [])]),
        why="The tokenizer's attention_mask is not passed on.",
        meant="padded",
        example="masked_scores = scaled_scores",
    ),
    Mistake(
        "window-off-by-one",
        (MASKED,),
        "the window is ({}), off by one",
        "count both ends in: query i sees keys i − left to i + right",
        rule_instead(Window, off_by_one),
        why="“A window of W” counts the query itself in one library and not in the next.",
        meant="window",
        example=(
            "i, j = np.indices((n, n))\nmasked_scores = np.where(abs(i - j) <= 2, scaled_scores, -np.inf)"
        ),
    ),
)

PARTIAL_MASKS = (
    Mistake(
        "mask-ignored",
        (MASKED,),
        "{}",
        "hide what any rule hides: combine all of them with &",
        plant_partly_ignored,
    ),
    Mistake(
        "mask-finite",
        (MASKED,),
        "hidden scores are {} instead of −∞, and it shows",
        "use -np.inf, and give rows that see nothing zeros",
        either(
            HIDE.fitted(finite, FILLS_NEAR, spoken),
            HIDE.fitted(added, FILLS_NEAR, spoken_after("themselves and ")),
        ),
        fitted=True,
    ),
)
