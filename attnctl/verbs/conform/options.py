"""The options of a target: their names in libraries, the values passed, and the attention meant.

An entry of `LIBRARY_OPTIONS` has its names in libraries, values worth a case each, and a function that
lays it down in a `Problem`: what is passed, and the rule or array that it means. A rule of attnctl's
registry that has a setting is an option by itself, under its keyword. What a library passes
differently is in its profile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.inputs.arrays.foreign import passed_names
from attnctl.inputs.config.settings import Settings
from attnctl.math import Array
from attnctl.math.names import BIAS, KEY_LENGTHS, MASK, PAGE_NUMBERS, PAGE_TABLE, PAST_KEY, PAST_VALUE, SINK
from attnctl.math.rules import RULES, Alibi, Causal, Documents, Padding, Rule, Softcap, Window, alibi_slopes
from attnctl.verbs.conform.case import CAPTURED, FORWARD, INPUTS, Case
from attnctl.verbs.conform.places import (
    KEY_POSITIONS,
    LEFT_PADDING,
    PATTERNS,
    draw_positions,
    positions_of_keys,
    shape_positions,
)
from attnctl.verbs.conform.problem import FILLS, FREE, OF_NAN, Problem
from attnctl.verbs.conform.profile import (
    AHEAD,
    MASK_KIND,
    MASK_SHAPE,
    MASKED,
    POSITION_SHAPE,
    SCALE_SHAPE,
    SLIDING,
    TRUE,
    TargetProfile,
)
from attnctl.verbs.conform.stored import OF_PAGES, ONE, choose_scale, is_small, scale_pages

FAR = "far"
"""The value of numbers that go far from 0: sinks, and a bias."""

SINKS = (-1.0, 2.0)
SINKS_FAR = (-12.0, 12.0)
"""The first and the last of sinks, usual ones and those far from 0."""

TREE = "tree"
"""The value of masks by which each of the last keys is seen by those that go on from it, and all before."""

FAR_BIAS = 256.0

Ask = Callable[[Problem, Any], None]


@dataclass(frozen=True)
class KernelOption:
    name: str
    theirs: tuple[str, ...]
    ask: Ask
    """Lay it down in a problem: the value passed, and the attention meant."""
    values: Callable[[Case], Sequence[Any]]
    """Values worth a case each, for a case of these sizes."""
    neutral: Callable[[Problem], Any] = lambda _: None
    """The value that changes nothing, for a function that must be given one."""


def ask_rule(name: str, rule: Callable[[Any], Rule]) -> Ask:
    def ask(problem: Problem, value: Any) -> None:
        problem.passed[name] = value
        problem.add_rule(rule(value))

    return ask


def ask_sliding_window(problem: Problem, value: int) -> None:
    """A query sees so many keys, itself the last of them; what programs differ in is a convention."""
    problem.passed["sliding_window"] = value
    reach = value - 1 if problem.profile[SLIDING] == "W" else value
    ahead = {"none": 0, "the same": reach, "all": None}[problem.profile[AHEAD]]
    problem.add_rule(Window(reach, ahead))


def give_mask(problem: Problem, allowed: Array) -> None:
    """Hide the other keys, and pass the mask in the form that the target takes."""
    problem.hide(allowed)
    problem.passed["mask"] = encode_mask(problem, allowed)


def encode_mask(problem: Problem, allowed: Array) -> Array:
    """The mask as the target takes it: truth values, numbers of 0 and 1, or 0 and −∞ to be added."""
    kind = problem.profile[MASK_KIND]
    if kind == "boolean":
        return allowed if problem.profile[TRUE] == "may attend" else ~allowed
    if kind == "added":
        return np.where(allowed, 0.0, -np.inf)
    return allowed.astype(np.float64)


def mask_sizes(problem: Problem, value: str) -> list[int]:
    """The sizes (batch, head, query, key) of a mask, 1 along the axes where it is all the same."""
    varying = "nm" if value == "same" else "bhnm"
    axes = set(problem.profile[MASK_SHAPE]) & set(varying)
    return [size if axis in axes else 1 for axis, size in zip("bhnm", problem.scores, strict=True)]


def draw_mask(problem: Problem, value: str) -> Array:
    """About two of three keys are seen; every query sees one that the other rules leave it."""
    if value == CAPTURED:
        return problem.captured(MASK, problem.scores) != 0

    sizes = mask_sizes(problem, value)
    batch, heads, queries, keys = sizes
    # 77 keeps its numbers apart from those that cases draw by their seed alone.
    allowed = np.random.RandomState(problem.case.seed + 77).uniform(size=sizes) < 2 / 3
    if value == "halves":
        # Members and heads see the first half or the second in turn: whole blocks differ.
        sees_first = (np.arange(batch)[:, None] + np.arange(heads)) % 2 == 0
        halves = (np.arange(keys) < keys // 2) == sees_first[..., None, None]
        allowed = np.array(np.broadcast_to(halves, sizes))
    if value == LEFT_PADDING:
        padding = np.minimum(2 + 3 * np.arange(batch), keys - 1)
        allowed = np.array(np.broadcast_to(np.arange(keys) >= padding[:, None, None, None], sizes))
    if value == TREE and "n" in problem.profile[MASK_SHAPE]:
        return np.array(np.broadcast_to(tree_mask(problem.case), problem.scores))

    for start in problem.starts.ravel():
        own_key = np.clip(np.arange(queries) + start, 0, keys - 1)
        allowed[..., np.arange(queries), own_key] = True
    # Where lengths may hide a query's own key, or one row stands for all, the first key is seen.
    if problem.case.has_lengths or "n" not in problem.profile[MASK_SHAPE]:
        allowed[..., 0] = True
    return np.array(np.broadcast_to(allowed, problem.scores))


def tree_mask(case: Case) -> Array:
    """Each new token sees all earlier keys, itself and what it goes on from: token i from (i − 1) // 2."""
    before = case.keys - case.queries
    seen = np.zeros((case.queries, case.keys), dtype=bool)
    seen[:, :before] = True
    for token in range(case.queries):
        node = token
        while node >= 0:
            seen[token, before + node] = True
            node = (node - 1) // 2 if node else -1
    return seen


