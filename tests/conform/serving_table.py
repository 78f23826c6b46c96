"""What goes wrong in kernels of serving that the catalogue of mistakes does not have, and right ones."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import serving


@dataclass(frozen=True)
class Fault:
    name: str
    feature: str
    carry_out: Callable
    kernel: Callable = serving.dense


def make(fault):
    return fault.kernel(fault.carry_out)


RIGHT = {"dense": serving.dense(), "bottom right": serving.bottom_right(), "paged": serving.paged()}


# --- decode ---


def one_query(fault):
    """Where there is one query, whose kernel is another."""
    return lambda call: fault(call) if call.queries == 1 else call


def few_queries(fault):
    """Where there are several new queries, but few, as a draft of the next words has them."""
    return lambda call: fault(call) if 1 < call.queries <= 4 < call.keys else call


def hide_newest(call):
    return call.hiding(call.columns == call.keys - 1) if call.asked["causal"] else call


def see_all(call):
    return call.without("causal")


def see_as_many_as_queries(call):
    """Positions begin at 0 again."""
    return serving.begin(call.q, call.k, call.v, call.past, 0, call.asked)


def see_tiled_heads(call):
    """Query heads go round the kv heads in place of sharing them in order."""
    kv_heads = call.k.shape[1]
    order = np.arange(call.q.shape[1]) % kv_heads
    return replace(call, k=call.k[:, order], v=call.v[:, order])


def forget(*names):
    return lambda call: call.without(*names)


def of_first_member(call):
    lengths = call.asked["key_lengths"]
    return call if lengths is None else call.having(key_lengths=np.broadcast_to(lengths[:1], lengths.shape))


def count_before_the_new(call):
    """Lengths are taken for those before the new key."""
    lengths = call.asked["key_lengths"]
    return call if lengths is None else call.having(key_lengths=np.minimum(lengths + 1, call.keys))


def drop_last_split(call):
    """Keys are split among groups of 64, and those behind the last whole one are lost."""
    whole = call.keys // 64 * 64
    return call.hiding(call.columns >= whole) if whole else call


def sink_in_each_split(call):
    if call.asked["sinks"] is None:
        return call
    splits = -(-call.keys // 16)
    return call.having(sinks=np.asarray(call.asked["sinks"]) + np.log(splits))


def sees_only_the_cache(call):
    return call.hiding(call.columns >= call.past) if call.past else call


DECODE = [
    ("one query does not see the newest key", one_query(hide_newest)),
    ("one query does not see what is new", one_query(sees_only_the_cache)),
    ("a few queries see ahead", few_queries(see_all)),
    ("positions of a few queries begin at 0", few_queries(see_as_many_as_queries)),
    ("the position of one query is 0", one_query(see_as_many_as_queries)),
    ("one query reads kv heads in turn", one_query(see_tiled_heads)),
    ("one query knows no lengths", one_query(forget("key_lengths"))),
    ("one query knows the lengths of the first member", one_query(of_first_member)),
    ("one query sees a key too many", one_query(count_before_the_new)),
    ("one query knows no window", one_query(forget("window"))),
    ("one query knows no cap", one_query(forget("softcap"))),
    ("one query knows no scale", one_query(forget("scale"))),
    ("one query knows no sinks", one_query(forget("sinks"))),
    ("one query has the sink in each split", one_query(sink_in_each_split)),
    ("one query knows no slopes", one_query(forget("alibi_slopes"))),
    ("one query loses the last split", one_query(drop_last_split)),
]

# --- sizes ---


def only_first_keys(most):
    """The loop over keys ends at a number that was large enough once."""
    return lambda call: call.hiding(call.columns >= most)


def only_first_queries(most):
    """What is behind a table of so many rows reads its last row."""

    def fault(call):
        output = serving.attend(call)
        output[:, :, most:] = output[:, :, most - 1 : most] if call.queries > most else 0
        return output

    return fault


def wrap_offsets(bits):
    """Where a key begins is counted in numbers, by an integer of so many bits."""

    def fault(call):
        width = call.k.shape[-1]
        places = call.columns * width % 2**bits // width
        return replace(call, k=call.k[:, :, places], v=call.v[:, :, places])

    return fault


def drop_one_more_than_blocks(block):
    """A block of one key is taken for none."""
    return lambda call: call.hiding(call.columns >= call.keys - (call.keys % block == 1))


def full_blocks_read_again(block):
    """Where the last block is full, it is read again."""

    def fault(call):
        if call.keys < block or call.keys % block:
            return call
        again = np.concatenate([call.columns, call.columns[-block:]])
        seen = np.broadcast_to(call.seen, (*call.seen.shape[:3], call.keys))[..., again]
        made = replace(call, k=call.k[:, :, again], v=call.v[:, :, again], seen=seen)
        return serving.attend(made, scores=serving.scores_of(call)[..., again])

    return fault


def cut_window(most):
    def fault(call):
        window = call.asked["window"]
        return call if window is None else call.having(window=tuple(min(end, most) for end in window))

    return fault


def skip_block_at_window(block):
    """The block that a window begins in is skipped where it begins at its last key."""

    def fault(call):
        if call.asked["window"] is None:
            return call
        begins = np.maximum(call.rows - call.asked["window"][0], 0)
        return call.hiding((begins % block == block - 1) & (call.columns == begins))

    return fault


def length_of_a_block(block):
    """A length that fills its blocks is taken for one key less."""

    def fault(call):
        lengths = call.asked["key_lengths"]
        if lengths is None:
            return call
        lengths = np.asarray(lengths)
        return call.having(key_lengths=lengths - (lengths % block == 0))

    return fault


SIZES = [
    ("keys end at 1,024", "many keys", only_first_keys(1024)),
    ("keys end at 4,096", "many keys", only_first_keys(4096)),
    ("queries end at 1,024", "many keys", only_first_queries(1024)),
    ("offsets have 16 bits", "many keys", wrap_offsets(16)),
    ("windows are cut at 128", "many keys", cut_window(128)),
    ("windows are cut at 1,024", "many keys", cut_window(1024)),
    ("a block of 128 of one key is lost", "block boundaries", drop_one_more_than_blocks(128)),
    ("a last block of 64 that is full is read again", "block boundaries", full_blocks_read_again(64)),
    ("a window begins at the end of a block", "block boundaries", skip_block_at_window(64)),
    ("a length ends with a block of 128", "block boundaries", length_of_a_block(128)),
]

# --- ranges ---


def clip_sinks(call):
    sinks = call.asked["sinks"]
    return call if sinks is None else call.having(sinks=np.clip(sinks, -3.0, 3.0))


def clip_bias(call):
    bias = call.asked["bias"]
    return (
        call
        if bias is None
        else call.having(bias=np.where(np.isneginf(bias), bias, np.clip(bias, -30, 30)))
    )


def hide_by(number):
    return lambda call: serving.attend(call, hidden=number)


def clip_exponents(call):
    return serving.attend(call, least=-8.0)


def maximum_without_sink(call):
    """A sink far above the scores is left out, as its exponential is clipped."""
    sinks = call.asked["sinks"]
    if sinks is None:
        return call
    top = serving.scores_of(call).max()
    return call.having(sinks=np.minimum(sinks, top + 4.0))


RANGES = [
    ("sinks are clipped at 3", "sinks", clip_sinks),
    ("a sink is clipped above the scores", "sinks", maximum_without_sink),
    ("a bias is clipped at 30", "bias", clip_bias),
    ("-1e4 hides keys behind a length", "key_lengths", hide_by(-1e4)),
    ("-1e4 hides keys from one query", "decode", one_query(hide_by(-1e4))),
    ("exponents end at -8", "large scores", clip_exponents),
]


# --- caches ---


def with_cache(fault):
    return lambda call: fault(call) if call.past else call


def cache_heads_reversed(call):
    """The cache has its kv heads the other way round."""
    old = call.columns[:, None] < call.past
    return replace(call, k=np.where(old, call.k[:, ::-1], call.k), v=np.where(old, call.v[:, ::-1], call.v))


def ring_of(size):
    """The cache goes round: of more keys than it has room for the first are lost."""
    return lambda call: call.hiding(call.columns < call.past - size)


def member_of_cache(call):
    """Every member reads the cache of the first."""
    old = call.columns[:, None] < call.past
    return replace(call, k=np.where(old, call.k[:1], call.k), v=np.where(old, call.v[:1], call.v))


def slopes_from_cache(call):
    """Distances are counted from the first new key."""
    if call.asked["alibi_slopes"] is None:
        return call
    moved = serving.scores_of(replace(call, first=0))
    return serving.attend(call, scores=moved)


def first_of_cache(call):
    return call.hiding(call.columns == 0) if call.past >= 16 else call


CACHES = [
    ("the heads of a cache are reversed", "decode", with_cache(cache_heads_reversed)),
    ("a cache of 256 goes round", "many keys", ring_of(256)),
    ("every member reads the first cache", "decode", with_cache(member_of_cache)),
    ("distances begin behind the cache", "decode", with_cache(slopes_from_cache)),
    ("the first key of a cache of 16 and more is lost", "decode", first_of_cache),
]


# --- pages ---


def wrap_pages(read):
    """Numbers of pages have 8 bits."""
    return {**read, "table": read["table"] % 256}


def first_table(read):
    return {**read, "table": np.broadcast_to(read["table"][:1], read["table"].shape)}


def whole_pages(read):
    """The last page counts as full, where it has one free slot."""
    lengths = read["lengths"]
    return {**read, "lengths": lengths + (lengths % read["slots"] == read["slots"] - 1)}


def lengths_before_the_new(read):
    """Positions are counted from the length before the new keys."""
    return {**read, "ahead": -1 if read["causal"] else 0}


def pages_in_order(read):
    return {**read, "table": np.sort(read["table"], axis=1)}


PAGES = [
    ("numbers of pages have 8 bits", "many keys", wrap_pages),
    ("every member reads the first table", "pages", first_table),
    ("a last page with one free slot is full", "pages", whole_pages),
    ("the newest key of pages is hidden", "decode", lengths_before_the_new),
    ("pages are read in their own order", "decode", pages_in_order),
]

FAULTS = [
    *(Fault(name, "decode", carry_out) for name, carry_out in DECODE),
    *(Fault(name, feature, carry_out) for name, feature, carry_out in [*SIZES, *RANGES, *CACHES]),
    *(Fault(name, feature, carry_out, serving.paged) for name, feature, carry_out in PAGES),
]
