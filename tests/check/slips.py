"""Wrong dumps that are drawn, and what is false in what `check` says of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import edits
import numpy as np
import planted as own
from check_foreign import foreign, meant, quietly
from named import false_of_mistakes
from spoken import Numbers, false_sentences

from attnctl.verbs.check.check import check

UNITS = {own.F64: 2.0**-53, own.F32: 2.0**-24}
BESIDE = ((), (), ("rope",), ("alibi",), ("sinusoidal",), ("scores_bias",))
"""What is added, turned or taken off beside the scores of tokens."""


def draw_kind(rng):
    """Attention of a few tokens: sizes, who sees whom, positions, and what is done to scores."""
    heads = int(rng.choice([1, 2, 4, 8]))
    lengths = ()
    if rng.random() < 0.3:
        lengths = (6, *map(int, rng.integers(1, 7, rng.integers(1, 3))))
    n = max(lengths, default=int(rng.integers(2, 10)))
    more_keys = 0 if lengths else int(rng.choice([0, 0, 0, 1, 4]))
    causal = bool(rng.random() < 0.5)
    return own.Kind(
        heads=heads,
        kv_heads=int(rng.choice([kv for kv in (1, 2, 4, 8) if heads % kv == 0])),
        n=n,
        keys=n + more_keys if more_keys else None,
        d_model=int(rng.choice([6, 8, 12])),
        d=int(rng.choice([2, 4, 6, 8])),
        d_v=[None, 3, 4][rng.integers(3)],
        causal=causal,
        offset=int(rng.choice([0, more_keys])) if causal else 0,
        window=int(rng.integers(0, n + 1)) if rng.random() < 0.25 else None,
        softcap=float(rng.uniform(1, 30)) if rng.random() < 0.25 else None,
        bias=bool(rng.random() < 0.3),
        mask=[None, None, "random", "blind"][rng.integers(4)],
        lengths=lengths,
        scale=float(rng.uniform(0.05, 1)) if rng.random() < 0.3 else None,
        dtype=str(rng.choice([own.F64, own.F32])),
        seed=int(rng.integers(2**16)),
        **dict.fromkeys(BESIDE[rng.integers(len(BESIDE))], True),
    )


@dataclass(frozen=True)
class Slip:
    """One step of a run of which the numbers were changed."""

    kind: own.Kind
    step: str
    edit: str
    seed: int
    what: str = "everything"
    is_written: bool = False
    """Whether it is only written down wrong: what follows was computed from the right numbers."""

    def change(self, x, before):
        rng = np.random.default_rng(self.seed)
        if self.edit == "from_other_step":
            return edits.from_other_step(self.step, x, before, rng)
        return edits.EDITS[self.edit](x, rng)

    def wrong(self):
        """All that is recorded; None where the edit changes nothing of that, or cannot be made."""
        right = quietly(own.attend, self.kind)
        if self.step not in right:
            return None
        changed = quietly(self.change, right[self.step], right)
        if changed is None or (self.is_written and self.step not in own.recorded(right, self.what)):
            return None
        changed = changed.astype(right[self.step].dtype)
        if self.is_written:
            out = own.recorded(right | {self.step: changed}, self.what)
        else:
            made = quietly(own.attend, self.kind, edits={self.step: lambda x, before: changed})
            out = own.recorded(made, self.what)
        return out if any(is_told(x, right[name]) for name, x in out.items()) else None


def is_told(x, right):
    """Whether some number is off by more than rounding: a constant moves all scores, and no weight."""
    if x.dtype.kind != "f":
        return False
    same = (x == right) | (np.isnan(x) & np.isnan(right))
    same |= np.isneginf(right) & (x < -1e3)  # softmax makes 0 of it all the same
    with np.errstate(invalid="ignore"):
        near = np.abs(x - right) <= 1e-3 * np.abs(right[np.isfinite(right)]).max(initial=0)
    return not (same | near).all()


def draw_slip(number):
    """The slip of this number, the same each time."""
    return first_wrong(slip_by, number)


def first_wrong(draw, number):
    """The first that shows, of those that are drawn by this number."""
    drawn = (draw(np.random.default_rng([number, again]), number) for again in count())
    return next(each for each in drawn if each.wrong() is not None)


def slip_by(rng, _number):
    edit = str(rng.choice([*edits.EDITS, "from_other_step"]))
    steps = ("masked_scores",) if edit in edits.OF_MASKED else edits.STEPS
    return Slip(
        kind=draw_kind(rng),
        step=str(rng.choice(steps)),
        edit=edit,
        seed=int(rng.integers(2**16)),
        what=str(rng.choice(list(own.RECORDED), p=[0.6, 0.25, 0.15])),
        is_written=bool(rng.random() < 0.25),
    )


@dataclass(frozen=True)
class Mistaken:
    """A run in which a mistake was made."""

    kind: own.Kind
    mistake: str
    seed: int
    what: str = "everything"
    step: str = ""
    is_written: bool = False

    def wrong(self):
        right = own.recorded(quietly(own.attend, self.kind), self.what)
        try:
            out = own.recorded(quietly(own.attend, self.kind, self.mistake), self.what)
        except ValueError:  # shapes that only the right program brings together
            return None
        if any(x.shape != out[name].shape for name, x in right.items()):
            return None
        return out if any(is_told(x, right[name]) for name, x in out.items()) else None


def draw_mistake(number):
    """The run with a mistake of this number: of a kind that the mistake was made for, or of any."""
    return first_wrong(mistake_by, number)


def mistake_by(rng, number):
    mistake = str(rng.choice(list(own.PLANTED)))
    kinds = own.PLANTED[mistake]
    kind = draw_kind(rng)
    if rng.random() < 0.5:
        kind = kinds[rng.integers(len(kinds))].but(seed=int(rng.integers(2**16)))
    return Mistaken(kind, mistake, number, str(rng.choice(list(own.RECORDED))))


def numbers_of(slip, recorded, step, axes, without=()):
    """A step beside what it should be, computed from what is recorded."""

    def made_of(fixed, kind=slip.kind, mistake=None, edits=None):
        """A run of what is recorded; an edit of that is one of what is recorded."""
        kept = {each: lambda _, before, x=x: x for each, x in fixed.items() if each not in without}
        made = {each: after(kept.get(each), edit) for each, edit in (edits or {}).items()}
        return quietly(own.attend, kind, mistake, edits=kept | made)

    def without_own(name):
        return {each: x for each, x in recorded.items() if each != name}

    right = made_of(without_own(step))
    return Numbers(
        step=step,
        found=recorded[step].astype(float),
        right=right[step].astype(float),
        axes=(*["batch"] * (recorded[step].ndim - len(axes)), *axes),
        recorded=recorded,
        should={name: made_of(without_own(name))[name].astype(float) for name in right},
        unit=UNITS[slip.kind.dtype],
        kind=slip.kind,
        remake=lambda **changes: made_of(without_own(step), **changes)[step].astype(float),
        is_written=slip.is_written,
    )


def after(first, edit):
    if first is None:
        return edit
    return lambda x, before: edit(first(x, before), before)


def report_of(slip):
    return quietly(check, foreign(slip.wrong()), meant(slip.kind), pairs=slip.seed % 4 == 0)


def false_of(slip):
    """All that is false in what is said of a slip."""
    report, recorded = report_of(slip), slip.wrong()
    false, without, held = [], [], set()
    if report.agrees is True:
        false.append("agrees")
    for finding in report.findings:
        axes = report.trace.steps[finding.step].axes
        numbers = numbers_of(slip, recorded, finding.step, axes, without)
        with np.errstate(all="ignore"):
            false += false_sentences(numbers, finding.hint) + false_of_gap(numbers, finding.gap)
            if finding.mistake and finding.step not in held:
                held.add(finding.step)
                false += false_of_mistakes(numbers, named_at(report, finding.step))
        if "only those written down" in finding.hint:
            without.append(finding.step)
    steps = {finding.step for finding in report.findings}
    if slip.step and slip.what == "everything" and steps != {slip.step}:
        false.append(f"wrong steps are {sorted(steps)}")
    return false


def named_at(report, step):
    """The mistakes at a step: several are made together."""
    return [finding for finding in report.findings if finding.step == step and finding.mistake]


def false_of_gap(numbers, gap):
    """The largest difference, its cell, and how many differ."""
    out, at = [], gap.at
    found, right = numbers.found[at], numbers.right[at]
    if not np.array_equal(found, gap.found, equal_nan=True):
        out.append(f"found {gap.found}, not {found}")
    if not (abs(right - gap.expected) <= numbers.room or right == gap.expected):
        out.append(f"expected {gap.expected}, not {right}")
    told = np.isfinite(numbers.found) & np.isfinite(numbers.right)
    most = np.abs(numbers.found - numbers.right)[told].max(initial=0)
    if np.isfinite(gap.largest) and abs(gap.largest - most) > numbers.room:
        out.append(f"largest difference {gap.largest}, not {most}")
    fewest, most_of_them = numbers.differs.sum(), numbers.may_differ.sum()
    if not fewest <= gap.differing <= most_of_them:
        out.append(f"{gap.differing} differ, not {fewest} to {most_of_them}")
    return out
