"""A function that merges two parts of attention, (o₁, L₁, o₂, L₂) → (o, L), held to that merge.

The parts may come on an axis of their own, (o, L) → (o, L), and the merge may be written to buffers. It is
judged as every merge here is made: the lines of `--chunks`, carried out in float64 and in the type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import inf
from typing import Any

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.evidence.precision import round_to
from attnctl.evidence.rounding import carry_rounding, exactly
from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.math.names import CHUNK_SHARES, HEAD_OUTPUTS, LOGSUMEXP, OUTPUT
from attnctl.math.ops import LogSumExp, MergeChunks, MergeLogSumExp, Shares, Softmax
from attnctl.mistakes.chunks import CHUNKS, LN2, OTHER_BASE, WAYS, Merge, log_of_sums
from attnctl.mistakes.fixes import write_fix
from attnctl.verbs.conform.call import Answer, Target, TargetCall
from attnctl.verbs.conform.case import Case
from attnctl.verbs.conform.diagnosis import describe_rounding, explain_end
from attnctl.verbs.conform.features import INPUTS_KEPT, MERGE, MERGES
from attnctl.verbs.conform.held import hold
from attnctl.verbs.conform.invoke import sum_type
from attnctl.verbs.conform.judge import (
    LSE2,
    ULPS,
    ExpectedOutput,
    Judgement,
    compare_output,
    join_judgements,
    judge_failure,
    name_output,
    scatter_of,
)
from attnctl.verbs.conform.profile import TYPES
from attnctl.verbs.conform.report import Conformance, Failure
from attnctl.verbs.conform.run import SINGLE, Progress, Run
from attnctl.verbs.conform.signature import must_give
from attnctl.verbs.conform.suite import CaseResult, Suite

BASE = Case(batch=2, heads=3, kv_heads=3, queries=5, keys=12, d_k=8, d_v=8)

MAGNITUDES = {"peaked rows": 30.0, "flat rows": 0.0}
"""What the scores of a feature are multiplied by, where it is not 1."""

CASES, QUICK_CASES = 12, 4

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

AXES = {"c": "part", "b": "batch", "h": "head", "n": "query", "d": "d_v", "1": "1"}

OWN = {HEAD_OUTPUTS: "b h n d", LOGSUMEXP: "b h n"}
"""The axes of what is merged, as we have it."""

OF_SUM = re.compile(r"lse|log|sum|^[lLsS](_|\d|$)")
"""Names of parameters for a log-sum-exp; the others of the first four are outputs."""

BUFFER = re.compile(r"(out(put)?|o|[vo]?_?merged)(_out)?|(lse|s|l)_(out|merged)|(out(put)?|merged)_(lse|s)")
"""Names of parameters that the merge is written to, where there are more than four."""

Held = tuple[Mapping[str, Array], Mapping[str, Array | None], Mapping[str, ExpectedOutput]]
"""The parts of a case, what came back, and what is right."""


# --- what is asked ---


def list_features(*, quick: bool) -> Iterator[tuple[str, tuple[Case, ...]]]:
    for at, name in enumerate(MERGES):
        seeds = range(100 * at, 100 * at + (QUICK_CASES if quick else CASES))
        cuts = [int(np.random.RandomState(seed).randint(1, BASE.keys)) for seed in seeds]
        cases = [replace(BASE, fill=name, seed=seed) for seed in seeds]
        yield name, tuple(case.having(cut=cut) for case, cut in zip(cases, cuts, strict=True))
    yield INPUTS_KEPT, (replace(BASE, fill=MERGE).having(cut=BASE.keys // 2),)


def draw_parts(case: Case, unit: float) -> dict[str, Array]:
    """Outputs and log-sum-exps of two parts, (part, batch, head, query[, d_v]), rounded as they are stored.

    `unit` makes a log-sum-exp natural: ln 2 for one in base 2.
    """
    rng, cut = np.random.RandomState(case.seed), int(case.option_values["cut"])
    s = rng.standard_normal((case.batch, case.heads, case.queries, case.keys))
    s *= MAGNITUDES.get(case.fill, 1.0)
    v = rng.standard_normal((case.batch, case.heads, case.keys, case.d_v))
    if case.fill == "large scores":
        s += np.where(np.arange(case.queries) % 2, 1000.0, -1000.0)[:, None]
    if case.fill.startswith("nothing"):
        s[..., 0, :cut] = s[..., 1, cut:] = -inf
    if case.fill == "nothing in both":
        s[..., 2, :] = -inf
    parts = ((s[..., :cut], v[..., :cut, :]), (s[..., cut:], v[..., cut:, :]))
    outputs = np.stack([Softmax().apply(scores) @ values for scores, values in parts])
    sums = np.stack([LogSumExp().apply(scores) for scores, _ in parts])
    stored = round_to(sums / unit, TYPES[sum_type(case.dtype)]) * unit
    return {HEAD_OUTPUTS: round_to(outputs, TYPES[case.dtype]), LOGSUMEXP: stored}


def expect_merge(parts: Mapping[str, Array], dtype: str) -> dict[str, ExpectedOutput]:
    """Merge in float64, and in the type with random rounding."""
    wide = sum_type(dtype)
    sums, values = (exactly(np.moveaxis(parts[name], 0, 1)) for name in (LOGSUMEXP, HEAD_OUTPUTS))
    total = carry_rounding(MergeLogSumExp(), [sums], TYPES[wide].unit, LOGSUMEXP)
    shares = carry_rounding(Shares(), [sums, total], TYPES[dtype].unit, CHUNK_SHARES)
    output = carry_rounding(MergeChunks(), [shares, values], TYPES[dtype].unit, HEAD_OUTPUTS)
    rows = np.ones(output.value.shape[:-1], dtype=bool)
    of_output = ExpectedOutput(HEAD_OUTPUTS, dtype, output.value, scatter_of(output), rows, rows.size)
    of_sum = ExpectedOutput(LOGSUMEXP, wide, total.value, scatter_of(total), rows[..., 0], rows.size)
    return {HEAD_OUTPUTS: of_output, LOGSUMEXP: replace(of_sum, units=2 * ULPS, of_row=0.0, least=1.0)}


# --- how it is called ---


def spell(axes: str) -> str:
    """Axes in the notation of `rearrange`; the one member stands with the first where they lack it."""
    words = " ".join(axes)
    return words if "b" in axes else f"(b {words[0]}){words[1:]}"


def in_axes(array: Array, own: str, axes: str) -> Array:
    return np.ascontiguousarray(rearrange(array, f"{own} -> {spell(axes)}"))


def find_parameters(target: Target, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Find the parameters of the parts, and those written to. Raises AttnError for another target."""
    parameters = target.parameters or ()
    must = must_give(parameters)
    names = [parameter.name for parameter in parameters]
    buffers = [name for name in names if BUFFER.fullmatch(name)]
    into = sorted(buffers, key=lambda name: bool(OF_SUM.search(name)))
    into = into if len(names) > 4 and set(must) & set(into) else []
    first = [name for name in names if name not in into][: 4 if len(must) > 2 else 2]
    sums = [part for part in first if OF_SUM.search(part)]
    paired = len(sums) * 2 == len(first)
    if len(first) not in {2, 4} or set(must) - {*first, *into} or (len(first) == 2 and not paired):
        raise AttnError(
            f"{name}: it takes ({', '.join(names)}); a merge takes (o1, L1, o2, L2), or outputs and "
            "log-sum-exps with the parts on an axis of their own, (o, L); wrap it in a function that does"
        )
    if paired:
        outputs = [part for part in first if part not in sums]
        first = [part for two in zip(outputs, sums, strict=True) for part in two]
    return tuple(first), tuple(into)


