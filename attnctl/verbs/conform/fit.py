"""What plain attention of a target takes, where it is refused: layouts, sizes, a mask that hides nothing.

Only what nobody said is tried. What is answered rightly is taken; an answer that is wrong is taken
where everything else is refused, and judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from attnctl.verbs.conform.call import output_of
from attnctl.verbs.conform.case import MASK_KINDS, Conventions
from attnctl.verbs.conform.conventions import MASK_KIND, MASK_SHAPE
from attnctl.verbs.conform.diagnosis import ENDINGS
from attnctl.verbs.conform.features import BASE
from attnctl.verbs.conform.layout import AXES, MASKS, USUAL, apart, axes_in, is_merged, packings
from attnctl.verbs.conform.probes import Told, is_right
from attnctl.verbs.conform.sizes import Sizes
from attnctl.verbs.conform.suite import NOT_CALLED, Suite

HEAD_SIZES = (16, 32, 64, 128, 256)
HEAD_SIZES_TRIED = (64, 128, 32, 16, 256)
MULTIPLES = (1, 16, 32, 64, 128)
"""Sizes that kernels usually have."""

SEVERAL = [axes for axes in AXES if "h" in apart(axes) and "b" in axes]
"""Layouts with several members and heads."""

HEADS = (1, 2, 4, 8, 12, 16)
"""Numbers of heads that may be fixed in a function that is not told it."""

TRIED = ("float32", "float16", "bfloat16", "float64")
MOST_TYPES = 2
"""Types in which everything is tried, of those that are asked for."""

RIGHT, WRONG, REFUSED, ENDED = "right", "wrong", "refused", "ended"

Fit = tuple[Conventions, Sizes]


def fit(suite: Suite) -> Told:
    """Bring the suite to what the target takes; what was found out is told."""
    before = suite.usual, suite.sizes
    dtypes = [dtype for dtype in TRIED if dtype in suite.asked.dtypes]
    verdicts = []
    for dtype in dtypes:
        verdicts.append(verdict(suite, dtype))
        if verdicts[-1] in {RIGHT, ENDED}:
            return told(suite, before)
    refused = set(verdicts) == {REFUSED}
    for dtype in dtypes[:MOST_TYPES]:
        tried = list(attempts(suite, dtype, refused=refused))
        right = [candidate for candidate, found in tried if found == RIGHT]
        answered = [candidate for candidate, found in tried if found == WRONG and refused]
        suite.usual, suite.sizes = [*right, *answered, before][0]
        if right or answered:
            widen(suite, dtype)
            break
    return told(suite, before)


def attempts(suite: Suite, dtype: str, *, refused: bool) -> Iterator[tuple[Fit, str]]:
    """What may be taken that nobody said, with what becomes of it, until one is right or ends the target.

    Where plain attention was answered, only wrongly, arrays of one member or one head are not tried:
    what mixes members or heads up is right in them.
    """
    usual, sizes = suite.usual, suite.sizes
    layouts = [usual.layout] if suite.asked.said.layout else AXES if refused else SEVERAL

    def becomes(form: dict[str, str], **more: Any) -> tuple[Fit, str]:
        suite.usual, suite.sizes = replace(usual, **form), replace(sizes, **more)
        return (suite.usual, suite.sizes), verdict(suite, dtype)

    for layout in layouts:
        for more in sizes_in(suite, layout) if refused else [{}]:
            answered = []
            for form in forms(suite, layout):
                yield (found := becomes(form, **more))
                answered += [form] if found[1] == WRONG else []
                if found[1] in {RIGHT, ENDED}:
                    return
            for form, heads in product(answered, heads_in(suite, layout, several=not refused)):
                yield (found := becomes(form, **more, heads=heads))
                if found[1] in {RIGHT, ENDED}:
                    return
            if answered:
                break


def verdict(suite: Suite, dtype: str) -> str:
    """What becomes of plain attention; any exception is a refusal, of arrays that may not be meant."""
    problem = suite.problem(replace(BASE, dtype=dtype))
    answer = suite.call(problem)
    if answer.error in {*ENDINGS, NOT_CALLED} and not suite.is_refusal(answer):
        return ENDED
    if output_of(problem, answer) is None:
        return REFUSED
    return RIGHT if is_right(problem, answer) else WRONG


def sizes_in(suite: Suite, layout: str) -> Iterator[dict[str, Any]]:
    """Sizes that a kernel may have; one with fixed ones most likely takes the first that are not all."""
    said = suite.asked.said
    yield {}
    for d in HEAD_SIZES_TRIED if len(layout) == len(USUAL) else HEAD_SIZES_TRIED[:1]:
        fixed: dict[str, Any] = {} if said.head_sizes else {"head_sizes": (d,)}
        fixed |= {} if said.multiple_of > 1 else {"multiple_of": MULTIPLES[-1]}
        if fixed:
            yield fixed


def forms(suite: Suite, layout: str) -> Iterator[dict[str, str]]:
    """How Q, K and V may stand in one array, where they come in one, and what mask must be given."""
    said = suite.asked.said.mask_shape
    packed = packings(axes_in(layout)) if suite.signature.is_packed else [""]
    shapes = [said] if said else [MASKS[0], MASKS[-1]]
    masks = [(suite.usual.mask_kind, suite.usual.mask)]
    if "mask" in suite.signature.required:
        masks = list(product(MASK_KINDS, shapes))
    for each, (kind, shape) in product(packed, masks):
        yield {"layout": layout, "packed": each, "mask_kind": kind, "mask": shape}


def heads_in(suite: Suite, layout: str, *, several: bool) -> Sequence[int]:
    """Numbers of heads that may be fixed, where heads stand side by side and nobody says how many."""
    if suite.sizes.heads or "heads" in suite.signature.sizes or not is_merged(axes_in(layout)):
        return []
    return [n for n in HEADS if n > 1 or not several]


def widen(suite: Suite, dtype: str) -> None:
    """Find out what else is taken of the usual sizes, where only some are."""
    said, found = suite.asked.said, suite.sizes

    def is_taken(**sizes: Any) -> bool:
        suite.sizes = replace(found, **sizes)
        return verdict(suite, dtype) in {RIGHT, WRONG}

    if found.multiple_of > said.multiple_of:
        least = next(n for n in MULTIPLES if n == found.multiple_of or is_taken(multiple_of=n))
        found = replace(found, multiple_of=least)
    if found.head_sizes != said.head_sizes and not is_taken(head_sizes=()):
        found = replace(found, head_sizes=tuple(d for d in HEAD_SIZES if is_taken(head_sizes=(d,))))
    elif found.head_sizes != said.head_sizes:
        found = replace(found, head_sizes=())
    suite.sizes = found


def told(suite: Suite, before: Fit) -> Told:
    """What was found out, in words."""
    usual, sizes = suite.usual, suite.sizes
    words = {
        "layout": (usual.layout, before[0].layout),
        MASK_KIND: (usual.mask_kind, before[0].mask_kind),
        MASK_SHAPE: (usual.mask, before[0].mask),
        "heads": (str(sizes.heads), str(before[1].heads)),
        "lengths": (f"multiples of {sizes.multiple_of}", f"multiples of {before[1].multiple_of}"),
        "head sizes": (", ".join(map(str, sizes.head_sizes)), ", ".join(map(str, before[1].head_sizes))),
        "Q, K and V in one array": (usual.packed, ""),
    }
    return {name: value for name, (value, old) in words.items() if value != old}
