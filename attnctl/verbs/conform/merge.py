"""A function that merges two parts of attention, (o₁, L₁, o₂, L₂) → (o, L), held to that merge.

The parts may come on an axis of their own, (o, L) → (o, L), and the merge may be written to buffers. It is
judged as every merge here is made: the lines of `--chunks`, carried out in float64 and in the type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from operator import itemgetter

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.evidence.allowed import allowed_error
from attnctl.evidence.precision import round_to
from attnctl.evidence.rounding import carry_rounding, exactly
from attnctl.math import Array
from attnctl.math.names import CHUNK_SHARES, HEAD_OUTPUTS, LOGSUMEXP, OUTPUT
from attnctl.math.ops import LogSumExp, MergeChunks, MergeLogSumExp, Shares, Softmax
from attnctl.mistakes.chunks import CHUNKS, LN2, OTHER_BASE, WAYS, whole
from attnctl.verbs.conform.call import Answer, Target, TargetCall
from attnctl.verbs.conform.claims import unknown_names
from attnctl.verbs.conform.diagnosis import describe_rounding
from attnctl.verbs.conform.extra_outputs import LSE, LSE2, MIXED
from attnctl.verbs.conform.features import INPUTS_KEPT
from attnctl.verbs.conform.invoke import widen
from attnctl.verbs.conform.judge import OF_ROW, ULPS, scatter_of
from attnctl.verbs.conform.profile import TYPES
from attnctl.verbs.conform.report import FAILED, PASSED, SKIPPED, Conformance, Failure, FeatureResult
from attnctl.verbs.conform.run import SINGLE

BATCH, HEADS, QUERIES, KEYS, D_V = 2, 3, 5, 12, 8

FEATURES = ("merge", "peaked rows", "flat rows", "large scores", "nothing in one part", "nothing in both")
SIZES = {"peaked rows": 30.0, "flat rows": 0.0}

LAYOUTS = (
    ("bhnd", "bhn"), ("bnhd", "bnh"), ("bnhd", "bhn"), ("nhd", "nh"), ("nhd", "hn"),
    ("bhnd", "bhn1"), ("bnhd", "bnh1"), ("bnhd", "bnh1", "bhn"), ("nhd", "nh1"),
)  # fmt: skip
"""The axes of outputs, of log-sum-exps, and of those of the second part where they are others, as tried."""

STACKED = (
    ("cbhnd", "cbhn"), ("cbnhd", "cbnh"), ("cbnhd", "cbhn"), ("bhcnd", "bhcn"), ("bhncd", "bhnc"),
    ("bnchd", "bnch"), ("bnhcd", "bnhc"), ("cnhd", "cnh"), ("cnhd", "chn"), ("nchd", "nch"),
    ("nhcd", "nhc"), ("cbhnd", "cbhn1"),
)  # fmt: skip
"""The axes where the parts (c) are one of them."""

OF_SUM = re.compile(r"lse|log|sum|^[lLsS](_|\d|$)")
"""Names of parameters for a log-sum-exp; the others of the first four are outputs."""

BUFFER = re.compile(r"(out(put)?|o|[vo]?_?merged)(_out)?|(lse|s|l)_(out|merged)|(out(put)?|merged)_(lse|s)")
"""Names of parameters that the merge is written to, where there are more than four."""

TAKES = (
    "a merge takes (o1, L1, o2, L2), or outputs and log-sum-exps with the parts on an axis of their own, "
    "(o, L); wrap it in a function that does"
)

RETURNS = ((OUTPUT, LSE), (OUTPUT, LSE2))

CASES, QUICK_CASES = 12, 4


@dataclass(frozen=True)
class MergeCase:
    """Two parts of attention: what their scores are like, where they are cut, and the type."""

    feature: str
    dtype: str
    seed: int
    unit: float = 1.0
    """The factor that makes a log-sum-exp natural: ln 2 for one in base 2."""

    @property
    def cut(self) -> int:
        return int(np.random.RandomState(self.seed).randint(1, KEYS))

    def __str__(self) -> str:
        """In words."""
        parts = f"{self.cut} and {KEYS - self.cut} keys"
        return f"{self.feature}, {self.dtype}, parts of {parts}, {QUERIES} queries, seed {self.seed}"

    def parts(self) -> tuple[Array, Array]:
        """Outputs (part, batch, head, query, d_v) and log-sum-exps without the last axis, as stored."""
        rng = np.random.RandomState(self.seed)
        cut, rows = rng.randint(1, KEYS), (BATCH, HEADS, QUERIES)
        s = rng.standard_normal((*rows, KEYS)) * SIZES.get(self.feature, 1.0)
        v = rng.standard_normal((BATCH, HEADS, KEYS, D_V))
        if self.feature == "large scores":
            s += np.where(np.arange(QUERIES) % 2, 1000.0, -1000.0)[:, None]
        if self.feature.startswith("nothing"):
            s[..., 0, :cut] = s[..., 1, cut:] = -inf
        if self.feature == "nothing in both":
            s[..., 2, :] = -inf
        several = ((s[..., :cut], v[..., :cut, :]), (s[..., cut:], v[..., cut:, :]))
        outputs = np.stack([Softmax().apply(part) @ values for part, values in several])
        sums = np.stack([LogSumExp().apply(part) for part, _ in several])
        stored = round_to(sums / self.unit, TYPES[widen(self.dtype)])
        return round_to(outputs, TYPES[self.dtype]), stored * self.unit


@dataclass(frozen=True)
class Merged:
    """The right merge of a case, and how far off each number may be: the output, and its log-sum-exp."""

    values: tuple[Array, Array]
    allowed: tuple[Array, Array]


def expect(case: MergeCase, outputs: Array, sums: Array) -> Merged:
    """Merge in float64, and in the type with random rounding."""
    unit, wide = TYPES[case.dtype].unit, TYPES[widen(case.dtype)].unit
    parts, values = (exactly(np.moveaxis(each, 0, 1)) for each in (sums, outputs))
    total = carry_rounding(MergeLogSumExp(), [parts], wide, LOGSUMEXP)
    shares = carry_rounding(Shares(), [parts, total], unit, CHUNK_SHARES)
    output = carry_rounding(MergeChunks(), [shares, values], unit, HEAD_OUTPUTS)
    found = output.value, total.value
    of_output = allowed_error(output.value, scatter_of(output), ULPS * unit, of_row=OF_ROW)
    of_sum = allowed_error(total.value, scatter_of(total), 2 * ULPS * wide, least=1.0)
    return Merged(found, (of_output + TYPES[case.dtype].smallest, of_sum))


def ratio_of(found: Array, value: Array, allowed: Array) -> Array:
    """Return each number's error as a part of what is allowed; ∞ for NaN."""
    with np.errstate(all="ignore"):
        off = np.where(found == value, 0.0, np.abs(found - value)) / allowed
    return np.where(np.isnan(off), inf, off)


