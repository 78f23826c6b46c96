"""The meaning of anyone's arrays: a reading of them, what was intended, and the walk over it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.evidence.allowed import root_mean_square, spread
from attnctl.evidence.precision import DTYPES, FLOAT64
from attnctl.evidence.recompute import keep_digits, recompute, with_products
from attnctl.evidence.record import Record, Strictness, with_precisions
from attnctl.evidence.rows import stretch
from attnctl.evidence.walk import Checked, Verdict, Walk, Walker
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan.intended import Intent, derive_intent, is_stated, read_intent, settings_of
from attnctl.math.derivation import Derivation
from attnctl.math.names import KEY_LENGTHS, MASK, MASKED
from attnctl.math.ops import Given, Unstated
from attnctl.record.trace import Trace
from attnctl.store.header import foreign_step
from attnctl.verbs.check.readings import Reading, agreeing, nearest
from attnctl.verbs.check.sample import RecordPart, samples, some_rows

AS_GOOD_AS_HIDDEN = -5e3
"""Scores below this stand for −∞."""

SCREENED = 16
"""Rows of a step that tell whether a reading is worth being judged with care."""

FAR_OFF = 0.1
"""The part of its spread, far above rounding, that a step which agrees may be off, root mean square."""

IN_TF32 = "Its products of matrices are in TF32: each factor rounded to 11 bits, sums in float32."


class Walked(NamedTuple):
    """A reading of a dump, what was intended of it, what it records, and the walk over it."""

    reading: Reading
    intent: Intent
    record: Record
    walk: Walk


def walk_over(
    reading: Reading, strictness: Strictness, begun: Collection[str] = (), intent: Intent | None = None
) -> Walked:
    """The walk over a reading; what was intended follows from it where no `intent` says so."""
    trace, settings = reading.trace, reading.settings
    intent = intent or find_intent(trace, settings)
    blanks = {name: np.isnan(intent.trace[name]) for name in begun if name in intent.trace}
    record = Record(intent.trace, intent.sizes, intent.derivation, strictness, blanks, intent.trace.edited)
    dtype = settings.dtype if settings else trace.config.get("dtype")
    record = with_precisions(record, DTYPES.get(str(dtype), FLOAT64))
    walk = Walker(record).walk(record.intended)
    record = with_short_factors(record, walk)
    if record.factors.short:
        walk = Walker(record).walk(record.intended)
    return Walked(reading, intent, record, walk)


def without_unasked(whole: Walked, strictness: Strictness) -> Walked:
    """Leave out the steps that nothing asks for, where all others can still be judged.

    Where they cannot, what nothing asks for is taken as it is.
    """
    trace, unasked = whole.reading.trace, whole.intent.unasked
    if not unasked:
        return whole
    rest = trace.select([name for name in trace if name not in unasked])
    try:
        lean = walk_over(replace(whole.reading, trace=rest, left_out=unasked), strictness)
    except AttnError:  # it was they that showed how the others are laid out
        lean = whole
    lost = judged_steps(whole.walk) - judged_steps(lean.walk) - set(unasked)
    return whole._replace(reading=replace(whole.reading, taken=unasked)) if lean is whole or lost else lean


def with_shown_mask(whole: Walked, strictness: Strictness) -> Walked:
    """Hide the keys that masked scores which nothing asks for show to be hidden."""
    if MASKED not in whole.intent.unasked:
        return whole
    trace, mask = whole.reading.trace, whole.intent.trace[MASKED] > AS_GOOD_AS_HIDDEN
    steps = {**trace.steps, MASK: foreign_step(MASK, mask)}
    masked = Trace(steps, {**trace, MASK: mask}, trace.header)
    return walk_over(replace(whole.reading, trace=masked, shown=(MASKED,)), strictness)


def judged_steps(walk: Walk) -> set[str]:
    return {name for name, step in walk.steps.items() if step.gap}


def best_reading(first: Walked, strictness: Strictness) -> Walked:
    """The reading that agrees, where something is wrong or cannot be judged; or else the nearest."""
    walk, look = first.walk, Looking(strictness)
    if not walk.wrong and all(step.verdict is not Verdict.NOT_CHECKABLE for step in walk.steps.values()):
        return first
    found = agreeing(first.reading, first.intent.sizes, walk, look)
    if found is None and walk.wrong:
        found = nearest(first.reading, walk, look)
    if found is None or found is first.reading:
        return first
    if found.unasked:  # what nobody asked for is said, not taken for granted
        return first._replace(reading=replace(found, trace=first.reading.trace))
    return look.last if look.last and look.last.reading is found else walk_over(found, strictness)


@dataclass
class Looking:
    """Walks other readings; those whose arrays do not go together give nothing."""

    strictness: Strictness
    last: Walked | None = None
    """The last one that was walked to its end."""

    def __call__(self, reading: Reading, until: str | None) -> Walk | None:
        try:
            if until is None:
                self.last = walk_over(reading, self.strictness)
                return self.last.walk
            intent = find_intent(reading.trace, reading.settings)
            plain = Record(intent.trace, intent.sizes, intent.derivation, self.strictness)
            record = with_precisions(plain, FLOAT64)
            shown = last_recorded(record, until)
            if shown and is_wrong_in(some_rows(record, intent.derivation, slice(0, SCREENED)), shown):
                return Walk(intent.derivation, {shown: Checked(shown, Verdict.WRONG)}, {})
            return Walker(record).walk(intent.derivation, until=until)
        except AttnError:
            return None


def last_recorded(record: Record, until: str) -> str | None:
    """The last recorded one of the computed steps up to this one."""
    steps = [step.name for step in record.intended if not isinstance(step.op, (Given, Unstated))]
    upto = steps[: steps.index(until) + 1] if until in steps else steps
    return next((name for name in reversed(upto) if name in record), None)


def is_wrong_in(part: RecordPart, name: str) -> bool:
    """True where a part of a step is off by far more than rounding, or is wrong when judged with care."""
    if name not in part.derivation:
        return False
    steps, found = stretch(part.derivation, part.record, name), part.record.value(name)
    try:
        value = recompute(part.record, steps, lambda *_: keep_digits, lambda _: keep_digits)
        if value is None or value.shape != found.shape:
            return False
        told = np.isfinite(found) & np.isfinite(value)
        if root_mean_square((found - value)[told]) > FAR_OFF * spread(value[told]):
            return True
        return name in Walker(part.record).walk(Derivation(tuple(steps))).wrong
    except (AttnError, ValueError, IndexError, TypeError):  # of this part they do not tell
        return False


def notes_of(trace: Trace, seen: Walked) -> Iterator[str]:
    """The notes on how someone's names and layouts were read, and on what was left out."""
    read = [f"{theirs} as {ours}" for ours, theirs in trace.header.get("read", {}).items()]
    if read:
        yield f"Read {', '.join(read)}."
    yield from trace.header.get("notes", []) if "read" in trace.header else []
    yield from seen.intent.notes
    for name, option in seen.reading.left_out.items():
        yield f"{name} is left out: nothing asks for it, as {option} would."
    for name, option in seen.reading.taken.items():
        yield f"{name} is taken as it is: nothing asks for it, as {option} would."
    if seen.record.factors.short:
        yield IN_TF32


def with_short_factors(record: Record, walk: Walk) -> Record:
    """The record, its products of matrices in TF32 where a part of the first wrong step shows it."""
    if not walk.wrong:
        return record
    part = next(samples(record, walk, walk.wrong[0]))
    return replace(record, factors=with_products(part.record, part.walk).factors)


def find_intent(trace: Trace, settings: Settings | None) -> Intent:
    if settings is None and is_stated(trace):
        return read_intent(trace)
    lengths = trace.config.get(KEY_LENGTHS)
    if settings is None:
        return derive_intent(trace, settings_of(trace), lengths)
    return derive_intent(trace, settings, lengths, keep=False)