# --- a run ---


@dataclass
class MergeSuite(Suite):
    names: tuple[str, ...] = ()
    """The parameters for o₁, L₁, o₂ and L₂, or for o and L with the parts on an axis of their own."""
    into: tuple[str, ...] = ()
    """The parameters that the output and its log-sum-exp are written to."""
    layout: tuple[str, ...] = LAYOUTS[0]
    unit: float = 1.0
    """The factor that makes its log-sum-exps natural."""

    def read_signature(self, *, forward: bool) -> None:
        if MERGE in self.target.cannot:
            raise AttnError(f"--merge: {self.target.cannot[MERGE]}")
        self.names, self.into = find_parameters(self.target, self.target.name)
        self.unit = LN2 if LSE2 in self.declared.returns else 1.0

    @property
    def is_stacked(self) -> bool:
        return len(self.names) < len(LAYOUTS[0]) * 2

    def axes(self, name: str, part: int = 0) -> str:
        return self.layout[0 if name == HEAD_OUTPUTS else min(1 + part, len(self.layout) - 1)]

    def make_call(self, case: Case) -> TargetCall:
        parts = draw_parts(case, self.unit)
        parts[LOGSUMEXP] = parts[LOGSUMEXP] / self.unit
        if self.is_stacked:
            arrays = [in_axes(parts[name], f"c {own}", self.axes(name)) for name, own in OWN.items()]
        else:
            both = product((0, 1), OWN.items())
            arrays = [in_axes(parts[name][at], own, self.axes(name, at)) for at, (name, own) in both]
        given = dict(zip(self.names[1:], arrays[1:], strict=True))
        for keyword, (name, own) in zip(self.into, OWN.items(), strict=False):
            given[keyword] = np.full_like(in_axes(parts[name][0], own, self.answered(name)), np.nan)
        wide = (*self.names[1::2], *self.into[1:])
        inputs, names, numbers = (arrays[0],), self.names[:1], parts[HEAD_OUTPUTS][0].size
        return TargetCall(inputs, given, names, case.dtype, numbers=numbers, wide=wide, into=self.into)

    def answered(self, name: str) -> str:
        return self.axes(name).replace("c", "")

    def read(self, answer: Answer, wanted: Mapping[str, ExpectedOutput]) -> dict[str, Array | None]:
        """Results in our axes; None where the shape is another."""
        found: dict[str, Array | None] = {}
        for array, (name, own) in zip(answer.outputs, OWN.items(), strict=False):
            try:
                laid = rearrange(array, f"{spell(self.answered(name))} -> {own}", **self.members)
            except (AttributeError, ValueError):
                laid = np.zeros(0)
            right = laid.shape == wanted[name].value.shape
            found[name] = (laid * self.unit if name == LOGSUMEXP else laid) if right else None
        return found

    @property
    def members(self) -> dict[str, int]:
        """The one member of arrays without an axis for them."""
        return {} if "b" in self.layout[0] else {"b": 1}

    def fit(self, case: Case) -> Case:
        return replace(case, batch=self.members.get("b", case.batch))

    def run(self, case: Case, *, forward: bool = False, **made: Any) -> CaseResult:
        answer = self.target.call(replace(self.make_call(case), **made))
        found = CaseResult(case, answer, self.judge(case, answer))
        if answer.changed:
            self.changed.setdefault(case.dtype, found)
        return found

    def look(self, case: Case, answer: Answer, dtype: str = "") -> Held:
        parts = draw_parts(case, self.unit)
        wanted = expect_merge(parts, dtype or case.dtype)
        return parts, self.read(answer, wanted), wanted

    def judge(self, case: Case, answer: Answer, dtype: str = "") -> Judgement:
        if answer.error:
            return judge_failure(answer)
        _, returned, wanted = self.look(case, answer, dtype)
        return join_judgements(
            Judgement(inf, words=f"{name_output(name)} has another shape than that of a part", output=name)
            if found is None
            else compare_output(wanted[name], found)
            for name, found in returned.items()
        )

    def explain(self, results: Sequence[CaseResult]) -> Failure:
        first = results[0]
        if first.answer.error:
            held = hold(explain_end(first), results, ())
            assert held is not None  # it explains the first
            return held.failure
        wrong = [self.look(result.case, result.answer) for result in results]
        right = all(result.judgement.ratios.get(HEAD_OUTPUTS, inf) <= 1 for result in results)
        name = LOGSUMEXP if right else HEAD_OUTPUTS
        kind = np.float64 if first.case.dtype == "float64" else np.float32
        for mistake, sentence, made in SUM_ALONE if right else list_merges(kind):
            if all(gives(result, name, made) for result in wrong):
                return Failure(mistake, sentence)
        worst = max(result.judgement.ratio for result in results)
        return describe_rounding("the output", worst, first.case.dtype)

    def find_layout(self, case: Case) -> None:
        """Take the first axes in which what comes back is right, or else of the shapes of a part."""
        answered, layouts = [], STACKED if self.is_stacked else LAYOUTS
        for layout in layouts:
            self.layout = layout
            found = self.run(self.fit(case))
            if found.judgement.right and found.answer.outputs:
                return
            if set(found.judgement.ratios) and inf not in found.judgement.ratios.values():
                answered.append(layout)
        self.layout = [*answered, layouts[0]][0]

    def is_single(self, case: Case) -> bool:
        """Numbers are right to the digits of float32 alone: more is not meant."""
        found = self.run(self.fit(case))
        return not found.judgement.right and self.judge(found.case, found.answer, "float32").right


