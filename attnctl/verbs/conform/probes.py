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
from typing import Any, NamedTuple

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
from attnctl.verbs.conform.places import BY_PLACES, GO_BY_POSITIONS, PACKED, goes_by_positions
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
    POSITION_SHAPE,
    RULES_BY,
    SCALE_SHAPE,
    SLIDING,
    SUMS,
    TABLE_END,
    USUAL,
    TargetProfile,
    is_merged,
    split_axes,
)
from attnctl.verbs.conform.stored import EIGHT_BITS, OF_PAGES, TYPES, is_small, precision_in
from attnctl.verbs.conform.suite import Suite

HEAD_SIZES = (16, 32, 64, 128, 256)
HEAD_SIZES_TRIED = (64, 128, 32, 16, 256)
MULTIPLES = (1, 16, 32, 64, 128)
"""Sizes that kernels usually have; the numbers of tokens that some are fixed to are the same."""

SEVERAL = [*(axes for axes in AXES if "h" in split_axes(axes) and "b" in axes), *FOR_W_O]

HEADS = (1, 2, 4, 8, 12, 16)
"""Numbers of heads that may be fixed in a function that is not passed it."""

TRIED = ("float32", "float16", "bfloat16", "float64", *EIGHT_BITS)
MOST_TYPES = 2
"""Types in which everything is tried, of those that are asked for."""

RIGHT = "right"
LAID = "laid"
WRONG = "wrong"
REFUSED = "refused"
ENDED = "ended"
"""The verdicts of a call: `laid` is wrong, but each head's output is made of its own values alone."""

FoundConventions = dict[str, str]
"""What was found out in one type, by the name of the convention."""


class FormTrial(NamedTuple):
    """A form of calls that was tried, and what came of it."""

    profile: TargetProfile
    verdict: str


class MaskTrial(NamedTuple):
    """What was found of masks of one kind."""

    shape: str
    """The shape that is taken; empty where none is."""
    masked: str
    """What is left of causal beside a mask."""
    is_right: bool


def fit_suite(suite: Suite) -> FoundConventions:
    """Find the layout, sizes and scales that the target takes; it is called by them from then on."""
    before = suite.profile
    fit_arrays(suite)
    fit_scales(suite)
    return describe_fit(suite, before)


def fit_scales(suite: Suite) -> None:
    """Find out the shape of scales; the usual one is kept where none is right."""
    if not suite.profile.scaled or SCALE_SHAPE in suite.declared.conventions:
        return
    profile = suite.profile
    dtype = next(dtype for dtype in TRIED if dtype in suite.request.dtypes)
    case = replace(BASE, dtype=dtype).having(scales=True)
    for shape in (profile[SCALE_SHAPE], *CONVENTIONS[SCALE_SHAPE]):
        if shape == OF_PAGES and "pages" not in suite.signature.claimed:
            continue
        of_shape = case.having(pages=(4, 1)) if shape == OF_PAGES else case
        if try_conventions(suite, of_shape, {SCALE_SHAPE: shape}):
            suite.profile = profile.lay_over({"conventions": {SCALE_SHAPE: shape}})
            return


def fit_arrays(suite: Suite) -> None:
    """Find the layout and the sizes."""
    before = suite.profile
    dtypes = [dtype for dtype in TRIED if dtype in suite.request.dtypes]
    verdicts = []
    for dtype in dtypes:
        verdict = judge_plain(suite, dtype)
        verdicts.append(verdict)
        if verdict in {RIGHT, ENDED}:
            return
        if verdict == LAID:  # by a function of heads side by side, too, that takes others for members
            break

    is_refused = set(verdicts) == {REFUSED}
    for dtype in dtypes[:MOST_TYPES]:
        trials = list(try_forms(suite, dtype, refused=is_refused))
        by_verdict: dict[str, list[TargetProfile]] = {RIGHT: [], LAID: [], WRONG: []}
        for trial in trials:
            by_verdict.setdefault(trial.verdict, []).append(trial.profile)

        candidates = by_verdict[RIGHT] + by_verdict[LAID]
        # What is answered wrongly tells nothing where the usual form is answered, too.
        if is_refused:
            candidates += by_verdict[WRONG]
        suite.profile = candidates[0] if candidates else before
        if candidates:
            find_sizes(suite, dtype, is_right=bool(by_verdict[RIGHT]))
            break


