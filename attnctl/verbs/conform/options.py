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
from attnctl.math import Array
from attnctl.math.names import BIAS, KEY_LENGTHS, MASK, PAGE_NUMBERS, PAGE_TABLE, PAST_KEY, PAST_VALUE, SINK
from attnctl.math.rules import RULES, Alibi, Causal, Documents, Padding, Rule, Softcap, Window, alibi_slopes
from attnctl.verbs.conform.case import CAPTURED, FORWARD, Case
from attnctl.verbs.conform.problem import FILLS, OF_NAN, Problem
from attnctl.verbs.conform.profile import AHEAD, MASK_KIND, MASK_SHAPE, MASKED, SLIDING, TRUE, TargetProfile

FAR = "far"
"""The value of numbers that go far from 0: sinks, and a bias."""

SINKS, SINKS_FAR = (-1.0, 2.0), (-12.0, 12.0)
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
    kind = problem.profile[MASK_KIND]
    if kind == "boolean":
        return allowed if problem.profile[TRUE] == "may attend" else ~allowed
    return np.where(allowed, 0.0, -np.inf) if kind == "added" else allowed.astype(np.float64)


def mask_sizes(problem: Problem, value: str) -> list[int]:
    """The sizes (batch, head, query, key) of a mask, 1 along the axes where it is all the same."""
    axes = set(problem.profile[MASK_SHAPE]) & set("nm" if value == "same" else "bhnm")
    return [size if axis in axes else 1 for axis, size in zip("bhnm", problem.scores, strict=True)]


