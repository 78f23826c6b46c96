"""Large steps: compared a tile at a time, searched in a part; found is what is found of them as a whole."""

from __future__ import annotations

import numpy as np
import planted as own
import pytest
from check_foreign import foreign, meant

import attnctl
from attnctl.evidence import blocks
from attnctl.evidence.allowed import Strictness
from attnctl.evidence.judge import Gap
from attnctl.evidence.precision import FLOAT64
from attnctl.evidence.record import Record, with_precisions
from attnctl.evidence.rounding import Later
from attnctl.evidence.walk import Verdict, Walk
from attnctl.inputs.plan.intended import plan_dump
from attnctl.math.ops import Hide, MatMul, Merge, Scale, Slope, Softmax
from attnctl.mistakes.wrong import By, Coarse, Dropped, Then, shown, softmax
from attnctl.record import Trace
from attnctl.verbs.check.check import check

pytestmark = pytest.mark.sample(4)

N = 96
OPTIONS = {
    "causal": {"causal": True},
    "window, shared heads": {"window": 9, "kv_heads": 2},
    "alibi": {"positions": "alibi", "causal": True},
    "rope": {"positions": "rope"},
}


@pytest.fixture
def large(monkeypatch):
    """A step of this size counts as large, and is compared in tiles of a few rows."""
    for name, value in (
        ("evidence.blocks.MANY", N * N),
        ("evidence.walk.MANY", N * N),
        ("evidence.blocks.BLOCK", 64 * N),
        ("evidence.blocks.SPARSE", 4),
        ("verbs.check.parts.MANY", N * N),
        ("verbs.check.parts.FEW", 32 * N),
    ):
        monkeypatch.setattr(f"attnctl.{name}", value)


def recorded(dtype="float32", **options):
    return attnctl.run(" ".join(f"w{i}" for i in range(N)), d_model=64, heads=4, dtype=dtype, **options)


def with_step(trace, name, array):
    return Trace(trace.steps, {**trace, name: array}, trace.header)


def walked(trace):
    record = with_precisions(Record(*plan_dump(trace)), FLOAT64)
    with np.errstate(all="ignore"):
        return Walk.over(record, record.intended)


def off_by_one_number(array):
    array[2, 70, 11] *= 1.01


def noisy(array):
    array *= 1 + 1e-4 * np.random.RandomState(1).randn(*array.shape)


def noisy_row(array):
    array[1, 40] *= 1 + 1e-3 * np.random.RandomState(1).randn(*array.shape[2:])


def nan(array):
    array[3, 5, 2] = np.nan


def zeros(array):
    array[...] = 0.0


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_right_program_agrees_in_tiles(large, options, dtype):
    report = check(recorded(dtype, **options))
    assert not report.findings
    assert {step.verdict for step in report.steps.values()} <= {Verdict.AGREES, Verdict.GIVEN}


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", ["scores", "scaled_scores", "attention_weights", "head_outputs"])
@pytest.mark.parametrize("change", [off_by_one_number, noisy, noisy_row, nan, zeros])
def test_tiles_find_what_the_whole_shows(monkeypatch, request, name, change):
    trace = recorded(window=64)
    array = trace[name].copy()
    change(array)
    trace = with_step(trace, name, array)
    whole = walked(trace)
    request.getfixturevalue("large")
    tiled = walked(trace)
    assert tiled.steps[name].verdict is whole.steps[name].verdict is Verdict.WRONG
    ours, theirs = tiled.steps[name].gap, whole.steps[name].gap
    assert (ours.at, ours.nan, ours.of, ours.filled) == (theirs.at, theirs.nan, theirs.of, theirs.filled)
    assert ours.differing == pytest.approx(theirs.differing, rel=0.1)
    assert ours.largest == pytest.approx(theirs.largest, nan_ok=True)
    assert ours.allowed == pytest.approx(theirs.allowed, rel=3)


