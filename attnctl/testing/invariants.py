"""The invariants of `conform` held to a layer of torch, on Q, K and V in place of what it projects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from attnctl.evidence.walk import Walk
from attnctl.math.names import MASK, SCALED, WEIGHTS
from attnctl.verbs.conform.call import Answer
from attnctl.verbs.conform.case import INPUTS, Case
from attnctl.verbs.conform.invoke import Framework, to_numpy
from attnctl.verbs.conform.layout import lay_inputs
from attnctl.verbs.conform.options import make_problem
from attnctl.verbs.conform.problem import Problem
from attnctl.verbs.conform.profile import TargetProfile
from attnctl.verbs.conform.relations import RELATIONS, hold_relation


def find_broken(attend: Callable[[dict[str, Any]], Any], walk: Walk, dtype: str) -> Iterator[str]:
    """The laws that two calls of a layer break: `attend` gives what it makes of Q, K and V.

    These are drawn in the sizes of those in a walk, and hidden from each other as there.
    """
    sizes = walk.record.plan.sizes
    case = Case(
        dtype=dtype, batch=sizes.get("batch", 1), heads=sizes["head"], kv_heads=sizes["kv_head"],
        queries=sizes["query"], keys=sizes["key"], d_k=sizes["d_k"], d_v=sizes["d_v"],
    )  # fmt: skip
    problem = make_problem(case, TargetProfile(layout="bnd"))
    read = walk.derivation[WEIGHTS].inputs
    if last := walk.values.get(read[0]):
        problem.arrays[MASK] = np.broadcast_to(~np.isneginf(last.value), problem.scores)
    # Nothing tells keys or heads apart.
    plain = read == (SCALED,) and walk.derivation["scores"].inputs[0] == "Q"

    def call(problem: Problem) -> Answer:
        laid = lay_inputs(problem, [problem.arrays[name] for name in INPUTS])
        given = {name: Framework("torch").give(x, dtype) for name, x in zip(INPUTS, laid, strict=True)}
        return Answer((to_numpy(attend(given)),))

    for relation in RELATIONS.values():
        held = hold_relation(relation, problem, call) if plain or not relation.plain else None
        if held and not held[1].right:
            yield f"With {relation.name}, {relation.sentence}: {held[1].words}."
