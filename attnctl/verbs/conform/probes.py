"""Trial calls before anything is judged: the layouts and sizes that a target takes, then its conventions.

Only what nobody declared is tried. A form that is answered rightly is taken; one that is answered wrongly
is taken where every other is refused, and judged. Conventions are reported, and fail only where they are
declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import sqrt
from typing import Any

import numpy as np

from attnctl.evidence.precision import FLOAT32
from attnctl.inputs.config.settings import NONE
from attnctl.math import Array
from attnctl.math.names import HEAD_OUTPUTS
from attnctl.math.rules import Causal
from attnctl.verbs.conform.call import ENDINGS, NOT_CALLED, NUMPY, Answer
from attnctl.verbs.conform.case import MEMORIES, Case
from attnctl.verbs.conform.features import BASE
from attnctl.verbs.conform.judge import expect, judge_answer
from attnctl.verbs.conform.layout import is_readable, packings, read_output
from attnctl.verbs.conform.options import OPTIONS, draw_mask, give_mask
from attnctl.verbs.conform.problem import SMALL_OF_SCORE, Problem
from attnctl.verbs.conform.profile import (
    AHEAD,
    AXES,
    CONVENTIONS,
    CORNER,
    FLOAT_MASK,
    FOR_W_O,
    IN_TYPE,
    IN_TYPE_BY_LAYOUT,
    LENGTHS,
    LENGTHS_CORNER,
    MASK_KIND,
    MASK_KINDS,
    MASK_SHAPE,
    MASKED,
    MASKS,
    OUTPUT_TYPE,
    PAGE_AXES,
    SLIDING,
    SUMS,
    TABLE_END,
    TYPES,
    USUAL,
    TargetProfile,
    is_merged,
    split_axes,
)
from attnctl.verbs.conform.suite import Suite

HEAD_SIZES = (16, 32, 64, 128, 256)
HEAD_SIZES_TRIED = (64, 128, 32, 16, 256)
MULTIPLES = (1, 16, 32, 64, 128)
"""Sizes that kernels usually have; the numbers of tokens that some are fixed to are the same."""

SEVERAL = [*(axes for axes in AXES if "h" in split_axes(axes) and "b" in axes), *FOR_W_O]

HEADS = (1, 2, 4, 8, 12, 16)
"""Numbers of heads that may be fixed in a function that is not passed it."""

TRIED = ("float32", "float16", "bfloat16", "float64")
MOST_TYPES = 2
"""Types in which everything is tried, of those that are asked for."""

RIGHT, LAID, WRONG, REFUSED, ENDED = "right", "laid", "wrong", "refused", "ended"
"""The verdicts of a call: `laid` is wrong, but each head's output is made of its own values alone."""

FoundConventions = dict[str, str]
"""What was found out in one type, by the name of the convention."""


def fit_suite(suite: Suite) -> FoundConventions:
    before = suite.profile
    dtypes = [dtype for dtype in TRIED if dtype in suite.request.dtypes]
    verdicts = []
    for dtype in dtypes:
        verdicts.append(judge_plain(suite, dtype))
        if verdicts[-1] in {RIGHT, ENDED}:
            return describe_fit(suite, before)
        if verdicts[-1] == LAID:  # by a function of heads side by side, too, that takes others for members
            break
    refused = set(verdicts) == {REFUSED}
    for dtype in dtypes[:MOST_TYPES]:
        tried = list(try_forms(suite, dtype, refused=refused))
        right = [candidate for verdict in (RIGHT, LAID) for candidate, found in tried if found == verdict]
        answered = [candidate for candidate, found in tried if found == WRONG and refused]
        suite.profile = [*right, *answered, before][0]
        if right or answered:
            find_sizes(suite, dtype, is_right=RIGHT in [found for _, found in tried])
            break
    return describe_fit(suite, before)


def try_forms(suite: Suite, dtype: str, *, refused: bool) -> Iterator[tuple[TargetProfile, str]]:
    """Try forms that nobody declared, each with its verdict, until one is right or ends the target.

    Where plain attention was answered, only wrongly, arrays of one member or one head are not tried:
    what mixes members or heads up is right in them.
    """
    before = suite.profile
    said = suite.declared.layout or suite.target.layout
    layouts = [before.layout] if said else [*AXES, *FOR_W_O] if refused else SEVERAL

    for layout in layouts:
        for sizes in list_sizes(suite, layout) if refused and layout not in FOR_W_O else [{}]:
            verdicts = set()
            for form in list_forms(suite, layout, several=not refused):
                suite.profile = before.lay_over({**form, **sizes})
                verdicts.add(verdict := judge_plain(suite, dtype))
                yield suite.profile, verdict
                if verdict in {RIGHT, ENDED}:
                    return
            if verdicts & {LAID, WRONG}:
                break