@pytest.mark.parametrize(
    ("made", "meant", "named"),
    [
        ({"scale": 1.0}, {}, "no-scale"),
        ({"scale": 0.1}, {}, "scale-other"),
        pytest.param(
            {"causal": True, "window": 60}, {"causal": True}, "mask-unasked", marks=pytest.mark.slow
        ),
    ],
)
def test_a_mistake_is_found_in_a_part_and_verified_in_all(large, made, meant, named):
    right = recorded(**meant)
    report = check(Trace(right.steps, dict(recorded(**made)), right.header))
    assert [finding.mistake for finding in report.findings] == [named]


@pytest.mark.parametrize(
    ("times", "verdict"), [(np.nan, Verdict.CANNOT_TELL), (1e200, Verdict.WRONG)], ids=["NaN", "overflows"]
)
@pytest.mark.parametrize("tiles", [False, True], ids=["whole", "in tiles"])
def test_garbage_after_nan_or_overflow_does_not_agree(request, tiles, times, verdict):
    """After NaN any scores would do, so nobody can say that these are right."""
    if tiles:
        request.getfixturevalue("large")
    trace = recorded("float64")
    for name in ("Q", "K"):
        trace = with_step(trace, name, trace[name] * times)
    steps = walked(with_step(trace, "scores", np.ones_like(trace["scores"]))).steps
    assert steps["scores"].verdict is verdict


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("kind", "mistake", "what"),
    [
        (own.PLAIN, "softmax-over-queries", "everything"),
        (own.CAUSAL, "softmax-over-queries", "inputs and output"),
        (own.CAUSAL, "dropout-left-on/half", "everything"),
        (own.MASKED, "mask-inverted", "weights and outputs"),
        (own.GROUPED, "heads-merged-wrong/reshape", "inputs and output"),
        (own.SQUARE, "weight-transposed/Q", "inputs and output"),
        (own.ROTARY, "rotary-pairs-wrong", "inputs and output"),
        (own.SINUSOIDAL, "positions-missing", "weights and outputs"),
        (own.PLAIN, "query-key-swapped", "weights and outputs"),
    ],
)
def test_mistakes_are_named_in_a_large_record_of_any_kind(large, monkeypatch, kind, mistake, what):
    monkeypatch.setattr("attnctl.verbs.check.parts.MANY", 1000)
    monkeypatch.setattr("attnctl.verbs.check.parts.FEW", 100)
    kind = kind.but(n=48, dtype=own.F32)
    report = attnctl.check(foreign(own.recorded(own.attend(kind, mistake), what)), meant(kind))
    assert [finding.mistake for finding in report.findings] == [mistake.split("/")[0]]


# --- blocks beside the whole ---

SIZES = {"padded": {"lengths": (24, 17, 5)}, "cross": {"keys": 30}, "bottom right": {"keys": 30}}
KINDS = {name: kind.but(n=24, dtype=own.F32, **SIZES.get(name, {})) for name, kind in own.CLEAN.items()}
RECORDED = {
    "everything": (),
    "ends": (*own.INPUTS, *own.BESIDE, "output"),
    "weights": (*own.INPUTS, *own.BESIDE, "attention_weights"),
}


def record_of(kind, what, change=None, strictness=None):
    arrays = own.attend(kind)
    kept = {name: x for name, x in arrays.items() if not RECORDED[what] or name in RECORDED[what]}
    for name in ("attention_weights", "output") if change else ():
        if name in kept:
            kept[name] = change(kept[name].copy())
    record = Record(*plan_dump(foreign(kept), meant(kind)), strictness or Strictness())
    return with_precisions(record, FLOAT64)


def walk(record):
    with np.errstate(all="ignore"):
        return Walk.over(record, record.intended)


@pytest.fixture
def in_blocks(monkeypatch):
    """Makes every step that can be compared in blocks of eight queries, two of them drawn for."""

    def begin():
        for name, value in (("MANY", 1), ("BLOCK", 1), ("SAMPLED", 2), ("SPARSE", 4)):
            monkeypatch.setattr(blocks, name, value)
        monkeypatch.setattr("attnctl.evidence.walk.MANY", 1)
        judged = []

        def judge(self, rows, *rest, plain=blocks.StepInBlocks.judge):
            judged.append((self.name, rows))
            return plain(self, rows, *rest)

        monkeypatch.setattr(blocks.StepInBlocks, "judge", judge)
        return judged

    return begin