def try_forms(suite: Suite, dtype: str, *, refused: bool) -> Iterator[FormTrial]:
    """Try forms that nobody declared, each with its verdict, until one is right or ends the target.

    Where plain attention was answered, only wrongly, arrays of one member or one head are not tried:
    what mixes members or heads up is right in them.
    """
    before = suite.profile
    for layout in list_layouts(suite, refused=refused):
        may_be_fixed = refused and layout not in FOR_W_O
        for sizes in list_sizes(suite, layout) if may_be_fixed else [{}]:
            verdicts = set()
            for form in list_forms(suite, layout, several=not refused):
                suite.profile = before.lay_over({**form, **sizes})
                verdict = judge_plain(suite, dtype)
                verdicts.add(verdict)
                yield FormTrial(suite.profile, verdict)
                if verdict in {RIGHT, ENDED}:
                    return

            # It takes arrays of these sizes, so that no others need be tried.
            if verdicts & {LAID, WRONG}:
                break


def list_layouts(suite: Suite, *, refused: bool) -> Sequence[str]:
    """List the layouts to try; one alone where it is said."""
    if suite.declared.layout or suite.target.layout:
        return [suite.profile.layout]
    return [*AXES, *FOR_W_O] if refused else SEVERAL


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

    knows_heads = "heads" in suite.signature.sizes or not is_merged(suite.profile.axes)
    if not knows_heads:
        return WRONG
    is_laid = try_conventions(suite, replace(BASE, dtype=dtype, fill="heads"), {})
    return LAID if is_laid and problem.case.heads > 1 else WRONG


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

    # Of a layout with fewer axes one usual size is tried, as the calls are many.
    has_all_axes = len(layout) == len(USUAL)
    for d in HEAD_SIZES_TRIED if has_all_axes else HEAD_SIZES_TRIED[:1]:
        fixed: dict[str, Any] = {}
        if not declared.head_sizes:
            fixed["head_sizes"] = (d,)
        if declared.multiple_of == 1:
            fixed["multiple_of"] = MULTIPLES[-1]
        if fixed:
            yield fixed

    if declared.multiple_of != 1:
        return
    for n in HEAD_SIZES_TRIED:
        yield {"tokens": n}
        if not declared.head_sizes and n != HEAD_SIZES_TRIED[0]:  # or one axis is taken for the other
            yield {"tokens": n, "head_sizes": HEAD_SIZES_TRIED[:1]}


def list_forms(suite: Suite, layout: str, *, several: bool) -> Iterator[dict[str, Any]]:
    """List the forms of arrays in a layout, those with a fixed number of heads last."""
    always = suite.declared.always
    axes = layout.partition(":")[0]
    packings_tried = packings(axes) if suite.signature.is_packed else [""]

    # Only a mask that has to be passed is in the way of plain attention.
    masks = [(suite.profile[MASK_KIND], suite.profile[MASK_SHAPE])]
    if "mask" in suite.signature.required:
        declared_shape = suite.declared.conventions.get(MASK_SHAPE)
        shapes = [declared_shape] if declared_shape else [MASKS[0], MASKS[-1]]
        masks = list(product(MASK_KINDS, shapes))

    heads_tried = [always.heads]
    is_told_heads = bool(always.heads) or "heads" in suite.signature.sizes
    if is_merged(axes) and not is_told_heads:
        heads_tried += [n for n in HEADS if n > 1 or not several]

    page_axes = [suite.profile[PAGE_AXES]]
    if suite.profile.paged and PAGE_AXES not in suite.declared.conventions:
        page_axes = list(CONVENTIONS[PAGE_AXES])

    scales = [suite.profile[SCALE_SHAPE]]
    types = {*suite.request.dtypes, *suite.declared.stored.values()}
    if suite.profile.scaled and any(map(is_small, types)) and SCALE_SHAPE not in suite.declared.conventions:
        scales = list(CONVENTIONS[SCALE_SHAPE])

    forms = product(heads_tried, packings_tried, masks, page_axes, scales)
    for heads, packing, (kind, shape), pages, scale in forms:
        conventions = {MASK_KIND: kind, MASK_SHAPE: shape, PAGE_AXES: pages, SCALE_SHAPE: scale}
        yield {"layout": layout, "packed": packing, "heads": heads, "conventions": conventions}