@dataclass(frozen=True)
class Tried:
    """A case, the arrays of its two parts, and what the target made of them, in our layout."""

    case: MergeCase
    outputs: Array
    sums: Array
    answer: Answer
    found: tuple[Array | None, ...]
    right: Merged

    @property
    def ratio(self) -> float:
        if self.answer.error or any(each is None for each in self.found):
            return inf
        return max(float(each.max(initial=0.0)) for each in self.ratios())

    def ratios(self) -> list[Array]:
        three = zip(self.found, self.right.values, self.right.allowed, strict=False)
        return [ratio_of(found, value, allowed) for found, value, allowed in three if found is not None]

    def words(self) -> str:
        """The first number that is wrong, or why there is none."""
        if self.answer.error:
            return f"{self.answer.error}: {self.answer.message}".rstrip(": ")
        for name, found in zip(WHAT, self.found, strict=False):
            if found is None:
                return f"{name} has another shape than that of a part"
        for at, (name, ratio) in enumerate(zip(WHAT, self.ratios(), strict=False)):
            if ratio.max(initial=0.0) > 1:
                cell = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
                found, value = self.found[at], self.right.values[at][cell]
                assert found is not None
                return f"{name} is {found[cell] + 0:.6g} at {list(cell)} and should be {value + 0:.6g}"
        return ""


WHAT = ("the output", "the log-sum-exp")

