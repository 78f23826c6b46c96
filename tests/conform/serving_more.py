"""Forty more mistakes of decode, sizes, ranges, caches and pages, planted when `conform` was finished.

None is in the catalogue, and cases were chosen before they were written: they say what a suite finds that
was not made for them. `python tests/conform/serving_trial.py` says how many.
"""

from dataclasses import replace

import numpy as np
import serving
from serving_table import Fault, few_queries, forget, one_query, with_cache

# --- decode ---


def all_as_the_first(call):
    """The row's own number is not added to where the first new query stands."""
    return call.hiding(call.columns > call.first) if call.asked["causal"] else call


def groups_reversed(call):
    """The query heads of a group are written back in the other order."""
    order = np.arange(call.q.shape[1]).reshape(-1, call.share)[:, ::-1].ravel()
    return serving.attend(call)[:, order]


def newest_value_is_old(call):
    """V of the newest key is not written yet: that of the key before it is read."""
    if call.keys < 2:
        return call
    places = np.minimum(call.columns, call.keys - 2)
    return replace(call, v=call.v[:, :, places])


def splits_weigh_alike(call):
    """Two halves of the keys are averaged, whatever their sums are."""
    if call.keys < 64:
        return call
    middle = call.keys // 2
    halves = [call.hiding(call.columns >= middle), call.hiding(call.columns < middle)]
    return sum(serving.attend(half) for half in halves) / 2


def window_of_the_first(call):
    """The first key of a window is that of the first new query."""
    window = call.asked["window"]
    return call if window is None else call.hiding(call.columns < call.first - window[0] + 1)


def window_one_less(call):
    window = call.asked["window"]
    return call if window is None else call.hiding(call.columns <= call.rows - window[0])


def last_of_an_odd_number(call):
    """Rows are taken by twos; a single one at the end is that before it."""
    output = serving.attend(call)
    if call.queries % 2:
        output[:, :, -1] = output[:, :, -2]
    return output


def slope_of_the_first_head(call):
    slopes = call.asked["alibi_slopes"]
    return call if slopes is None else call.having(alibi_slopes=np.broadcast_to(slopes[:1], slopes.shape))


def shortest_length(call):
    lengths = call.asked["key_lengths"]
    return call if lengths is None else call.having(key_lengths=np.full_like(lengths, np.min(lengths)))


DECODE = [
    ("each of a few queries sees as far as the first", few_queries(all_as_the_first)),
    ("the heads of a group come back reversed for one query", one_query(groups_reversed)),
    ("the newest value is that before it for one query", one_query(newest_value_is_old)),
    ("halves of the keys weigh alike for one query", one_query(splits_weigh_alike)),
    ("a few queries have the window of the first", few_queries(window_of_the_first)),
    ("the window of one query is one too short", one_query(window_one_less)),
    ("the third query is the second", few_queries(last_of_an_odd_number)),
    ("one query has the slope of the first head", one_query(slope_of_the_first_head)),
    ("one query knows the shortest length alone", one_query(shortest_length)),
    ("one query knows no mask", one_query(forget("mask"))),
    ("one query knows no bias", one_query(forget("bias"))),
]

# --- sizes ---


def keys_read_around(size):
    """What is behind a buffer of so many keys is read from its beginning."""

    def fault(call):
        places = call.columns % size
        return replace(call, k=call.k[:, :, places], v=call.v[:, :, places])

    return fault


def causal_ends_at(most):
    def fault(call):
        if not call.asked["causal"]:
            return call
        every = call.without("causal")
        return replace(call, seen=np.where(call.rows >= most, every.seen, call.seen))

    return fault


def diagonal_lost_at_the_end_of(block):
    def fault(call):
        if not call.asked["causal"]:
            return call
        is_last = call.rows % block == block - 1
        return call.hiding(is_last & (call.columns == call.rows) & (call.rows > 0))

    return fault


