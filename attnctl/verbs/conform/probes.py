"""What a target does where programs differ: found out by calls, reported, and failed only if declared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attnctl.inputs.config.settings import NONE
from attnctl.math import Array
from attnctl.math.rules import Causal
from attnctl.verbs.conform.call import NUMPY, Answer, output_of
from attnctl.verbs.conform.case import MASK_KINDS, TYPES, Case, Problem
from attnctl.verbs.conform.conventions import (
    ADDED,
    AHEAD,
    CORNER,
    FLOAT_MASK,
    HIDDEN_ROWS,
    KNOWN,
    LENGTHS_CORNER,
    MASK_KIND,
    MASK_SHAPE,
    MASKED,
    NEITHER,
    OUTPUT_TYPE,
    PADDING,
    SLIDING,
    THE_INPUTS,
    TRUTHS,
)
from attnctl.verbs.conform.features import BASE, LENGTHS
from attnctl.verbs.conform.judge import expect, judge_answer
from attnctl.verbs.conform.layout import MASKS
from attnctl.verbs.conform.options import OPTIONS, drawn_mask, give_mask

if TYPE_CHECKING:
    from attnctl.verbs.conform.suite import Suite


Told = dict[str, str]
"""What was found out in one type, by convention."""


def found_out(suite: Suite, dtype: str, declared: Mapping[str, str]) -> Told:
    """Find out what the target does in a type; what is declared is what it is judged by."""
    told = dict(mask_form(suite, dtype, declared))
    usual = suite.usual
    suite.conventions[dtype] = usual = replace(
        usual,
        mask_kind=told.get(MASK_KIND, usual.mask_kind),
        mask=told.get(MASK_SHAPE, usual.mask),
        masked=told.get(MASKED, usual.masked),
    )
    told |= dict([*corner(suite, dtype), *sliding_window(suite, dtype)])
    meant = {**told, **declared}
    suite.conventions[dtype] = replace(
        usual,
        corner=meant[CORNER] if meant.get(CORNER) in KNOWN[CORNER] else usual.corner,
        window=meant.get(SLIDING, usual.window),
        ahead=meant.get(AHEAD, usual.ahead),
    )
    told |= dict(corner_of_lengths(suite, dtype))
    ends = {**told, **declared}.get(LENGTHS_CORNER, usual.lengths)
    suite.conventions[dtype] = replace(suite.conventions[dtype], lengths=ends)
    return told | dict([*float_mask(suite, dtype), *hidden_rows(suite, dtype), *padding(suite, dtype)])


def in_words(told: Mapping[str, Told]) -> Told:
    """What was found out in all types, by convention; where they differ, with the types.

    That outputs are of the inputs' type goes without saying.
    """
    words = {}
    for name in dict.fromkeys(name for each in told.values() for name in each):
        types: dict[str, list[str]] = {}
        for dtype, each in told.items():
            if name in each:
                types.setdefault(each[name], []).append(dtype)
        if set(types) == {THE_INPUTS}:
            continue
        several = len(types) > 1 or name == OUTPUT_TYPE
        parts = (f"{value} ({', '.join(of)})" if several else value for value, of in types.items())
        words[name] = ", ".join(parts)
    return words


def right_with(suite: Suite, case: Case, **conventions: str) -> bool | None:
    """Whether the target answers what is meant with these conventions; None where it takes no such call."""
    problem = suite.problem(case, **conventions)
    answer = suite.call(problem)
    return None if output_of(problem, answer) is None else is_right(problem, answer)


def is_right(problem: Problem, answer: Answer) -> bool:
    """Whether an answer is right as far as a convention goes: float64 may be kept in float32 inside."""
    case = problem.case
    dtype = "float32" if case.dtype == "float64" else case.dtype
    return judge_answer(expect(replace(problem, case=replace(case, dtype=dtype))), answer).right


def output_type(seen: Mapping[str, Case], dtype: str, declared: str | None) -> Told:
    """Of which type outputs are, by the first case of each: the inputs', another, or one or another."""
    own = {dtype, NUMPY.get(dtype, dtype)} - {declared}
    kinds = {THE_INPUTS if name in own else name: case for name, case in seen.items() if name in TYPES}
    if not kinds:
        return {}
    first, *others = kinds
    asked = {
        name: ", ".join(f"{option} {value}" for option, value in kinds[name].options) for name in kinds
    }
    words = [first, *(f"{name} with {asked[name] or kinds[name]}" for name in others)]
    return {OUTPUT_TYPE: " or ".join(words)}