def find_sizes(suite: Suite, dtype: str, *, is_right: bool) -> None:
    """Find out which other usual sizes are taken, where only some are; one alone where that is right."""
    declared = suite.declared
    profile = suite.profile

    def is_taken(**sizes: Any) -> bool:
        suite.profile = replace(profile, **sizes)
        problem = suite.problem(replace(BASE, dtype=dtype))
        return is_readable(problem, suite.call(problem))

    if profile.multiple_of > declared.multiple_of:
        # The largest is taken, or this profile would not be tried.
        least = next(n for n in MULTIPLES if n == profile.multiple_of or is_taken(multiple_of=n))
        is_only_size = is_right and not is_taken(multiple_of=1, tokens=2 * least)
        if is_only_size:
            profile = replace(profile, multiple_of=declared.multiple_of, tokens=least)
        else:
            profile = replace(profile, multiple_of=least, tokens=None)

    if profile.head_sizes != declared.head_sizes:
        head_sizes: tuple[int, ...] = ()
        if not is_taken(head_sizes=()):
            head_sizes = tuple(d for d in HEAD_SIZES if is_taken(head_sizes=(d,)))
        profile = replace(profile, head_sizes=head_sizes)
    suite.profile = profile


def describe_fit(suite: Suite, before: TargetProfile) -> FoundConventions:
    """Say what is other than was meant before."""

    def say(profile: TargetProfile) -> FoundConventions:
        defaults = profile.defaults or {}
        return {
            "layout": profile.layout,
            MASK_KIND: profile[MASK_KIND],
            MASK_SHAPE: profile[MASK_SHAPE],
            PAGE_AXES: profile[PAGE_AXES],
            SCALE_SHAPE: profile[SCALE_SHAPE],
            "heads": str(profile.heads),
            "lengths": f"multiples of {profile.multiple_of}",
            "batch": str(profile.batch),
            "queries and keys": str(profile.tokens),
            "head sizes": ", ".join(map(str, profile.head_sizes)),
            "Q, K and V in one array": profile.packed,
            "by default": ", ".join(f"{name} {value}" for name, value in defaults.items()),
        }

    # These two are said even where they are what the signature told.
    was = say(before) | {"Q, K and V in one array": "", "by default": ""}
    return {name: value for name, value in say(suite.profile).items() if value != was[name]}


# --- conventions ---


def find_conventions(suite: Suite, dtype: str) -> FoundConventions:
    """Find out by trial calls how the target means what is passed to it."""
    conventions: FoundConventions = {}
    # Later probes call by what earlier ones found: sums and masks matter to all.
    for probe in (
        probe_sums, probe_mask, probe_pages, probe_corner, probe_values, probe_positions,
        probe_float_mask, probe_hidden_rows, probe_padding,
    ):  # fmt: skip
        conventions |= dict(probe(suite, dtype))
        usable = {name: value for name, value in conventions.items() if value in CONVENTIONS[name]}
        meant = {**usable, **suite.declared.conventions}
        suite.profiles[dtype] = suite.profile.lay_over({"conventions": meant})
    return conventions


def join_types(by_dtype: Mapping[str, FoundConventions]) -> FoundConventions:
    """Join what was found out in all types, by convention; where types differ, each value has its types.

    That outputs are of the inputs' type goes without saying.
    """
    words = {}
    for name in dict.fromkeys(name for conventions in by_dtype.values() for name in conventions):
        dtypes_of: dict[str, list[str]] = {}
        for dtype, conventions in by_dtype.items():
            if name in conventions:
                dtypes_of.setdefault(conventions[name], []).append(dtype)

        if set(dtypes_of) == {"the inputs'"}:
            continue
        parts = [*dtypes_of]
        if len(dtypes_of) > 1 or name in {OUTPUT_TYPE, SUMS}:
            parts = [f"{value} ({', '.join(dtypes)})" for value, dtypes in dtypes_of.items()]
        words[name] = ", ".join(parts)
    return words