def a_number(x):
    x[..., -3, 1] += 0.3
    return x


def a_row(x):
    x[..., 9, :] *= 1.5
    return x


def all_of_it(x):
    return x * x.dtype.type(1.01)


def a_little(x):
    return x * (1 + 3e-5 * np.random.RandomState(0).randn(*x.shape)).astype(x.dtype)


@pytest.mark.sample(24)
@pytest.mark.parametrize("change", [None, a_number, a_row, all_of_it, a_little])
@pytest.mark.parametrize("what", RECORDED)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_blocks_say_of_every_kind_what_the_whole_says(in_blocks, kind, what, change):
    record = record_of(kind, what, change)
    whole = walk(record)
    in_blocks()
    found = walk(record)
    assert {n: s.verdict for n, s in found.steps.items()} == {n: s.verdict for n, s in whole.steps.items()}
    for name, step in whole.steps.items():
        ours, theirs = found.steps[name], step
        if theirs.gap:
            assert (ours.gap.of, ours.gap.filled, ours.gap.nan) == (theirs.gap.of, theirs.gap.of, 0), name
            assert ours.gap.at == theirs.gap.at, name
            assert (ours.gap.found, ours.gap.expected) == (theirs.gap.found, theirs.gap.expected), name
            assert ours.gap.differing == pytest.approx(theirs.gap.differing, rel=0.1, abs=10), name
            assert theirs.gap.allowed / 6 <= ours.gap.allowed <= 12 * theirs.gap.allowed, name
            assert ours.blurred == pytest.approx(theirs.blurred, rel=0.7), name


def test_what_nobody_recorded_is_never_whole(in_blocks):
    in_blocks()
    found = walk(record_of(KINDS["causal"], "ends"))
    for name in ("scores", "scaled_scores", "masked_scores", "attention_weights", "head_outputs"):
        assert isinstance(found.values[name], Later)
        assert "known" not in vars(found.values[name])
    assert not isinstance(found.values["K"], Later)
    assert found.values["masked_scores"].value.shape == (2, 24, 24)
    assert found.values["masked_scores"].numbers > 2 * 24 * 24


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_follows_from_scores_is_known_in_blocks_as_it_is_whole(in_blocks, kind):
    record = record_of(kind, "ends")
    whole = walk(record).values["head_outputs"]
    in_blocks()
    found = walk(record).values["head_outputs"]
    np.testing.assert_allclose(found.value, whole.value, rtol=1e-12, atol=1e-12)
    ours, theirs = (np.sqrt(np.square(known.scatter).mean()) for known in (found, whole))
    assert theirs / 3 <= ours <= 3 * theirs


def test_transposed_weights_are_named_in_whatever_part_is_searched(large):
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(2, N, 8)).astype(np.float32) for _ in range(3))
    scores = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(8))
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    for recorded in ({}, {"attention_weights": weights}):
        steps = {"Q": q, "K": k, "V": v, **recorded, "head_outputs": weights.swapaxes(-1, -2) @ v}
        assert attnctl.check(steps).mistake == "weights-transposed"


@pytest.mark.parametrize(
    ("change", "what", "blocks_judged"),
    [
        (None, "ends", 1),
        (None, "weights", 1),
        (all_of_it, "ends", 1),
        (a_number, "ends", 1),
        (a_row, "weights", 1),
    ],
)
def test_only_what_is_not_clear_is_judged(in_blocks, change, what, blocks_judged):
    """Rows about the largest difference, whose tolerance is shown, and blocks in which little is wrong."""
    judged = in_blocks()
    walk(record_of(KINDS["plain"], what, change))
    assert len(judged) == blocks_judged
    is_clear = change in (None, all_of_it)
    assert judged[0][1].stop - judged[0][1].start == (2 if is_clear else 8)


