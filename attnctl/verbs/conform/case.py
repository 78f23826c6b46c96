"""A case: a small value from which every array of a call follows, and what attention makes of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any
from zlib import crc32

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.evidence.precision import BFLOAT16, DTYPES, Precision, round_to
from attnctl.inputs.arrays.facts import Facts
from attnctl.inputs.config.settings import LENGTHS, Settings
from attnctl.inputs.plan.variant import variant
from attnctl.math import Array
from attnctl.math.derivation import Derivation, Variant
from attnctl.math.names import BIAS, MASK
from attnctl.math.rules import PerBatch, Rule
from attnctl.verbs.conform.declared import NOTHING
from attnctl.verbs.conform.layout import MASKS, USUAL

TYPES: dict[str, Precision] = {
    **{name: DTYPES[name] for name in ("float64", "float32", "float16")},
    BFLOAT16.name: BFLOAT16,
}
"""The types that a target is called with, the finest first."""

LARGE, BELOW, APART = 2496.0, 3008.0, 512.0
MOST_LARGE = 16
"""Q of the fill `large`, which is 0 from column 16 on: with 16 columns of ±1 scores are about ±1e4, apart
by 256 in every type, and those of odd queries are all below −1e4."""


MASK_KINDS = ("boolean", "1 and 0", "added")
"""How a mask that says who sees whom may be given: as truth values, as numbers, or as 0 and −∞."""


@dataclass(frozen=True)
class Conventions:
    """What a target does where programs differ; found out before it is judged."""

    corner: str = "top-left"
    """Where the diagonal of a causal mask starts when there are more keys than queries."""
    window: str = "W"
    """Of a sliding window W: whether a query sees W keys or W + 1, itself among them."""
    ahead: str = "none"
    """What a sliding window without causal sees ahead of the query: none, the same, or all."""
    lengths: str = "first key"
    """Where the diagonal is with key lengths: counted from the first key, or ending at each length."""
    layout: str = USUAL
    """The axes of its arrays, as `attnctl.verbs.conform.layout` has them."""
    packed: str = ""
    """The axes of Q, K and V in one array, heads in an axis of their own; 3 is that of Q, K and V."""
    mask: str = MASKS[0]
    """The shape of a mask."""
    mask_kind: str = "boolean"
    """A mask that is no bias is given as `boolean`, as `1 and 0`, or as 0 and −∞ which are `added`."""
    true: str = "may attend"
    """Where a boolean mask is true: a query may attend there, or the key is hidden."""
    masked: str = "both"
    """What holds where attention that is always causal is given a mask: both, or the mask alone."""

    def offset(self, case: Case, asked: int | str | None = None) -> PerBatch:
        """The number of keys before query 0; `asked` is that of the attention that is always on."""
        if isinstance(asked, int):
            return asked
        each = LENGTHS if self.lengths == "each length" and not case.past else asked
        if each == LENGTHS and "key_lengths" in case.asked:
            return tuple(length - case.queries for length in case.lengths)
        return case.past if case.past or self.corner == "top-left" else case.keys - case.queries


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
    def asked(self) -> dict[str, Any]:
        return dict(self.options)

    @property
    def past(self) -> int:
        """Keys that come from a cache."""
        return int(self.asked.get("cache", 0))

    @property
    def lengths(self) -> tuple[int, ...]:
        """The keys of each member that are no padding, where the case has key lengths."""
        rest = max(self.keys - 1, 1)
        return tuple(max(1, self.keys - 1 - 5 * member % rest) for member in range(self.batch))

    def having(self, **options: Any) -> Case:
        return replace(self, options=tuple({**self.asked, **options}.items()))

    def without(self, *names: str) -> Case:
        """The same without these options."""
        return replace(self, options=tuple(each for each in self.options if each[0] not in names))

    def to_dict(self) -> dict[str, Any]:
        """As a dump's header holds it."""
        return {**asdict(self), "options": [[name, plain(value)] for name, value in self.options]}

    @classmethod
    def of(cls, data: Any) -> Case:
        """The case that `to_dict` wrote. Raises AttnError for what is none."""
        try:
            known = {each.name: data[each.name] for each in fields(cls)}
            known["options"] = tuple((name, frozen(value)) for name, value in data["options"])
            return cls(**known)
        except (KeyError, TypeError, ValueError) as error:
            raise AttnError(f"conform.case: not a case of attnctl conform ({error})") from None


def plain(value: Any) -> Any:
    """Tuples as lists."""
    return [plain(each) for each in value] if isinstance(value, tuple) else value


def frozen(value: Any) -> Any:
    """Lists as tuples."""
    return tuple(frozen(each) for each in value) if isinstance(value, list) else value


@dataclass
class Problem:
    """The arrays of a case, what an option is passed as, and the attention that is meant."""

    case: Case
    conventions: Conventions
    arrays: dict[str, Array]
    """What the derivation starts from, under our names."""
    passed: dict[str, Any] = field(default_factory=dict)
    """By option: its value, with arrays over (batch, head, query, key)."""
    rules: list[Rule] = field(default_factory=list)
    scale: float | None = None
    offset: PerBatch = 0
    always: Settings = NOTHING
    """The attention that is always on, whatever is passed."""

    @property
    def starts(self) -> Array:
        """The number of keys before query 0 of each member, (batch or 1, 1, 1, 1)."""
        return np.reshape(self.offset, (-1, 1, 1, 1))

    @property
    def scores(self) -> tuple[int, int, int, int]:
        return self.case.batch, self.case.heads, self.case.queries, self.case.keys

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
        self.rules = [each for each in self.rules if type(each) is not type(rule)] + [rule]

    def add_bias(self, bias: Array) -> None:
        """Add something to the scores."""
        self.arrays[BIAS] = self.arrays.get(BIAS, 0.0) + np.broadcast_to(bias, self.scores)

    def hide(self, allowed: Array) -> None:
        """Hide what is not allowed."""
        self.arrays[MASK] = self.arrays.get(MASK, True) & np.broadcast_to(allowed, self.scores)

    @property
    def meant(self) -> Settings:
        return replace(self.always, scale=self.scale, rules=tuple(self.rules))

    @property
    def variant(self) -> Variant:
        case = self.case
        facts = Facts(case.batch, case.heads, case.kv_heads, case.queries, case.keys, case.d_k, case.past)
        named = {name: (array, "given") for name, array in self.arrays.items()}
        return variant(self.meant, facts, named, self.offset)

    @property
    def derivation(self) -> Derivation:
        return self.variant.derivation
