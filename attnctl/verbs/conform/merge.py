"""A function that merges two parts of attention, (o₁, L₁, o₂, L₂) → (o, L), held to that merge.

The parts may come on an axis of their own, (o, L) → (o, L), and the merge may be written to buffers. It is
judged as every merge here is made: the lines of `--chunks`, carried out in float64 and in the type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, NamedTuple

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
from attnctl.verbs.conform.report import Conformance, Failure
from attnctl.verbs.conform.run import SINGLE, Progress, Run
from attnctl.verbs.conform.signature import must_give
from attnctl.verbs.conform.stored import precision_in
from attnctl.verbs.conform.suite import CaseResult, Suite

BASE = Case(batch=2, heads=3, kv_heads=3, queries=5, keys=12, d_k=8, d_v=8)

MAGNITUDES = {"peaked rows": 30.0, "flat rows": 0.0}
"""What the scores of a feature are multiplied by, where it is not 1."""

CASES = 12
QUICK_CASES = 4

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


class HeldMerge(NamedTuple):
    """A case of a merge."""

    parts: Mapping[str, Array]
    returned: Mapping[str, Array | None]
    """What came back; None where it has another shape."""
    expected: Mapping[str, ExpectedOutput]


# --- what is asked ---


def list_features(*, quick: bool) -> Iterator[tuple[str, tuple[Case, ...]]]:
    """The features of a merge with their cases, each cut into two parts at another key."""
    for number, name in enumerate(MERGES):
        first_seed = 100 * number
        cases = []
        for seed in range(first_seed, first_seed + (QUICK_CASES if quick else CASES)):
            cut = int(np.random.RandomState(seed).randint(1, BASE.keys))
            cases.append(replace(BASE, fill=name, seed=seed).having(cut=cut))
        yield name, tuple(cases)

    in_the_middle = replace(BASE, fill=MERGE).having(cut=BASE.keys // 2)
    yield INPUTS_KEPT, (in_the_middle,)


def draw_parts(case: Case, unit: float) -> dict[str, Array]:
    """Outputs and log-sum-exps of two parts, (part, batch, head, query[, d_v]), rounded as they are stored.

    `unit` makes a log-sum-exp natural: ln 2 for one in base 2.
    """
    rng = np.random.RandomState(case.seed)
    cut = int(case.option_values["cut"])
    scores = rng.standard_normal((case.batch, case.heads, case.queries, case.keys))
    scores *= MAGNITUDES.get(case.fill, 1.0)
    values = rng.standard_normal((case.batch, case.heads, case.keys, case.d_v))

    if case.fill == "large scores":
        scores += np.where(np.arange(case.queries) % 2, 1000.0, -1000.0)[:, None]
    if case.fill.startswith("nothing"):
        scores[..., 0, :cut] = -inf
        scores[..., 1, cut:] = -inf
    if case.fill == "nothing in both":
        scores[..., 2, :] = -inf

    outputs = []
    sums = []
    for keys in (slice(cut), slice(cut, None)):
        outputs.append(Softmax().apply(scores[..., keys]) @ values[..., keys, :])
        sums.append(LogSumExp().apply(scores[..., keys]))
    stored = round_to(np.stack(sums) / unit, precision_in(sum_type(case.dtype))) * unit
    return {HEAD_OUTPUTS: round_to(np.stack(outputs), precision_in(case.dtype)), LOGSUMEXP: stored}


def expect_merge(parts: Mapping[str, Array], dtype: str) -> dict[str, ExpectedOutput]:
    """Merge in float64, and in the type with random rounding."""
    type_of_sum = sum_type(dtype)
    unit = precision_in(dtype).unit
    sums = exactly(np.moveaxis(parts[LOGSUMEXP], 0, 1))
    values = exactly(np.moveaxis(parts[HEAD_OUTPUTS], 0, 1))
    total = carry_rounding(MergeLogSumExp(), [sums], precision_in(type_of_sum).unit, LOGSUMEXP)
    shares = carry_rounding(Shares(), [sums, total], unit, CHUNK_SHARES)
    output = carry_rounding(MergeChunks(), [shares, values], unit, HEAD_OUTPUTS)

    rows = np.ones(output.value.shape[:-1], dtype=bool)
    return {
        HEAD_OUTPUTS: ExpectedOutput(
            HEAD_OUTPUTS,
            dtype,
            output.value,
            scatter=scatter_of(output),
            rows=rows,
            independent=rows.size,
        ),
        LOGSUMEXP: ExpectedOutput(
            LOGSUMEXP,
            type_of_sum,
            total.value,
            scatter=scatter_of(total),
            rows=rows[..., 0],
            independent=rows.size,
            units=2 * ULPS,
            of_row=0.0,
            least=1.0,
        ),
    }


# --- how it is called ---


def spell(axes: str) -> str:
    """Axes in the notation of `rearrange`; the one member stands with the first where they lack it."""
    spaced = " ".join(axes)
    return spaced if "b" in axes else f"(b {spaced[0]}){spaced[1:]}"


def in_axes(array: Array, own: str, axes: str) -> Array:
    return np.ascontiguousarray(rearrange(array, f"{own} -> {spell(axes)}"))


def find_parameters(target: Target, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Find the parameters of the parts, and those written to. Raises AttnError for another target."""
    parameters = target.parameters or ()
    required = {*must_give(parameters)}
    names = [parameter.name for parameter in parameters]

    into: list[str] = []
    buffers = [name for name in names if BUFFER.fullmatch(name)]
    if len(names) > 4 and required & {*buffers}:
        into = sorted(buffers, key=is_of_sum)  # the output first

    most_parts = 4 if len(required) > 2 else 2
    parts = [name for name in names if name not in into][:most_parts]
    sums = [part for part in parts if is_of_sum(part)]
    outputs = [part for part in parts if part not in sums]
    are_paired = len(sums) == len(outputs)
    has_others = bool(required - {*parts, *into})
    if len(parts) not in {2, 4} or has_others or (len(parts) == 2 and not are_paired):
        raise AttnError(
            f"{name}: it takes ({', '.join(names)}); a merge takes (o1, L1, o2, L2), or outputs and "
            "log-sum-exps with the parts on an axis of their own, (o, L); wrap it in a function that does"
        )

    # Where the names do not tell, they are taken in the order o₁, L₁, o₂, L₂.
    if are_paired:
        parts = [part for pair in zip(outputs, sums, strict=True) for part in pair]
    return tuple(parts), tuple(into)


