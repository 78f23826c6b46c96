"""The sizes that a target takes."""

from __future__ import annotations

from dataclasses import replace

from attnctl.base.dataclass import dataclass
from attnctl.math.derivation import Rotary
from attnctl.verbs.conform.case import Case
from attnctl.verbs.conform.conventions import Conventions
from attnctl.verbs.conform.features import GROUPED, LENGTHS, OTHER_D_V
from attnctl.verbs.conform.layout import axes_in, is_merged, split_axes, stands_in_columns


@dataclass(frozen=True)
class SizeLimits:
    """The sizes that a target takes; every size where nothing is said."""

    head_sizes: tuple[int, ...] = ()
    multiple_of: int = 1
    """Its numbers of queries and keys are multiples of this."""
    heads: int | None = None
    kv_heads: int | None = None
    rotary: Rotary | None = None
    """Rotary positions turn pairs of columns, the first `dims` of them."""
    tells_kv_heads: bool = False
    """Its number of kv heads is fixed, or passed to it."""
    batch: int | None = None
    tokens: int | None = None
    """The only number of queries and keys that it takes."""

    def fit(self, case: Case, conventions: Conventions) -> Case:
        """Return the nearest case that the target takes."""
        return self.in_layout(self.with_tokens(self.with_columns(self.with_heads(case))), conventions)

    def lacking(self, conventions: Conventions) -> dict[str, str]:
        """Name the features that such arrays have no room for, each with why."""
        axes, lacking = axes_in(conventions.layout), {}
        if self.tokens:
            lacking[LENGTHS] = f"it takes {self.tokens} queries and as many keys alone"
        if "h" not in split_axes(axes):
            lacking[GROUPED] = f"the layout {axes} has one head"
        elif is_merged(axes) and not self.tells_kv_heads:
            lacking[GROUPED] = "heads stand side by side, and nothing tells it how many kv heads there are"
        if conventions.packed:
            together = (
                [LENGTHS, OTHER_D_V]
                if stands_in_columns(conventions.packed, axes)
                else [LENGTHS, OTHER_D_V, GROUPED]
            )
            lacking |= dict.fromkeys(together, "Q, K and V come in one array")
        return lacking

    def with_heads(self, case: Case) -> Case:
        """Take the fixed numbers of heads, and keep how many share a kv head as far as possible."""
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
        """Round the queries, the keys of a cache and the new keys up to multiples, or take those fixed."""
        if self.tokens and not case.past:
            return replace(case, queries=self.tokens, keys=self.tokens)
        past, new = self.length(case.past), self.length(case.keys - case.past)
        queries = new if case.queries == case.keys - case.past else self.length(case.queries)
        cached = case.having(cache=past) if past != case.past else case
        return replace(cached, queries=queries, keys=past + new)

    def length(self, n: int) -> int:
        return -(-n // self.multiple_of) * self.multiple_of

    def in_layout(self, case: Case, conventions: Conventions) -> Case:
        """Cut the case to its layout: (head, n, d) has no batch, (n, d) one head."""
        axes, lacking = axes_in(conventions.layout), self.lacking(conventions)
        if "h" not in split_axes(axes):
            case = replace(case, heads=1)
        if GROUPED in lacking:
            case = replace(case, kv_heads=case.heads)
        if OTHER_D_V in lacking:
            case = replace(case, d_v=case.d_k)
        if LENGTHS in lacking:
            case = replace(case, queries=case.keys - case.past)
        if "b" not in axes or self.batch:
            case = replace(case, batch=self.batch or 1)
        shared = case.batch > 1 and axes[0] == "b" and not conventions.packed
        return case if shared or case.memory != "broadcast" else replace(case, memory="plain")