def hold_merge(suite: MergeSuite, progress: Progress) -> Conformance:
    features, asked = dict(list_features(quick=suite.request.quick)), suite.request
    wanted = {name: cases for name, cases in features.items() if not asked.only or name in asked.only}
    suite.find_layout(replace(features[MERGE][0], dtype=asked.dtypes[0]))
    run = Run(suite, search=suite.explain)
    if "float64" in asked.dtypes and all(map(suite.is_single, features[MERGE])):
        run.refused["float64"] = SINGLE
    run.run_features(wanted, progress)
    axes = " and ".join(f"({', '.join(AXES[axis] for axis in laid)})" for laid in suite.layout)
    alone = any(result.ratios and LOGSUMEXP not in result.ratios for result in run.runs)
    said = ("It returns no log-sum-exp: the output alone is judged.",) if alone else ()
    return run.conclude(run.runs, {"outputs and log-sum-exps": axes}, said)


# --- what is wrong ---

Way = tuple[str, str, Callable[[Mapping[str, Array]], Array]]
"""A mistake, its sentence, and the array that it makes of the parts."""

SUM_ALONE: tuple[Way, ...] = (
    ("logsumexp-base-2", "the log-sum-exp is in base 2; multiply it by ln 2",
     lambda parts: log_of_sums(parts[LOGSUMEXP]) / LN2),
    ("logsumexp-without-maximum", "the maximum is not put back into the log-sum-exp; add it",
     lambda parts: log_of_sums(parts[LOGSUMEXP]) - parts[LOGSUMEXP].max(axis=0)),
)  # fmt: skip
"""Log-sum-exps beside an output that is right."""