def is_of_sum(name: str) -> bool:
    return bool(OF_SUM.search(name))


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
        """The axes of an output or a log-sum-exp; those of the second part may be others."""
        if name == HEAD_OUTPUTS:
            return self.layout[0]
        return self.layout[min(1 + part, len(self.layout) - 1)]

    def make_call(self, case: Case) -> TargetCall:
        parts = draw_parts(case, self.unit)
        parts[LOGSUMEXP] = parts[LOGSUMEXP] / self.unit

        arrays = []
        if self.is_stacked:
            for name, own in OWN.items():
                arrays.append(in_axes(parts[name], f"c {own}", self.axes(name)))
        else:
            for part in (0, 1):
                for name, own in OWN.items():
                    arrays.append(in_axes(parts[name][part], own, self.axes(name, part)))

        keywords = dict(zip(self.names[1:], arrays[1:], strict=True))
        for keyword, (name, own) in zip(self.into, OWN.items(), strict=False):
            result = in_axes(parts[name][0], own, self.answered(name))
            keywords[keyword] = np.full_like(result, np.nan)

        return TargetCall(
            (arrays[0],),
            keywords,
            self.names[:1],
            case.dtype,
            numbers=parts[HEAD_OUTPUTS][0].size,
            wide=(*self.names[1::2], *self.into[1:]),
            into=self.into,
        )

    def answered(self, name: str) -> str:
        """The axes of a result, which is of no part."""
        return self.axes(name).replace("c", "")

    def read(self, answer: Answer, expected: Mapping[str, ExpectedOutput]) -> dict[str, Array | None]:
        """Results in our axes; None where the shape is another."""
        results: dict[str, Array | None] = {}
        for array, (name, own) in zip(answer.outputs, OWN.items(), strict=False):
            results[name] = None
            try:
                laid = rearrange(array, f"{spell(self.answered(name))} -> {own}", **self.members)
            except (AttributeError, ValueError):  # no array, or one of other axes
                continue
            if laid.shape == expected[name].value.shape:
                results[name] = laid * self.unit if name == LOGSUMEXP else laid
        return results

    @property
    def members(self) -> dict[str, int]:
        """The one member of arrays without an axis for them."""
        return {} if "b" in self.layout[0] else {"b": 1}

    def fit(self, case: Case) -> Case:
        return replace(case, batch=self.members.get("b", case.batch))

    def run(self, case: Case, *, forward: bool = False, **made: Any) -> CaseResult:
        answer = self.target.call(replace(self.make_call(case), **made))
        result = CaseResult(case, answer, self.judge(case, answer))
        if answer.changed:
            self.changed.setdefault(case.dtype, result)
        return result

    def look(self, case: Case, answer: Answer, dtype: str = "") -> HeldMerge:
        parts = draw_parts(case, self.unit)
        expected = expect_merge(parts, dtype or case.dtype)
        return HeldMerge(parts, self.read(answer, expected), expected)

    def judge(self, case: Case, answer: Answer, dtype: str = "") -> Judgement:
        if answer.error:
            return judge_failure(answer)

        held = self.look(case, answer, dtype)
        judgements = []
        for name, array in held.returned.items():
            if array is None:
                words = f"{name_output(name)} has another shape than that of a part"
                judgements.append(Judgement(inf, words=words, output=name))
            else:
                judgements.append(compare_output(held.expected[name], array))
        return join_judgements(judgements)

    def explain(self, results: Sequence[CaseResult]) -> Failure:
        """Find the wrong way to merge that gives what came back in all of these cases."""
        first = results[0]
        if first.answer.error:
            held = hold(explain_end(first), results, ())
            assert held is not None  # it explains the first
            return held.failure

        wrong = [self.look(result.case, result.answer) for result in results]
        is_output_right = all(result.judgement.ratios.get(HEAD_OUTPUTS, inf) <= 1 for result in results)
        if is_output_right:
            name = LOGSUMEXP
            ways: Iterable[WrongMerge] = SUM_ALONE
        else:
            name = HEAD_OUTPUTS
            ways = list_merges(np.float64 if first.case.dtype == "float64" else np.float32)
        for way in ways:
            if all(gives(held, name, way) for held in wrong):
                return Failure(way.mistake, way.sentence)

        worst = max(result.judgement.ratio for result in results)
        return describe_rounding("the output", worst, first.case.dtype)

    def find_layout(self, case: Case) -> None:
        """Take the first axes in which what comes back is right, or else of the shapes of a part."""
        layouts = STACKED if self.is_stacked else LAYOUTS
        answered = []
        for layout in layouts:
            self.layout = layout
            result = self.run(self.fit(case))
            if result.judgement.right and result.answer.outputs:
                return
            ratios = result.judgement.ratios
            if ratios and inf not in ratios.values():
                answered.append(layout)
        self.layout = answered[0] if answered else layouts[0]

    def is_single(self, case: Case) -> bool:
        """Numbers are right to the digits of float32 alone: more is not meant."""
        result = self.run(self.fit(case))
        if result.judgement.right:
            return False
        return self.judge(result.case, result.answer, "float32").right