def judge_plain(suite: Suite, dtype: str) -> str:
    """Judge plain attention; any exception refuses the arrays, which may not be the ones meant.

    The output tells, where there is one: what arrays a target takes has nothing to do with its gradients.
    Options that are on by default are laid aside where the answer is right without them. Where it is wrong
    either way, values that are the same all over a head tell the layout, whatever the weights are, but not
    to a function that does not know how many heads stand side by side: it has one, and mixes none up.
    """
    problem = suite.problem(replace(BASE, dtype=dtype), forward=True)
    answer = suite.call(problem)
    if answer.error in {*ENDINGS, NOT_CALLED} and not suite.is_refusal(answer):
        return ENDED
    if not is_readable(problem, answer):
        return REFUSED
    usual = suite.profile
    for reading in list_readings(suite):
        suite.profile = reading
        if is_right(suite.problem(problem.case, forward=True), answer):
            return RIGHT
    suite.profile = usual
    knows_heads = "heads" in suite.signature.sizes or not is_merged(suite.profile.layout.partition(":")[0])
    laid = knows_heads and try_conventions(suite, replace(BASE, dtype=dtype, fill="heads"), {})
    return LAID if laid and problem.case.heads > 1 else WRONG


def list_readings(suite: Suite) -> Iterator[TargetProfile]:
    """List what an answer without options may be: as meant, without its defaults, or always causal."""
    usual = suite.profile
    yield usual
    if usual.defaults:
        yield replace(usual, defaults={})
    if not usual.always.rules and "causal" not in suite.signature.claimed:
        yield replace(usual, always=replace(usual.always, rules=(Causal(),)))


def list_sizes(suite: Suite, layout: str) -> Iterator[dict[str, Any]]:
    """List the sizes that a kernel may be fixed to, the most likely first."""
    declared = suite.declared
    yield {}
    yield {"batch": 1}
    for d in HEAD_SIZES_TRIED if len(layout) == len(USUAL) else HEAD_SIZES_TRIED[:1]:
        fixed: dict[str, Any] = {} if declared.head_sizes else {"head_sizes": (d,)}
        fixed |= {} if declared.multiple_of > 1 else {"multiple_of": MULTIPLES[-1]}
        if fixed:
            yield fixed
    for n in HEAD_SIZES_TRIED if declared.multiple_of == 1 else ():
        yield {"tokens": n}
        if not declared.head_sizes and n != HEAD_SIZES_TRIED[0]:  # or one axis is taken for the other
            yield {"tokens": n, "head_sizes": HEAD_SIZES_TRIED[:1]}


def list_forms(suite: Suite, layout: str, *, several: bool) -> Iterator[dict[str, Any]]:
    """List the forms of arrays in a layout, those with a fixed number of heads last."""
    declared, axes = suite.declared.conventions.get(MASK_SHAPE), layout.partition(":")[0]
    packed = packings(axes) if suite.signature.is_packed else [""]
    shapes = [declared] if declared else [MASKS[0], MASKS[-1]]
    masks = [(suite.profile[MASK_KIND], suite.profile[MASK_SHAPE])]
    if "mask" in suite.signature.required:
        masks = list(product(MASK_KINDS, shapes))
    page_axes = [suite.profile[PAGE_AXES]]
    if suite.profile.paged and PAGE_AXES not in suite.declared.conventions:
        page_axes = list(CONVENTIONS[PAGE_AXES])
    may_be_fixed = is_merged(axes) and not (suite.declared.always.heads or "heads" in suite.signature.sizes)
    fixed = [n for n in HEADS if n > 1 or not several] if may_be_fixed else []
    several_heads = [suite.declared.always.heads, *fixed]
    for heads, packing, (kind, shape), pages in product(several_heads, packed, masks, page_axes):
        conventions = {MASK_KIND: kind, MASK_SHAPE: shape, PAGE_AXES: pages}
        yield {"layout": layout, "packed": packing, "heads": heads, "conventions": conventions}