def try_conventions(suite: Suite, case: Case, conventions: Mapping[str, str]) -> bool | None:
    """Ask whether an answer is right by these conventions; None where the target takes no such call."""
    problem = suite.problem(case, conventions, forward=True)  # the output shows it, where there is one
    answer = suite.call(problem)
    if not is_readable(problem, answer):
        return None
    return is_right(problem, answer)


def is_right(problem: Problem, answer: Answer) -> bool:
    """Judge an answer as far as a convention goes: float64 may be kept in float32 inside."""
    case = problem.case
    dtype = "float32" if case.dtype == "float64" else case.dtype
    return judge_answer(expect(replace(problem, case=replace(case, dtype=dtype))), answer).right


def describe_output_type(dtypes: Iterable[str], dtype: str, declared: str | None) -> FoundConventions:
    """Describe the types of outputs, in the order in which they came: the inputs', or others."""
    inputs_own = {dtype, NUMPY.get(dtype, dtype)} - {declared}
    kinds: dict[str, None] = {}
    for name in dtypes:
        if name in TYPES:
            kinds.setdefault("the inputs'" if name in inputs_own else name)
    return {OUTPUT_TYPE: " or ".join(kinds)} if kinds else {}


def probe_sums(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Find out whether sums are kept in a coarse type: always, or of arrays that lie in other ways."""
    if precision_in(dtype).unit <= FLOAT32.unit or dtype in EIGHT_BITS:
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
    """Ones with sixteen small numbers after them: in some columns these are lost, in others not."""
    outputs = last_rows(suite, replace(case, fill="sums"))
    if outputs is None:
        return False
    right, found = outputs
    rest = 16 * precision_in(case.dtype).unit / case.keys
    # What is missing is at most what the sixteen numbers give.
    is_below = ((right - rest <= found) & (found <= right)).all()
    share_right = (found == right).mean()
    return bool(is_below and 0 < share_right < 1)


def last_rows(suite: Suite, case: Case) -> tuple[Array, Array] | None:
    """The right and the target's output of the last query; None where it answers with none."""
    problem = suite.problem(case)
    output = read_output(problem, suite.call(problem))
    if output is None:
        return None
    right = problem.plan.run()[HEAD_OUTPUTS]
    return right[..., -1, :], output[..., -1, :]


@np.errstate(all="ignore")
def loses_in_scores(suite: Suite, case: Case) -> bool:
    """The scores of a query are alike in its type, but for what is lost: two small ones is rounding."""
    outputs = last_rows(suite, replace(case, fill="sums of scores"))
    if outputs is None:
        return False
    right, found = outputs

    # The logarithm of a weight is its score, up to one number for each row.
    is_seen = right > 0
    below = np.where(is_seen, np.log(right / found), np.inf)
    lost = (below - below.min(axis=-1, keepdims=True))[is_seen]

    small = SMALL_OF_SCORE / sqrt(case.d_k)
    loses_no_more = (lost <= (16 + 2) * small).all()
    return bool(loses_no_more and lost.max(initial=0.0) > 4 * small)


def probe_mask(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Find the shape and the kind of mask that is taken, and what is left of causal beside it.

    transformers calls a mask that is added `attention_mask`: under that name it may be one.
    """
    names = [name for name in ("mask", "float_mask") if name in suite.signature.claimed]
    if not names:
        return

    name = names[0]
    usual = suite.profile
    declared = suite.declared.conventions
    boolean = MASK_KINDS[0]
    added = MASK_KINDS[-1]
    shapes = [usual[MASK_SHAPE]] if MASK_SHAPE in declared else MASKS
    kinds = [usual[MASK_KIND]] if MASK_KIND in declared or name != "mask" else MASK_KINDS
    is_causal = MASKED not in declared and Causal() in usual.always.rules
    beside_mask = CONVENTIONS[MASKED] if is_causal else (usual[MASKED],)
    may_be_added = suite.signature.keywords[name] == "attention_mask"

    case = replace(BASE, dtype=dtype).having(**{name: "each"})
    answered: FoundConventions = {}
    takes_sums = False
    for kind in kinds:
        trial = try_shapes(suite, case, kind, shapes, beside_mask)
        if trial.is_right or (trial.shape and not answered and not may_be_added):
            answered = {MASK_KIND: kind, MASK_SHAPE: trial.shape, MASKED: trial.masked}
        if kind == boolean and name == "mask" and trial.shape and not trial.is_right:
            takes_sums = adds_truths(suite, case, trial.shape)
        # A boolean mask that is answered wrongly is the target's fault, but where it is added.
        if trial.is_right or (answered and kind == boolean and not takes_sums):
            break

    suite.adds_truths |= takes_sums and answered.get(MASK_KIND) == added
    for convention, value in answered.items():
        if value != usual[convention]:
            yield convention, value


def adds_truths(suite: Suite, case: Case, shape: str) -> bool:
    """Ask whether a boolean mask is added as 1 and 0, as it is where only masks of numbers are meant."""
    problem = suite.problem(case, {MASK_KIND: MASK_KINDS[0], MASK_SHAPE: shape})
    added = suite.problem(case.without("mask"))
    added.add_bias(problem.passed["mask"].astype(np.float64))
    return is_right(added, suite.call(problem))


def try_shapes(
    suite: Suite, case: Case, kind: str, shapes: Sequence[str], beside_mask: Sequence[str]
) -> MaskTrial:
    """Find the shape of mask that is taken, what is left of causal, and whether the answer is right.

    Where the first shape is answered it is the one: who reads only a part of it is wrong. Of others
    the first that is right, or else answered.
    """
    answered = ""
    for shape in shapes:
        meant = {MASK_KIND: kind, MASK_SHAPE: shape}
        verdicts = [try_conventions(suite, case, {**meant, MASKED: masked}) for masked in beside_mask]
        if True in verdicts:
            return MaskTrial(shape, beside_mask[verdicts.index(True)], is_right=True)
        if False in verdicts:
            answered = answered or shape
            if shape == shapes[0]:
                break
    return MaskTrial(answered, beside_mask[0], is_right=False)


def first_answered(suite: Suite, case: Case, ways: Iterable[dict[str, str]]) -> Iterator[tuple[str, str]]:
    """Of the first conventions that are right, or else answered, those that are not usual."""
    answered: FoundConventions = {}
    for way in ways:
        right = try_conventions(suite, case, way)
        if right is None:
            continue
        answered = answered or way
        if right:
            answered = way
            break

    for name, value in answered.items():
        if name in suite.declared.conventions or value != suite.profile[name]:
            yield name, value


def probe_pages(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Find out the axes of pages, and whether a table may name none behind a sequence's last page.

    The first that is right is taken, or else the first that is answered: −1 ends some programs.
    """
    if "pages" not in suite.signature.claimed:
        return
    case = replace(BASE, dtype=dtype).having(pages=(4, 1))
    usual = suite.profile
    axes = [usual[PAGE_AXES]] if usual.paged else CONVENTIONS[PAGE_AXES]

    ways = [{PAGE_AXES: order, TABLE_END: end} for order, end in product(axes, CONVENTIONS[TABLE_END])]
    yield from first_answered(suite, case, ways)


def probe_corner(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Find out whether causal starts at the first key or ends at the last one."""
    if LENGTHS in suite.declared.without:
        return

    # With fewer queries than keys the two differ; only what goes by positions shows it.
    case = replace(BASE, dtype=dtype, fill="who", queries=5)
    names = [name for name in ("causal", "window", "sliding_window") if name in suite.signature.claimed]
    always = suite.profile.always
    if names:
        case = case.having(**{names[0]: OPTIONS[names[0]].values(case)[0]})
    elif always.positions != NONE:
        case = replace(case, fill="random")
    elif not any(rule.relative for rule in always.rules):
        return

    for corner in CONVENTIONS[CORNER]:
        is_right_so = try_conventions(suite, case, {CORNER: corner})
        if is_right_so is None:
            return
        if is_right_so:
            yield CORNER, corner
            return
    yield CORNER, "neither"


SHOWN_BY: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    ((SLIDING, AHEAD), {"sliding_window": 4}),
    ((LENGTHS_CORNER,), {"causal": True, "key_lengths": "garbage"}),
    ((LENGTHS_CORNER,), {"causal": True, "pages": (4, 1)}),
)
"""Conventions by the options that show them together."""


def probe_values(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Find out what the values of options mean, of several conventions that show together."""
    for names, options in SHOWN_BY:
        if not options.keys() <= {*suite.signature.claimed}:
            continue
        case = replace(BASE, dtype=dtype, fill="who").having(**options)

        # Reversed, so that of the first name all values are tried before the next value of the second.
        for values in product(*(CONVENTIONS[name] for name in reversed(names))):
            conventions = dict(zip(names, reversed(values), strict=True))
            if try_conventions(suite, case, conventions):
                yield from conventions.items()
                break


def probe_positions(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Find out the shape of positions, and whether rules go by them or by places.

    Of a target that turns nothing by them rules do, or they would have no effect at all.
    """
    if "positions" not in suite.signature.claimed:
        return
    case = replace(BASE, dtype=dtype).having(positions=PACKED)
    relative = [name for name in GO_BY_POSITIONS if name in suite.signature.claimed]
    if relative:
        case = case.having(**{relative[0]: OPTIONS[relative[0]].values(case)[0]})

    usual, declared = suite.profile, suite.declared.conventions
    shapes = [usual[POSITION_SHAPE]] if POSITION_SHAPE in declared else CONVENTIONS[POSITION_SHAPE]
    rules_by = [usual[RULES_BY]]
    has_rules = bool(relative) or any(map(goes_by_positions, usual.always.rules))
    if RULES_BY not in declared and has_rules:
        rules_by = list(CONVENTIONS[RULES_BY])
        if usual.rotary is None:
            rules_by.remove(BY_PLACES)

    ways = [{POSITION_SHAPE: shape, RULES_BY: how} for shape, how in product(shapes, rules_by)]
    yield from first_answered(suite, case, ways)


def probe_float_mask(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Find out whether a mask of numbers is added to scores, or read as truth values."""
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

    # −∞ is a true value to some programs, and hides for others.
    mask = problem.passed["float_mask"]
    for seen in (mask != 0, np.where(np.isneginf(mask), 0.0, mask) != 0):
        as_truths = suite.problem(case)
        as_truths.hide(seen)
        if is_right(as_truths, answer):
            yield FLOAT_MASK, "read as truth values"
            return


def probe_hidden_rows(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Find out what a query that sees no key gets: row 4, hidden by a mask or by causal."""
    case = replace(BASE, dtype=dtype)
    problem = suite.problem(case)
    takes_mask = "mask" in suite.signature.claimed and "n" in problem.profile[MASK_SHAPE]
    ends_last = "causal" in suite.signature.claimed and suite.profile_in(dtype)[CORNER] == "bottom-right"

    if takes_mask:
        allowed = draw_mask(problem, "same")
        allowed[..., 4, :] = False
        give_mask(problem, allowed)
    elif ends_last:
        problem = suite.problem(replace(case, keys=5).having(causal=True))
        if problem.starts.max() + 4 >= 0:  # there are more keys than that in whole pages
            return
    else:
        return

    output = read_output(problem, suite.call(problem))
    if output is not None:
        yield "rows that see nothing", describe_row(output[0, 0, 4], problem.arrays["V"][0, 0])


def describe_row(row: Array, values: Array) -> str:
    if np.isnan(row).any():
        return "NaN"
    if not row.any():
        return "zeros"
    near = np.abs(row - values.mean(axis=0)) <= 0.02 * np.abs(values).max()
    return "mean" if near.all() else "other numbers"


def probe_padding(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Find out whether NaN behind the lengths of keys reaches the output."""
    if "key_lengths" not in suite.signature.claimed:
        return
    problem = suite.problem(replace(BASE, dtype=dtype).having(key_lengths="nan"))
    output = read_output(problem, suite.call(problem))
    if output is not None:
        yield "NaN in padding", "spreads" if np.isnan(output).any() else "hidden"