SUM_ALONE: tuple[tuple[str, str, str, Callable[[Array], Array]], ...] = (
    ("logsumexp-base-2", "the log-sum-exp is in base 2", "multiply it by ln 2", lambda p: whole(p) / LN2),
    *(
        (*MIXED, lambda p, unit=unit: p.max(axis=0) + (whole(p) - p.max(axis=0)) * unit)
        for unit in (LN2, 1 / LN2)
    ),
    ("lse-maximum-alone", "it is the larger of the two", "add ln Σ exp(L − max)", lambda p: p.max(axis=0)),
    (
        "logsumexp-without-maximum",
        "the maximum is not put back into the log-sum-exp",
        "add it: max + ln Σ exp(L − max)",
        lambda p: whole(p) - p.max(axis=0),
    ),
    *(("lse-not-merged", "it is that of one part", "merge it, too", itemgetter(part)) for part in (0, 1)),
    (
        "lse-not-merged",
        "they are added up",
        "take ln of the sum of their exponentials",
        lambda p: p.sum(axis=0),
    ),
)
"""Log-sum-exps beside an output that is right: mistake, what it is, what to write instead."""


def explain(wrong: Sequence[Tried]) -> tuple[str | None, str]:
    """The mistake that gives the numbers of every case that is wrong, in words, with what to write."""
    first = wrong[0]
    if first.answer.error:
        return "exception", first.words()
    catalogue = {each.name: each for each in CHUNKS}
    outputs_right = all(len(each.found) and each.ratios()[0].max() <= 1 for each in wrong)
    for name, ways in WAYS.items():
        for detail, merge in ways:
            if not outputs_right and all(gives(each, merge) for each in wrong):
                in_base_2 = name == OTHER_BASE and all(map(has_sum_of_base_2, wrong))
                also = (
                    f"; or say --returns {OUTPUT},{LSE2} if log-sum-exps are in base 2" if in_base_2 else ""
                )
                return name, f"{catalogue[name].words.format(detail)}; {catalogue[name].fix}{also}"
    for name, words, fix, other in SUM_ALONE:
        if outputs_right and all(gives_sum(each, other) for each in wrong):
            return name, f"{words}; {fix}"
    worst, dtype = max(each.ratio for each in wrong), first.case.dtype
    return describe_rounding("the output", worst, dtype) or (None, "")


def gives(tried: Tried, merge: Callable[[Array], tuple[Array, Array]]) -> bool:
    """True for a merge whose output is the one that was found."""
    wide = np.float64 if tried.case.dtype == "float64" else np.float32
    with np.errstate(all="ignore"):
        _, shares = merge(tried.sums.astype(wide))
        return alike(tried, 0, (shares[..., None] * tried.outputs).sum(axis=0))


def gives_sum(tried: Tried, other: Callable[[Array], Array]) -> bool:
    with np.errstate(all="ignore"):
        return alike(tried, 1, other(tried.sums))


def has_sum_of_base_2(tried: Tried) -> bool:
    """True for a merge that takes log-sum-exps for those in base 2 throughout."""
    return gives_sum(tried, lambda parts: np.asarray(whole(parts * LN2) / LN2))


def alike(tried: Tried, place: int, value: Array) -> bool:
    """True where what was found is this value, as wrong; what is not finite is taken for one another."""
    found = tried.found[place] if place < len(tried.found) else None
    if found is None:
        return False
    right, allowed = tried.right.values[place], tried.right.allowed[place]
    finite = np.isfinite(value)
    near = (np.abs(found - value) <= 2 * allowed * (1 + np.abs(value)))[finite]
    wrong = ratio_of(found, right, allowed).max(initial=0.0) > 1
    differs = not wrong or ratio_of(value, right, allowed).max(initial=0.0) > 1
    return bool(differs and (np.isfinite(found) == finite).all() and near.all())


# --- calls ---


