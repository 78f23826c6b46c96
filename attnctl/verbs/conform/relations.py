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
from attnctl.verbs.conform.profile import NOTHING, TYPES

FAR, FAR_IN_FLOAT16, NEAR = 2.0**20, 2.0**12, 8.0
"""How far values are moved, and how far where bits differ."""

FAR_OF_SCORES, NEAR_OF_SCORES = 32.0, 2.0
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
    far = FAR_IN_FLOAT16 if problem.case.dtype == "float16" else FAR
    near = relation.seconds(problem, NEAR, NEAR_OF_SCORES)
    pairs = zip(relation.seconds(problem, far, FAR_OF_SCORES), near, strict=True)
    answer, apart = None, []
    is_law = not relation.plain or replace(problem.meant, scale=None) == NOTHING
    for second, less in pairs if is_law else ():
        answer = answer or call(problem)
        first = read_output(problem, answer)
        if first is None:
            return answer, judge_failure(answer)
        found = compare_answers(problem, second, first, call)
        if relation.exact and found.right and found.differs > STEPS:
            before = compare_answers(problem, less, first, call)
            found = replace(found, ratio=np.inf) if found.differs > GROWS * before.differs else found
        apart.append(found)
    return (answer, max(apart, key=attrgetter("ratio"))) if answer else None


@np.errstate(all="ignore")
def compare_answers(
    problem: Problem, second: Second, first: Array, call: Callable[[Problem], Answer]
) -> Judgement:
    answer = call(second.problem)
    found = read_output(second.problem, answer)
    if found is None:
        why = judge_failure(answer).words or "no array of its shape"
        words = f"of two calls of the same sizes it answers one: {why}"
        return Judgement(np.inf, words=words, differs=np.inf)
    wanted = first if second.right is None else np.full(first.shape, second.right)
    own = second.read(found)
    same = (own == wanted) | (np.isnan(own) & np.isnan(wanted)) | ~second.rows[..., None]
    off = np.where(same, 0.0, np.abs(own - wanted))
    off[np.isnan(off)] = np.inf
    ratios = off / rounding_of(problem, second)
    at = tuple(map(int, np.unravel_index(int(ratios.argmax()), ratios.shape)))
    steps = off / (TYPES[problem.case.dtype].unit * np.abs(wanted).max(axis=-1, keepdims=True))
    meant = "was" if second.right is None else "should be"
    words = f"the output is {own[at]:.9g} at {list(at)} and {meant} {wanted[at]:.9g}"
    differs = float(np.nan_to_num(steps, posinf=np.inf).max())
    return Judgement(float(ratios[at]), FORWARD, words, differs=differs)


