"""Reading anyone's arrays: the way in which most of them can be judged, and agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.evidence.allowed import Strictness
from attnctl.evidence.blocks import stretch
from attnctl.evidence.precision import COARSE_FIRST, DTYPES, FLOAT64, Precision
from attnctl.evidence.recompute import (
    TF32_BITS,
    factors_shown,
    follows_from_product,
    has_plain_product,
    is_far_off,
    keep_digits,
    recompute,
)
from attnctl.evidence.record import Record, with_precisions
from attnctl.evidence.rounding import Factors
from attnctl.evidence.walk import Checked, Verdict, Walk
from attnctl.inputs.plan import DumpPlan
from attnctl.inputs.plan.intended import plan_dump
from attnctl.math.derivation import Derivation
from attnctl.math.names import MASK, MASKED, WEIGHTS
from attnctl.math.ops import Given, Unstated
from attnctl.record import Trace
from attnctl.store.header import foreign_step
from attnctl.verbs.check.parts import Part, samples, some_rows
from attnctl.verbs.check.readings import (
    Reading,
    agreeing,
    ambiguous,
    counted_over_mask,
    is_foreign,
    mends,
    nearest_reading,
    rename_array,
    shown_causal,
    with_layout_said,
    without_options,
)

AS_GOOD_AS_HIDDEN = -5e3
"""Scores below this stand for −∞."""

SCREENED = 16
"""Rows of a step that tell whether a reading is worth being judged with care."""

SLOTS = (
    "Positions are slots. If the first keys, which mask hides, are padding, give position_ids, or say "
    "--positions-from-mask."
)

IN_FEWER = "Its products of matrices are in {}: each factor rounded to {} bits, sums in more."

Walked = tuple[Reading, Walk]


def walk_over(reading: Reading, strictness: Strictness, plan: DumpPlan | None = None) -> Walk:
    trace = reading.trace
    settings = reading.settings
    ours, plan = (trace, plan) if plan else plan_dump(trace, settings)
    blanks = {name: np.isnan(ours[name]) for name in trace.begun if name in ours}
    record = with_precisions(Record(ours, plan, strictness, blanks), at_least(reading))
    return with_factors_shown(Walk.over(record, plan.derivation))


def at_least(reading: Reading) -> Precision:
    """The precision that was said."""
    dtype = reading.settings.dtype if reading.settings else reading.trace.config.get("dtype")
    return DTYPES.get(str(dtype), FLOAT64)


def walk_on(reading: Reading, begun: Walk) -> Walk:
    """All of a reading in which nothing was wrong until some step."""
    if reading.trace.begun or at_least(reading) is not FLOAT64:
        return walk_over(reading, begun.record.strictness)
    return with_factors_shown(Walk.over(begun.record, begun.derivation, before=begun))


def with_factors_shown(walk: Walk, until: str | None = None) -> Walk:
    """The walk of a program whose products have factors of as few digits as what is wrong shows."""
    factors: dict[str, Factors] = {}
    plain = bool(walk.wrong) and has_plain_product(walk)
    for name in walk.wrong:
        if follows_from_product(walk, name):
            factors |= factors_shown(next(samples(walk, name)).walk, name, plain=plain)
    record = replace(walk.record, factors=factors)
    return Walk.over(record, walk.derivation, walk, until, factors) if factors else walk


def without_unasked(whole: Walked) -> Walked:
    """Leave out steps that nothing asks for; they stay as they are where others cannot do without."""
    reading, walk = whole
    unasked = walk.record.plan.unasked
    if not unasked:
        return whole
    rest = reading.trace.select([name for name in reading.trace if name not in unasked])
    lean = replace(reading, trace=rest, left_out=unasked)
    try:
        found = walk_over(lean, walk.record.strictness)
    except AttnError:  # it was they that showed how the others are laid out
        return replace(reading, taken=unasked), walk
    judged, still = ({name for name, step in one.steps.items() if step.gap} for one in (walk, found))
    if judged - still - {*unasked}:
        return replace(reading, taken=unasked), walk
    doubtful = frozenset(name for name in unasked if not is_borne_out(walk, name))
    return replace(lean, doubtful=doubtful), found


def is_borne_out(walk: Walk, name: str) -> bool:
    """True where the recorded steps that are next computed from one agree."""
    reached = {name}
    verdicts = set()
    for step in walk.derivation:
        if reached.isdisjoint(step.inputs):
            continue
        if step.name in walk.record:
            verdicts.add(walk.steps[step.name].verdict)
        else:
            reached.add(step.name)
    return verdicts == {Verdict.AGREES}


def with_shown_mask(whole: Walked) -> Walked:
    """Hide the keys that masked scores which nothing asks for show to be hidden."""
    reading, walk = whole
    if MASKED not in walk.record.plan.unasked:
        return whole
    trace = reading.trace
    mask = walk.record.trace[MASKED] > AS_GOOD_AS_HIDDEN
    steps = {**trace.steps, MASK: foreign_step(MASK, mask)}
    masked = replace(reading, trace=Trace(steps, {**trace, MASK: mask}, trace.header), shown=(MASKED,))
    return masked, walk_over(masked, walk.record.strictness)


def best_reading(first: Walked) -> Walked:
    reading, walk = first
    strictness = walk.record.strictness
    if not walk.wrong and all(step.verdict is not Verdict.NOT_CHECKABLE for step in walk.steps.values()):
        return first

    place = walk.gap(walk.wrong[0]).at if walk.wrong else ()
    about = place[-2] if len(place) > 1 else 0  # the query at which it is most wrong

    last: list[Walked] = []

    def look(other: Reading, until: str | None) -> Walk | None:
        begun = last.pop()[1] if last and last[0][0] is other else None
        last.clear()
        try:
            if until is None:
                return walk_on(other, begun) if begun else walk_over(other, strictness)
            walk = walk_until(other, strictness, until, about)
        except AttnError:  # its arrays do not go together
            return None
        if not walk.wrong:  # all of it may be asked for next
            last.append((other, walk))
        return walk

    found = agreeing(reading, walk, look)
    if found is None and walk.wrong:
        found = nearest_reading(reading, walk, look)
    if found and found[0].unasked:  # what nobody asked for is said, not taken for granted
        named = replace(reading, trace=rename_array(reading.trace, found[0].named))
        plain = look(named, None) if found[0].named else None
        return replace(found[0], trace=(named if plain else reading).trace), plain or walk
    return found or first


def walk_until(reading: Reading, strictness: Strictness, until: str, about: int) -> Walk:
    """Walk a reading until a step, unless it is wrong in the first rows or in those `about` a query."""
    record = with_precisions(Record(*plan_dump(reading.trace, reading.settings), strictness), FLOAT64)
    steps = [step.name for step in record.intended if not isinstance(step.op, (Given, Unstated))]
    upto = steps[: steps.index(until) + 1] if until in steps else steps
    shown = next((name for name in reversed(upto) if name in record), None)
    begun = Walk(record, record.intended)
    for start in dict.fromkeys((0, max(about - SCREENED // 2, 0))):
        rows = slice(start, start + SCREENED)
        if shown and is_wrong_in(some_rows(begun, rows), shown):
            return Walk(record, record.intended, {shown: Checked(shown, Verdict.WRONG)})
    return with_factors_shown(Walk.over(record, record.intended, until=until), until)


def is_wrong_in(part: Part, name: str) -> bool:
    """True where a part of a step is off by far more than rounding, or is wrong when judged with care."""
    if name not in part.derivation:
        return False
    steps = stretch(part.derivation, part.record, name)
    found = part.record.value(name)
    try:
        value = recompute(part.record, steps, lambda *_: keep_digits, lambda _: keep_digits)
        if value is None or value.shape != found.shape:
            return False
        if is_far_off(found, value):
            return True
        return name in with_factors_shown(Walk.over(part.record, Derivation(tuple(steps)))).wrong
    except (AttnError, ValueError, IndexError, TypeError):  # of this part they do not tell
        return False


def in_other_layouts(seen: Walked) -> Iterator[Walked]:
    """The same in another layout that its shapes allow, where it is as wrong, and the cause may show."""
    return walk_over_each(with_layout_said(seen[0]), seen[1].record.strictness)


def without_one_option(seen: Walked) -> Reading | None:
    """The first reading without an option, or without any, in which everything agrees.

    Each is looked at in a few rows first.
    """
    reading, before = seen
    strictness = before.record.strictness
    first = before.wrong[0] if before.wrong else None
    place = before.gap(first).at if first else ()
    about = place[-2] if len(place) > 1 else 0
    for other in without_options(reading):
        with suppress(AttnError):
            begun = walk_until(other, strictness, first, about) if first else None
            if begun and begun.wrong:
                continue
            walk = walk_on(other, begun) if begun else walk_over(other, strictness)
            if not walk.wrong and mends(before, walk, other):
                return other
    return None


def with_causal_shown(seen: Walked) -> Iterator[Walked]:
    """The same judged with the causal mask that its weights show, where nobody asked for one."""
    return walk_over_each(shown_causal(seen[0]), seen[1].record.strictness)


def walk_over_each(readings: Iterable[Reading], strictness: Strictness) -> Iterator[Walked]:
    """Readings with what came of them, but for those whose arrays do not go together."""
    for reading in readings:
        with suppress(AttnError):
            yield reading, walk_over(reading, strictness)


def notes_of(trace: Trace, seen: Walked) -> Iterator[str]:
    reading = seen[0]
    record = seen[1].record
    if read := [f"{theirs} as {ours}" for ours, theirs in trace.header.get("read", {}).items()]:
        yield f"Read {', '.join(read)}."
    yield from trace.header.get("notes", []) if "read" in trace.header else []
    yield from record.plan.notes
    for option in reading.presumed:
        yield f"Judged with {option}: {WEIGHTS} is 0 for every later key. Say {option} to ask for it."
    for said, steps in (("left out", reading.left_out), ("taken as it is", reading.taken)):
        for name, option in steps.items():
            yield f"{name} is {said}: nothing asks for it, as {option} would."
    counted = reading.settings is not None and reading.settings.positions_from_mask
    if is_foreign(trace) and not counted and any(counted_over_mask(reading)):
        yield SLOTS
    if is_foreign(trace) and (said := ambiguous(reading)):
        yield f"{said}."
    bits = {precision.name: precision.bits for precision in COARSE_FIRST}
    for name in dict.fromkeys(factor.name for factor in record.factors.values() if factor.short):
        yield IN_FEWER.format(name, bits.get(name, TF32_BITS))