def padding_counts(block):
    """What is behind the last key has scores of 0, which count where there are several blocks."""

    def fault(call):
        behind = -call.keys % block if call.keys > block else 0
        wide = [(0, 0), (0, 0), (0, behind), (0, 0)]
        scores = np.pad(serving.scores_of(call), [(0, 0), (0, 0), (0, 0), (0, behind)])
        seen = np.broadcast_to(call.seen, (*call.seen.shape[:2], call.queries, call.keys))
        seen = np.pad(seen, [(0, 0), (0, 0), (0, 0), (0, behind)], constant_values=True)
        padded = replace(call, k=np.pad(call.k, wide), v=np.pad(call.v, wide), seen=seen)
        return serving.attend(padded, scores=scores)

    return fault


def bias_of_row_0(most):
    """Of more keys than that, the row of a bias is not counted."""

    def fault(call):
        bias = call.asked["bias"]
        if bias is None or call.keys <= most:
            return call
        return call.having(bias=np.broadcast_to(bias[..., :1, :], bias.shape))

    return fault


def mask_ends_at(most):
    """Keys behind so many are seen, whatever a mask says."""

    def fault(call):
        mask = call.asked["mask"]
        return call if mask is None else call.having(mask=mask | (call.columns >= most))

    return fault


def heads_end_at(most):
    def fault(call):
        output = serving.attend(call)
        output[:, most:] = output[:, most - 1 : most]
        return output

    return fault


def members_end_at(most):
    def fault(call):
        output = serving.attend(call)
        output[most:] = output[most - 1 : most]
        return output

    return fault


def columns_end_at(most):
    def fault(call):
        return replace(call, q=call.q[..., :most], k=call.k[..., :most])

    return fault


SIZES = [
    ("keys are read around at 2,048", "many keys", keys_read_around(2048)),
    ("rows from 1,024 on are not causal", "many keys", causal_ends_at(1024)),
    (
        "the diagonal is lost at the end of a block of 64",
        "block boundaries",
        diagonal_lost_at_the_end_of(64),
    ),
    ("padding of a last block of 32 counts", "attention", padding_counts(32)),
    ("a bias has its first row beyond 256 keys", "many keys", bias_of_row_0(256)),
    ("a mask ends at 512 keys", "many keys", mask_ends_at(512)),
    ("heads end at 16", "attention", heads_end_at(16)),
    ("members end at 2", "decode", members_end_at(2)),
    ("scores end at column 128", "head sizes", columns_end_at(128)),
]

# --- ranges ---


def scores_end_at(most):
    return lambda call: serving.attend(call, scores=np.minimum(serving.scores_of(call), most))


def cap_ends_at(most):
    """A cap above that is taken for none."""

    def fault(call):
        cap = call.asked["softcap"]
        return call.having(softcap=None) if cap and cap > most else call

    return fault


def scale_ends_at(most):
    def fault(call):
        scale = call.asked["scale"]
        return call if scale is None else call.having(scale=min(scale, most))

    return fault


def small_slopes_are_lost(call):
    slopes = call.asked["alibi_slopes"]
    return call if slopes is None else call.having(alibi_slopes=np.where(slopes < 2.0**-7, 0.0, slopes))


def bias_in_float16(call):
    bias = call.asked["bias"]
    return call if bias is None else call.having(bias=bias.astype(np.float16).astype(float))


def small_sinks_are_lost(call):
    sinks = call.asked["sinks"]
    return call if sinks is None else call.having(sinks=np.where(sinks < -5, -np.inf, sinks))


def small_weights_are_lost(call):
    return serving.attend(call, scores=drop_below(serving.scores_of(call), np.log(1e-4)))


def drop_below(scores, least):
    return np.where(scores < scores.max(axis=-1, keepdims=True) + least, -np.inf, scores)


def lengths_of_12_bits(call):
    lengths = call.asked["key_lengths"]
    return call if lengths is None else call.having(key_lengths=np.asarray(lengths) % 4096)


def window_of_8_bits(call):
    window = call.asked["window"]
    return call if window is None else call.having(window=tuple(end % 256 for end in window))