@pytest.mark.parametrize(
    ("strictness", "verdict"),
    [(Strictness(rtol=1e-9), Verdict.WRONG), (Strictness(decimals=5), Verdict.AGREES)],
)
def test_a_tolerance_that_was_asked_for_is_held_to_every_number(in_blocks, strictness, verdict):
    record = record_of(KINDS["plain"], "ends", strictness=strictness)
    whole = walk(record).steps["output"]
    judged = in_blocks()
    found = walk(record).steps["output"]
    assert found.verdict is whole.verdict is verdict
    assert found.gap.differing == pytest.approx(whole.gap.differing, rel=0.3)
    assert [rows for _, rows in judged] == [slice(0, 8), slice(8, 16), slice(16, 24)]


def test_all_too_far_off_together_is_wrong_though_no_block_is(in_blocks):
    """Noise of half as much again as the scatter stays within what numbers of few rows may be off."""
    right = record_of(KINDS["plain"].but(n=96), "ends")
    name = "output"
    with np.errstate(all="ignore"):
        expected = walk(right).expect(name)
    noise = 1.5 * expected.scatter * np.sign(np.random.RandomState(0).randn(*expected.value.shape))
    trace = with_step(right.trace, name, expected.value + noise)
    record = Record(trace, right.plan, precisions=right.precisions, unrecorded=right.unrecorded)
    whole = walk(record).steps[name]
    judged = in_blocks()
    found = walk(record).steps[name]
    assert found.verdict is whole.verdict is Verdict.WRONG
    assert len(judged) >= 3