def draw_mask(problem: Problem, value: str) -> Array:
    """About two of three keys are seen; every query sees one that the other rules leave it."""
    sizes = mask_sizes(problem, value)
    queries, keys = sizes[2:]
    if value == CAPTURED:
        return problem.captured(MASK, problem.scores) != 0
    allowed = np.random.RandomState(problem.case.seed + 77).uniform(size=sizes) < 2 / 3
    if value == "halves":
        # Members and heads see the first half or the second in turn: whole blocks differ.
        first = (np.arange(sizes[0])[:, None] + np.arange(sizes[1])) % 2 == 0
        halves = (np.arange(keys) < keys // 2) == first[..., None, None]
        allowed = np.array(np.broadcast_to(halves, sizes))
    if value == TREE and "n" in problem.profile[MASK_SHAPE]:
        return np.array(np.broadcast_to(tree_mask(problem.case), problem.scores))
    for start in problem.starts.ravel():
        allowed[..., np.arange(queries), np.clip(np.arange(queries) + start, 0, keys - 1)] = True
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
        lead = (1, 1) if value == "same" else problem.scores[:2]
        bias = problem.draw("bias", *lead, *problem.scores[2:])
        bias = bias * FAR_BIAS if value == FAR else bias
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
    for name in "KV" if isinstance(value, str) else "":
        array = np.array(problem.arrays[name])
        for member, length in enumerate(lengths):
            array[member, :, length:] = 100.0 if value == "garbage" else np.nan
        problem.arrays[name] = array


def ask_pages(problem: Problem, value: tuple[int, int]) -> None:
    """K and V are in pages, and so many keys of each member; its last page is not full."""
    ask_key_lengths(problem, "nan" if problem.case.fill == OF_NAN else "garbage")


def ask_sinks(problem: Problem, value: bool | str) -> None:
    """A logit of each head that takes a share and gives no value."""
    heads = problem.case.heads
    least, largest = SINKS_FAR if value == FAR else SINKS
    drawn = problem.in_type(np.linspace(least, largest, heads))
    sinks = problem.captured(SINK, (heads,)) if value == CAPTURED else drawn
    problem.passed["sinks"] = problem.arrays["sink"] = sinks


def ask_out(problem: Problem, value: bool) -> None:
    problem.passed["out"] = np.full(problem.output_shape, np.nan)


def zero_bias(problem: Problem) -> Array:
    return np.zeros(problem.scores)


LIBRARY_OPTIONS = (
    KernelOption("causal", ("causal", "is_causal"), ask_rule("causal", lambda _: Causal()),
           lambda _: (True,)),
    KernelOption("window", ("window", "window_size", "local_window_size"),
           ask_rule("window", lambda ends: Window(*ends)),
           lambda case: ((2, 1), (3, 0), (case.keys // 2, 2))),
    KernelOption("sliding_window", ("sliding_window",), ask_sliding_window,
           lambda case: (4, case.keys // 2 + 1)),
    KernelOption("documents", ("documents", "cu_seqlens", "cu_seqlens_q"),
           ask_rule("documents", Documents.of),
           lambda case: ((0, case.keys // 3, case.keys // 2 + 1) if case.queries == case.keys else (0,),)),
    KernelOption("mask", ("mask", "attn_mask", "attention_mask"),
           lambda problem, value: give_mask(problem, draw_mask(problem, value)),
           lambda _: ("same", "each", "halves"),
           lambda problem: encode_mask(problem, np.ones(problem.scores, dtype=bool))),
    KernelOption("float_mask", (), ask_float_mask, lambda _: ("same", "each"), zero_bias),
    KernelOption("bias", ("bias", "attn_bias"), ask_bias, lambda _: ("same", "each", FAR), zero_bias),
    KernelOption("scale", ("scale", "softmax_scale", "sm_scale", "scaling"), ask_scale,
           lambda _: (0.75, 0.0625),
           lambda problem: problem.case.d_k**-0.5 if problem.meant.scale is None else problem.meant.scale),
    KernelOption("softcap",
           ("softcap", "logits_soft_cap", "logit_softcap", "attn_logit_softcapping", "logit_cap"),
           ask_rule("softcap", Softcap),
           lambda _: (1.5, 30.0)),
    KernelOption("alibi", ("alibi_slopes", "alibi"), ask_alibi, lambda _: (True,),
           lambda problem: np.zeros(problem.case.heads)),
    KernelOption("key_lengths",
           (*passed_names(KEY_LENGTHS), "seqlens", "seqlens_k", "key_value_seq_lengths",
            "nonpad_kv_seqlen"), ask_key_lengths, lambda _: ("garbage",),
           lambda problem: np.full(problem.case.batch, problem.case.keys)),
    KernelOption("pages", (*passed_names(PAGE_TABLE), *passed_names(PAGE_NUMBERS)), ask_pages,
           lambda _: ((4, 1), (16, 1))),
    # Earlier keys and values are split off in `make_problem`, after all that is said of keys.
    KernelOption("cache", ("past_key", "past_value"), lambda *_: None, lambda case: (1, case.keys // 2)),
    KernelOption("sinks", ("sinks", "sink", "s_aux"), ask_sinks, lambda _: (True, FAR),
           lambda problem: np.full(problem.case.heads, -np.inf)),
    KernelOption("out", ("out", "output", "o"), ask_out, lambda _: (True,)),
)  # fmt: skip


def list_rule_options() -> Iterable[KernelOption]:
    """Rules of the registry that have a setting and are no option yet."""
    known = {*(option.name for option in LIBRARY_OPTIONS), "padding"}
    for name, rule in RULES.items():
        if (setting := rule.setting) and name not in known:
            values = lambda _, example=setting.example: (example,)  # noqa: E731  (as the config has it)
            theirs = tuple(dict.fromkeys((name, setting.keyword)))
            yield KernelOption(name, theirs, ask_rule(name, rule.of), values)


OPTIONS = {option.name: option for option in (*LIBRARY_OPTIONS, *list_rule_options())}


def make_problem(case: Case, profile: TargetProfile, outputs: Sequence[str] = FORWARD) -> Problem:
    """Draw the arrays of a case and lay its options down, beside the attention that is always on."""
    always = profile.always
    if profile[MASKED] == "the mask alone" and {"mask", "float_mask"} & case.option_values.keys():
        always = replace(always, rules=tuple(rule for rule in always.rules if not isinstance(rule, Causal)))
    problem = Problem(case, profile, {}, always, offset=profile.keys_before(case), outputs=tuple(outputs))
    arrays = problem.arrays
    arrays |= FILLS[case.fill](problem)
    if case.memory == "broadcast":
        arrays |= {name: np.broadcast_to(arrays[name][:1], arrays[name].shape) for name in "KV"}
    for name, value in (profile.defaults or {}).items():
        if name not in case.option_values:
            OPTIONS[name].ask(problem, value)
    problem.passed.clear()
    for name, value in case.options:
        OPTIONS[name].ask(problem, value)
    if gather := problem.gather:
        problem.passed.setdefault("key_lengths", np.array(gather.lengths))
        problem.passed["pages"] = np.array(gather.table, np.int32)
    if past := case.past:
        for symbol, name in (("K", PAST_KEY), ("V", PAST_VALUE)):
            arrays[name], arrays[symbol] = arrays[symbol][..., :past, :], arrays[symbol][..., past:, :]
        problem.passed["cache"] = (arrays[PAST_KEY], arrays[PAST_VALUE])
    if problem.backward:
        problem.draw_cotangent()
    return problem
