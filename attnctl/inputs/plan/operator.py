"""The operator itself, on anyone's arrays: the reference an engineer holds a kernel against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError, raise_all
from attnctl.inputs.arrays.beside import in_base_e
from attnctl.inputs.arrays.pages import with_pages
from attnctl.inputs.arrays.reader import (
    as_array,
    begin_backward,
    ends_elsewhere,
    read_strictly,
    with_corners,
    with_documents,
)
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.config.sizes import adds_positions, key_count, written_masks
from attnctl.inputs.plan import Plan, plan_of, variant, what_if_of, with_norm_rows, with_padding
from attnctl.inputs.plan.sentence import with_positions
from attnctl.math import Array, Sizes
from attnctl.math.kind import HEADS
from attnctl.math.names import EMBEDDINGS, KEY_LENGTHS, MEMORY, PAGE_TABLE, PAGES, X, where
from attnctl.math.rules import Padding, PerBatch

OF_A_SENTENCE = {"sentence", "context", "vocab", "tokenizer", "seed", "embeddings", "weights"}
"""What a config says of a sentence and of drawing: of arrays that are given it says nothing."""


def prepare(arrays: Mapping[str, Array], settings: Settings, header: Mapping[str, Any]) -> Plan:
    """Everything attention on these arrays needs.

    Arrays are Q K V, or X [memory] W_Q W_K W_V [W_O b_Q b_K b_V b_O]; beside them mask, bias, sink,
    Q_norm_weight, K_norm_weight, past_key, past_value, key_lengths, cu_seqlens; or, in place of K and V,
    key_pages, value_pages (page, slot, head, d) and page_table. Q, K, V are (n, d),
    (head, n, d), (batch, head, n, d), (batch, n, head, d) where nothing else fits, (n, head, d) beside
    cu_seqlens, or (n, heads·d) and (batch, n, heads·d) when `settings.heads` is given; a cache has the
    layout of K, or its heads split. Weights are by head, (d_model, heads·d), or as nn.Linear keeps them
    where that shows: a square matrix is
    (in, out) unless all others are (out, in). `header` may bring tokens.

    Raises AttnError with every array that is missing, not finite or does not fit.
    """
    found = read_inputs(arrays, settings)
    settings = with_documents(found, settings)
    said = header.get("config", {})
    if ours := PAGE_TABLE in said and {*PAGES} <= found.keys():  # as a dump says what was read
        table = {name: as_array(name, said[name]) for name in (PAGE_TABLE, KEY_LENGTHS) if name in said}
        found = table | found
    read, settings, paged = with_pages(found, settings, strictly=True, ours=ours)
    laid = paged.put_back(read_strictly(read, settings))
    raise_all(ends_elsewhere(found, laid.sizes, settings))
    laid, settings = with_corners(laid, settings)
    norms = header.get("config", {}).get("qk_norm")  # as a dump says how it normed Q and K
    recorded = isinstance(norms, dict) and norms.get("over") == HEADS
    settings = with_norm_rows(settings, one_row=laid.one_row or recorded)
    sizes, lengths, past = laid.sizes, laid.lengths, laid.sizes.get("past", 0)
    named = {name: (array, "given") for name, array in laid.arrays.items()}
    offset = causal_offset(settings, sizes, lengths)
    if adds_positions(settings):
        named[EMBEDDINGS] = named.pop(X)
        whole = EMBEDDINGS in arrays  # a dump's memory has its positions
        if MEMORY in named and not whole:
            named[MEMORY] = named[MEMORY][0], "given, with positions"
        named = with_positions(named, settings, past, memory=not whole)
    spoken = words_in_header(header, sizes)
    kind = variant(hide_padding(settings, lengths, spoken), sizes, named, offset, pages=paged.gather)
    asked = {name: value for name, value in settings.to_dict().items() if name not in OF_A_SENTENCE}
    config = asked | {"heads": sizes["head"], "kv_heads": sizes["kv_head"]}
    config["causal_offset"] = as_json_number(offset)
    if lengths is not None:
        config[KEY_LENGTHS] = as_json_number(lengths)
    if paged.gather:
        config[PAGE_TABLE] = [list(row) for row in paged.gather.table]
    out = {**spoken, "config": config, **({"notes": list(laid.notes)} if laid.notes else {})}
    return plan_of(kind, named, out, settings, what_if_of(settings))


def read_inputs(arrays: Mapping[str, Array], settings: Settings) -> dict[str, Array]:
    """Every input by name: from the arrays, and the mask and bias that the settings bring.

    A dump of ours has X with its positions added; where they are to be added, its embeddings are
    taken. Raises AttnError for rows of different lengths, and for two masks that differ.
    """
    wanted = where(lambda row: row.input and (settings.backward or not row.gradient))
    found = begin_backward({name: as_array(name, arrays[name]) for name in wanted if name in arrays})
    found = in_base_e(found, settings)
    if adds_positions(settings) and EMBEDDINGS in arrays:
        found[X] = as_array(EMBEDDINGS, arrays[EMBEDDINGS])
    for name, ours in written_masks(settings).items():
        if not np.array_equal(found.setdefault(name, ours), ours):
            raise AttnError(f"{settings.where(('rules', name))}: the arrays hold another {name}; give one")
    return found


def as_json_number(value: PerBatch) -> int | list[int]:
    return value if isinstance(value, int) else list(value)


def hide_padding(settings: Settings, lengths: PerBatch | None, header: Mapping[str, Any]) -> Settings:
    """The settings that hide padding, by lengths or [PAD] tokens. Raises AttnError where neither tells."""
    asked = Padding in map(type, settings.rules)
    keys = header.get("key_tokens", header.get("tokens"))
    if asked and lengths is None and not keys:
        place = settings.where(("rules",))
        raise AttnError(f"{place}: padding, but nothing says which keys are; give key_lengths")
    return replace(settings, rules=with_padding(settings.rules, lengths, keys if asked else ()))


def causal_offset(settings: Settings, sizes: Sizes, lengths: PerBatch | None) -> PerBatch:
    """The number of keys before query 0: as asked, or else the cache's; otherwise 0 (top-left).

    With fewer queries than keys and lengths it is lengths − queries: the queries are the last
    tokens. LENGTHS asks for that whatever the number of queries. Raises AttnError where it does
    and there are no lengths.
    """
    asked, past, queries = settings.causal_offset, sizes.get("past", 0), sizes.get("query", 0)
    if asked is None and (past or lengths is None or queries >= key_count(sizes)):
        return past
    if asked is not None and not isinstance(asked, str):
        return asked
    if lengths is None:
        raise AttnError(f"{settings.where(('causal_offset',))}: lengths, but no key_lengths; give them")
    return lengths - queries if isinstance(lengths, int) else tuple(length - queries for length in lengths)


def words_in_header(header: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """The sentence and tokens of a header, where they are of this length."""
    tokens, keys = header.get("tokens"), header.get("key_tokens", header.get("tokens"))
    here = sizes.get("query", 0), key_count(sizes)
    if not tokens or "batch" in sizes or (len(tokens), len(keys)) != here:
        return {}
    kept = ("sentence", "context", "tokens", "ids", "key_tokens")
    return {name: header[name] for name in kept if name in header}
