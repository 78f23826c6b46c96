"""Two traces side by side, step by step: where they part, by how much, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, field, replace
from math import isnan
from typing import Any

import numpy as np

from attnctl.base import Displayed
from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.values import Path
from attnctl.evidence.allowed import Tolerance
from attnctl.inputs.config.settings import dotted_path
from attnctl.math import Array, Shape
from attnctl.math.names import SYMBOLS, results
from attnctl.math.ops import MatMulT
from attnctl.record import CALL, Trace
from attnctl.record.linear import ApartError
from attnctl.store.header import as_json_data
from attnctl.verbs.diff.align import HEAD, Alignment, head_counts, sides_of, wide, without_single_axes
from attnctl.verbs.diff.split import Change, split_change

# --- two arrays, number by number: how far apart, where, and how many beyond the tolerance ---


class Peak(NamedTuple):
    """The largest of the numbers so far, and where it stands among all of them."""

    value: float = 0.0
    place: int | None = None


CHUNK = 1 << 14  # numbers that are compared at a time: few enough to stay in the processor's cache
USUAL = Tolerance()  # what follows from the types alone


@dataclass(frozen=True)
class Measure:
    """Two arrays of one shape, measured against each other.

    `at` and `max_rel_at` say where the largest differences stand, None where all is equal to the
    bit. `hidden_in_a` and `hidden_in_b` count the numbers that are −∞ on that side alone, `nan`
    those that differ because of a NaN.
    """

    max_abs: float
    max_rel: float
    at: Shape | None
    differing: int
    of: int
    max_rel_at: Shape | None = None
    hidden_in_a: int = 0
    hidden_in_b: int = 0
    nan: int = 0


def measure_difference(a: Array, b: Array, tolerance: Tolerance) -> Measure:
    rtol, atol = tolerance.of(a, b)
    largest = Peak()
    relative = Peak()
    counts = np.zeros(4, dtype=np.int64)  # all that differ, and of these the strange ones of each kind
    flat_a = a.reshape(-1)
    flat_b = b.reshape(-1)

    with np.errstate(all="ignore"):
        for start in range(0, a.size, CHUNK):
            x = flat_a[start : start + CHUNK]
            y = flat_b[start : start + CHUNK]
            if (x == y).all():  # bit for bit
                continue

            gap = absolute_difference(x, y, equal_nan=tolerance.equal_nan)
            size = np.abs(wide(y))
            largest = higher(largest, gap, start)
            differs = gap > size * rtol + atol
            finite = bool(np.isfinite(gap.sum()))
            if not finite:
                differs |= ~np.isfinite(gap)
                counts[1:] += strange(wide(x), wide(y), differs)
            counts[0] += np.count_nonzero(differs)
            relative = higher(relative, ratio(gap, size, finite=finite), start)

    def index(flat: int | None) -> Shape | None:
        return None if flat is None else tuple(map(int, np.unravel_index(flat, a.shape)))

    all_that_differ, hidden_in_a, hidden_in_b, nan = map(int, counts)
    return Measure(
        max_abs=largest.value,
        max_rel=relative.value,
        at=index(largest.place),
        differing=all_that_differ,
        of=a.size,
        max_rel_at=index(relative.place),
        hidden_in_a=hidden_in_a,
        hidden_in_b=hidden_in_b,
        nan=nan,
    )


def higher(peak: Peak, values: Array, start: int) -> Peak:
    """The peak, or the largest of more numbers, the first of them at `start`; NaN is above all."""
    if isnan(peak.value):
        return peak
    place = int(values.argmax())  # of the first NaN, where there is one
    value = float(values[place])
    return Peak(value, start + place) if isnan(value) or value > peak.value else peak


def differing(a: Array, b: Array, tolerance: Tolerance) -> Array:
    rtol, atol = tolerance.of(a, b)
    with np.errstate(all="ignore"):
        gap = absolute_difference(a, b, equal_nan=tolerance.equal_nan)
        return (gap > np.abs(wide(b)) * rtol + atol) | ~np.isfinite(gap)


def absolute_difference(a: Array, b: Array, *, equal_nan: bool) -> Array:
    """|a − b| in float64; equal infinities are 0 apart, and NaNs where they count as equal.

    Whole numbers may differ where the nearest floats do not.
    """
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
        return np.array([abs(x - y) for x, y in pairs], dtype=np.float64).reshape(a.shape)

    x = wide(a)
    y = wide(b)
    gap: Array = np.abs(x - y)
    if np.isnan(gap.sum()):  # as of ∞ − ∞, which are equal
        gap[x == y] = 0.0
        if equal_nan:
            gap[np.isnan(x) & np.isnan(y)] = 0.0
    return gap


def ratio(gap: Array, size: Array, *, finite: bool) -> Array:
    """|x − y| / |y|; nothing is a finite part of 0."""
    out = gap / size
    out[gap == 0] = 0.0
    if not finite:
        out[np.isinf(gap)] = np.inf
    return out


def strange(x: Array, y: Array, differs: Array) -> list[int]:
    """Count the numbers that differ because x is −∞, because y is, because either is NaN."""
    nan = differs & (np.isnan(x) | np.isnan(y))
    plain = differs & ~nan
    hidden_x = plain & np.isneginf(x)
    hidden_y = plain & np.isneginf(y)
    return [int(kind.sum()) for kind in (hidden_x, hidden_y, nan)]


# --- two traces ---


@dataclass(frozen=True)
class StepDifference:
    """A step that both traces have, compared.

    `cell` is the address of what differs most, in A, `a` and `b` are the two numbers there;
    `whole` is False where tokens that only one side has were left out.
    """

    measure: Measure
    cell: str | None
    a: float | None
    b: float | None
    whole: bool

    @property
    def same(self) -> bool:
        return not self.measure.differing


@dataclass(frozen=True)
class Difference(Displayed):
    """Two traces, compared: steps in order, configs, tokens.

    `skipped` says of steps that both have why they were not compared; `left_out` are the tokens
    of A and of B that stand beside nothing; `configs` holds the values of A and B by path.
    `split` says what the change of the outputs is made of, `no_split` why that cannot be said of all.
    """

    steps: dict[str, StepDifference]
    skipped: dict[str, str]
    only_in_a: list[str]
    only_in_b: list[str]
    left_out: tuple[list[str], list[str]]
    configs: dict[str, tuple[Any, Any]]
    split: list[Change]
    no_split: str | None = None
    heads: list[str] = field(default_factory=list)
    """How the heads of one make up the head of the other, where their numbers differ."""
    alignment: Alignment | None = field(default=None, repr=False, compare=False)
    """The two traces and how their places pair up: what a picture of the difference is made of."""
    tolerance: Tolerance = field(default=USUAL, repr=False, compare=False)
    names: tuple[str, str] = field(default=("", ""), repr=False, compare=False)
    """What A and B were read from, as a person named it."""

    @property
    def call(self) -> dict[str, Any]:
        """The call of attention that A was captured from, where it was."""
        return self.alignment.a.header.get(CALL, {}) if self.alignment else {}

    @property
    def same(self) -> bool:
        """True if every step that both have was compared whole, and no number of it differs."""
        return self.first is None and not self.skipped and all(step.whole for step in self.steps.values())

    @property
    def first(self) -> str | None:
        return next((name for name, step in self.steps.items() if not step.same), None)

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {CALL: self.call} if self.call else {}
        out |= {
            "same": self.same,
            "first": self.first,
            "steps": {name: step_dict(step) for name, step in self.steps.items()},
            "skipped": self.skipped,
            "only_in_a": self.only_in_a,
            "only_in_b": self.only_in_b,
            "left_out": dict(zip("ab", self.left_out, strict=True)),
            "configs": {path: sides_dict(values) for path, values in self.configs.items()},
            "split": split_dict(self.split),
        }
        if self.no_split:
            out["no_split"] = self.no_split
        out["heads"] = self.heads
        return dict(as_json_data(out))


def step_dict(step: StepDifference) -> dict[str, Any]:
    return {**asdict(step.measure), "cell": step.cell, "a": step.a, "b": step.b}


def sides_dict(values: tuple[Any, Any]) -> dict[str, Any]:
    """The value of a setting in A and in B; a config without it has no entry."""
    return {side: value for side, value in zip("ab", values, strict=True) if value is not ABSENT}


def split_dict(changes: Sequence[Change]) -> dict[str, Any]:
    """{"head_outputs": [one for each head], "output": …}."""
    out: dict[str, Any] = {}
    for change in changes:
        entry = asdict(change)
        step = entry.pop("step")
        head = entry.pop("head")
        if head is None:
            out[step] = entry
        else:
            out.setdefault(step, []).append(entry)
    return out


def diff(
    a: Trace,
    b: Trace,
    tolerance: Tolerance = USUAL,
    *,
    steps: Sequence[str] | None = None,
    by_position: bool = False,
    why: bool = True,
) -> Difference:
    """Compare two traces step by step; of each only one step is in memory at a time.

    `steps` names the ones to compare. Sentences that differ are aligned by token unless `by_position`.
    `why` asks for the split of the outputs. Raises AttnError where there is nothing to compare.
    """
    alignment = Alignment(a, b, by_position)
    compared: dict[str, StepDifference] = {}
    skipped: dict[str, str] = {}
    for name in steps_of_both(a, b, steps):
        try:
            compared[name] = compare_step(alignment, name, tolerance)
        except ApartError as error:  # the two cannot be laid side by side
            skipped[name] = str(error)

    if steps is not None:
        raise_all(f"{name} cannot be compared: {reason}" for name, reason in skipped.items())
    if not any(step.measure.of for step in compared.values()):
        reasons = [f"{name}: {reason}" for name, reason in skipped.items()]
        raise AttnError(["nothing to compare", *reasons])

    changes: list[Change] = []
    no_split = None
    heads = what_the_split_did(alignment, tolerance) if steps is None else []
    outputs_differ = any(name in compared and not compared[name].same for name in results())
    if why and not heads and outputs_differ:
        try:
            changes, no_split = split_change(alignment)
        except ApartError as error:
            no_split = str(error)

    is_partial = not all(step.whole for step in compared.values())
    configs = config_differences(dict(a.config), dict(b.config), ())
    return Difference(
        steps=compared,
        skipped=skipped,
        only_in_a=[name for name in a if name not in b] if steps is None else [],
        only_in_b=[name for name in b if name not in a] if steps is None else [],
        left_out=alignment.left_out() if is_partial else ([], []),
        configs={dotted_path(path): values for path, values in configs},
        split=changes,
        no_split=no_split,
        heads=heads,
        alignment=alignment,
        tolerance=tolerance,
    )


def steps_of_both(a: Trace, b: Trace, steps: Sequence[str] | None) -> list[str]:
    """The steps that both have, in order, or just the named ones. Raises AttnError for any other."""
    both = [name for name in a if name in b]
    if not both:
        recorded = f"A has {', '.join(a)}; B has {', '.join(b)}"
        raise AttnError(f"nothing to compare: no step in common; {recorded}")
    if steps is None:
        return both

    steps = [SYMBOLS.get(name, name) for name in steps]
    known = f"both have {', '.join(both)}"
    problems = []
    for name in steps:
        if name not in both:
            lacking = "A" if name in b else "B" if name in a else "either"
            problems.append(f"no step {name!r} in {lacking}; {known}")
    raise_all(problems)
    return [name for name in both if name in steps]


def compare_step(alignment: Alignment, name: str, tolerance: Tolerance) -> StepDifference:
    """Compare one step of both. Raises ApartError where the two cannot be laid side by side."""
    sides = sides_of(alignment, name)
    measure = measure_difference(sides.a, sides.b, tolerance)
    if measure.at is None or measure.max_rel_at is None:
        return StepDifference(measure, cell=None, a=None, b=None, whole=sides.whole)

    # Of the sides are only the places that both have; an address is one in all of A.
    return StepDifference(
        measure=replace(measure, at=sides.at(measure.at), max_rel_at=sides.at(measure.max_rel_at)),
        cell=sides.cell(measure.at),
        a=float(sides.a[measure.at]),
        b=float(sides.b[measure.at]),
        whole=sides.whole,
    )


def what_the_split_did(alignment: Alignment, tolerance: Tolerance) -> list[str]:
    """Sentences on how the heads of one trace make up the single head of the other."""
    sentences = []
    for name, step in alignment.a.steps.items():
        counts = head_counts(alignment, name)
        if not isinstance(step.op, MatMulT) or counts is None or min(counts) != 1:
            continue

        of_a = sum_over_heads(alignment.a, name)
        of_b = sum_over_heads(alignment.b, name)
        many, one = ("B", "A") if counts[0] == 1 else ("A", "B")
        sums, whole = (of_b, of_a) if one == "A" else (of_a, of_b)
        if sums.shape != whole.shape or measure_difference(sums, whole, tolerance).differing:
            continue
        sentences.append(
            f"{name} of the {max(counts)} heads of {many} add up to those of the one head of "
            f"{one}: each head has its own columns of Q and K"
        )
    return sentences


def sum_over_heads(trace: Trace, name: str) -> Array:
    head_axis = trace.steps[name].axes.index(HEAD)
    return without_single_axes(trace[name].sum(axis=head_axis, dtype=np.float64), 2)


ABSENT: Any = object()  # what a config has at a path that it does not have


def config_differences(a: Any, b: Any, path: Path) -> Iterator[tuple[Path, tuple[Any, Any]]]:
    """The values of A and B where they differ; into mappings and lists of one length, nothing else."""
    match a, b:
        case dict(), dict():
            for key in {**a, **b}:
                yield from config_differences(a.get(key, ABSENT), b.get(key, ABSENT), (*path, str(key)))
        case list(), list() if len(a) == len(b):
            for number, (item_a, item_b) in enumerate(zip(a, b, strict=True)):
                yield from config_differences(item_a, item_b, (*path, number))
        case _:
            if a != b or isinstance(a, bool) != isinstance(b, bool):
                yield path, (a, b)


def pair_traces(
    first: Sequence[Trace], second: Sequence[Trace]
) -> tuple[list[tuple[Trace, Trace]] | None, list[str]]:
    """The traces of two files in pairs: in order, or, of captured calls, each with the same of its module.

    And the calls that only one of them has. No pairs where other traces are not as many.
    """
    if all(CALL in trace.header for trace in (*first, *second)):
        of_a = by_module(first)
        of_b = by_module(second)
        alone = [*calls_alone("A", of_a, of_b), *calls_alone("B", of_b, of_a)]
        return [(of_a[key], of_b[key]) for key in of_a if key in of_b], alone

    if len(first) != len(second):
        return None, []
    return list(zip(first, second, strict=True)), []


CallsByModule = dict[tuple[str, int], Trace]
"""Calls by their module, and how many it had made before."""


def calls_alone(side: str, calls: CallsByModule, others: CallsByModule) -> Iterator[str]:
    for key, trace in calls.items():
        if key in others:
            continue
        module, _ = key
        call = trace.header[CALL]
        yield f"call {call['number']} only in {side}: {module or call['at']}"


def by_module(calls: Sequence[Trace]) -> CallsByModule:
    counted: Counter[str] = Counter()
    out = {}
    for trace in calls:
        module = str(trace.header[CALL]["module"])
        out[module, counted[module]] = trace
        counted[module] += 1
    return out