def mask_form(suite: Suite, dtype: str, declared: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The shape of a mask; whether truth values are taken, where they are refused; what of causal is left.

    transformers calls a mask that is added `attention_mask`: under that name it may be one.
    """
    names = [name for name in ("mask", "float_mask") if name in suite.signature.claimed]
    if not names:
        return
    usual = suite.usual
    case = replace(BASE, dtype=dtype).having(**{names[0]: "each"})
    shapes = [usual.mask] if MASK_SHAPE in declared else MASKS
    kinds = [usual.mask_kind] if MASK_KIND in declared or names[0] != "mask" else MASK_KINDS
    is_causal = MASKED not in declared and Causal() in suite.asked.said.always.rules
    ways = KNOWN[MASKED] if is_causal else (usual.masked,)
    for kind in kinds:
        shape, masked, right = taken(suite, case, kind, shapes, ways)
        if right or (shape and suite.signature.keywords[names[0]] != "attention_mask"):
            yield from [(MASK_KIND, kind)] if kind != usual.mask_kind else []
            yield from [(MASK_SHAPE, shape)] if shape != usual.mask else []
            yield from [(MASKED, masked)] if masked != usual.masked else []
            return


def taken(
    suite: Suite, case: Case, kind: str, shapes: Sequence[str], ways: Sequence[str]
) -> tuple[str, str, bool]:
    """The shape of a mask that is taken, what of causal is left, and whether the answer is right.

    Where the first shape is answered it is the one: who reads only a part of it is wrong. Of others
    the first that is right, or else answered.
    """
    answered = ""
    for shape in shapes:
        rights = [right_with(suite, case, mask_kind=kind, mask=shape, masked=way) for way in ways]
        if True in rights:
            return shape, ways[rights.index(True)], True
        if False in rights:
            answered = answered or shape
            if shape == shapes[0]:
                break
    return answered, ways[0], False


def corner(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Where the diagonal begins when there are more keys than queries."""
    if LENGTHS in suite.asked.claims.without:
        return
    case = replace(BASE, dtype=dtype, fill="who", queries=5)
    names = [name for name in ("causal", "window", "sliding_window") if name in suite.signature.claimed]
    if names:
        case = case.having(**{names[0]: OPTIONS[names[0]].values(case)[0]})
    elif suite.asked.said.always.positions != NONE:
        case = replace(case, fill="random")
    elif not any(rule.relative for rule in suite.asked.said.always.rules):
        return
    for name in KNOWN[CORNER]:
        right = right_with(suite, case, corner=name)
        if right is None:
            return
        if right:
            yield CORNER, name
            return
    yield CORNER, NEITHER


def corner_of_lengths(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Where the diagonal is with key lengths: as without, or so that the last query sees the last key."""
    if not {"causal", "key_lengths"} <= set(suite.signature.claimed):
        return
    case = replace(BASE, dtype=dtype, fill="who").having(causal=True, key_lengths="garbage")
    for name in KNOWN[LENGTHS_CORNER]:
        if right_with(suite, case, lengths=name):
            yield LENGTHS_CORNER, name
            return


def sliding_window(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """How many keys a sliding window has, and whether there are any ahead of the query."""
    if "sliding_window" not in suite.signature.claimed:
        return
    case = replace(BASE, dtype=dtype, fill="who").having(sliding_window=4)
    for ahead in KNOWN[AHEAD]:
        for keys in KNOWN[SLIDING]:
            if right_with(suite, case, window=keys, ahead=ahead):
                yield SLIDING, keys
                yield AHEAD, ahead
                return


def float_mask(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """Whether a mask of numbers is added, or taken for a boolean one."""
    if "float_mask" not in suite.signature.claimed:
        return
    case = replace(BASE, dtype=dtype)
    problem = suite.problem(case.having(float_mask="same"))
    answer = suite.call(problem)
    if answer.error:
        return
    if is_right(problem, answer):
        yield FLOAT_MASK, ADDED
        return
    mask = problem.passed["float_mask"]
    for seen in (mask != 0, np.where(np.isneginf(mask), 0.0, mask) != 0):
        truths = suite.problem(case)
        truths.hide(seen)
        if is_right(truths, answer):
            yield FLOAT_MASK, TRUTHS
            return


def hidden_rows(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    """What the output of a query is that sees no key at all."""
    case = replace(BASE, dtype=dtype)
    problem = suite.problem(case)
    if "mask" in suite.signature.claimed and "n" in problem.conventions.mask:
        allowed = drawn_mask(problem, "same")
        allowed[..., 4, :] = False
        give_mask(problem, allowed)
    elif "causal" in suite.signature.claimed and suite.conventions_in(dtype).corner == "bottom-right":
        problem = suite.problem(replace(case, keys=5).having(causal=True))
    else:
        return
    given = output_of(problem, suite.call(problem))
    if given is not None:
        yield HIDDEN_ROWS, row_words(given[0, 0, 4], problem.arrays["V"][0, 0])


def row_words(row: Array, values: Array) -> str:
    if np.isnan(row).any():
        return "NaN"
    if not row.any():
        return "zeros"
    near = np.abs(row - values.mean(axis=0)) <= 0.02 * np.abs(values).max()
    return "mean" if near.all() else "other numbers"


def padding(suite: Suite, dtype: str) -> Iterator[tuple[str, str]]:
    if "key_lengths" not in suite.signature.claimed:
        return
    problem = suite.problem(replace(BASE, dtype=dtype).having(key_lengths="nan"))
    found = output_of(problem, suite.call(problem))
    if found is not None:
        yield PADDING, "spreads" if np.isnan(found).any() else "hidden"


def broken(told: Mapping[str, str], declared: Mapping[str, str]) -> list[str]:
    """Declared conventions that do not hold, in words."""
    return [
        f"{name} is declared {value} and found {told[name]}"
        for name, value in declared.items()
        if name in told and told[name] != value
    ]