RANGES = [
    ("scores end at 80", "large scores", scores_end_at(80.0)),
    ("a cap above 20 is none", "softcap", cap_ends_at(20.0)),
    ("a scale above 1 is 1", "scale", scale_ends_at(1.0)),
    ("slopes below 2^-7 are 0", "alibi", small_slopes_are_lost),
    ("a bias is kept in float16", "bias", bias_in_float16),
    ("sinks below -5 are none", "pairs", small_sinks_are_lost),
    ("weights below 1e-4 are 0", "attention", small_weights_are_lost),
    ("lengths have 12 bits", "many keys", lengths_of_12_bits),
    ("windows have 8 bits", "many keys", window_of_8_bits),
]

# --- caches ---


def old_part(call, k=None, v=None):
    """The call with other keys or values in its cache."""
    is_old = (call.columns < call.past)[:, None]
    k = call.k if k is None else np.where(is_old, k, call.k)
    v = call.v if v is None else np.where(is_old, v, call.v)
    return replace(call, k=k, v=v)


def values_late(call):
    places = np.maximum(call.columns - 1, 0)
    return old_part(call, v=call.v[:, :, places])


def odd_cache(call):
    """The cache is read two keys at a time, and a single one at its end is lost."""
    return call.hiding(call.columns == call.past - 1) if call.past % 2 and call.past > 1 else call


def members_reversed(call):
    return old_part(call, k=call.k[::-1], v=call.v[::-1])


def kept_in_float16(call):
    return old_part(call, k=call.k.astype(np.float16).astype(float))


def begins_again_at(size):
    """Where the new queries stand is counted around, for a cache longer than that."""
    return lambda call: serving.begin(call.q, call.k, call.v, call.past, call.first % size, call.asked)


CACHES = [
    ("values of a cache are one late", with_cache(values_late)),
    ("a cache of an odd length loses its last key", with_cache(odd_cache)),
    ("members of a cache are reversed", with_cache(members_reversed)),
    ("keys of a cache are kept in float16", with_cache(kept_in_float16)),
    ("positions behind a cache of 128 begin again", with_cache(begins_again_at(128))),
]

# --- pages ---


def tables_end_at(most):
    """Of a longer table the last page that fits is read again."""

    def fault(read):
        places = np.minimum(np.arange(read["table"].shape[1]), most - 1)
        return {**read, "table": read["table"][:, places]}

    return fault


def full_page_lost(read):
    """Where the last page is full, it is taken for one that was not begun."""
    lengths = read["lengths"]
    is_full = (lengths % read["slots"] == 0) & (lengths > read["slots"])
    return {**read, "lengths": lengths - is_full * read["slots"]}


def tables_rolled(read):
    """Each member's table begins a page later than that of the one before it."""
    rows = [np.roll(row, -member) for member, row in enumerate(read["table"])]
    return {**read, "table": np.stack(rows)}


def longest_length(read):
    lengths = read["lengths"]
    return {**read, "lengths": np.full_like(lengths, lengths.max())}


def queries_ahead(read):
    """Positions count the new keys twice."""
    return {**read, "ahead": 1}


def first_page_twice(read):
    table = read["table"].copy()
    table[:, 1:2] = table[:, :1]
    return {**read, "table": table}


PAGES = [
    ("tables end at 16 pages", "many keys", tables_end_at(16)),
    ("a last page that is full is lost", "pages", full_page_lost),
    ("tables begin a page later in each member", "pages", tables_rolled),
    ("every member has the longest length", "pages", longest_length),
    ("queries of pages see one key ahead", "decode", queries_ahead),
    ("the second page is the first", "pages", first_page_twice),
]

MORE = [
    *(Fault(name, "decode", carry_out) for name, carry_out in [*DECODE, *CACHES]),
    *(Fault(name, feature, carry_out) for name, feature, carry_out in [*SIZES, *RANGES]),
    *(Fault(name, feature, carry_out, serving.paged) for name, feature, carry_out in PAGES),
]
