"""A case: a small value that fixes every array of a call, and the plan made of it."""

from __future__ import annotations

from dataclasses import field, fields, replace
from typing import Any
from zlib import crc32

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.evidence.precision import DTYPES, round_to
from attnctl.inputs.config.settings import LENGTHS, Settings
from attnctl.inputs.plan.plan import Plan, variant
from attnctl.math import Array, Sizes
from attnctl.math.names import BIAS, HEAD_OUTPUTS, MASK, WEIGHTS, gradient_of
from attnctl.math.rules import PerBatch, Rule
from attnctl.verbs.conform.profile import CORNER, LENGTHS_CORNER, NOTHING, TYPES, TargetProfile

INPUTS = ("Q", "K", "V")
COTANGENT = gradient_of(HEAD_OUTPUTS)
"""The gradient of the loss by the output, which a backward pass begins with."""

FORWARD = (HEAD_OUTPUTS,)
GRADIENTS = tuple(map(gradient_of, INPUTS))
"""The outputs of a forward and of a backward pass that are judged, in order."""


@dataclass(frozen=True)
class Case:
    """The sizes, the options and the numbers of one call; `keys` counts those of a cache too."""

    dtype: str = "float64"
    batch: int = 2
    heads: int = 2
    kv_heads: int = 2
    queries: int = 16
    keys: int = 16
    d_k: int = 16
    d_v: int = 16
    options: tuple[tuple[str, Any], ...] = ()
    fill: str = "random"
    magnitude: float = 1.0
    memory: str = "plain"
    seed: int = 0

    def __str__(self) -> str:
        """The sizes, then what is not as usual."""
        heads = f"{self.heads}" if self.heads == self.kv_heads else f"{self.heads}/{self.kv_heads}"
        said = [
            f"{self.dtype}, batch {self.batch}, heads {heads}, {self.queries} queries, {self.keys} keys",
            f"d_k {self.d_k}" + (f", d_v {self.d_v}" if self.d_v != self.d_k else ""),
            *(f"{name} {value}" for name, value in self.options),
            *([f"fill {self.fill}"] if self.fill != "random" else []),
            *([f"inputs times {self.magnitude:g}"] if self.magnitude != 1 else []),
            *([f"arrays {self.memory}"] if self.memory != "plain" else []),
        ]
        return ", ".join(said)

    @property
    def option_values(self) -> dict[str, Any]:
        return dict(self.options)

    @property
    def past(self) -> int:
        """Keys that come from a cache."""
        return int(self.option_values.get("cache", 0))

    @property
    def sizes(self) -> Sizes:
        return {
            "batch": self.batch,
            "head": self.heads,
            "kv_head": self.kv_heads,
            "query": self.queries,
            "key": self.keys,
            "past": self.past,
            "d_k": self.d_k,
            "d_v": self.d_v,
        }

    @property
    def lengths(self) -> tuple[int, ...]:
        """The keys of each member that are no padding, where the case has key lengths."""
        rest = max(self.keys - 1, 1)
        return tuple(max(1, self.keys - 1 - 5 * member % rest) for member in range(self.batch))

    def having(self, **options: Any) -> Case:
        return replace(self, options=tuple({**self.option_values, **options}.items()))

    def without(self, *names: str) -> Case:
        return replace(self, options=tuple(each for each in self.options if each[0] not in names))

    @classmethod
    def of(cls, data: Any) -> Case:
        """The case that a dump's header holds. Raises AttnError for what is none."""
        try:
            known = {each.name: data[each.name] for each in fields(cls)}
            known["options"] = tuple((name, to_tuples(value)) for name, value in data["options"])
            return cls(**known)
        except (KeyError, TypeError, ValueError) as error:
            raise AttnError(f"conform.case: not a case of attnctl conform ({error})") from None


def keys_before(case: Case, profile: TargetProfile) -> PerBatch:
    """The number of keys before query 0."""
    asked = profile.always.causal_offset
    if isinstance(asked, int):
        return asked
    ends = LENGTHS if profile[LENGTHS_CORNER] == "each length" and not case.past else asked
    if ends == LENGTHS and "key_lengths" in case.option_values:
        return tuple(length - case.queries for length in case.lengths)
    return case.past if case.past or profile[CORNER] == "top-left" else case.keys - case.queries


def to_tuples(value: Any) -> Any:
    return tuple(to_tuples(each) for each in value) if isinstance(value, list) else value


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
MOST_LARGE = 16
"""Q of the fill `large`, which is 0 from column 16 on: with 16 columns of ±1 scores are about ±1e4, apart
by 256 in every type, and those of odd queries are all below −1e4."""


def unit_values(case: Case) -> Array:
    """V with a one in column j mod d_v of key j, so that the output tells the weights."""
    shape = (case.batch, case.kv_heads, case.keys, case.d_v)
    columns = np.arange(case.keys) % case.d_v
    return np.broadcast_to(np.eye(case.d_v)[columns], shape).copy()


def draw_uniform(problem: Problem) -> dict[str, Array]:
    """Q = 0 and V of unit vectors: each query sees its keys alike, which shows who sees whom."""
    arrays = draw_random(problem)
    return arrays | {"Q": np.zeros_like(arrays["Q"]), "V": unit_values(problem.case)}


def draw_identity(problem: Problem) -> dict[str, Array]:
    """V of unit vectors: the output is the weights."""
    return draw_random(problem) | {"V": unit_values(problem.case)}


def draw_by_head(problem: Problem) -> dict[str, Array]:
    """V constant in each kv head: the output says which head was read."""
    case = problem.case
    numbers = 1.0 + np.arange(case.kv_heads) + 16 * np.arange(case.batch)[:, None]
    shape = (case.batch, case.kv_heads, case.keys, case.d_v)
    return draw_random(problem) | {"V": np.broadcast_to(numbers[..., None, None], shape).copy()}


def draw_large(problem: Problem) -> dict[str, Array]:
    """Scores of ±1e4 with one key ahead of the others: the output is that key's row of V, exactly.

    Keys are different rows of ±1 that begin with 1. Even queries are large multiples of one key;
    odd ones are that key, and far below 0 with every key. Rotary positions make any key the first,
    and a score as much as √2 larger: half of that stays in range.
    """
    case = problem.case
    used = min(case.d_k, MOST_LARGE)
    bits = (np.arange(case.keys)[:, None] >> np.arange(case.d_k - 1)) & 1
    keys = np.concatenate([np.ones((case.keys, 1)), 2.0 * bits - 1.0], axis=1)
    meant = (7 * np.arange(case.queries) + 3) % case.keys
    odd = np.arange(case.queries)[:, None] % 2 == 1
    q = np.where(odd, APART * keys[meant], LARGE * keys[meant])
    q[:, 0] = np.where(odd[:, 0], -BELOW * used, q[:, 0])
    q[:, used:] = 0.0
    q *= 0.5 if problem.profile.rotary else 1.0
    shape = (case.batch, case.kv_heads, case.keys, case.d_k)
    queries = np.broadcast_to(q, (case.batch, case.heads, case.queries, case.d_k)).copy()
    return draw_random(problem) | {"Q": queries, "K": np.broadcast_to(keys, shape).copy()}


FILLS = {
    "random": draw_random,
    "who": draw_uniform,
    "identity": draw_identity,
    "heads": draw_by_head,
    "large": draw_large,
}
"""The ways of drawing Q, K and V, by the `fill` of a case."""
