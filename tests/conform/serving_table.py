"""What goes wrong in kernels of serving that the catalogue of mistakes does not have, and right ones."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from conform_table import KERNELS

sys.path.insert(0, str(KERNELS))

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

FAULTS = [Fault(name, "decode", carry_out) for name, carry_out in DECODE]
