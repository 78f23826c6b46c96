"""Hypothesis strategies for shapes, rules and inputs of attention: for tests of your own kernel.

>>> @given(strategies.inputs(strategies.shapes(most_keys=64), strategies.rules("causal", "window")))
... def test_attend(case):
...     case.hold(attend(case.q, case.k, case.v, **case.options))

Hypothesis comes with it where a test does: `pip install hypothesis`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from attnctl.base.dataclass import dataclass
from attnctl.inputs.config.fields import SETTABLE
from attnctl.math import Array

try:
    from hypothesis import strategies as st
except ImportError:
    raise ImportError("attnctl.testing.strategies needs Hypothesis; pip install hypothesis") from None

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

    from attnctl.verbs.check.report import Report

BOUNDARIES = (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
"""Lengths at which blocks of keys or queries begin and end: what is left over is where kernels err."""


def values(schema: Mapping[str, Any]) -> SearchStrategy[Any]:
    """Draw small values of a setting, by its JSON Schema: of several forms the one that says most."""
    forms = schema.get("anyOf") or schema.get("oneOf")
    if forms:
        return values(next((form for form in forms if form.get("type") == "array"), forms[0]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "boolean":
            return st.just(value=True)
        case "integer":
            least = schema.get("minimum", 0)
            return st.integers(least, min(least + 8, schema.get("maximum", least + 8)))
        case "array":
            least, most = schema.get("minItems", 1), schema.get("maxItems", 4)
            return st.lists(values(schema["items"]), min_size=least, max_size=most).map(tuple)
        case _:
            return st.floats(0.5, 50)


RULES: dict[str, SearchStrategy[Any]] = {
    **{setting.keyword: values(setting.reader.schema) for setting in SETTABLE if setting.flag},
    "scale": st.floats(0.01, 1),
    "positions": st.just("alibi"),
}
"""What each rule may be, by the keyword of `attnctl.attend`."""

ARRAYS = ("mask", "float_mask", "bias", "key_lengths", "cache")
"""What may come beside Q, K and V."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a call; `keys` counts those of a cache, too."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    d_k: int
    d_v: int


@dataclass(frozen=True)
class AttentionInputs:
    """The arrays of a call under attnctl's names, and the options that go with them."""

    arrays: Mapping[str, Array]
    """Q (batch, head, query, d_k), K (batch, kv head, key, d_k), V (batch, kv head, key, d_v), …"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Rules as keywords: what `attnctl.attend` takes, and a kernel with the same names."""

    @property
    def q(self) -> Array:
        """Q, (batch, head, query, d_k)."""
        return self.arrays["Q"]

    @property
    def k(self) -> Array:
        """K, (batch, kv head, key, d_k)."""
        return self.arrays["K"]

    @property
    def v(self) -> Array:
        """V, (batch, kv head, key, d_v)."""
        return self.arrays["V"]

    @property
    def meant(self) -> dict[str, Any]:
        """The options with where diagonals begin: at the top left, after the keys of a cache."""
        past = self.arrays["past_key"].shape[-2] if "past_key" in self.arrays else 0
        return {"causal_offset": past, **self.options}

    def expected(self, **options: Any) -> Array:
        """The output of attention in float64, (batch, head, query, d_v).

        Options here overrule its own.
        """
        from attnctl.api import attend

        return attend(self.arrays, **{**self.meant, "dtype": "float64", **options})["head_outputs"]

    def hold(self, output: Any, **options: Any) -> Report:
        """Assert that this is the output, (batch, head, query, d_v), as far as its type can tell.

        Options here overrule its own, as for a kernel whose diagonals end at the bottom right:
        `causal_offset=case.k.shape[2] - case.q.shape[2]`. Raises AssertionError with the report of
        `attnctl.check`.
        """
        from attnctl.testing import assert_attention

        __tracebackhide__ = True
        return assert_attention({**self.arrays, "head_outputs": output}, **{**self.meant, **options})