@pytest.mark.parametrize("change", [None, lambda s: np.where(np.isneginf(s), 0.0, s).astype(s.dtype)])
def test_hidden_scores_that_are_shown_are_counted(in_blocks, change):
    arrays = own.attend(KINDS["causal"])
    if change:
        arrays["masked_scores"] = change(arrays["masked_scores"])
    record = with_precisions(Record(*plan_dump(foreign(arrays), meant(KINDS["causal"]))), FLOAT64)
    whole = walk(record).steps["masked_scores"]
    judged = in_blocks()
    found = walk(record).steps["masked_scores"]
    assert (found.verdict, found.gap.differing) == (whole.verdict, whole.gap.differing)
    assert found.gap.differing == (2 * 24 * 23 // 2 if change else 0)
    sizes = {rows.stop - rows.start for name, rows in judged if name == "masked_scores"}
    assert sizes == {2}  # the few that were drawn, and those that are shown


@pytest.mark.parametrize(
    ("start", "stop", "middle", "rows"),
    [(0, 100, 50, (48, 52)), (0, 100, 0, (0, 4)), (0, 100, 99, (96, 100)), (40, 42, 41, (40, 42))],
)
def test_few_rows_about_one(start, stop, middle, rows):
    assert blocks.few_rows(slice(start, stop), middle) == slice(*rows)


# --- rows ---


def softmax_then_hide(hide):
    return shown(hide, lambda s, seen: np.where(seen, softmax(s), 0.0))


@pytest.mark.parametrize(
    ("op", "by_row"),
    [
        (Softmax(), True),
        (Merge(), True),
        (Coarse(MatMul(), 0.1, 10.0), True),
        (Then(Scale(2.0), Softmax()), True),
        (softmax_then_hide(Hide()), True),
        (Dropped(np.ones((1, 3, 3), bool), 2.0), True),
        (Coarse(By(np.copy), 0.1, 10.0), False),
        (Then(Scale(2.0), By(np.copy)), False),
    ],
)
def test_an_op_is_by_row_where_all_within_it_are(op, by_row):
    assert blocks.is_by_row(op) is by_row


@pytest.mark.parametrize("offset", [2, (0, 3)])
@pytest.mark.parametrize("make", [Slope, lambda offset: softmax_then_hide(Hide(offset))])
def test_an_op_begins_at_a_query(make, offset):
    x = np.random.RandomState(0).randn(2, 2, 9, 12)
    x[..., 5] = -np.inf
    op = make(offset)
    moved = blocks.change_ops(op, blocks.begin_at(4))
    np.testing.assert_array_equal(moved.apply(x[..., 4:7, :]), op.apply(x)[..., 4:7, :])
    assert blocks.change_ops(op, blocks.begin_at(0)) is op


def test_dropout_begins_at_a_query():
    kept = np.random.RandomState(0).rand(2, 9, 12) < 0.5
    x = np.random.RandomState(1).randn(2, 9, 12)
    op = Dropped(kept, 2.0)
    part = blocks.begin_at(4)(op).apply(x[:, 4:7])
    np.testing.assert_array_equal(part, op.apply(x)[:, 4:7])
    assert part.any()


def test_an_array_is_cut_along_what_it_is_not_broadcast_along():
    axes, cuts = ("head", "query", "key"), {"query": slice(2, 4)}
    assert blocks.cut(np.ones((2, 9, 9)), axes, cuts).shape == (2, 2, 9)
    assert blocks.cut(np.ones((2, 1, 9)), axes, cuts).shape == (2, 1, 9)
    assert blocks.cut(np.ones((9, 9)), axes, cuts).shape == (2, 9)
    assert blocks.cut(np.ones((1, 2, 9, 9)), axes, cuts).shape == (1, 2, 9, 9)


def test_a_number_ranks_before_nan_and_a_difference_before_none():
    def block(differing, largest):
        gap = Gap(largest, 0.0, (0, 0), 0.0, 0.0, differing, 0, 4, 4)
        return blocks.BlockFindings(
            slice(0, 1),
            gap,
            0.0,
            blocks.RowSample(np.inf, np.inf, least=0.0, mean=0.5, most=1.0, share=0.0),
        )

    ranked = [block(0, 9.0), block(1, np.nan), block(1, 2.0), block(1, 3.0)]
    assert max(ranked, key=lambda each: each.rank) is ranked[3]
    assert max(ranked[:3], key=lambda each: each.rank) is ranked[2]
    assert max(ranked[:2], key=lambda each: each.rank) is ranked[1]


def test_a_sample_has_the_least_scatter_of_its_rows():
    record = record_of(KINDS["plain"], "everything")
    walked = walk(record)
    step = record.intended["attention_weights"]
    begun = blocks.StepInBlocks.begin(record, record.intended, [step], walked.values)
    drawn = begun.sample({7: slice(0, 24), 9: slice(12, 24)})
    assert [*drawn] == [7, 9]
    sample = drawn[7]
    expected = begun.of(blocks.few_rows(slice(0, 24), 12))[1]
    scatter = expected.scatter_in(4)
    ratios = np.sqrt(np.square(scatter).sum(-1) / np.square(expected.value).sum(-1))
    assert sample.least == pytest.approx(ratios.min())
    assert sample.share == pytest.approx((scatter / expected.value).min())
    assert sample.values.size == sample.scatter.size == 4 * 24


@pytest.mark.parametrize(
    ("count", "drawn"),
    [
        (1, [0]),
        (2, [0, 1]),
        (3, [0, 1, 2]),
        (6, [0, 1, 2, 4, 5]),
        (9, [0, 1, 2, 4, 8]),
        (32, [0, 1, 2, 4, 8, 16, 31]),
    ],
)
def test_few_blocks_are_drawn_from(count, drawn):
    assert blocks.sparsely(count) == drawn


@pytest.mark.parametrize(
    ("at", "expected"),
    [(2, (2.0, 2.5, 3.0, 0.2)), (3, (1.0, 2.0, 3.0, 0.1)), (5, (1.0, 5.0, 9.0, 0.1))],
)
def test_a_block_between_two_samples_is_off_as_either(at, expected):
    nothing = np.zeros(0)
    drawn = {
        2: blocks.RowSample(nothing, nothing, least=2.0, mean=2.5, most=3.0, share=0.2),
        4: blocks.RowSample(nothing, nothing, least=1.0, mean=1.322875655, most=2.0, share=0.1),
        6: blocks.RowSample(nothing, nothing, least=5.0, mean=7.0, most=9.0, share=0.3),
    }
    sample = blocks.between(drawn, at)
    assert (sample.least, sample.mean, sample.most, sample.share) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("query", range(2, 24, 4))
def test_one_wrong_number_is_found_in_every_block(in_blocks, query):
    def change(x):
        x[0, query, 1] *= x.dtype.type(1.01)
        return x

    in_blocks()
    record = record_of(KINDS["plain"], "weights", change)
    gap = walk(record).steps["attention_weights"].gap
    assert (gap.at, gap.differing) == ((0, query, 1), 1)