def rounding_of(problem: Problem, second: Second) -> Array:
    """How far apart rounding may bring the numbers of two right answers, (batch, head, query, 1).

    A score is a dot product of at most |q| |k|, a weight is off by its part of that, and keys are summed.
    """
    case = problem.case
    keys = (second.problem if second.wider else problem).arrays["K"]
    length = np.linalg.norm(keys, axis=-1).max(axis=-1).repeat(case.heads // case.kv_heads, axis=1)
    scale = case.d_k**-0.5 if problem.meant.scale is None else abs(problem.meant.scale)
    scores = np.linalg.norm(problem.arrays["Q"], axis=-1) * length[..., None] * scale * second.scored
    largest = np.abs(problem.arrays["V"]).max() if second.right is None else second.right
    return np.asarray(UNITS * TYPES[case.dtype].unit * largest * (case.keys**0.5 + scores))[..., None]


# --- what a row has nothing to do with ---


def places(size: int) -> list[int]:
    return sorted({0, size // 2, size - 1})


def move(problem: Problem, far: float, scores: float, **where: Array) -> Problem:
    """The problem with other numbers in these places of its arrays."""
    arrays = dict(problem.arrays)
    for name, moved in where.items():
        drawn = problem.draw(f"moved {name}", *arrays[name].shape)
        other = np.abs(drawn) * far if name == "V" else drawn * scores  # values that do not cancel
        arrays[name] = problem.in_type(np.where(moved, other, arrays[name]))
    return replace(problem, arrays=arrays)


def seen_by(problem: Problem, row: int) -> Array:
    """The keys that a query sees, (batch, head, key)."""
    position, keys = problem.starts + row, np.arange(problem.case.keys)
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
    case = problem.case
    for row in places(case.queries):
        seen = seen_by(problem, row)
        shared = np.asarray(seen.reshape(case.batch, case.kv_heads, -1, case.keys).any(axis=2))
        unseen = ~shared[..., None]
        rows = np.asarray(seen.any(axis=-1))[..., None] & (np.arange(case.queries) == row)
        if unseen.any() and rows.any():
            yield Second(move(problem, far, scores, K=unseen, V=unseen), rows)


def move_others(axis: int, names: str) -> Callable[[Problem, float, float], Iterator[Second]]:
    """All but one along an axis of these arrays are moved: members, heads or queries."""

    def seconds(problem: Problem, far: float, scores: float) -> Iterator[Second]:
        size = problem.arrays[names[-1]].shape[axis]
        for kept in places(size) if size > 1 else ():
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
    ones = np.ones_like(problem.arrays["V"])
    yield Second(with_arrays(problem, V=ones), EVERY, right=1.0, scored=False)


def shift_keys(problem: Problem, _far: float, _scores: float) -> Iterator[Second]:
    """One vector more in every key: a constant more in each row of scores."""
    shift = problem.draw("shift", *problem.arrays["K"].shape[:2], 1, problem.case.d_k)
    keys = problem.in_type(problem.arrays["K"] + shift)
    yield Second(with_arrays(problem, K=keys), EVERY, wider=True)


def permute_keys(problem: Problem, _far: float, _scores: float) -> Iterator[Second]:
    order = np.random.RandomState(problem.case.seed).permutation(problem.case.keys)
    if problem.case.keys > 1:
        yield Second(rearranged(problem, -2, K=order, V=order, of_scores=(-1, order)), EVERY)


def permute_heads(problem: Problem, _far: float, _scores: float) -> Iterator[Second]:
    case = problem.case
    shared = np.roll(np.arange(case.kv_heads), 1)
    order = np.roll(np.arange(case.heads), case.heads // case.kv_heads)
    if case.kv_heads > 1:
        second = rearranged(problem, 1, Q=order, K=shared, V=shared, of_scores=(1, order))
        yield Second(second, EVERY, lambda output: output[:, np.argsort(order)])


def rearranged(problem: Problem, axis: int, *, of_scores: tuple[int, Array], **orders: Array) -> Problem:
    """The problem with arrays in another order along an axis, and so what is passed for each score."""
    along, order = of_scores
    arrays = dict(problem.arrays)
    arrays |= {name: arrays[name].take(order, axis) for name, order in orders.items()}
    arrays |= {name: arrays[name].take(order, along) for name in (MASK, BIAS) if name in arrays}
    of_each = {
        name: value.take(order, along) if value.shape[along] == order.size else value
        for name, value in problem.passed.items()
        if name in {"mask", "float_mask", "bias"}
    }
    return replace(problem, arrays=arrays, passed=problem.passed | of_each)


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
        Relation(HIDDEN_MOVED, "hidden-keys-leak", "a query is given something of keys that it cannot see",
                 move_hidden_keys, exact=True, plain=False),
        Relation("other members moved", "members-leak",
                 "a member of the batch is given something of others",
                 move_others(0, "QKV"), exact=True, plain=False),
        Relation("other heads moved", "heads-leak", "a head is given something of others",
                 move_others(1, "QKV"), exact=True, plain=False),
        Relation("other queries moved", "queries-leak", "a query is given something of other queries",
                 move_others(2, "Q"), exact=True, plain=False),
        Relation("values scaled", "values-not-linear", "it is not linear in V: −4 V gives another multiple",
                 scale_values, plain=False),
        Relation("values of one", "weights-sum",
                 "where V is 1 the output is not: it is no mean of the values", take_ones),
        Relation("keys permuted", "order-of-keys", "the order of keys and values changes the output",
                 permute_keys),
        Relation("keys shifted", "shift-of-scores",
                 "a constant more in each row of scores changes the output", shift_keys),
        Relation("heads permuted", "order-of-heads", "heads in another order give other outputs",
                 permute_heads),
        Relation(PREFILL, "prefill-parts",
                 "the second part of a prompt gives another output by itself than in one call with it all",
                 ask_at_once, plain=False),
    )
}  # fmt: skip
