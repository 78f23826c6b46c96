"""What a case asks: its plan in the making, with Q, K and V drawn as the case has them."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any
from zlib import crc32

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.evidence.precision import DTYPES, round_to
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan import Plan, variant
from attnctl.math import Array
from attnctl.math.names import BIAS, MASK, WEIGHTS
from attnctl.math.rules import PerBatch, Rule
from attnctl.verbs.conform.case import COTANGENT, FORWARD, Case
from attnctl.verbs.conform.profile import NOTHING, TYPES, TargetProfile


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
    outputs: tuple[str, ...] = FORWARD
    """The steps that a call is asked for."""

    @property
    def backward(self) -> bool:
        return self.outputs != FORWARD

    @property
    def plan(self) -> Plan:
        """The computation that is meant, in float64."""
        named = {name: (array, "given") for name, array in self.arrays.items()}
        asked = replace(self.meant, backward=self.backward)
        return Plan(variant(asked, self.case.sizes, named, self.offset), self.arrays, {}, "float64")

    @property
    def starts(self) -> Array:
        """The number of keys before query 0 of each member, (batch or 1, 1, 1, 1)."""
        return np.reshape(self.offset, (-1, 1, 1, 1))

    @property
    def scores(self) -> tuple[int, int, int, int]:
        return self.case.batch, self.case.heads, self.case.queries, self.case.keys

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        return *self.scores[:3], self.case.d_v

    def draw(self, name: str, *shape: int) -> Array:
        """Normal numbers for one array, rounded to the type."""
        seed = crc32(f"{self.case.seed} {name}".encode())
        return self.in_type(np.random.RandomState(seed).standard_normal(shape))

    def in_type(self, array: Array) -> Array:
        """Rounded to the type, in float64."""
        wide = np.asarray(array, dtype=np.float64)
        if self.case.dtype in DTYPES:  # NumPy has it
            return wide.astype(self.case.dtype).astype(np.float64)
        return round_to(wide, TYPES[self.case.dtype])

    def add_rule(self, rule: Rule) -> None:
        """Add a rule; it replaces its like."""
        others = [other for other in self.meant.rules if type(other) is not type(rule)]
        self.meant = replace(self.meant, rules=(*others, rule))

    def add_bias(self, bias: Array) -> None:
        self.arrays[BIAS] = self.arrays.get(BIAS, 0.0) + np.broadcast_to(bias, self.scores)

    def hide(self, allowed: Array) -> None:
        self.arrays[MASK] = self.arrays.get(MASK, True) & np.broadcast_to(allowed, self.scores)

    def draw_cotangent(self) -> None:
        """Normal numbers for the gradient by the output, 0 by the output of a query that sees no key."""
        drawn = self.draw(COTANGENT, *self.output_shape)
        weights = replace(self, outputs=FORWARD).plan.run()[WEIGHTS]
        self.arrays[COTANGENT] = np.where(weights.any(axis=-1, keepdims=True), drawn, 0.0)


# --- Q, K and V ---


def draw_random(problem: Problem) -> dict[str, Array]:
    case = problem.case
    q = problem.draw("Q", case.batch, case.heads, case.queries, case.d_k)
    k = problem.draw("K", case.batch, case.kv_heads, case.keys, case.d_k)
    v = problem.draw("V", case.batch, case.kv_heads, case.keys, case.d_v)
    return {"Q": problem.in_type(q * case.magnitude), "K": problem.in_type(k * case.magnitude), "V": v}


LARGE, BELOW, APART = 2496.0, 3008.0, 512.0
SHIFT = 1e5
MOST_LARGE = 16
"""Q of the fill `large`, which is 0 from column 16 on: with 16 columns of ±1 scores are about ±1e4, apart
by 256 in every type, and those of odd queries are all below −1e4."""


def draw_with(problem: Problem, **others: Array) -> dict[str, Array]:
    """Random numbers, and these arrays in place of some, the same along the axes that they lack."""
    arrays = draw_random(problem)
    same = {name: np.broadcast_to(other, arrays[name].shape).copy() for name, other in others.items()}
    return arrays | same


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
    numbers = 1.0 + np.arange(case.kv_heads) + 16 * np.arange(case.batch)[:, None]
    return draw_with(problem, V=numbers[..., None, None])


def draw_large(problem: Problem) -> dict[str, Array]:
    """Scores of ±1e4 with one key ahead of the others: the output is that key's row of V, exactly.

    Even queries are large multiples of one key; odd ones are that key, and far below 0 with every key.
    Rotary positions make any key the first, and a score as much as √2 larger: half of that stays in range.
    """
    keys, meant, odd, used = draw_keys(problem.case)
    q = np.where(odd, APART * keys[meant], LARGE * keys[meant])
    q[:, 0] = np.where(odd[:, 0], -BELOW * used, q[:, 0])
    q[:, used:] = 0.0
    return draw_with(problem, Q=q * (0.5 if problem.profile.rotary else 1.0), K=keys)


def draw_shifted(problem: Problem) -> dict[str, Array]:
    """Scores of a query about 1e5 above 0, or below, one key ahead: softmax does not change by a shift.

    float16 has no such number: there they are about 1e4, which `large` has as well.
    """
    if problem.case.dtype == "float16":
        return draw_large(problem)
    keys, meant, odd, used = draw_keys(problem.case)
    root = problem.case.d_k**0.5 / used
    apart = SHIFT / 4 * root
    q = apart * keys[meant]
    q[:, 0] = np.where(odd[:, 0], -1.0, 1.0) * SHIFT * root * used
    q[:, used:] = 0.0
    return draw_with(problem, Q=problem.in_type(q), K=keys)


def draw_keys(case: Case) -> tuple[Array, Array, Array, int]:
    """Keys that are different rows of ±1 and begin with 1; the key that each query means; which are odd."""
    bits = (np.arange(case.keys)[:, None] >> np.arange(case.d_k - 1)) & 1
    keys = np.concatenate([np.ones((case.keys, 1)), 2.0 * bits - 1.0], axis=1)
    meant = (7 * np.arange(case.queries) + 3) % case.keys
    odd = np.arange(case.queries)[:, None] % 2 == 1
    return keys, meant, odd, min(case.d_k, MOST_LARGE)


def draw_values(problem: Problem) -> dict[str, Array]:
    """V of up to 6e4, which float16 just holds, or of 1e3 where its products with a gradient are needed."""
    arrays = draw_random(problem)
    most = 1e3 if problem.backward else 6e4
    v = arrays["V"] * (most / np.abs(arrays["V"]).max())
    return arrays | {"V": problem.in_type(v)}


def draw_channel(problem: Problem) -> dict[str, Array]:
    """One column of V a thousand times the others, one of K twenty times, as in trained models."""
    arrays = {name: np.array(array) for name, array in draw_random(problem).items()}
    arrays["V"][..., -1] *= 1024.0
    arrays["K"][..., 0] *= 20.0
    return {name: problem.in_type(array) for name, array in arrays.items()}


def draw_sums(problem: Problem) -> dict[str, Array]:
    """Q = 0, and in each column of V a one with sixteen of half its last unit in the keys after it.

    Their sum is a number of any type, and in a coarse one they are lost where they are added one by one.
    """
    case = problem.case
    after = (np.arange(case.keys)[:, None] - np.arange(case.d_v)) % case.keys
    column = np.select([after == 0, after <= 16], [1.0, TYPES[case.dtype].unit], 0.0)
    return draw_with(problem, Q=np.zeros(1), V=column)


FILLS = {
    "random": draw_random,
    "who": draw_uniform,
    "identity": draw_identity,
    "heads": draw_by_head,
    "large": draw_large,
    "shifted": draw_shifted,
    "values": draw_values,
    "channel": draw_channel,
    "sums": draw_sums,
}
"""The ways of drawing Q, K and V, by the `fill` of a case."""
