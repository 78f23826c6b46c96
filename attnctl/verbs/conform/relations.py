"""What the answers to two calls have in common, held without a tolerance where the arithmetic promises it.

A row of attention is made of its own query, of the keys that it sees and of their values. When anything
else is moved, the same arithmetic is done for it on the same numbers, so not one bit of it may change: a
leak of 1e-6, which no tolerance finds, is found. A kernel whose blocks go by what else is there may round a
row otherwise: where bits differ, the rest is moved less far, too. A leak grows with it, rounding does not.

Where another order of the same sums is right as well, as after a permutation of keys, answers may be apart
by what rounding does to scores and values, whatever the sizes: no reference is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.math import Array
from attnctl.math.names import BIAS, MASK, PAST_KEY, PAST_VALUE
from attnctl.math.rules import VisibilityRule
from attnctl.verbs.conform.call import Answer
from attnctl.verbs.conform.case import FORWARD
from attnctl.verbs.conform.judge import Judgement, judge_failure
from attnctl.verbs.conform.layout import read_output
from attnctl.verbs.conform.problem import Problem
from attnctl.verbs.conform.profile import NOTHING
from attnctl.verbs.conform.stored import precision_in

FAR = 2.0**20
FAR_IN_FLOAT16 = 2.0**12
NEAR = 8.0
"""How far values are moved, and how far where bits differ."""

FAR_OF_SCORES = 32.0
NEAR_OF_SCORES = 2.0
"""How far queries and keys are moved: beyond any mask of −1e4 a score must not get."""

GROWS = 64.0
"""By how much more a row changes when values that leak are moved so much farther than scores."""

STEPS = 2.0
"""Units in the last place of a row's largest number: by less nothing is told."""

UNITS = 8.0
"""Roundings of a score, or of a weighted value, by which two right answers may be apart."""


class Second(NamedTuple):
    """A second call, and what its answer has in common with the first."""

    problem: Problem
    rows: Array
    """True for the rows (batch or 1, head or 1, query or 1) that are held."""
    read: Callable[[Array], Array] = lambda output: output
    """The first answer, of the second."""
    right: float | None = None
    """What every number of the second is, whatever the first has."""
    scored: bool = True
    """Whether its scores may be rounded otherwise."""
    wider: bool = False
    """Whether its scores are the larger ones."""


@dataclass(frozen=True)
class Relation:
    """A law of attention over two calls; as a feature, it has the name of what is done to the second."""

    name: str
    mistake: str
    sentence: str
    """What is wrong where it does not hold."""
    seconds: Callable[[Problem, float, float], Iterator[Second]]
    """Second calls, with values moved so far, and queries and keys so far."""
    exact: bool = False
    """Whether what is moved has nothing to do with the rows that are held."""
    plain: bool = True
    """Whether it is a law only where no rule and no position tells keys or heads apart."""


def hold_relation(
    relation: Relation, problem: Problem, call: Callable[[Problem], Answer]
) -> tuple[Answer, Judgement] | None:
    """Hold the answers to pairs of calls to a relation: the first, and the worst pair; None for no pair."""
    is_law = not relation.plain or replace(problem.meant, scale=None) == NOTHING
    if not is_law:
        return None

    far = FAR_IN_FLOAT16 if problem.case.dtype == "float16" else FAR
    moved_far = relation.seconds(problem, far, FAR_OF_SCORES)
    moved_less = relation.seconds(problem, NEAR, NEAR_OF_SCORES)
    answer = None
    judgements = []
    for second, nearer in zip(moved_far, moved_less, strict=True):
        answer = answer or call(problem)  # not made where there is no pair
        first = read_output(problem, answer)
        if first is None:
            return answer, judge_failure(answer)

        judgement = compare_answers(problem, second, first, call)
        if relation.exact and judgement.right and judgement.differs > STEPS:
            before = compare_answers(problem, nearer, first, call)
            if judgement.differs > GROWS * before.differs:
                judgement = replace(judgement, ratio=np.inf)
        judgements.append(judgement)

    if answer is None:
        return None
    return answer, max(judgements, key=attrgetter("ratio"))


@np.errstate(all="ignore")
def compare_answers(
    problem: Problem, second: Second, first: Array, call: Callable[[Problem], Answer]
) -> Judgement:
    """Judge the second answer by the first: how far apart they are, beside what rounding allows."""
    answer = call(second.problem)
    output = read_output(second.problem, answer)
    if output is None:
        why = judge_failure(answer).words or "no array of its shape"
        words = f"of two calls of the same sizes it answers one: {why}"
        return Judgement(np.inf, words=words, differs=np.inf)

    expected = first if second.right is None else np.full(first.shape, second.right)
    found = second.read(output)
    is_same = (found == expected) | (np.isnan(found) & np.isnan(expected)) | ~second.rows[..., None]
    off = np.where(is_same, 0.0, np.abs(found - expected))
    off[np.isnan(off)] = np.inf
    ratios = off / rounding_of(problem, second)

    unit_of_row = precision_in(problem.case.dtype).unit * np.abs(expected).max(axis=-1, keepdims=True)
    steps = off / unit_of_row

    cell = tuple(map(int, np.unravel_index(int(ratios.argmax()), ratios.shape)))
    meant = "was" if second.right is None else "should be"
    return Judgement(
        float(ratios[cell]),
        FORWARD,
        f"the output is {found[cell]:.9g} at {list(cell)} and {meant} {expected[cell]:.9g}",
        differs=float(np.nan_to_num(steps, posinf=np.inf).max()),
    )


