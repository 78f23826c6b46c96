"""The calls of attention that a capture holds, as cases."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isclose, prod
from typing import Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.values import to_tuples
from attnctl.base.words import all_of
from attnctl.inputs.plan import Plan
from attnctl.inputs.plan.intended import plan_arrays, settings_of, under_our_names
from attnctl.math import Array
from attnctl.math.engine.cost import available, size_text
from attnctl.math.names import BIAS, HEAD_OUTPUTS, KEY_LENGTHS, MASK, SINK
from attnctl.math.rules import Padding, Rule, Window
from attnctl.record import Trace
from attnctl.verbs.conform.case import CAPTURED, COTANGENT, INPUTS, Captured, Case
from attnctl.verbs.conform.problem import Problem
from attnctl.verbs.conform.profile import MASK_SHAPE, MASKS, TargetProfile

BESIDE = {MASK: "mask", BIAS: "bias", SINK: "sinks"}
"""Arrays of a call, and the options that pass them."""

IN_SHAPE = {"mask": MASK, "float_mask": BIAS}
"""The options that a target takes in its own shape of masks, and their arrays."""

RELATIVE = {"causal", "window", "alibi"}
"""Options that ask how many keys are before query 0."""

SIZES = ("batch", "heads", "kv_heads", "queries", "keys", "d_k", "d_v")
HELD = 16
"""Arrays as large as the scores that judging a call has in memory, in float64."""


def read_calls(inputs: str | Sequence[Trace]) -> tuple[Case, ...]:
    """Each trace of a source, or of traces, as a case. Raises AttnError for what is no attention."""
    from attnctl.sources import open_dump
    from attnctl.sources.sentence import Arguments

    traces = open_dump(inputs, Arguments()).traces() if isinstance(inputs, str) else inputs
    place = inputs if isinstance(inputs, str) else "inputs"
    cases: list[Case] = []
    for number, trace in enumerate(traces):
        name = name_call(trace, number)
        try:
            cases.append(make_case(trace, name))
        except AttnError as error:
            raise AttnError(f"{place}: {name}: {problem}" for problem in error.problems) from None
    if not cases:
        raise AttnError(f"{place}: no calls of attention")
    return tuple(cases)


def name_call(trace: Trace, number: int) -> str:
    """call 3, model.py:41, layers.2.self_attn."""
    said = trace.header.get("call")
    call = said if isinstance(said, dict) else {}
    where = [str(call[key]) for key in ("at", "module") if call.get(key)]
    return ", ".join([f"call {call.get('number', number)}", *where])


def make_case(trace: Trace, name: str) -> Case:
    """The call that a trace records: its numbers as a kernel is given them, and its kind of attention."""
    said = settings_of(trace)
    offset = said.causal_offset if isinstance(said.causal_offset, int) else None
    settings = said.with_(
        heads=None, kv_heads=None, chunks=None, causal_offset=offset,  # their axes say the heads
        backward=False, cotangent=None, logsumexp=False, edits=(),
    )  # fmt: skip
    lengths = trace.config.get(KEY_LENGTHS)
    written = {} if lengths is None else {KEY_LENGTHS: np.asarray(lengths)}
    plan = plan_arrays({**written, **under_our_names(trace, settings)}, settings, trace.header)
    arrays = find_operands(plan)
    batch, heads, queries, d_k = arrays["Q"].shape
    kv_heads, keys, d_v = arrays["V"].shape[1:]
    options = dict(option_of(rule, batch, keys) for rule in plan.variant.rules)
    scale = plan.variant.scale or d_k**-0.5
    if not isclose(scale, d_k**-0.5, rel_tol=1e-6):
        options["scale"] = scale
    beside = {name: plan.given[name] for name in BESIDE if name in plan.given}
    if MASK in beside and BIAS in beside:
        beside[BIAS] = np.where(beside.pop(MASK), beside[BIAS], -np.inf)
    for other, array in beside.items():
        options[BESIDE[other]] = CAPTURED
        arrays[other] = np.broadcast_to(array, heads if other == SINK else (batch, heads, queries, keys))
    if COTANGENT in trace:
        arrays[COTANGENT] = np.broadcast_to(trace[COTANGENT], (batch, heads, queries, d_v))
    return Case(
        batch=batch, heads=heads, kv_heads=kv_heads, queries=queries, keys=keys, d_k=d_k, d_v=d_v,
        options=tuple(options.items()), fill=CAPTURED,
        call=Captured(name, arrays, scale, plan.variant.offset),
    )  # fmt: skip


def find_operands(plan: Plan) -> dict[str, Array]:
    """Q, K and V as scores and the output read them, rotated and with a cache, (batch, head, n, d)."""
    lines = plan.derivation
    read = (*lines["scores"].inputs, lines[HEAD_OUTPUTS].inputs[1])
    own = [lines[name].inputs[0] if name.endswith("_shared") else name for name in read]
    found = plan.run(keep=own)
    wide = (np.asarray(found[name], dtype=np.float64) for name in own)
    return {name: array[(None,) * (4 - array.ndim)] for name, array in zip(INPUTS, wide, strict=True)}


def option_of(rule: Rule, batch: int, keys: int) -> tuple[str, Any]:
    """The option by which a kernel is asked for a rule. Raises AttnError for padding among the keys."""
    if isinstance(rule, Padding):
        if rule.also:
            raise AttnError("padding among its keys; give a mask")
        return "key_lengths", rule.each * (batch // len(rule.each))
    if isinstance(rule, Window):
        return "window", tuple(keys if side is None else side for side in (rule.left, rule.right))
    plain = rule.plain()
    return (plain, True) if isinstance(plain, str) else (rule.name, to_tuples(plain[rule.name]))


def fit_call(case: Case, claimed: Collection[str], profile: TargetProfile) -> Case | str:
    """A captured call as a target takes it; or why it does not."""
    assert case.call is not None
    name, offset = case.call.name, case.call.offset
    case = case.without(*(rule.name for rule in profile.always.rules))
    if "bias" in case.option_values and "bias" not in claimed and "float_mask" in claimed:
        case = case.without("bias").having(float_mask=CAPTURED)
    ways = [case]
    if case.queries == 1 and offset == case.keys - 1:  # it sees every key
        ways.append(case.without("causal"))
    if "cache" in claimed and offset == case.keys - case.queries:
        ways.append(case.having(cache=offset))
    lacking = [option for option in case.option_values if option not in claimed]
    ways = [way for way in ways if set(claimed).issuperset(way.option_values)]
    if not ways:
        return f"{name}: it takes no {all_of(lacking)}"
    ways = [
        way for way in ways if profile.keys_before(way) == offset or RELATIVE.isdisjoint(way.option_values)
    ]
    if not ways:
        return f"{name}: its queries begin after other keys than the target's"
    fitted = profile.fit(ways[0])
    if any(getattr(fitted, size) > getattr(case, size) for size in SIZES):
        return f"{name}: it takes other sizes"
    return f"{name}: it takes masks of another shape" if varies_elsewhere(fitted, profile) else fitted


def varies_elsewhere(case: Case, profile: TargetProfile) -> bool:
    """A mask varies along an axis that the target's masks lack."""
    lacking = [axis for axis, letter in enumerate(MASKS[0]) if letter not in profile[MASK_SHAPE]]
    arrays = case.call.arrays if case.call else {}
    masks = [arrays[name] for option, name in IN_SHAPE.items() if option in case.option_values]
    return any((mask != mask.take([0], axis)).any() for mask in masks for axis in lacking)


def find_unfit(problem: Problem) -> str:
    """Why the numbers of a captured call cannot be judged in their type; nothing where they can."""
    need = HELD * 8 * prod(problem.scores)
    if need > (room := available()):
        return f"judging it needs {size_text(need)}, and {size_text(room)} are left for it"
    numbers = [problem.arrays[name] for name in (*INPUTS, COTANGENT) if name in problem.arrays]
    if not all(np.isfinite(array).all() for array in numbers):
        return f"it has numbers beyond {problem.case.dtype}"
    return ""