@dataclass(frozen=True)
class MergeForm:
    """A target's way of taking the parts: its parameters, and the axes of its arrays."""

    names: tuple[str, ...]
    """The parameters for o₁, L₁, o₂ and L₂, or for o and L with the parts on an axis of their own."""
    into: tuple[str, ...] = ()
    """The parameters that the output and its log-sum-exp are written to."""
    layout: tuple[str, ...] = LAYOUTS[0]

    @property
    def is_stacked(self) -> bool:
        return len(self.names) < len(LAYOUTS[0]) * 2

    def axes(self, part: int, place: int) -> str:
        """The axes of an output (place 0) or of a log-sum-exp (1) of a part."""
        return self.layout[min(place + part * place, len(self.layout) - 1)]

    def call(self, case: MergeCase) -> TargetCall:
        parts = dict(zip("oL", case.parts(), strict=True))
        sums, outputs = parts["L"] / case.unit, parts["o"]
        if self.is_stacked:
            arrays = [lay_out(outputs, "cbhnd", self.axes(0, 0)), lay_out(sums, "cbhn", self.axes(0, 1))]
        else:
            arrays = [
                lay_out(each[part], own, self.axes(part, place))
                for part in (0, 1)
                for place, (each, own) in enumerate(zip((outputs, sums), OWN, strict=True))
            ]
        first, *rest = arrays
        given: dict[str, Array] = dict(zip(self.names[1:], rest, strict=True))
        of_parts = (outputs[0], sums[0])
        for name, each, own, axes in zip(self.into, of_parts, OWN, self.answers, strict=False):
            given[name] = np.full_like(lay_out(each, own, axes), np.nan)
        wide = (*self.names[1::2], *self.into[1:])
        numbers, into = outputs[0].size, self.into
        return TargetCall(
            (first,), given, (self.names[0],), case.dtype, numbers=numbers, wide=wide, into=into
        )

    @property
    def answers(self) -> tuple[str, str]:
        """The axes of what comes back."""
        return self.axes(0, 0).replace("c", ""), self.axes(0, 1).replace("c", "")

    def read(self, answer: Answer, right: Merged) -> tuple[Array | None, ...]:
        """Results in our layout; None where the shape is another."""
        each = zip(answer.outputs, OWN, self.answers, right.values, strict=False)
        return tuple(lay_back(x, own, axes, value.shape) for x, own, axes, value in each)


OWN = ("bhnd", "bhn")


def find_form(target: Target, name: str) -> MergeForm:
    """Find the parameters of the parts. Raises AttnError where the target does not take them."""
    parameters = target.parameters or ()
    must = [each.name for each in parameters if each.required]
    names = [each.name for each in parameters]
    into = sorted(
        (each for each in names if BUFFER.fullmatch(each)), key=lambda each: bool(OF_SUM.search(each))
    )
    into = into if len(names) > 4 and set(must) & set(into) else []
    first = [each for each in names if each not in into][: 4 if len(must) > 2 else 2]
    if len(first) not in {2, 4} or set(must) - {*first, *into}:
        raise AttnError(f"{name}: it takes ({', '.join(names)}); {TAKES}")
    sums = [each for each in first if OF_SUM.search(each)]
    if len(sums) * 2 == len(first):
        outputs = [each for each in first if each not in sums]
        first = [each for two in zip(outputs, sums, strict=True) for each in two]
    elif len(first) == 2:
        raise AttnError(f"{name}: it takes ({', '.join(names)}); {TAKES}")
    form = MergeForm(tuple(first), tuple(into))
    return replace(form, layout=STACKED[0]) if form.is_stacked else form


def lay_out(x: Array, own: str, axes: str) -> Array:
    """Numbers over (part, batch, head, query, …) in other axes; the first of a batch where they lack it."""
    if "b" not in axes:
        x, own = x.take(0, axis=own.index("b")), own.replace("b", "")
    x = np.ascontiguousarray(x.transpose([own.index(axis) for axis in axes.replace("1", "")]))
    return x[..., None] if "1" in axes else x


def lay_back(x: Array | None, own: str, axes: str, shape: tuple[int, ...]) -> Array | None:
    if x is None or x.ndim != len(axes):
        return None
    if "1" in axes:
        x, axes = x[..., 0], axes.replace("1", "")
    x = x.transpose([axes.index(axis) for axis in own if axis in axes])
    return x.reshape(shape) if x.shape == shape[len(shape) - x.ndim :] else None


def attempt(target: Target, form: MergeForm, case: MergeCase) -> Tried:
    """Call the target with a case, in such a form."""
    outputs, sums = case.parts()
    answer = target.call(form.call(case))
    if "b" not in form.layout[0]:
        outputs, sums = outputs[:, :1], sums[:, :1]
    right = expect(case, outputs, sums)
    found = form.read(answer, right)
    if len(found) > 1 and found[1] is not None:
        found = (found[0], found[1] * case.unit, *found[2:])
    return Tried(case, outputs, sums, answer, found, right)