def hold_merge(suite: MergeSuite, progress: Progress) -> Conformance:
    request = suite.request
    features = dict(list_features(quick=request.quick))
    to_run = {name: cases for name, cases in features.items() if not request.only or name in request.only}

    suite.find_layout(replace(features[MERGE][0], dtype=request.dtypes[0]))
    run = Run(suite, search=suite.explain)
    if "float64" in request.dtypes and all(map(suite.is_single, features[MERGE])):
        run.runner.refused["float64"] = SINGLE
    run.run_features(to_run, progress)

    notes = []
    if any(result.ratios and LOGSUMEXP not in result.ratios for result in run.runs):
        notes.append("It returns no log-sum-exp: the output alone is judged.")
    axes = " and ".join(f"({', '.join(AXES[axis] for axis in laid)})" for laid in suite.layout)
    return run.conclude(run.runs, {"outputs and log-sum-exps": axes}, tuple(notes))


# --- what is wrong ---


class WrongMerge(NamedTuple):
    mistake: str
    sentence: str
    make: Callable[[Mapping[str, Array]], Array]
    """The array that it makes of the parts."""


SUM_ALONE = (
    WrongMerge(
        "logsumexp-base-2",
        "the log-sum-exp is in base 2; multiply it by ln 2",
        lambda parts: log_of_sums(parts[LOGSUMEXP]) / LN2,
    ),
    WrongMerge(
        "logsumexp-without-maximum",
        "the maximum is not put back into the log-sum-exp; add it",
        lambda parts: log_of_sums(parts[LOGSUMEXP]) - parts[LOGSUMEXP].max(axis=0),
    ),
)
"""Log-sum-exps beside an output that is right."""


def list_merges(dtype: type[np.floating[Any]]) -> Iterator[WrongMerge]:
    """The outputs of every wrong way to merge, by log-sum-exps of this type."""

    def make(parts: Mapping[str, Array], merge: Merge) -> Array:
        _, shares = merge(parts[LOGSUMEXP].astype(dtype))
        return np.asarray((shares[..., None] * parts[HEAD_OUTPUTS]).sum(axis=0))

    for mistake in CHUNKS:
        fix = write_fix(mistake.fix)
        if mistake.name == OTHER_BASE:
            fix += f"; or say --returns {OUTPUT},{LSE2} if log-sum-exps are in base 2"
        for detail, merge in WAYS.get(mistake.name, ()):
            sentence = f"{mistake.words.format(detail)}; {fix}"
            yield WrongMerge(mistake.name, sentence, partial(make, merge=merge))


def gives(held: HeldMerge, name: str, way: WrongMerge) -> bool:
    """True where what was found is made so, and is as wrong; one that is not finite is like any other."""
    found = held.returned.get(name)
    expected = held.expected[name]
    if found is None:
        return False

    with np.errstate(all="ignore"):
        value = way.make(held.parts)
        is_finite = np.isfinite(value)
        allowed = 2 * expected.allowed * (1 + np.abs(value))
        is_near = (np.abs(found - value) <= allowed)[is_finite]
        # A way that is right in this case explains nothing that is wrong there.
        differs = compare_output(expected, found).right or not compare_output(expected, value).right
        return bool(differs and (np.isfinite(found) == is_finite).all() and is_near.all())