def find_sizes(suite: Suite, dtype: str, *, is_right: bool) -> None:
    """Find out which other usual sizes are taken, where only some are; one alone where that is right."""
    declared, found = suite.declared, suite.profile

    def is_taken(**sizes: Any) -> bool:
        suite.profile = replace(found, **sizes)
        problem = suite.problem(replace(BASE, dtype=dtype))
        return is_readable(problem, suite.call(problem))

    if found.multiple_of > declared.multiple_of:
        least = next(n for n in MULTIPLES if n == found.multiple_of or is_taken(multiple_of=n))
        one = least if is_right and not is_taken(multiple_of=1, tokens=2 * least) else None
        found = replace(found, multiple_of=declared.multiple_of if one else least, tokens=one)
    if found.head_sizes != declared.head_sizes:
        some = () if is_taken(head_sizes=()) else HEAD_SIZES
        found = replace(found, head_sizes=tuple(d for d in some if is_taken(head_sizes=(d,))))
    suite.profile = found


def describe_fit(suite: Suite, before: TargetProfile) -> FoundConventions:
    def say(profile: TargetProfile) -> FoundConventions:
        return {
            "layout": profile.layout,
            MASK_KIND: profile[MASK_KIND],
            MASK_SHAPE: profile[MASK_SHAPE],
            PAGE_AXES: profile[PAGE_AXES],
            "heads": str(profile.heads),
            "lengths": f"multiples of {profile.multiple_of}",
            "batch": str(profile.batch),
            "queries and keys": str(profile.tokens),
            "head sizes": ", ".join(map(str, profile.head_sizes)),
            "Q, K and V in one array": profile.packed,
            "by default": ", ".join(f"{name} {value}" for name, value in (profile.defaults or {}).items()),
        }

    was = say(before) | {"Q, K and V in one array": "", "by default": ""}
    return {name: value for name, value in say(suite.profile).items() if value != was[name]}


# --- conventions ---


def find_conventions(suite: Suite, dtype: str) -> FoundConventions:
    found: FoundConventions = {}
    for probe in (
        probe_sums, probe_mask, probe_pages, probe_corner, probe_values, probe_float_mask,
        probe_hidden_rows, probe_padding,
    ):  # fmt: skip
        found |= dict(probe(suite, dtype))
        known = {name: value for name, value in found.items() if value in CONVENTIONS[name]}
        meant = {**known, **suite.declared.conventions}
        suite.profiles[dtype] = suite.profile.lay_over({"conventions": meant})
    return found


def join_types(found: Mapping[str, FoundConventions]) -> FoundConventions:
    """Join what was found out in all types, by convention; where types differ, each value has its types.

    That outputs are of the inputs' type goes without saying.
    """
    words = {}
    for name in dict.fromkeys(name for values in found.values() for name in values):
        types: dict[str, list[str]] = {}
        for dtype, values in found.items():
            if name in values:
                types.setdefault(values[name], []).append(dtype)
        if set(types) == {"the inputs'"}:
            continue
        several = len(types) > 1 or name in {OUTPUT_TYPE, SUMS}
        parts = (f"{value} ({', '.join(of)})" if several else value for value, of in types.items())
        words[name] = ", ".join(parts)
    return words


def try_conventions(suite: Suite, case: Case, conventions: Mapping[str, str]) -> bool | None:
    """Ask whether an answer is right by these conventions; None where the target takes no such call."""
    problem = suite.problem(case, conventions, forward=True)  # the output shows it, where there is one
    answer = suite.call(problem)
    return is_right(problem, answer) if is_readable(problem, answer) else None


def is_right(problem: Problem, answer: Answer) -> bool:
    """Judge an answer as far as a convention goes: float64 may be kept in float32 inside."""
    case = problem.case
    dtype = "float32" if case.dtype == "float64" else case.dtype
    return judge_answer(expect(replace(problem, case=replace(case, dtype=dtype))), answer).right


def describe_output_type(seen: Iterable[str], dtype: str, declared: str | None) -> FoundConventions:
    """Describe the types of outputs, in the order in which they came: the inputs', or others."""
    own = {dtype, NUMPY.get(dtype, dtype)} - {declared}
    kinds = dict.fromkeys("the inputs'" if name in own else name for name in seen if name in TYPES)
    return {OUTPUT_TYPE: " or ".join(kinds)} if kinds else {}