def rounding_of(problem: Problem, second: Second) -> Array:
    """How far apart rounding may bring the numbers of two right answers, (batch, head, query, 1).

    A score is a dot product of at most |q| |k|, a weight is off by its part of that, and keys are summed.
    """
    case = problem.case
    scores: Array | float = 0.0
    if second.scored:
        keys = (second.problem if second.wider else problem).arrays["K"]
        longest_key = np.linalg.norm(keys, axis=-1).max(axis=-1)
        longest_key = longest_key.repeat(case.heads // case.kv_heads, axis=1)
        scale = case.d_k**-0.5 if problem.meant.scale is None else abs(problem.meant.scale)
        scores = np.linalg.norm(problem.arrays["Q"], axis=-1) * longest_key[..., None] * scale

    largest_value = np.abs(problem.arrays["V"]).max() if second.right is None else second.right
    roundings = UNITS * precision_in(case.dtype).unit * largest_value
    allowed = np.asarray(roundings * (case.keys**0.5 + scores))
    return np.broadcast_to(allowed, problem.scores[:3])[..., None]


# --- what a row has nothing to do with ---


def places(size: int) -> list[int]:
    """The first, the middle and the last of so many."""
    return sorted({0, size // 2, size - 1})


def move(problem: Problem, far: float, scores: float, **where: Array) -> Problem:
    """The problem with other numbers in these places of its arrays."""
    arrays = dict(problem.arrays)
    for name, moved in where.items():
        drawn = problem.draw(f"moved {name}", *arrays[name].shape)
        other = np.abs(drawn) * far if name == "V" else drawn * scores  # values that do not cancel
        arrays[name] = problem.as_stored(name, np.where(moved, other, arrays[name]))
    return replace(problem, arrays=arrays)


def seen_by(problem: Problem, row: int) -> Array:
    """The keys that a query sees, (batch, head, key)."""
    position = problem.starts + row
    keys = np.arange(problem.case.keys)
    seen = np.ones((*problem.scores[:2], 1, problem.case.keys), dtype=bool)

    for rule in problem.meant.rules:
        if isinstance(rule, VisibilityRule):
            seen &= rule.allows(position, keys)
    if MASK in problem.arrays:
        seen &= problem.arrays[MASK][:, :, row : row + 1]
    if BIAS in problem.arrays:
        seen &= ~np.isneginf(problem.arrays[BIAS][:, :, row : row + 1])
    return np.asarray(seen[:, :, 0])


def move_hidden_keys(problem: Problem, far: float, scores: float) -> Iterator[Second]:
    """The keys that a query sees in none of the heads that share them are moved."""
    case = problem.case
    for row in places(case.queries):
        seen = seen_by(problem, row)
        by_kv_head = seen.reshape(case.batch, case.kv_heads, -1, case.keys)
        unseen = ~np.asarray(by_kv_head.any(axis=2))[..., None]

        # A row that sees nothing has no answer that could be held.
        sees_a_key = np.asarray(seen.any(axis=-1))[..., None]
        rows = sees_a_key & (np.arange(case.queries) == row)
        if unseen.any() and rows.any():
            yield Second(move(problem, far, scores, K=unseen, V=unseen), rows)


def move_others(axis: int, names: str) -> Callable[[Problem, float, float], Iterator[Second]]:
    """All but one along an axis of these arrays are moved: members, heads or queries."""

    def seconds(problem: Problem, far: float, scores: float) -> Iterator[Second]:
        size = problem.arrays[names[-1]].shape[axis]
        if size == 1:
            return
        for kept in places(size):
            others = np.expand_dims(np.arange(size) != kept, tuple({0, 1, 2, 3} - {axis}))
            queries = others.repeat(problem.scores[axis] // size, axis)  # heads that share a kv head
            moved = {name: queries if name == "Q" else others for name in names}
            yield Second(move(problem, far, scores, **moved), ~queries[..., 0])

    return seconds


# --- what the answer follows ---

EVERY = np.ones((1, 1, 1), dtype=bool)

OF_CACHE = {"K": PAST_KEY, "V": PAST_VALUE}


def with_arrays(problem: Problem, **arrays: Array) -> Problem:
    return replace(problem, arrays=problem.arrays | arrays)


def scale_values(problem: Problem, _far: float, _scores: float) -> Iterator[Second]:
    """−4 times the values: a power of two changes no digit."""
    second = with_arrays(problem, V=problem.arrays["V"] * -4.0)
    yield Second(second, EVERY, lambda output: output / -4.0, scored=False)


def take_ones(problem: Problem, _far: float, _scores: float) -> Iterator[Second]:
    if problem.scales:
        return  # one is not a number of few bits times its scale
    ones = np.ones_like(problem.arrays["V"])
    yield Second(with_arrays(problem, V=ones), EVERY, right=1.0, scored=False)


def shift_keys(problem: Problem, _far: float, _scores: float) -> Iterator[Second]:
    """One vector more in every key: a constant more in each row of scores."""
    shift = problem.draw("shift", *problem.arrays["K"].shape[:2], 1, problem.case.d_k)
    keys = problem.in_type(problem.arrays["K"] + shift)
    yield Second(with_arrays(problem, K=keys), EVERY, wider=True)


def permute_keys(problem: Problem, _far: float, _scores: float) -> Iterator[Second]:
    if problem.case.keys == 1:
        return
    order = np.random.RandomState(problem.case.seed).permutation(problem.case.keys)
    yield Second(rearranged(problem, -2, K=order, V=order, of_scores=(-1, order)), EVERY)


def permute_heads(problem: Problem, _far: float, _scores: float) -> Iterator[Second]:
    case = problem.case
    if case.kv_heads == 1:
        return
    kv_order = np.roll(np.arange(case.kv_heads), 1)
    order = np.roll(np.arange(case.heads), case.heads // case.kv_heads)
    second = rearranged(problem, 1, Q=order, K=kv_order, V=kv_order, of_scores=(1, order))
    yield Second(second, EVERY, lambda output: output[:, np.argsort(order)])


def rearranged(problem: Problem, axis: int, *, of_scores: tuple[int, Array], **orders: Array) -> Problem:
    """The problem with arrays in another order along an axis, and so what is passed for each score."""
    score_axis, order = of_scores
    arrays = dict(problem.arrays)
    for name, order_of_array in orders.items():
        arrays[name] = arrays[name].take(order_of_array, axis)
    for name in (MASK, BIAS):
        if name in arrays:
            arrays[name] = arrays[name].take(order, score_axis)

    passed = dict(problem.passed)
    for name in passed.keys() & {"mask", "float_mask", "bias"}:
        # What is broadcast along the axis is the same in any order.
        if passed[name].shape[score_axis] == order.size:
            passed[name] = passed[name].take(order, score_axis)
    return replace(problem, arrays=arrays, passed=passed)


def ask_at_once(problem: Problem, _far: float, _scores: float) -> Iterator[Second]:
    """All queries in one call, as many as keys, in place of the last alone: those before them are drawn.

    Only where the last query is beside the last key; a cache is then the first of the keys.
    """
    case = problem.case
    earlier = case.keys - case.queries
    if not earlier or not np.all(problem.starts == earlier):
        return
    arrays = dict(problem.arrays)
    of_cache = {name: arrays.pop(past) for name, past in OF_CACHE.items() if past in arrays}
    arrays |= {name: np.concatenate([past, arrays[name]], axis=-2) for name, past in of_cache.items()}
    drawn = problem.draw("queries before", *problem.scores[:2], earlier, case.d_k)
    arrays["Q"] = np.concatenate([drawn, arrays["Q"]], axis=-2)
    passed = {name: value for name, value in problem.passed.items() if name != "cache"}
    whole = replace(case.without("cache"), queries=case.keys)
    second = replace(problem, case=whole, arrays=arrays, passed=passed, offset=0)
    yield Second(second, EVERY, lambda output: output[..., earlier:, :], wider=True)


INVARIANTS = "invariants"
"""All of them, where features are named."""

HIDDEN_MOVED, PREFILL = "hidden keys moved", "prefill in two calls"

RELATIONS = {
    relation.name: relation
    for relation in (
        Relation(
            HIDDEN_MOVED,
            "hidden-keys-leak",
            "a query is given something of keys that it cannot see",
            move_hidden_keys,
            exact=True,
            plain=False,
        ),
        Relation(
            "other members moved",
            "members-leak",
            "a member of the batch is given something of others",
            move_others(0, "QKV"),
            exact=True,
            plain=False,
        ),
        Relation(
            "other heads moved",
            "heads-leak",
            "a head is given something of others",
            move_others(1, "QKV"),
            exact=True,
            plain=False,
        ),
        Relation(
            "other queries moved",
            "queries-leak",
            "a query is given something of other queries",
            move_others(2, "Q"),
            exact=True,
            plain=False,
        ),
        Relation(
            "values scaled",
            "values-not-linear",
            "it is not linear in V: −4 V gives another multiple",
            scale_values,
            plain=False,
        ),
        Relation(
            "values of one",
            "weights-sum",
            "where V is 1 the output is not: it is no mean of the values",
            take_ones,
        ),
        Relation(
            "keys permuted",
            "order-of-keys",
            "the order of keys and values changes the output",
            permute_keys,
        ),
        Relation(
            "keys shifted",
            "shift-of-scores",
            "a constant more in each row of scores changes the output",
            shift_keys,
        ),
        Relation(
            "heads permuted",
            "order-of-heads",
            "heads in another order give other outputs",
            permute_heads,
        ),
        Relation(
            PREFILL,
            "prefill-parts",
            "the second part of a prompt gives another output by itself than in one call with it all",
            ask_at_once,
            plain=False,
        ),
    )
}
