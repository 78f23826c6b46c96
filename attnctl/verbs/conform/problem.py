"""What a case asks: its plan in the making, with Q, K and V drawn as the case has them."""

from __future__ import annotations

from dataclasses import field, replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.precision import round_in
from attnctl.inputs.config.settings import NONE, Settings
from attnctl.inputs.plan import Plan, variant
from attnctl.math import Array, Shape
from attnctl.math.names import BIAS, MASK, PAGES, STORED_SCALES, WEIGHTS, Q
from attnctl.math.ops.pages import Gather
from attnctl.math.ops.vectors import GivenPlaces
from attnctl.math.rules import PerBatch, Rule
from attnctl.verbs.conform.case import ACTIVATIONS, CAPTURED, COTANGENT, FORWARD, Case
from attnctl.verbs.conform.places import BY_PLACES, RulesByPositions, as_given_places, lay_rules
from attnctl.verbs.conform.profile import (
    NOTHING,
    RULES_BY,
    SOME_PAGE,
    TABLE_END,
    TargetProfile,
)
from attnctl.verbs.conform.stored import StoredScale, precision_in, store, type_beside


@dataclass
class Problem:
    """What is asked in a case: its plan in the making, and the options as they are passed."""

    case: Case
    profile: TargetProfile
    arrays: dict[str, Array]
    """The inputs of the derivation, under our names."""
    meant: Settings = NOTHING
    """The attention that is asked for, and always on."""
    passed: dict[str, Any] = field(default_factory=dict)
    """By option: its value, with arrays over (batch, head, query, key)."""
    offset: PerBatch = 0
    positions: Array | None = None
    """Those of the new tokens, (1 or 3, batch, token), where they are given."""
    scales: dict[str, StoredScale] = field(default_factory=dict)
    """Those of Q, K and V, where they are stored with scales; arrays are what they stand for."""
    outputs: tuple[str, ...] = FORWARD
    """The steps that a call is asked for."""

    @property
    def backward(self) -> bool:
        return self.outputs != FORWARD

    @property
    def plan(self) -> Plan:
        """The computation that is meant, in float64."""
        given = self.given
        meant = replace(self.meant, backward=self.backward)
        if self.rules_by_positions is not None:
            meant = replace(meant, rules=self.rules_by_positions.rules)
        places: GivenPlaces = ()
        if self.positions is not None and self.profile.rotary is not None:
            places = as_given_places(self.positions)

        named = {name: (array, "given") for name, array in given.items()}
        kind = variant(meant, self.case.sizes, named, self.offset, pages=self.gather, places=places)
        return Plan(kind, given, {}, "float64")

    @property
    def given(self) -> dict[str, Array]:
        """The arrays that the plan begins with: K and V in pages, and rules that go by positions."""
        given = dict(self.arrays)
        laid = self.rules_by_positions
        if laid is not None and laid.allowed is not None:
            given[MASK] = np.broadcast_to(given.get(MASK, True) & laid.allowed, self.scores)
        if laid is not None and laid.bias is not None:
            given[BIAS] = given.get(BIAS, 0.0) + laid.bias

        if self.scales_are_steps:
            given |= self.stored_numbers
        if self.gather is not None:
            for name, pages in zip("KV", PAGES, strict=True):
                given[pages] = self.in_pages(given.pop(name))
        return given

    @property
    def scales_are_steps(self) -> bool:
        """K and V are multiplied by their scales in steps of their own, whole, as they come."""
        return self.gather is None and not self.case.past and self.profile.rotary is None

    @property
    def stored_numbers(self) -> dict[str, Array]:
        """K and V as they are stored, and the scales of heads by which they are multiplied."""
        stored = {}
        for name, scale_name in zip("KV", STORED_SCALES, strict=True):
            scale = self.scales.get(name)
            if scale is not None and scale.of_heads is not None:
                stored[name] = self.numbers_of(name)
                stored[scale_name] = scale.of_heads
        return stored

    def numbers_of(self, name: str, array: Array | None = None) -> Array:
        """The numbers that are passed of Q, K or V, or of their first rows: without their scale."""
        scale = self.scales.get(name)
        own = self.arrays[name] if array is None else array
        if scale is None:
            return own
        factor = scale.factor
        if factor.shape[2] > 1:
            rows = own.shape[2]
            factor = factor[:, :, -rows:] if array is None else factor[:, :, :rows]
        return np.asarray(own / factor)

    def as_stored(self, name: str, array: Array) -> Array:
        """Q, K or V rounded to the type in which it is stored, with its scale."""
        scale = self.scales.get(name)
        factor = 1.0 if scale is None else scale.factor
        return np.asarray(store(self.profile.type_of(name, self.case.dtype), array / factor) * factor)

    @property
    def rules_by_positions(self) -> RulesByPositions | None:
        """The rules as arrays; None where they go by the places of queries and keys."""
        how = self.profile[RULES_BY]
        if self.positions is None or how == BY_PLACES:
            return None
        return lay_rules(self.meant.rules, self.positions[0], self.case, how)

    @property
    def gather(self) -> Gather | None:
        """How K and V are read in pages, of which each member has some; None where they come whole.

        Where the table names no page behind a sequence's last one, −1 stands.
        """
        case = self.case
        slots, before = self.profile.pages_of(case)
        if before < 0:
            return None

        table = self.all_pages
        lengths = self.passed.get("key_lengths", np.full(case.batch, case.keys))
        if self.profile[TABLE_END] != SOME_PAGE:
            is_read = np.arange(table.shape[1]) * slots < lengths[:, None]
            table = np.where(is_read, table, NO_PAGE)
        return Gather(tuple(map(tuple, table.tolist())), tuple(map(int, lengths)))

    @property
    def all_pages(self) -> Array:
        """The pages that each member has, those behind its last key among them."""
        case = self.case
        slots, before = self.profile.pages_of(case)
        pages_of_member = case.keys // slots
        pages = case.batch * pages_of_member
        # In any order, and with free pages among them, as in a pool.
        order = before + np.random.RandomState(case.seed).permutation(pages + FREE)
        return order[:-FREE].reshape(case.batch, pages_of_member)

    def in_pages(self, array: Array) -> Array:
        """K or V in its pages, (page, slot, head, d), others of which hold what was there before."""
        slots, before = self.profile.pages_of(self.case)
        batch, heads, keys, d = array.shape
        page_count = before + batch * keys // slots + FREE
        pages = self.draw("pages", page_count, slots, heads, d)
        every = Gather(tuple(map(tuple, self.all_pages.tolist())), (keys,) * batch)
        page, slot, _ = every.rows(slots)
        pages[page, slot] = array.swapaxes(1, 2)
        return pages

    @property
    def starts(self) -> Array:
        """The number of keys before query 0 of each member, (batch or 1, 1, 1, 1)."""
        return np.reshape(self.offset, (-1, 1, 1, 1))

    @property
    def scores(self) -> tuple[int, int, int, int]:
        return self.case.batch, self.case.heads, self.case.queries, self.case.keys

    @property
    def shapes(self) -> dict[str, Shape]:
        case = self.case
        of_queries = case.batch, case.heads, case.queries
        of_keys = case.batch, case.kv_heads, case.keys
        return {"Q": (*of_queries, case.d_k), "K": (*of_keys, case.d_k), "V": (*of_keys, case.d_v)}

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        return *self.scores[:3], self.case.d_v

    def draw(self, name: str, *shape: int) -> Array:
        """Normal numbers for one array, rounded to the type."""
        seed = crc32(f"{self.case.seed} {name}".encode())
        return self.in_type(draw_normal(seed, shape))

    def captured(self, name: str, shape: Shape) -> Array:
        """An array of the captured call, as much of it as the case has, rounded to the type."""
        assert self.case.call is not None
        return self.in_type(self.case.call.arrays[name][tuple(map(slice, shape))])

    def in_type(self, array: Array) -> Array:
        """Rounded to the type, in float64; to that of arrays beside Q, K and V where theirs is small."""
        return round_in(type_beside(self.case.dtype), array).astype(np.float64)

    def add_rule(self, rule: Rule) -> None:
        """Add a rule; it replaces its like."""
        others = [other for other in self.meant.rules if type(other) is not type(rule)]
        self.meant = replace(self.meant, rules=(*others, rule))

    def add_bias(self, bias: Array) -> None:
        self.arrays[BIAS] = self.arrays.get(BIAS, 0.0) + np.broadcast_to(bias, self.scores)

    def hide(self, allowed: Array) -> None:
        self.arrays[MASK] = self.arrays.get(MASK, True) & np.broadcast_to(allowed, self.scores)

    @property
    def has_many_scores(self) -> bool:
        """Whether its last queries alone are judged: to compute all of them takes long."""
        many = prod(self.scores) > MOST_SCORES
        moves = self.case.call is not None or self.profile.always.positions != NONE
        moves = moves or self.positions is not None
        return many and not (moves or self.backward or "documents" in self.passed)

    def last_queries(self, count: int) -> Problem:
        """The same of its last queries alone, each of which has nothing to do with the others."""
        first = self.case.queries - count
        arrays = dict(self.arrays)
        for name in (Q, MASK, BIAS):
            if name in arrays:
                arrays[name] = arrays[name][..., first:, :]

        if isinstance(self.offset, int):
            offset: PerBatch = self.offset + first
        else:
            offset = tuple(before + first for before in self.offset)
        case = replace(self.case, queries=count)
        return replace(self, case=case, arrays=arrays, offset=offset)

    def draw_cotangent(self) -> None:
        """The captured gradient by the output, or normal numbers; 0 where a query sees no key."""
        call = self.case.call
        is_captured = call is not None and self.case.fill == CAPTURED and COTANGENT in call.arrays
        if is_captured:
            cotangent = self.captured(COTANGENT, self.output_shape)
        else:
            cotangent = self.draw(COTANGENT, *self.output_shape)

        weights = replace(self, outputs=FORWARD).plan.run()[WEIGHTS]
        sees_a_key = weights.any(axis=-1, keepdims=True)
        self.arrays[COTANGENT] = np.where(sees_a_key, cotangent, 0.0)