def ask_float_mask(problem: Problem, value: str) -> None:
    """A mask that is added: 0 or a number where a query may attend, −∞ elsewhere."""
    if value == CAPTURED:
        mask = problem.captured(BIAS, problem.scores)
    else:
        numbers = problem.draw("float mask", *mask_sizes(problem, value))
        mask = np.where(draw_mask(problem, value), numbers, -np.inf)
    problem.passed["float_mask"] = mask
    problem.add_bias(mask)


def ask_bias(problem: Problem, value: str) -> None:
    if value == CAPTURED:
        bias = problem.captured(BIAS, problem.scores)
    else:
        of_each = (1, 1) if value == "same" else problem.scores[:2]
        bias = problem.draw("bias", *of_each, *problem.scores[2:])
        if value == FAR:
            bias = bias * FAR_BIAS
    problem.passed["bias"] = np.array(np.broadcast_to(bias, problem.scores))
    problem.add_bias(bias)


def ask_scale(problem: Problem, value: float) -> None:
    problem.passed["scale"] = value
    problem.meant = replace(problem.meant, scale=value)


def ask_alibi(problem: Problem, value: bool) -> None:
    problem.passed["alibi"] = alibi_slopes(problem.case.heads)
    problem.add_rule(Alibi())


def ask_key_lengths(problem: Problem, value: str | tuple[int, ...]) -> None:
    """Keys from a length on are padding, with garbage in them, or as they were captured."""
    lengths = problem.case.lengths
    problem.passed["key_lengths"] = np.array(lengths, dtype=np.int64)
    problem.add_rule(Padding(lengths))
    if not isinstance(value, str):
        return  # captured, with what was there

    padding = 100.0 if value == "garbage" else np.nan
    for name in "KV":
        array = np.array(problem.arrays[name])
        for member, length in enumerate(lengths):
            array[member, :, length:] = padding
        problem.arrays[name] = array


def ask_pages(problem: Problem, value: tuple[int, int]) -> None:
    """K and V are in pages, and so many keys of each member; its last page is not full."""
    ask_key_lengths(problem, "nan" if problem.case.fill == OF_NAN else "garbage")


def ask_sinks(problem: Problem, value: bool | str) -> None:
    """A logit of each head that takes a share and gives no value."""
    heads = problem.case.heads
    if value == CAPTURED:
        sinks = problem.captured(SINK, (heads,))
    else:
        first, last = SINKS_FAR if value == FAR else SINKS
        sinks = problem.in_type(np.linspace(first, last, heads))
    problem.passed["sinks"] = sinks
    problem.arrays["sink"] = sinks


def ask_out(problem: Problem, value: bool) -> None:
    problem.passed["out"] = np.full(problem.output_shape, np.nan)


def ask_positions(problem: Problem, value: str) -> None:
    """Each new token has a position of its own."""
    shape = problem.profile[POSITION_SHAPE]
    problem.positions = draw_positions(problem.case, value, shape)
    problem.passed["positions"] = shape_positions(problem.positions, shape)
    of_keys = positions_of_keys(problem.positions, problem.case)
    problem.passed[KEY_POSITIONS] = shape_positions(of_keys, shape)


