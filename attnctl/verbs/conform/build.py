"""The arrays of a case: what Q, K and V hold, and what each option adds."""

from __future__ import annotations

import numpy as np

from attnctl.inputs.config.settings import Settings
from attnctl.math import Array
from attnctl.math.derivation import Rotary
from attnctl.math.names import PAST_KEY, PAST_VALUE
from attnctl.math.rules import Causal
from attnctl.verbs.conform.case import APART, BELOW, LARGE, MOST_LARGE, Case, Conventions, Problem
from attnctl.verbs.conform.declared import NOTHING
from attnctl.verbs.conform.options import OPTIONS


def problem_of(case: Case, conventions: Conventions, always: Settings = NOTHING) -> Problem:
    """The arrays of a case, and what is meant by it where this attention is always on."""
    problem = Problem(case, conventions, {}, scale=always.scale, always=always)
    alone = conventions.masked == "the mask alone" and {"mask", "float_mask"} & case.asked.keys()
    problem.rules = [rule for rule in always.rules if not (alone and isinstance(rule, Causal))]
    problem.offset = conventions.offset(case, always.causal_offset)
    problem.arrays |= FILLS[case.fill](problem)
    if case.memory == "broadcast":
        problem.arrays |= {
            name: np.broadcast_to(problem.arrays[name][:1], problem.arrays[name].shape) for name in "KV"
        }
    for name, value in case.options:
        OPTIONS[name].ask(problem, value)
    if case.past:
        split_cache(problem)
    return problem


def split_cache(problem: Problem) -> None:
    """Keys and values that come from the cache, apart from the new ones."""
    past, arrays = problem.case.past, problem.arrays
    for symbol, name in (("K", PAST_KEY), ("V", PAST_VALUE)):
        arrays[name], arrays[symbol] = arrays[symbol][..., :past, :], arrays[symbol][..., past:, :]
    problem.passed["cache"] = (arrays[PAST_KEY], arrays[PAST_VALUE])


# --- what Q, K and V are ---


def drawn(problem: Problem) -> dict[str, Array]:
    """Normal numbers; Q and K times the magnitude."""
    case = problem.case
    q = problem.draw("Q", case.batch, case.heads, case.queries, case.d_k)
    k = problem.draw("K", case.batch, case.kv_heads, case.keys, case.d_k)
    v = problem.draw("V", case.batch, case.kv_heads, case.keys, case.d_v)
    return {"Q": problem.in_type(q * case.magnitude), "K": problem.in_type(k * case.magnitude), "V": v}


def unit_values(case: Case) -> Array:
    """V that tells the weights: key j has a one in column j mod d_v."""
    shape = (case.batch, case.kv_heads, case.keys, case.d_v)
    columns = np.arange(case.keys) % case.d_v
    return np.broadcast_to(np.eye(case.d_v)[columns], shape).copy()


def who(problem: Problem) -> dict[str, Array]:
    """Q = 0 and V of unit vectors: each query sees its keys alike, which shows who sees whom."""
    arrays = drawn(problem)
    return arrays | {"Q": np.zeros_like(arrays["Q"]), "V": unit_values(problem.case)}


def identity(problem: Problem) -> dict[str, Array]:
    """V of unit vectors: the output is the weights."""
    return drawn(problem) | {"V": unit_values(problem.case)}


def by_head(problem: Problem) -> dict[str, Array]:
    """V constant in each kv head: the output says which head was read."""
    case = problem.case
    numbers = 1.0 + np.arange(case.kv_heads) + 16 * np.arange(case.batch)[:, None]
    shape = (case.batch, case.kv_heads, case.keys, case.d_v)
    return drawn(problem) | {"V": np.broadcast_to(numbers[..., None, None], shape).copy()}


def large(problem: Problem) -> dict[str, Array]:
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
    q *= 0.5 if isinstance(problem.always.positions, Rotary) else 1.0
    shape = (case.batch, case.kv_heads, case.keys, case.d_k)
    queries = np.broadcast_to(q, (case.batch, case.heads, case.queries, case.d_k)).copy()
    return drawn(problem) | {"Q": queries, "K": np.broadcast_to(keys, shape).copy()}


FILLS = {"random": drawn, "who": who, "identity": identity, "heads": by_head, "large": large}
"""What Q, K and V of a case may be."""