MOST_SCORES = 2**20
"""Scores of a case of which every query is judged."""

FREE = 2
"""Pages that no member has."""

NO_PAGE = -1
"""What stands in a table behind the last page of a sequence."""

OF_NAN = "who"
"""The fill of cases in which free slots of a page hold NaN; in others numbers, which tell more."""

# --- Q, K and V ---


# A case is made again for each form in which a target may take it, and for each mistake that may explain
# an answer: as many arrays as the cases of a run have.
@lru_cache(maxsize=512)
def draw_normal(seed: int, shape: Shape) -> Array:
    return np.random.RandomState(seed).standard_normal(shape)


def draw_random(problem: Problem) -> dict[str, Array]:
    arrays = {name: problem.draw(name, *shape) for name, shape in problem.shapes.items()}
    for name in "QK":
        arrays[name] = problem.in_type(arrays[name] * problem.case.magnitude)
    return arrays


def give_captured(problem: Problem) -> dict[str, Array]:
    return {name: problem.captured(name, shape) for name, shape in problem.shapes.items()}


def draw_activations(problem: Problem) -> dict[str, Array]:
    """Normal numbers in the shape of a captured call, head by head.

    Taken over are the mean and the scale of each channel behind the first token, the largest
    channels of K and of V where the case has fewer; the first key and its value as they are, which may
    be a sink; and how far the scores of a row are apart, to which Q is scaled: peaked rows.
    """
    call = problem.case.call
    assert call is not None
    largest_first = {}
    for name in "KV":
        size_of_channel = np.square(call.arrays[name]).mean(axis=(0, 1, 2))
        largest_first[name] = np.argsort(-size_of_channel)

    arrays: dict[str, Array] = {}
    for name, shape in problem.shapes.items():
        # Q has the channels of K, as their products are summed.
        channels = np.resize(largest_first["V" if name == "V" else "K"], shape[-1])
        heads = np.arange(shape[1]) % call.arrays[name].shape[1]
        recorded = call.arrays[name][:, heads][..., channels]

        rest = recorded[:, :, 1:] if recorded.shape[2] > 1 else recorded
        mean = rest.mean(axis=(0, 2), keepdims=True)
        deviation = rest.std(axis=(0, 2), keepdims=True)
        drawn = mean + deviation * problem.draw(name, *shape)
        arrays[name] = np.clip(drawn, recorded.min(), recorded.max())
        if name != "Q":
            arrays[name][:, :, 0] = recorded[0, :, 0]

    # The target divides by √d_k of the case, where the captured call had a scale of its own.
    meant_spread = spread_of_scores(call.arrays["Q"], call.arrays["K"]) * call.scale * problem.case.d_k**0.5
    arrays["Q"] *= meant_spread / max(spread_of_scores(arrays["Q"], arrays["K"]), TINY)
    return {name: problem.in_type(array) for name, array in arrays.items()}