def list_merges(kind: type[np.floating[Any]]) -> Iterator[Way]:
    """The outputs of every wrong way to merge, by log-sum-exps of this kind."""

    def made(parts: Mapping[str, Array], merge: Merge) -> Array:
        _, shares = merge(parts[LOGSUMEXP].astype(kind))
        return np.asarray((shares[..., None] * parts[HEAD_OUTPUTS]).sum(axis=0))

    of_base_2 = f"; or say --returns {OUTPUT},{LSE2} if log-sum-exps are in base 2"
    for mistake in CHUNKS:
        also = of_base_2 * (mistake.name == OTHER_BASE)
        for detail, merge in WAYS.get(mistake.name, ()):
            sentence = f"{mistake.words.format(detail)}; {write_fix(mistake.fix)}{also}"
            yield mistake.name, sentence, partial(made, merge=merge)


def gives(wrong: Held, name: str, made: Callable[[Mapping[str, Array]], Array]) -> bool:
    """True where what was found is made so, and is as wrong; one that is not finite is like any other."""
    parts, found, wanted = wrong[0], wrong[1].get(name), wrong[2][name]
    if found is None:
        return False
    with np.errstate(all="ignore"):
        value = made(parts)
        finite = np.isfinite(value)
        near = (np.abs(found - value) <= 2 * wanted.allowed * (1 + np.abs(value)))[finite]
        differs = compare_output(wanted, found).right or not compare_output(wanted, value).right
        return bool(differs and (np.isfinite(found) == finite).all() and near.all())
