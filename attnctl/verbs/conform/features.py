"""The features that a target is held to, and the cases of each, calls that a capture holds among them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations
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
from attnctl.verbs.conform import uses
from attnctl.verbs.conform.case import ACTIVATIONS, CAPTURED, COTANGENT, INPUTS, MEMORIES, Captured, Case
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.places import GO_BY_POSITIONS, LEFT_PADDING, PATTERNS
from attnctl.verbs.conform.problem import Problem
from attnctl.verbs.conform.profile import GROUPED, LENGTHS, MASK_SHAPE, MASKS, OTHER_D_V, TargetProfile
from attnctl.verbs.conform.relations import HIDDEN_MOVED, PREFILL, RELATIONS

BASE = Case(batch=2, heads=3, kv_heads=3, queries=12, keys=12, d_k=8, d_v=8)
"""Sizes that differ, so that no axis is taken for another."""

SMALL = replace(BASE, batch=1, heads=2, kv_heads=2, queries=7, keys=7)
"""A call that is made often."""

ATTENTION = "attention"
HEAD_SIZES = "head sizes"
LAYOUTS = "memory layouts"
LARGE = "large scores"
LARGE_VALUES = "large values"
REPEATABLE = "repeatable"
INPUTS_KEPT = "inputs kept"
PAIRS = "pairs"
RANDOM = "random"
REPEATABLE_GRADIENTS = "repeatable gradients"
DECODE = "decode"
MANY_KEYS = "many keys"
BLOCK_BOUNDARIES = "block boundaries"

CONVENTIONS = "conventions"

NAMES = (
    ATTENTION, HEAD_SIZES, LENGTHS, OTHER_D_V, GROUPED, LARGE, LARGE_VALUES, LAYOUTS, *OPTIONS,
    DECODE, MANY_KEYS, BLOCK_BOUNDARIES, PAIRS, RANDOM, *RELATIONS, REPEATABLE, REPEATABLE_GRADIENTS,
    INPUTS_KEPT, CONVENTIONS,
)  # fmt: skip

CAPTURED_CALLS, DRAWN_ALIKE = OF_CAPTURES = ("captured calls", "activations")
"""The features of a capture: its calls whole, and cases drawn in their shape."""

MOST_SHAPES = 8
"""Captured calls in whose shape cases are drawn."""

MERGE = "merge"
MERGES = (MERGE, "peaked rows", "flat rows", "large scores", "nothing in one part", "nothing in both")

OPTIONAL = {
    HEAD_SIZES, LENGTHS, OTHER_D_V, GROUPED, LAYOUTS, PAIRS, RANDOM, CAPTURED_CALLS, "float_mask", "out",
    MANY_KEYS, BLOCK_BOUNDARIES,
}  # fmt: skip
"""Features that a target may refuse by an exception."""

HIDING = {"causal", "window", "sliding_window", "documents", "mask", "key_lengths", "pages"}
"""Options that hide keys, which show where scores are far from 0, and where blocks are partly hidden."""

RANDOM_CASES = 40
QUICK_RANDOM_CASES = 8


def square_case(n: int, d: int = 8, **others: object) -> Case:
    return replace(BASE, queries=n, keys=n, d_k=d, d_v=d, **others)  # type: ignore[arg-type]


def list_own_features(head_sizes: Sequence[int], *, quick: bool) -> dict[str, tuple[Case, ...]]:
    """List the features of every attention with their cases; `head_sizes` are all that it takes, if any."""
    widths = ((8, 16), (16, 8), (64, 24), (256, 8), (8, 128))

    return {
        ATTENTION: plain_cases(quick=quick),
        HEAD_SIZES: head_size_cases(head_sizes, quick=quick),
        LENGTHS: length_cases(),
        OTHER_D_V: tuple(replace(BASE, d_k=d_k, d_v=d_v, seed=d_k) for d_k, d_v in widths),
        GROUPED: grouped_cases(),
        LARGE: (
            square_case(12, 16, fill="large", batch=2),
            square_case(33, 16, fill="large", batch=2),
            square_case(70, 16, fill="large", batch=1),
            square_case(12, 16, fill="shifted", batch=2),
            square_case(70, 16, fill="shifted", batch=1),
        ),
        LARGE_VALUES: (
            square_case(12, 16, fill="values"),
            square_case(33, 16, fill="values"),
            square_case(12, 16, fill="channel"),
            square_case(33, 16, fill="tails"),
        ),
        LAYOUTS: layout_cases(quick=quick),
    }


def plain_cases(*, quick: bool) -> tuple[Case, ...]:
    """Cases of plain attention: with known weights, with sizes at and beside those of blocks."""
    cases = [replace(BASE, fill="who"), replace(BASE, fill="identity")]
    for n, d in ((1, 8), (2, 16), (12, 8), (16, 16), (33, 32), (65, 16)):
        cases.append(square_case(n, d, seed=n))
    cases += [
        square_case(33, 8, magnitude=2.0),
        square_case(129, 16, batch=1, heads=2, kv_heads=2, seed=3),
        square_case(9, 8, heads=8, kv_heads=8, seed=8),
        square_case(9, 8, batch=1, heads=17, kv_heads=17, seed=17),
    ]
    if not quick:
        for n in (31, 63, 64, 127, 128, 257, 513):
            cases.append(square_case(n, 16, batch=1, heads=2, kv_heads=2, seed=n))
    return tuple(cases)


def head_size_cases(head_sizes: Sequence[int], *, quick: bool) -> tuple[Case, ...]:
    few = (1, 12, 20, 64, 80, 128, 256)
    others = (2, 3, 4, 16, 24, 32, 72, 96, 192)
    usual = few if quick else sorted(few + others)
    return tuple(square_case(9, d, heads=2, kv_heads=2, seed=d) for d in tuple(head_sizes) or usual)


def length_cases() -> tuple[Case, ...]:
    """Cases with other numbers of queries than of keys; the second tells which keys are read."""
    lengths = ((5, 12), (12, 5), (1, 33), (33, 1), (17, 64), (64, 17), (3, 130), (67, 130))
    cases = [replace(BASE, queries=n, keys=m, seed=n) for n, m in lengths]
    cases.insert(1, replace(cases[0], fill="who"))
    return tuple(cases)


def grouped_cases() -> tuple[Case, ...]:
    """Cases with fewer kv heads than heads."""
    cases = []
    for heads, kv_heads in ((4, 2), (4, 1), (6, 3)):
        grouped = replace(BASE, heads=heads, kv_heads=kv_heads)
        cases += [replace(grouped, fill="heads"), replace(grouped, fill="random", seed=heads)]
    return tuple(cases)


def layout_cases(*, quick: bool) -> tuple[Case, ...]:
    """Cases of arrays that lie in other ways in memory, some of them with wide heads."""
    wide = [square_case(9, d, memory=memory) for d in (72, 192, 256) for memory in MEMORIES[1:]]
    cases = [replace(BASE, memory=memory) for memory in MEMORIES]
    # Every fourth of them has each width and several of the ways.
    cases += wide[::4] if quick else wide
    return tuple(cases)


def option_cases(name: str, claimed: Sequence[str], *, lengths: bool, quick: bool) -> tuple[Case, ...]:
    """Make the cases of one option alone; of a cache with causal too, which goes with it."""
    values_of = OPTIONS[name].values
    cases = value_cases(name)

    if name == "cache":
        # A cache and the new keys are all keys, of as many new queries.
        cases = [replace(case, queries=case.keys - case.past) for case in cases]
        cases = [case for case in cases if case.queries > 0]
        if "causal" in claimed:
            cases += [case.having(causal=True) for case in cases]
    elif lengths:
        long = replace(BASE, queries=5, keys=17)
        first = values_of(long)[0]
        cases += [replace(long, fill=fill).having(**{name: first}) for fill in ("who", "random")]

    if name in {"causal", "window", "sliding_window"} and not quick:
        first = values_of(square_case(129))[0]
        cases.append(square_case(129, 16, batch=1).having(**{name: first}))
    if name == "pages":  # their numbers take more than 16 bits
        many_pages = replace(SMALL, heads=1, kv_heads=1, batch=2, queries=2)
        cases.append(many_pages.having(pages=(1, 2**16)))
    if name == "positions":
        cases += position_cases(claimed)
    if name in HIDING:
        cases += hiding_cases(name, lengths=lengths)
    return tuple(cases)


def position_cases(claimed: Sequence[str]) -> list[Case]:
    """Cases of positions with what may go by them, and of padding on the left with its mask."""
    cases = []
    for name in (*GO_BY_POSITIONS, "cache"):
        if name in claimed:
            value = OPTIONS[name].values(BASE)[0]
            cases += [BASE.having(**{name: value}, positions=pattern) for pattern in PATTERNS]

    padded = BASE.having(positions=LEFT_PADDING)
    if "mask" in claimed:
        padded = padded.having(mask=LEFT_PADDING)
        cases.append(padded)
    if "mask" in claimed and "causal" in claimed:
        cases.append(padded.having(causal=True))
    return cases


def value_cases(name: str) -> list[Case]:
    """Cases of each value of an option, in two sizes; the small one also tells which keys are read."""
    values_of = OPTIONS[name].values
    cases = []
    for value in values_of(BASE):
        cases += [replace(BASE, fill=fill).having(**{name: value}) for fill in ("who", "random")]

    large = square_case(33, 16, batch=2, heads=2, kv_heads=2)
    for value in values_of(large):
        cases.append(replace(large, seed=1).having(**{name: value}))
    return cases


def hiding_cases(name: str, *, lengths: bool) -> list[Case]:
    """Cases where hidden keys would have the largest scores, and one where blocks are partly hidden."""
    first = OPTIONS[name].values(BASE)[0]
    fills = ["large"]
    if name in {"causal", "mask"}:
        fills.append("shifted")
    cases = [square_case(13, 16, fill=fill).having(**{name: first}) for fill in fills]

    uneven = replace(square_case(130, 16, heads=2, kv_heads=2), queries=67 if lengths else 130)
    last = OPTIONS[name].values(uneven)[-1]
    return [*cases, uneven.having(**{name: last})]


def activation_cases(calls: Sequence[Case], *, causal: bool, groups: bool) -> tuple[Case, ...]:
    """Make cases drawn in the shape of some of the captured calls, spread over all."""
    step = -(-len(calls) // MOST_SHAPES) or 1  # rounded up
    sizes = (
        replace(BASE, kv_heads=1 if groups else BASE.heads),
        *(square_case(n, 16, batch=1, seed=n) for n in (33, 257)),
    )
    cases = []
    for drawn_alike in calls[::step]:
        cases += [replace(case, fill=ACTIVATIONS, call=drawn_alike.call) for case in sizes]
    if causal:
        cases += [case.having(causal=True) for case in cases]
    return tuple(cases)


def relation_cases(claimed: Sequence[str], shape: Sequence[int]) -> dict[str, tuple[Case, ...]]:
    """Make the cases of relations between two calls; all are of one `shape`, where it is given."""
    batch, heads, n, d = shape or (2, 2, 33, 16)
    large = square_case(n, d, batch=batch, heads=heads, kv_heads=heads)
    sizes = [large]
    if not shape:
        sizes = [BASE, large, square_case(130, 16, heads=4, kv_heads=4)]

    hiding = [name for name in OPTIONS if name in claimed and (name in HIDING or name == "float_mask")]
    hidden = [case.having(**{name: OPTIONS[name].values(case)[0]}) for case in sizes for name in hiding]
    causal = [sizes[0].having(causal=True)] if "causal" in claimed else []

    cases = {PREFILL: uses.prefill_cases(sizes, claimed)}
    for name in RELATIONS:
        more = hidden if name == HIDDEN_MOVED else causal
        cases.setdefault(name, tuple(dict.fromkeys([*sizes, *more])))
    return cases


def may_go_together(names: Sequence[str]) -> bool:
    """Not those that mean the same, nor those that are passed by the same keyword."""
    apart = ({"window", "sliding_window"}, {"mask", "float_mask"}, {"documents", "pages"})
    return not any(both <= set(names) for both in apart)


def combine_options(case: Case, names: Sequence[str], pick: int = 0) -> Case:
    """The case with these options, of each the value number `pick`."""
    chosen = {}
    for name in names:
        values = OPTIONS[name].values(case)
        chosen[name] = values[pick % len(values)]
    combined = case.having(**chosen)
    return replace(combined, queries=combined.keys - combined.past) if combined.past else combined


def pairs_cases(claimed: Sequence[str]) -> tuple[Case, ...]:
    base = replace(BASE, keys=14, queries=14)
    cases = []
    # The number of a pair is its seed and picks its values, so that not all have the first ones.
    for number, pair in enumerate(combinations(claimed, 2)):
        if may_go_together(pair):
            cases.append(combine_options(replace(base, seed=number), pair, number))
    return tuple(cases)


def random_cases(
    claimed: Sequence[str], *, lengths: bool, groups: bool, widths: bool, quick: bool
) -> tuple[Case, ...]:
    """Draw sizes and options; each case from its own seed, the numbers in a fixed order."""
    cases = []
    for seed in range(QUICK_RANDOM_CASES if quick else RANDOM_CASES):
        draw = np.random.RandomState(seed)
        keys = int(draw.randint(1, 80))
        kv_heads = int(draw.randint(1, 4))
        d_k = int(draw.choice([8, 16, 32, 64]))
        case = Case(
            batch=int(draw.randint(1, 4)),
            heads=kv_heads * int(draw.randint(1, 4) if groups else 1),
            kv_heads=kv_heads,
            queries=int(draw.randint(1, 80)) if lengths else keys,
            keys=keys,
            d_k=d_k,
            d_v=int(draw.choice([8, 16, 24, 64])) if widths else d_k,
            magnitude=float(draw.choice([0.5, 1.0, 1.5])),
            seed=seed,
        )

        chosen = [name for name in claimed if draw.uniform() < 0.3]
        if keys == 1 and "cache" in chosen:
            chosen.remove("cache")  # there would be nothing in it
        if "mask" in chosen and "float_mask" in chosen:
            chosen.remove("float_mask")
        if may_go_together(chosen):
            cases.append(combine_options(case, chosen, seed))
    return tuple(cases)


# --- captured calls ---

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
    header = trace.header.get("call")
    call = header if isinstance(header, dict) else {}
    place = [str(call[key]) for key in ("at", "module") if call.get(key)]
    return ", ".join([f"call {call.get('number', number)}", *place])


def make_case(trace: Trace, name: str) -> Case:
    """The call that a trace records: its numbers as a kernel is given them, and its kind of attention."""
    plan = plan_call(trace)
    arrays = find_operands(plan)
    batch, heads, queries, d_k = arrays["Q"].shape
    kv_heads, keys, d_v = arrays["V"].shape[1:]

    options = dict(option_of(rule, batch, keys) for rule in plan.variant.rules)
    scale = plan.variant.scale or d_k**-0.5
    if not isclose(scale, d_k**-0.5, rel_tol=1e-6):  # as far as float32 tells
        options["scale"] = scale

    passed = {array: plan.given[array] for array in BESIDE if array in plan.given}
    if MASK in passed and BIAS in passed:
        # A target takes one of the two: −∞ in a bias hides as a mask does.
        passed[BIAS] = np.where(passed.pop(MASK), passed[BIAS], -np.inf)
    for array_name, array in passed.items():
        options[BESIDE[array_name]] = CAPTURED
        shape = heads if array_name == SINK else (batch, heads, queries, keys)
        arrays[array_name] = np.broadcast_to(array, shape)
    if COTANGENT in trace:
        arrays[COTANGENT] = np.broadcast_to(trace[COTANGENT], (batch, heads, queries, d_v))

    return Case(
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        queries=queries,
        keys=keys,
        d_k=d_k,
        d_v=d_v,
        options=tuple(options.items()),
        fill=CAPTURED,
        call=Captured(name, arrays, scale, plan.variant.offset),
    )


def plan_call(trace: Trace) -> Plan:
    """The attention of a recorded call, forward alone."""
    recorded = settings_of(trace)
    offset = recorded.causal_offset if isinstance(recorded.causal_offset, int) else None
    settings = recorded.with_(
        heads=None, kv_heads=None, chunks=None, causal_offset=offset,  # their axes say the heads
        backward=False, cotangent=None, logsumexp=False, edits=(),
    )  # fmt: skip

    arrays: dict[str, Array] = {}
    lengths = trace.config.get(KEY_LENGTHS)
    if lengths is not None:
        arrays[KEY_LENGTHS] = np.asarray(lengths)
    return plan_arrays({**arrays, **under_our_names(trace, settings)}, settings, trace.header)


def find_operands(plan: Plan) -> dict[str, Array]:
    """Q, K and V as scores and the output read them, rotated and with a cache, (batch, head, n, d)."""
    lines = plan.derivation
    read = (*lines["scores"].inputs, lines[HEAD_OUTPUTS].inputs[1])
    # A kernel is given kv heads as they are, before each is repeated for the heads that share it.
    unshared = [lines[name].inputs[0] if name.endswith("_shared") else name for name in read]

    values = plan.run(keep=unshared)
    operands = {}
    for ours, name in zip(INPUTS, unshared, strict=True):
        array = np.asarray(values[name], dtype=np.float64)
        operands[ours] = array[(None,) * (4 - array.ndim)]
    return operands


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
    name = case.call.name
    offset = case.call.offset
    case = case.without(*(rule.name for rule in profile.always.rules))
    if "bias" in case.option_values and "bias" not in claimed and "float_mask" in claimed:
        case = case.without("bias").having(float_mask=CAPTURED)

    # The same numbers may be asked for in several ways: the first that the target takes is taken.
    ways = [case]
    if case.queries == 1 and offset == case.keys - 1:  # it sees every key
        ways.append(case.without("causal"))
    if "cache" in claimed and offset == case.keys - case.queries:
        ways.append(case.having(cache=offset))
    taken = [way for way in ways if set(claimed).issuperset(way.option_values)]
    if not taken:
        lacking = [option for option in case.option_values if option not in claimed]
        return f"{name}: it takes no {all_of(lacking)}"

    for way in taken:
        starts_alike = profile.keys_before(way) == offset or RELATIVE.isdisjoint(way.option_values)
        if starts_alike:
            break
    else:
        return f"{name}: its queries begin after other keys than the target's"

    fitted = profile.fit(way)
    if any(getattr(fitted, size) > getattr(case, size) for size in SIZES):
        return f"{name}: it takes other sizes"
    if varies_elsewhere(fitted, profile):
        return f"{name}: it takes masks of another shape"
    return fitted


def varies_elsewhere(case: Case, profile: TargetProfile) -> bool:
    """A mask varies along an axis that the target's masks lack."""
    assert case.call is not None
    lacking = [axis for axis, letter in enumerate(MASKS[0]) if letter not in profile[MASK_SHAPE]]
    masks = [case.call.arrays[name] for option, name in IN_SHAPE.items() if option in case.option_values]
    return any((mask != mask.take([0], axis)).any() for mask in masks for axis in lacking)


def find_unfit(problem: Problem) -> str:
    """Why the numbers of a captured call cannot be judged in their type; nothing where they can."""
    need = HELD * 8 * prod(problem.scores)
    room = available()
    if need > room:
        return f"judging it needs {size_text(need)}, and {size_text(room)} are left for it"

    numbers = [problem.arrays[name] for name in (*INPUTS, COTANGENT) if name in problem.arrays]
    if not all(np.isfinite(array).all() for array in numbers):
        return f"it has numbers beyond {problem.case.dtype}"
    return ""