def probe_sums(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Find out whether sums are kept in a coarse type: always, or of arrays that lie in other ways."""
    if TYPES[dtype].unit <= FLOAT32.unit:
        return
    case = replace(BASE, dtype=dtype, queries=32, keys=32, d_k=32, d_v=32)
    if loses_in_sums(suite, case):
        yield SUMS, IN_TYPE
    elif any(loses_in_sums(suite, replace(case, memory=memory)) for memory in MEMORIES):
        yield SUMS, IN_TYPE_BY_LAYOUT


def loses_in_sums(suite: Suite, case: Case) -> bool:
    """Whether small numbers are lost where they are added up, and nothing else."""
    return loses_in_outputs(suite, case) or loses_in_scores(suite, case)


def loses_in_outputs(suite: Suite, case: Case) -> bool:
    problem = suite.problem(replace(case, fill="sums"))
    given = read_output(problem, suite.call(problem))
    if given is None:
        return False
    right, found = (array[..., -1, :] for array in (problem.plan.run()[HEAD_OUTPUTS], given))
    rest = 16 * TYPES[case.dtype].unit / case.keys
    return bool(((right - rest <= found) & (found <= right)).all() and 0 < (found == right).mean() < 1)


@np.errstate(all="ignore")
def loses_in_scores(suite: Suite, case: Case) -> bool:
    """The scores of a query are alike in its type, but for what is lost: two small ones is rounding."""
    problem = suite.problem(replace(case, fill="sums of scores"))
    given = read_output(problem, suite.call(problem))
    if given is None:
        return False
    right, found = (array[..., -1, :] for array in (problem.plan.run()[HEAD_OUTPUTS], given))
    seen = right > 0
    below = np.where(seen, np.log(right / found), np.inf)
    lost = (below - below.min(axis=-1, keepdims=True))[seen]
    small = SMALL_OF_SCORE / sqrt(case.d_k)
    return bool((lost <= (16 + 2) * small).all() and lost.max(initial=0.0) > 4 * small)


def probe_mask(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Find the shape and the kind of mask that is taken, and what is left of causal beside it.

    transformers calls a mask that is added `attention_mask`: under that name it may be one.
    """
    names = [name for name in ("mask", "float_mask") if name in suite.signature.claimed]
    if not names:
        return
    usual, declared = suite.profile, suite.declared.conventions
    case = replace(BASE, dtype=dtype).having(**{names[0]: "each"})
    shapes = [usual[MASK_SHAPE]] if MASK_SHAPE in declared else MASKS
    kinds = [usual[MASK_KIND]] if MASK_KIND in declared or names[0] != "mask" else MASK_KINDS
    is_causal = MASKED not in declared and Causal() in usual.always.rules
    ways = CONVENTIONS[MASKED] if is_causal else (usual[MASKED],)
    named_so = suite.signature.keywords[names[0]] == "attention_mask"
    answered: FoundConventions = {}
    adds = False
    for kind in kinds:
        shape, masked, right = try_shapes(suite, case, kind, shapes, ways)
        if right or (shape and not answered and not named_so):
            answered = {MASK_KIND: kind, MASK_SHAPE: shape, MASKED: masked}
        if kind == MASK_KINDS[0] and names[0] == "mask" and shape and not right:
            adds = adds_truths(suite, case, shape)
        if right or (answered and kind == MASK_KINDS[0] and not adds):
            break
    suite.adds_truths |= adds and answered.get(MASK_KIND) == MASK_KINDS[-1]
    yield from ((name, value) for name, value in answered.items() if value != usual[name])


def adds_truths(suite: Suite, case: Case, shape: str) -> bool:
    """Ask whether a boolean mask is added as 1 and 0, as it is where only masks of numbers are meant."""
    problem = suite.problem(case, {MASK_KIND: MASK_KINDS[0], MASK_SHAPE: shape})
    added = suite.problem(case.without("mask"))
    added.add_bias(problem.passed["mask"].astype(np.float64))
    return is_right(added, suite.call(problem))


def try_shapes(
    suite: Suite, case: Case, kind: str, shapes: Sequence[str], ways: Sequence[str]
) -> tuple[str, str, bool]:
    """Find the shape of mask that is taken, what is left of causal, and whether the answer is right.

    Where the first shape is answered it is the one: who reads only a part of it is wrong. Of others
    the first that is right, or else answered.
    """
    answered = ""
    for shape in shapes:
        meant = {MASK_KIND: kind, MASK_SHAPE: shape}
        rights = [try_conventions(suite, case, {**meant, MASKED: way}) for way in ways]
        if True in rights:
            return shape, ways[rights.index(True)], True
        if False in rights:
            answered = answered or shape
            if shape == shapes[0]:
                break
    return answered, ways[0], False


def probe_pages(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Find out the axes of pages, and whether a table may name none behind a sequence's last page.

    The first that is right is taken, or else the first that is answered: −1 ends some programs.
    """
    if "pages" not in suite.signature.claimed:
        return
    case = replace(BASE, dtype=dtype).having(pages=(4, 1))
    usual, declared = suite.profile, suite.declared.conventions
    axes = [usual[PAGE_AXES]] if usual.paged else CONVENTIONS[PAGE_AXES]

    answered: FoundConventions = {}
    for order, end in product(axes, CONVENTIONS[TABLE_END]):
        way = {PAGE_AXES: order, TABLE_END: end}
        right = try_conventions(suite, case, way)
        if right is None:
            continue
        answered = answered or way
        if right:
            answered = way
            break
    for name, value in answered.items():
        if name in declared or value != usual[name]:
            yield name, value


def probe_corner(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    if LENGTHS in suite.declared.without:
        return
    case = replace(BASE, dtype=dtype, fill="who", queries=5)
    names = [name for name in ("causal", "window", "sliding_window") if name in suite.signature.claimed]
    if names:
        case = case.having(**{names[0]: OPTIONS[names[0]].values(case)[0]})
    elif suite.profile.always.positions != NONE:
        case = replace(case, fill="random")
    elif not any(rule.relative for rule in suite.profile.always.rules):
        return
    for name in CONVENTIONS[CORNER]:
        right = try_conventions(suite, case, {CORNER: name})
        if right is None:
            return
        if right:
            yield CORNER, name
            return
    yield CORNER, "neither"


SHOWN_BY: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    ((SLIDING, AHEAD), {"sliding_window": 4}),
    ((LENGTHS_CORNER,), {"causal": True, "key_lengths": "garbage"}),
    ((LENGTHS_CORNER,), {"causal": True, "pages": (4, 1)}),
)
"""Conventions by the options that show them together."""


def probe_values(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    for names, options in SHOWN_BY:
        if not options.keys() <= {*suite.signature.claimed}:
            continue
        case = replace(BASE, dtype=dtype, fill="who").having(**options)
        tried = product(*(CONVENTIONS[name] for name in reversed(names)))
        every = (dict(zip(names, reversed(values), strict=True)) for values in tried)
        yield from next((way for way in every if try_conventions(suite, case, way)), {}).items()


def probe_float_mask(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    if "float_mask" not in suite.signature.claimed:
        return
    case = replace(BASE, dtype=dtype)
    problem = suite.problem(case.having(float_mask="same"))
    answer = suite.call(problem)
    if answer.error:
        return
    if is_right(problem, answer):
        yield FLOAT_MASK, "added"
        return
    mask = problem.passed["float_mask"]
    for seen in (mask != 0, np.where(np.isneginf(mask), 0.0, mask) != 0):
        truths = suite.problem(case)
        truths.hide(seen)
        if is_right(truths, answer):
            yield FLOAT_MASK, "read as truth values"
            return


def probe_hidden_rows(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    case = replace(BASE, dtype=dtype)
    problem = suite.problem(case)
    if "mask" in suite.signature.claimed and "n" in problem.profile[MASK_SHAPE]:
        allowed = draw_mask(problem, "same")
        allowed[..., 4, :] = False
        give_mask(problem, allowed)
    elif "causal" in suite.signature.claimed and suite.profile_in(dtype)[CORNER] == "bottom-right":
        problem = suite.problem(replace(case, keys=5).having(causal=True))
        if problem.starts.max() + 4 >= 0:  # there are more keys than that in whole pages
            return
    else:
        return
    given = read_output(problem, suite.call(problem))
    if given is not None:
        yield "rows that see nothing", describe_row(given[0, 0, 4], problem.arrays["V"][0, 0])


def describe_row(row: Array, values: Array) -> str:
    if np.isnan(row).any():
        return "NaN"
    if not row.any():
        return "zeros"
    near = np.abs(row - values.mean(axis=0)) <= 0.02 * np.abs(values).max()
    return "mean" if near.all() else "other numbers"


def probe_padding(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    if "key_lengths" not in suite.signature.claimed:
        return
    problem = suite.problem(replace(BASE, dtype=dtype).having(key_lengths="nan"))
    found = read_output(problem, suite.call(problem))
    if found is not None:
        yield "NaN in padding", "spreads" if np.isnan(found).any() else "hidden"