TINY = 1e-30
SAMPLE = 256


def spread_of_scores(q: Array, k: Array) -> float:
    """How far a row's scores are apart: the root mean square of the first queries' with the first keys."""
    shared = np.repeat(k[:, :, :SAMPLE], q.shape[1] // k.shape[1], axis=1)
    scores = q[:, :, :SAMPLE] @ shared.swapaxes(-1, -2)
    return float(np.sqrt(scores.var(axis=-1).mean()))


LARGE = 2496.0
BELOW = 3008.0
APART = 512.0
SHIFT = 1e5
MOST_LARGE = 16
"""Q of the fill `large`, which is 0 from column 16 on: with 16 columns of ±1 scores are about ±1e4, apart
by 256 in every type, and those of odd queries are all below −1e4."""


def draw_with(problem: Problem, **others: Array) -> dict[str, Array]:
    """Random numbers, and these arrays in place of some, the same along the axes that they lack."""
    arrays = draw_random(problem)
    for name, other in others.items():
        arrays[name] = np.broadcast_to(other, arrays[name].shape).copy()
    return arrays


def draw_identity(problem: Problem, **others: Array) -> dict[str, Array]:
    """V with a one in column j mod d_v of key j: the output tells the weights."""
    columns = np.arange(problem.case.keys) % problem.case.d_v
    return draw_with(problem, V=np.eye(problem.case.d_v)[columns], **others)


def draw_uniform(problem: Problem) -> dict[str, Array]:
    """Q = 0 and V of unit vectors: each query sees its keys alike, which shows who sees whom."""
    return draw_identity(problem, Q=np.zeros(1))


def draw_by_head(problem: Problem) -> dict[str, Array]:
    """V constant in each kv head: the output says which head was read."""
    case = problem.case
    of_head = 1.0 + np.arange(case.kv_heads)
    of_member = 16 * np.arange(case.batch)[:, None]  # more than there are heads in such cases
    return draw_with(problem, V=(of_head + of_member)[..., None, None])


def draw_large(problem: Problem) -> dict[str, Array]:
    """Scores of ±1e4 with one key ahead of the others: the output is that key's row of V, exactly.

    Even queries are large multiples of one key; odd ones are that key, and far below 0 with every key.
    Rotary positions make any key the first, and a score as much as √2 larger: half of that stays in range.
    """
    signs = draw_keys(problem.case)
    meant = signs.keys[signs.meant]
    q = np.where(signs.is_odd, APART * meant, LARGE * meant)
    # Column 0 is 1 in every key: it moves all scores of a query alike.
    q[:, 0] = np.where(signs.is_odd[:, 0], -BELOW * signs.used, q[:, 0])
    q[:, signs.used :] = 0.0
    if problem.profile.rotary:
        q = q * 0.5
    return draw_with(problem, Q=q, K=signs.keys)


def draw_shifted(problem: Problem) -> dict[str, Array]:
    """Scores of a query about 1e5 above 0, or below, one key ahead: softmax does not change by a shift.

    float16 has no such number: there they are about 1e4, which `large` has as well.
    """
    if problem.case.dtype == "float16":
        return draw_large(problem)
    signs = draw_keys(problem.case)
    root = problem.case.d_k**0.5 / signs.used
    q = SHIFT / 4 * root * signs.keys[signs.meant]
    q[:, 0] = np.where(signs.is_odd[:, 0], -1.0, 1.0) * SHIFT * root * signs.used
    q[:, signs.used :] = 0.0
    return draw_with(problem, Q=problem.in_type(q), K=signs.keys)


class SignKeys(NamedTuple):
    """Keys of ±1, of which queries are made that tell one from all others."""

    keys: Array
    """(key, d_k): different rows, which begin with 1."""
    meant: Array
    """The key that each query means."""
    is_odd: Array
    """(query, 1): every other query; by an odd seed the first is."""
    used: int
    """The columns in which queries are not 0."""


def draw_keys(case: Case) -> SignKeys:
    """The bits of the number of a key are its signs, so that all rows differ."""
    bits = (np.arange(case.keys)[:, None] >> np.arange(case.d_k - 1)) & 1
    return SignKeys(
        keys=np.concatenate([np.ones((case.keys, 1)), 2.0 * bits - 1.0], axis=1),
        meant=(7 * np.arange(case.queries) + 3) % case.keys,
        is_odd=(np.arange(case.queries)[:, None] + case.seed) % 2 == 1,
        used=min(case.d_k, MOST_LARGE),
    )


def draw_values(problem: Problem) -> dict[str, Array]:
    """V of up to 6e4, which float16 just holds, or of 1e3 where its products with a gradient are needed."""
    arrays = draw_random(problem)
    largest = 1e3 if problem.backward else 6e4
    values = arrays["V"] * (largest / np.abs(arrays["V"]).max())
    return arrays | {"V": problem.in_type(values)}


def draw_channel(problem: Problem) -> dict[str, Array]:
    """One column of V a thousand times the others, one of K twenty times, as in trained models."""
    arrays = draw_random(problem)
    arrays["V"][..., -1] *= 1024.0
    arrays["K"][..., 0] *= 20.0
    return {name: problem.in_type(array) for name, array in arrays.items()}


def draw_tails(problem: Problem) -> dict[str, Array]:
    """One column of K and one of V with heavy tails, as those of activations: of Cauchy's distribution."""
    arrays = draw_random(problem)
    for name, column in (("K", 1), ("V", -2)):
        # A normal number divided by another is Cauchy's; bounded below, so that it stays in range.
        divisor = np.abs(problem.draw(f"tails of {name}", *arrays[name].shape[:-1]))
        arrays[name][..., column] *= 8.0 / np.maximum(divisor, 2.0**-6)
    return {name: problem.in_type(array) for name, array in arrays.items()}


def draw_sums(problem: Problem) -> dict[str, Array]:
    """Q = 0, and in each column of V a one with sixteen of half its last unit in the keys after it.

    Their sum is a number of any type, and in a coarse one they are lost where they are added one by one.
    """
    case = problem.case
    after = (np.arange(case.keys)[:, None] - np.arange(case.d_v)) % case.keys
    column = np.select([after == 0, after <= 16], [1.0, precision_in(case.dtype).unit], 0.0)
    return draw_with(problem, Q=np.zeros(1), V=column)


SMALL_OF_SCORE = 0.5
"""Each of the sixteen small numbers of a score, before it is scaled."""


def draw_sums_of_scores(problem: Problem) -> dict[str, Array]:
    """Scores of a large number and sixteen of half its last unit after it: alike, unless those are lost.

    The large number is in another column of each key, and the output tells the weights.
    """
    case = problem.case
    after = (np.arange(case.d_k) - np.arange(case.keys)[:, None]) % case.d_k
    large = SMALL_OF_SCORE / precision_in(case.dtype).unit
    row = np.select([after == 0, after <= 16], [large, SMALL_OF_SCORE], 0.0)
    return draw_identity(problem, Q=np.ones(1), K=row)


FILLS = {
    "random": draw_random, "who": draw_uniform, "identity": draw_identity, "heads": draw_by_head,
    "large": draw_large, "shifted": draw_shifted, "values": draw_values, "channel": draw_channel,
    "sums": draw_sums, "sums of scores": draw_sums_of_scores, "tails": draw_tails,
    CAPTURED: give_captured, ACTIVATIONS: draw_activations,
}  # fmt: skip
"""The ways of drawing Q, K and V, by the `fill` of a case."""