def usual_positions(problem: Problem, *, of_keys: bool = False) -> Array:
    """Those that tokens have where nothing else is said."""
    case = problem.case
    places = np.arange(case.keys)
    if not of_keys:
        places = np.arange(case.queries) + problem.starts[:, 0, 0]
    positions = np.broadcast_to(places, (3, case.batch, places.shape[-1]))
    return shape_positions(positions, problem.profile[POSITION_SHAPE])


def ask_scales(problem: Problem, value: bool) -> None:
    """Q, K and V are what is stored, times a scale, of those that the target takes scales of."""
    case = problem.case
    shape = problem.profile[SCALE_SHAPE]
    passed: dict[str, Any] = {}
    for name in problem.profile.scaled:
        array = problem.arrays[name]
        slots, before = problem.profile.pages_of(case)
        if shape == OF_PAGES and name != "Q" and before >= 0:
            pages = problem.all_pages
            scale = scale_pages(array, pages, slots, before + pages.size + FREE, name)
        else:
            own = ONE if shape == OF_PAGES else shape
            dtype = problem.profile.type_of(name, case.dtype)
            scale = choose_scale(array, name, dtype, own, by_step=problem.scales_are_steps)
        problem.scales[name] = scale
        passed[name] = scale.passed if scale.passed.ndim else float(scale.passed)
    problem.passed["scales"] = passed


def scales_of_one(problem: Problem) -> dict[str, Any]:
    """Scales that change nothing, in the shape that is taken."""
    scaled = replace(problem, scales={}, passed={})
    ask_scales(scaled, value=True)
    ones = {name: np.ones_like(scale) for name, scale in scaled.passed["scales"].items()}
    return {name: array if array.ndim else 1.0 for name, array in ones.items()}


def zero_bias(problem: Problem) -> Array:
    return np.zeros(problem.scores)


def mask_of_all(problem: Problem) -> Array:
    return encode_mask(problem, np.ones(problem.scores, dtype=bool))


def usual_scale(problem: Problem) -> float:
    return problem.case.d_k**-0.5 if problem.meant.scale is None else problem.meant.scale


