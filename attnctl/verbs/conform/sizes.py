"""The sizes that a target takes, where it does not take all: every case is brought to them."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from attnctl.math.derivation import Rotary
from attnctl.verbs.conform.case import Case, Conventions
from attnctl.verbs.conform.declared import Declared
from attnctl.verbs.conform.features import GROUPED, LENGTHS, OTHER_D_V
from attnctl.verbs.conform.layout import apart, axes_in, in_columns, is_merged


@dataclass(frozen=True)
class Sizes:
    """What a target takes; left out, everything."""

    head_sizes: tuple[int, ...] = ()
    multiple_of: int = 1
    """What its numbers of queries and keys are multiples of."""
    heads: int | None = None
    kv_heads: int | None = None
    rotary: Rotary | None = None
    """Rotary positions turn pairs of columns, the first `dims` of them."""
    tells_kv_heads: bool = False
    """Whether its number of kv heads is fixed, or it is told."""

    @classmethod
    def of(cls, said: Declared, told: Container[str] = ()) -> Sizes:
        """Those that are declared, of a target that is told sizes of these names."""
        always = said.always
        rotary = always.positions if isinstance(always.positions, Rotary) else None
        tells = always.kv_heads is not None or "kv_heads" in told or "kv_share" in told
        return cls(said.head_sizes, said.multiple_of, always.heads, always.kv_heads, rotary, tells)

    def fit(self, case: Case, conventions: Conventions) -> Case:
        """The nearest case that the target takes, in what its layout has room for."""
        return self.in_layout(self.with_tokens(self.with_columns(self.with_heads(case))), conventions)

    def lacking(self, conventions: Conventions) -> dict[str, str]:
        """The features that such arrays have no room for, each with why."""
        axes, lacking = axes_in(conventions.layout), {}
        if "h" not in apart(axes):
            lacking[GROUPED] = f"the layout {axes} has one head"
        elif is_merged(axes) and not self.tells_kv_heads:
            lacking[GROUPED] = "heads stand side by side, and nothing tells it how many kv heads there are"
        if conventions.packed:
            together = (
                [LENGTHS, OTHER_D_V]
                if in_columns(conventions.packed, axes)
                else [LENGTHS, OTHER_D_V, GROUPED]
            )
            lacking |= dict.fromkeys(together, "Q, K and V come in one array")
        return lacking

    def with_heads(self, case: Case) -> Case:
        """Heads as they are fixed; how many share a kv head stays, as far as it can."""
        heads = self.heads or case.heads
        share = case.heads // case.kv_heads
        if self.kv_heads:
            return replace(case, heads=self.heads or self.kv_heads * share, kv_heads=self.kv_heads)
        fewer = max(kv for kv in range(1, max(heads // share, 1) + 1) if heads % kv == 0)
        return replace(case, heads=heads, kv_heads=fewer)

    def with_columns(self, case: Case) -> Case:
        d_k = self.width(case.d_k)
        return replace(case, d_k=d_k, d_v=d_k if case.d_v == case.d_k else self.width(case.d_v, of_k=False))

    def width(self, d: int, *, of_k: bool = True) -> int:
        if self.head_sizes:
            return min((size for size in self.head_sizes if size >= d), default=max(self.head_sizes))
        if self.rotary is not None and of_k:
            return max(d + d % 2, self.rotary.dims or 2)
        return d

    def with_tokens(self, case: Case) -> Case:
        """So many queries, and keys of a cache and new ones, that each is a multiple."""
        past, new = self.length(case.past), self.length(case.keys - case.past)
        queries = new if case.queries == case.keys - case.past else self.length(case.queries)
        cached = case.having(cache=past) if past != case.past else case
        return replace(cached, queries=queries, keys=past + new)

    def length(self, n: int) -> int:
        return -(-n // self.multiple_of) * self.multiple_of

    def in_layout(self, case: Case, conventions: Conventions) -> Case:
        """What the layout has room for: (head, n, d) has no batch, (n, d) one head."""
        axes, lacking = axes_in(conventions.layout), self.lacking(conventions)
        if "h" not in apart(axes):
            case = replace(case, heads=1)
        if GROUPED in lacking:
            case = replace(case, kv_heads=case.heads)
        if OTHER_D_V in lacking:
            case = replace(case, d_v=case.d_k)
        if LENGTHS in lacking:
            case = replace(case, queries=case.keys - case.past)
        if "b" not in axes:
            case = replace(case, batch=1)
        shared = case.batch > 1 and axes[0] == "b" and not conventions.packed
        return case if shared or case.memory != "broadcast" else replace(case, memory="plain")