def find_layout(target: Target, form: MergeForm, case: MergeCase) -> MergeForm:
    """The first axes in which what comes back is right, or else of the shapes of a part."""
    answered = []
    for layout in STACKED if form.is_stacked else LAYOUTS:
        other = replace(form, layout=layout)
        tried = attempt(target, other, case)
        if tried.ratio <= 1:
            return other
        if not tried.answer.error and tried.found and all(each is not None for each in tried.found):
            answered.append(other)
    return [*answered, form][0]


# --- a run ---


def hold_merge(
    target: Target,
    name: str,
    dtypes: Sequence[str] = (),
    only: Sequence[str] = (),
    *,
    returns: Sequence[str] = RETURNS[0],
    quick: bool = False,
) -> Conformance:
    """Hold a target to the merge in every type, of log-sum-exps that are natural or as it `returns` them.

    Raises AttnError where it cannot be called as one.
    """
    features = (*FEATURES, INPUTS_KEPT)
    raise_all([*unknown_names("feature", only, features), *unknown_names("dtype", dtypes, [*TYPES])])
    if tuple(returns) not in RETURNS:
        ways = " or ".join(",".join(each) for each in RETURNS)
        raise AttnError(f"returns: {','.join(returns)} is no merge; write {ways}")
    unit = LN2 if LSE2 in returns else 1.0
    target.start()
    try:
        form = find_form(target, name)
        taken = list(dtypes or TYPES)
        form = find_layout(target, form, MergeCase(FEATURES[0], taken[0], 0, unit))
        results = [
            each
            for dtype in taken
            for each in hold_type(target, form, dtype, unit, QUICK_CASES if quick else CASES)
        ]
    finally:
        target.close()
    alone = any(each.cases and each.reason for each in results)
    kept = tuple(
        replace(each, reason="") if each.cases else each
        for each in results
        if not only or each.feature in only
    )
    said = ("It returns no log-sum-exp: the output alone is judged.",) if alone else ()
    axes = " and ".join(f"({', '.join(AXES[axis] for axis in each)})" for each in form.layout)
    return Conformance(name, kept, {"outputs and log-sum-exps": axes}, said)


AXES = {"c": "part", "b": "batch", "h": "head", "n": "query", "d": "d_v", "1": "1"}


def hold_type(
    target: Target, form: MergeForm, dtype: str, unit: float, cases: int
) -> Iterator[FeatureResult]:
    """Every feature in one type, and whether the parts stay as they are."""
    changed: list[Tried] = []
    for at, feature in enumerate(FEATURES):
        several = [
            attempt(target, form, MergeCase(feature, dtype, 100 * at + seed, unit)) for seed in range(cases)
        ]
        changed += [each for each in several if each.answer.changed]
        refused = several[0].words() if several[0].answer.error in target.refuses else ""
        if at == 0 and (refused or all(map(is_single, several))):
            yield FeatureResult(feature, dtype, SKIPPED, of=cases, reason=refused or SINGLE)
            return
        yield judge_feature(feature, dtype, several)
    words = "it changes what it is given"
    failure = Failure(changed[0].case, words, "inputs-changed", words) if changed else None
    status = FAILED if changed else PASSED
    yield FeatureResult(INPUTS_KEPT, dtype, status, cases, cases, len(changed), failure=failure)


def is_single(tried: Tried) -> bool:
    """True for float64 numbers that are right to the digits of float32 alone: more is not meant."""
    coarse = replace(tried, right=expect(replace(tried.case, dtype="float32"), tried.outputs, tried.sums))
    return tried.case.dtype == "float64" and tried.ratio > 1 >= coarse.ratio


def judge_feature(feature: str, dtype: str, several: Sequence[Tried]) -> FeatureResult:
    wrong = [each for each in several if each.ratio > 1]
    ratio = max(each.ratio for each in several)
    reason = "" if any(len(each.found) > 1 or each.answer.error for each in several) else "no log-sum-exp"
    if not wrong:
        return FeatureResult(feature, dtype, PASSED, len(several), len(several), ratio=ratio, reason=reason)
    mistake, explanation = explain(wrong)
    failure = Failure(wrong[0].case, wrong[0].words(), mistake, explanation)
    return FeatureResult(
        feature, dtype, FAILED, len(several), len(several), len(wrong), ratio, reason, failure
    )