def document_starts(case: Case) -> tuple[tuple[int, ...] | int, ...]:
    """Three documents; of unequal numbers of queries and keys a single one."""
    if case.queries != case.keys:
        return (0,)
    return (0, case.keys // 3, case.keys // 2 + 1)


LIBRARY_OPTIONS = (
    KernelOption(
        "causal",
        ("causal", "is_causal"),
        ask=ask_rule("causal", lambda _: Causal()),
        values=lambda _: (True,),
    ),
    KernelOption(
        "window",
        ("window", "window_size", "local_window_size"),
        ask=ask_rule("window", lambda ends: Window(*ends)),
        values=lambda case: ((2, 1), (3, 0), (case.keys // 2, 2)),
    ),
    KernelOption(
        "sliding_window",
        ("sliding_window",),
        ask=ask_sliding_window,
        values=lambda case: (4, case.keys // 2 + 1),
    ),
    KernelOption(
        "documents",
        ("documents", "cu_seqlens", "cu_seqlens_q"),
        ask=ask_rule("documents", Documents.of),
        values=lambda case: (document_starts(case),),
    ),
    KernelOption(
        "mask",
        ("mask", "attn_mask", "attention_mask"),
        ask=lambda problem, value: give_mask(problem, draw_mask(problem, value)),
        values=lambda _: ("same", "each", "halves"),
        neutral=mask_of_all,
    ),
    KernelOption(
        "float_mask",
        (),
        ask=ask_float_mask,
        values=lambda _: ("same", "each"),
        neutral=zero_bias,
    ),
    KernelOption(
        "bias",
        ("bias", "attn_bias"),
        ask=ask_bias,
        values=lambda _: ("same", "each", FAR),
        neutral=zero_bias,
    ),
    KernelOption(
        "scale",
        ("scale", "softmax_scale", "sm_scale", "scaling"),
        ask=ask_scale,
        values=lambda _: (0.75, 0.0625, 1.5),
        neutral=usual_scale,
    ),
    KernelOption(
        "softcap",
        ("softcap", "logits_soft_cap", "logit_softcap", "attn_logit_softcapping", "logit_cap"),
        ask=ask_rule("softcap", Softcap),
        values=lambda _: (1.5, 30.0),
    ),
    KernelOption(
        "alibi",
        ("alibi_slopes", "alibi"),
        ask=ask_alibi,
        values=lambda _: (True,),
        neutral=lambda problem: np.zeros(problem.case.heads),
    ),
    KernelOption(
        "key_lengths",
        (
            *passed_names(KEY_LENGTHS),
            "seqlens",
            "seqlens_k",
            "key_value_seq_lengths",
            "nonpad_kv_seqlen",
        ),
        ask=ask_key_lengths,
        values=lambda _: ("garbage",),
        neutral=lambda problem: np.full(problem.case.batch, problem.case.keys),
    ),
    KernelOption(
        "pages",
        (*passed_names(PAGE_TABLE), *passed_names(PAGE_NUMBERS)),
        ask=ask_pages,
        values=lambda _: ((4, 1), (16, 1)),
    ),
    KernelOption(
        "cache",
        ("past_key", "past_value"),
        # Earlier keys and values are split off in `make_problem`, after all that is said of keys.
        ask=lambda *_: None,
        values=lambda case: (1, case.keys // 2),
    ),
    KernelOption(
        "sinks",
        ("sinks", "sink", "s_aux"),
        ask=ask_sinks,
        values=lambda _: (True, FAR),
        neutral=lambda problem: np.full(problem.case.heads, -np.inf),
    ),
    KernelOption(
        "positions",
        ("positions", "position_ids", "pos_ids", "input_pos", "token_positions", "q_positions"),
        ask=ask_positions,
        values=lambda _: PATTERNS,
        neutral=usual_positions,
    ),
    KernelOption(
        "scales",
        # Each of Q, K and V has its own; see `STORED_SCALES`.
        (),
        ask=ask_scales,
        values=lambda _: (True,),
        neutral=scales_of_one,
    ),
    KernelOption(
        "out",
        ("out", "output", "o"),
        ask=ask_out,
        values=lambda _: (True,),
    ),
)


def list_rule_options() -> Iterable[KernelOption]:
    """Rules of the registry that have a setting and are no option yet."""
    known = {*(option.name for option in LIBRARY_OPTIONS), "padding"}
    for name, rule in RULES.items():
        setting = rule.setting
        if not setting or name in known:
            continue
        values = lambda _, example=setting.example: (example,)  # noqa: E731  (as the config has it)
        theirs = tuple(dict.fromkeys((name, setting.keyword)))
        yield KernelOption(name, theirs, ask_rule(name, rule.of), values)


OPTIONS = {option.name: option for option in (*LIBRARY_OPTIONS, *list_rule_options())}


def make_problem(case: Case, profile: TargetProfile, outputs: Sequence[str] = FORWARD) -> Problem:
    """Draw the arrays of a case and lay its options down, beside the attention that is always on."""
    problem = Problem(
        case,
        profile,
        {},
        meant=always_on(case, profile),
        offset=profile.keys_before(case),
        outputs=tuple(outputs),
    )
    arrays = problem.arrays
    arrays |= FILLS[case.fill](problem)
    if case.memory == "broadcast":
        for name in "KV":
            arrays[name] = np.broadcast_to(arrays[name][:1], arrays[name].shape)

    # Defaults are meant, and not passed.
    for name, value in (profile.defaults or {}).items():
        if name not in case.option_values:
            OPTIONS[name].ask(problem, value)
    problem.passed.clear()
    for name, value in case.options:
        OPTIONS[name].ask(problem, value)

    # What follows is made of K and V as the options above left them.
    store_inputs(problem)
    gather = problem.gather
    if gather:
        problem.passed.setdefault("key_lengths", np.array(gather.lengths))
        problem.passed["pages"] = np.array(gather.table, np.int32)
    if case.past:
        split_off_cache(problem)
    if problem.backward:
        problem.draw_cotangent()
    return problem


def store_inputs(problem: Problem) -> None:
    """Round Q, K and V to the types in which they are stored, with scales where these are small."""
    profile = problem.profile
    own = {name: profile.type_of(name, problem.case.dtype) for name in INPUTS}
    needs_scales = any(map(is_small, own.values())) and bool(profile.scaled)
    if needs_scales and not problem.scales:
        ask_scales(problem, value=True)

    for name, dtype in own.items():
        if name in problem.scales or dtype != problem.case.dtype or is_small(dtype):
            problem.arrays[name] = problem.as_stored(name, problem.arrays[name])


def always_on(case: Case, profile: TargetProfile) -> Settings:
    """The attention that is always on; in some targets a mask replaces causal."""
    always = profile.always
    has_mask = bool({"mask", "float_mask"} & case.option_values.keys())
    if profile[MASKED] == "the mask alone" and has_mask:
        rules = tuple(rule for rule in always.rules if not isinstance(rule, Causal))
        always = replace(always, rules=rules)
    return always


def split_off_cache(problem: Problem) -> None:
    """Pass the first keys and values as a cache, and the rest as new ones."""
    past = problem.case.past
    arrays = problem.arrays
    for symbol, cached in (("K", PAST_KEY), ("V", PAST_VALUE)):
        whole = arrays[symbol]
        arrays[cached] = whole[..., :past, :]
        arrays[symbol] = whole[..., past:, :]
    parts = {"K": arrays[PAST_KEY], "V": arrays[PAST_VALUE]}
    problem.passed["cache"] = tuple(problem.numbers_of(name, part) for name, part in parts.items())
