"""Mistakes in who may see whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from attnctl.math.derivation import Derivation
from attnctl.math.names import MASKED, WEIGHTS
from attnctl.math.ops import Copy, Hide, Softmax
from attnctl.math.rules import Causal, Padding, VisibilityRule, Window
from attnctl.mistakes import wrong
from attnctl.mistakes.fit import planted_fit, spoken
from attnctl.mistakes.mistake import Mistake, Plant, WrongStep

FILLS_NEAR = (-100.0, -30.0, -10.0, -3.0, -1.0, 1.0)
"""Where a search for what stands for −∞ begins."""

FILLS = (0.0, -1e9, -1e4, float(np.finfo(np.float16).min), float(np.finfo(np.float32).min))


def find_mask(case: WrongStep) -> Hide | None:
    """The op that hides, if anything is meant to be hidden."""
    op = case.op(MASKED)
    return op if isinstance(op, Hide) else None


def given_mask(case: WrongStep) -> bool:
    """A mask was handed in."""
    return len(case.derivation[MASKED].inputs) > 1


def swap_rule(case: WrongStep, hide: Hide, rule: VisibilityRule, *others: VisibilityRule) -> Plant:
    """Other rules (or none) in the place of one."""
    rules = tuple(new for old in hide.rules for new in (others if old is rule else (old,)))
    return Plant(case.put(MASKED, replace(hide, rules=rules)))


def without(case: WrongStep, hide: Hide, rule: VisibilityRule) -> Plant:
    return replace(swap_rule(case, hide, rule), detail=f"the {rule.name} rule is ignored")


def plant_inversions(case: WrongStep) -> Iterator[Plant]:
    """Everything inverted; the given mask alone; a triangle turned over."""
    hide = find_mask(case)
    if hide is None:
        return
    yield Plant(case.put(MASKED, wrong.Inverted(hide.offset, hide.at, hide.rules)))
    if hide.rules and given_mask(case):
        yield Plant(case.put(MASKED, wrong.InvertedMask(hide.offset, hide.at, hide.rules)))
    for rule in hide.rules:
        if isinstance(rule, Causal):
            yield swap_rule(case, hide, rule, wrong.After())


def plant_no_mask(case: WrongStep) -> Iterator[Plant]:
    """Hide nothing, where more was meant than padding."""
    hide = find_mask(case)
    if hide and (given_mask(case) or any(not isinstance(rule, Padding) for rule in hide.rules)):
        scores = case.derivation[MASKED].inputs[:1]
        yield Plant(case.put(MASKED, Copy(), scores), "the mask is ignored")


def plant_partly_ignored(case: WrongStep) -> Iterator[Plant]:
    """Derivations that ignore one of several rules, or the given mask."""
    hide = find_mask(case)
    if hide is None or len(hide.rules) + given_mask(case) < 2:
        return
    for rule in hide.rules:
        if not isinstance(rule, Padding):
            yield without(case, hide, rule)
    if given_mask(case):
        scores = case.derivation[MASKED].inputs[:1]
        yield Plant(case.put(MASKED, hide, scores), "the given mask is ignored")


def plant_after_softmax(case: WrongStep) -> Iterator[Plant]:
    """Zeros put into weights that were shared out among all keys."""
    hide = find_mask(case)
    if hide and isinstance(case.op(WEIGHTS), Softmax):
        inputs = case.derivation[MASKED].inputs
        ops = {MASKED: Copy(), WEIGHTS: wrong.SoftmaxThenHide(hide)}
        yield Plant(case.put_all(ops, {MASKED: inputs[:1], WEIGHTS: (MASKED, *inputs[1:])}))


def plant_finite(case: WrongStep) -> Iterator[Plant]:
    """A large negative number in place of −∞, or added."""
    hide = find_mask(case)
    if hide:
        for fill in FILLS:
            for added in (False, True) if fill else (False,):
                op = wrong.FiniteHide(hide.offset, hide.at, hide.rules, fill=fill, added=added)
                yield Plant(case.put(MASKED, op), f"{fill:.3g}".replace("e+0", "e").replace("e+", "e"))


def plant_otherwise_finite(case: WrongStep) -> Iterator[Plant]:
    """Put any other number in place of −∞, or add it."""
    hide = find_mask(case)
    if hide:
        yield from planted_fit(case, plant_fills(case, hide, added=False), FILLS_NEAR, spoken)
        yield from planted_fit(case, plant_fills(case, hide, added=True), FILLS_NEAR, added_words)


def plant_fills(case: WrongStep, hide: Hide, *, added: bool) -> Callable[[float], Derivation]:
    """Put any number in place of −∞, or add it."""
    return lambda fill: case.put(
        MASKED, wrong.FiniteHide(hide.offset, hide.at, hide.rules, fill=fill, added=added)
    )


def added_words(fill: float) -> str:
    return f"themselves and {spoken(fill)}"


def plant_added_mask(case: WrongStep) -> Iterator[Plant]:
    """s + mask: 1 added to what may be seen, and nothing hidden."""
    hide = find_mask(case)
    if hide is not None:
        yield Plant(case.put(MASKED, wrong.AddedMask(hide.offset, hide.at, hide.rules)))


def plant_transposed_mask(case: WrongStep) -> Iterator[Plant]:
    hide = find_mask(case)
    if hide and given_mask(case) and case.size("query") == case.size("key"):
        turned = wrong.Arranged(hide, (wrong.keep_positions, wrong.transpose))
        yield Plant(case.put(MASKED, turned))


def plant_strict(case: WrongStep) -> Iterator[Plant]:
    """j < i for j <= i."""
    hide = find_mask(case)
    for rule in hide.rules if hide else ():
        if hide and isinstance(rule, Causal):
            yield swap_rule(case, hide, rule, wrong.Before())


def plant_other_corner(case: WrongStep) -> Iterator[Plant]:
    """The diagonal drawn from the other corner."""
    hide = find_mask(case)
    queries, keys = case.size("query"), case.size("key")
    if hide and queries and keys and any(rule.relative for rule in hide.rules):
        for first, corner in ((0, "top left"), (keys - queries, "bottom right")):
            if (offset := first + case.begin) != hide.offset:
                yield Plant(case.put(MASKED, replace(hide, offset=offset)), corner)


def plant_seen_padding(case: WrongStep) -> Iterator[Plant]:
    """Padding seen like any other key."""
    hide = find_mask(case)
    for rule in hide.rules if hide else ():
        if hide and isinstance(rule, Padding):
            yield swap_rule(case, hide, rule)


def plant_off_by_one(case: WrongStep) -> Iterator[Plant]:
    """A key more or fewer at an end of the window."""
    hide = find_mask(case)
    for rule in hide.rules if hide else ():
        if hide is None or not isinstance(rule, Window):
            continue
        for left, right in ((-1, -1), (1, 1), (-1, 0), (1, 0), (0, -1), (0, 1)):
            ends = [
                None if end is None else end + by for end, by in ((rule.left, left), (rule.right, right))
            ]
            if all(end is None or end >= 0 for end in ends):
                spoken = ", ".join("∞" if end is None else str(end) for end in ends)
                yield replace(swap_rule(case, hide, rule, Window(*ends)), detail=spoken)


MASKS = (
    Mistake(
        "mask-inverted",
        (MASKED,),
        "the mask is inverted, so that what should be hidden is seen",
        "hide where the mask is False: np.where(mask, scores, -np.inf)",
        plant_inversions,
        why="True means “may attend” in one library and “is hidden” in the next.",
        meant="causal",
        example="masked_scores = np.where(hidden, scaled_scores, -np.inf)",
    ),
    Mistake(
        "mask-ignored",
        (MASKED,),
        "{}, so that every key is seen",
        "before softmax, take np.where(mask, scores, -np.inf)",
        plant_no_mask,
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
        plant_finite,
        why="-1e9 stands in many tutorials; a row that sees nothing then gets equal weights.",
        meant="blind",
        example="masked_scores = np.where(mask, scaled_scores, -1e9)",
    ),
    Mistake(
        "mask-added",
        (MASKED,),
        "the boolean mask is added to the scores, 1 to those that may be seen",
        "hide where it is False: np.where(mask, scores, -np.inf)",
        plant_added_mask,
        why="A boolean mask is handed to a function that adds what it is given.",
        meant="masked",
        example="masked_scores = scaled_scores + mask",
    ),
    Mistake(
        "mask-transposed",
        (MASKED,),
        "the mask is transposed",
        "rows of the mask are queries, columns are keys",
        plant_transposed_mask,
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
        plant_strict,
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
        plant_seen_padding,
        why="The tokenizer's attention_mask is not passed on.",
        meant="padded",
        example="masked_scores = scaled_scores",
    ),
    Mistake(
        "window-off-by-one",
        (MASKED,),
        "the window is ({}), off by one",
        "count both ends in: query i sees keys i − left to i + right",
        plant_off_by_one,
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
        plant_otherwise_finite,
        fitted=True,
    ),
)
