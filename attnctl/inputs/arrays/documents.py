"""Documents that arrays say, and those whose queries are not their keys, read as a mask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from attnctl.base.errors import raise_all
from attnctl.base.words import plural
from attnctl.inputs.arrays.laid import Laid
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.config.sizes import (
    key_count,
)
from attnctl.math import Array, Sizes
from attnctl.math.names import (
    CU_SEQLENS,
    MASK,
    Q,
)
from attnctl.math.rules import Causal, Documents, Window
from attnctl.math.rules.visibility import document_of


def goes_up_from_0(ends: list[float]) -> bool:
    """True of two or more whole numbers, the first of them 0; documents may be empty."""
    return ends[:1] == [0] and len(ends) >= 2 and ends == sorted(map(int, ends))


def with_documents(found: Mapping[str, Array], settings: Settings) -> Settings:
    """The settings with the documents that the arrays say, Q, K and V of three axes then as (n, head, d).

    Raises AttnError for numbers that do not go up from 0.
    """
    recorded = {name: found[name].reshape(-1).tolist() for name in CU_SEQLENS if name in found}
    if not recorded or any(isinstance(rule, Documents) for rule in settings.rules):
        return settings

    expected = "expected whole numbers that go up from 0 to the number of tokens, like [0, 5, 12]"
    raise_all(f"{name}: {ends}, {expected}" for name, ends in recorded.items() if not goes_up_from_0(ends))

    # What is said of one side alone, or of both in one array, is true of both.
    first = next(iter(recorded.values()))
    of_keys = tuple(recorded.get("cu_seqlens_k", first))[:-1]
    of_queries = tuple(recorded.get("cu_seqlens_q", first))[:-1]
    rule = Documents(of_keys, of_queries if of_queries != of_keys else ())

    is_packed = settings.layout is None and Q in found and found[Q].ndim == 3
    settings = settings.with_(rules=(*settings.rules, rule))
    return settings.with_(layout="nhd") if is_packed else settings


def ends_elsewhere(found: Mapping[str, Array], sizes: Sizes, settings: Settings) -> Iterator[str]:
    """What is wrong with documents on arrays of these sizes."""
    for name, axis in zip(CU_SEQLENS, ("query", "query", "key"), strict=True):
        if name not in found or axis not in sizes:
            continue
        end = int(found[name].reshape(-1)[-1])
        if end != sizes[axis]:
            rows = "K" if axis == "key" else "Q"
            tokens = f"{sizes[axis]} rows of {rows}"
            yield f"{name}: the last document ends at {end}, but there are {tokens}; write where each ends"

    for rule in apart(settings):
        if len(rule.of_queries) != len(rule.starts):
            of_queries = plural(len(rule.of_queries), "document")
            counts = f"{of_queries} of queries, and {len(rule.starts)} of keys"
            yield f"documents: {counts}; say where as many begin"


def apart(settings: Settings) -> list[Documents]:
    """Documents whose queries are not their keys."""
    return [rule for rule in settings.rules if isinstance(rule, Documents) and rule.of_queries]


def with_corners(laid: Laid, settings: Settings) -> tuple[Laid, Settings]:
    """What is causal in documents whose queries are not their keys, as a mask.

    The last query of each is beside its last key, as in flash-attention.
    """
    causal_rules = [rule for rule in settings.rules if isinstance(rule, (Causal, Window))]
    if not causal_rules:
        return laid, settings

    for documents in apart(settings):
        queries = laid.sizes["query"]
        keys = key_count(laid.sizes)

        # How many keys the end of each document is ahead of its queries' end.
        key_ends = np.array([*documents.starts[1:], keys])
        query_ends = np.array([*documents.of_queries[1:], queries])
        ahead = key_ends - query_ends

        row = np.arange(queries)
        position = row + ahead[document_of(row, documents.of_queries) - 1]
        allowed = [rule.allows(position[:, None], np.arange(keys)) for rule in causal_rules]
        seen = np.logical_and.reduce(allowed)

        note = f"The last query of each document is read as beside its last key ({causal_rules[0].name})."
        mask = laid.arrays.get(MASK, np.True_) & seen
        laid = replace(laid, arrays={**laid.arrays, MASK: mask}, notes=(*laid.notes, note))
        settings = settings.with_(rules=tuple(rule for rule in settings.rules if rule not in causal_rules))

    return laid, settings