@st.composite
def shapes(  # noqa: PLR0913  (one for each size)
    draw: DrawFn,
    *,
    most_batch: int = 3,
    most_heads: int = 8,
    most_queries: int = 33,
    most_keys: int = 33,
    most_columns: int = 32,
    grouped: bool = True,
    square: bool = False,
) -> Shape:
    """Sizes up to these: lengths are often a block's and one to either side of it.

    `grouped` lets query heads share kv heads; `square` has as many queries as keys.
    """
    share = draw(st.sampled_from([n for n in (1, 2, 3, 4) if n <= most_heads])) if grouped else 1
    kv_heads = draw(st.integers(1, most_heads // share))
    keys = draw(lengths(most_keys))
    queries = keys if square else draw(lengths(most_queries))
    columns = st.integers(1, most_columns)
    batch = draw(st.integers(1, most_batch))
    return Shape(batch, kv_heads * share, kv_heads, queries, keys, draw(columns), draw(columns))


def lengths(most: int) -> SearchStrategy[int]:
    """A number of tokens, up to this."""
    near = [length for length in BOUNDARIES if length <= most]
    return st.integers(1, most) | st.sampled_from(near)


@st.composite
def rules(draw: DrawFn, *names: str) -> dict[str, Any]:
    """Any of these rules together, or none, as keywords; without names, of all in `RULES`.

    Raises ValueError for a name that is not there.
    """
    unknown = [name for name in names if name not in RULES]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no rule; there are {', '.join(RULES)}")
    chosen = draw(st.lists(st.sampled_from(names or tuple(RULES)), unique=True))
    return {name: draw(RULES[name]) for name in RULES if name in chosen}


@st.composite
def inputs(
    draw: DrawFn,
    sizes: SearchStrategy[Shape] | None = None,
    options: SearchStrategy[dict[str, Any]] | None = None,
    *,
    dtype: str = "float64",
    beside: tuple[str, ...] = (),
) -> AttentionInputs:
    """Arrays of these sizes and type with these rules: normal numbers, Q at times eight times as large.

    `beside` names what may come with Q, K and V: a mask, a float_mask, a bias, key_lengths, a
    cache. A query sees one key at least of those that a mask leaves. Raises ValueError for a name
    that is not there.
    """
    import numpy as np

    unknown = [name for name in beside if name not in ARRAYS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no array of attention; there are {', '.join(ARRAYS)}")
    size: Shape = draw(shapes() if sizes is None else sizes)
    random = np.random.RandomState(draw(st.integers(0, 2**32 - 1)))
    # In float16 sharp weights of large scores are lost in rounding: no one could be held to them.
    factor = 8 if dtype != "float16" and draw(st.booleans()) else 1

    def numbers(*shape: int) -> Array:
        return random.standard_normal(shape).astype(dtype)

    arrays: dict[str, Array] = {
        "Q": numbers(size.batch, size.heads, size.queries, size.d_k) * np.dtype(dtype).type(factor),
        "K": numbers(size.batch, size.kv_heads, size.keys, size.d_k),
        "V": numbers(size.batch, size.kv_heads, size.keys, size.d_v),
    }
    for name in beside:
        mask = arrays.get("mask")
        added = mask is not None and mask.dtype != bool  # beside such a mask no one gives a bias
        if draw(st.booleans()) and not (name == "bias" and added):
            arrays |= ADDED[name](draw, random, size, arrays)
    return AttentionInputs(arrays, draw(rules() if options is None else options))


def mask_of(draw: DrawFn, random: Any, size: Shape, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """True where a query may attend; the same for all, or one by member and head."""
    lead = draw(st.sampled_from([(1, 1), (size.batch, size.heads)]))
    mask = random.uniform(size=(*lead, size.queries, size.keys)) < 0.7
    mask[..., 0] |= ~mask.any(axis=-1)
    return {"mask": mask}


def drawn_bias(draw: DrawFn, random: Any, size: Shape, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Numbers that are added to the scores; the same for all, or one by member and head."""
    lead = draw(st.sampled_from([(1, 1), (size.batch, size.heads)]))
    return {"bias": random.standard_normal((*lead, size.queries, size.keys)).astype(arrays["Q"].dtype)}


def float_mask_of(draw: DrawFn, random: Any, size: Shape, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Numbers that are added to the scores, −∞ where a key is hidden."""
    import numpy as np

    bias = drawn_bias(draw, random, size, arrays)["bias"]
    seen = random.uniform(size=bias.shape) < 0.7
    seen[..., 0] |= ~seen.any(axis=-1)
    return {"mask": np.where(seen, bias, -np.inf).astype(bias.dtype)}


def lengths_of(draw: DrawFn, random: Any, size: Shape, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The number of keys of each member that are no padding, (batch,)."""
    return {"key_lengths": random.randint(1, size.keys + 1, size.batch)}


def cache_of(draw: DrawFn, random: Any, size: Shape, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The first keys and values as those of a cache; the new ones are what is left, one at least."""
    if size.keys == 1:
        return {}
    past = draw(st.integers(1, size.keys - 1))
    k, v = arrays["K"], arrays["V"]
    old = {"past_key": k[..., :past, :].copy(), "past_value": v[..., :past, :].copy()}
    return {**old, "K": k[..., past:, :].copy(), "V": v[..., past:, :].copy()}


ADDED = {
    "mask": mask_of,
    "float_mask": float_mask_of,
    "bias": drawn_bias,
    "key_lengths": lengths_of,
    "cache": cache_of,
}
