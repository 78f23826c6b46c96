"""Large steps: compared a tile at a time, searched in a part; found is what is found of them as a whole."""

from __future__ import annotations

import numpy as np
import planted as own
import pytest
from check_foreign import foreign, meant

import attnctl
from attnctl.base.trace import Trace
from attnctl.evidence.precision import FLOAT64
from attnctl.evidence.record import Record, with_precisions
from attnctl.evidence.walk import Verdict, Walker
from attnctl.verbs.check.check import check
from attnctl.verbs.check.intent import find_intent

pytestmark = pytest.mark.sample(2)

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
        ("verbs.check.sample.MANY", N * N),
        ("verbs.check.sample.FEW", 32 * N),
    ):
        monkeypatch.setattr(f"attnctl.{name}", value)


def recorded(dtype="float32", **options):
    return attnctl.run(" ".join(f"w{i}" for i in range(N)), d_model=64, heads=4, dtype=dtype, **options)


def with_step(trace, name, array):
    return Trace(trace.steps, {**trace, name: array}, trace.header)


def walked(trace):
    intent = find_intent(trace, None)
    record = with_precisions(Record(intent.trace, intent.sizes, intent.derivation), FLOAT64)
    with np.errstate(all="ignore"):
        return Walker(record).walk(record.intended)


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
    monkeypatch.setattr("attnctl.verbs.check.sample.MANY", 1000)
    monkeypatch.setattr("attnctl.verbs.check.sample.FEW", 100)
    kind = kind.but(n=48, dtype=own.F32)
    report = attnctl.check(foreign(own.recorded(own.attend(kind, mistake), what)), meant(kind))
    assert [finding.mistake for finding in report.findings] == [mistake.split("/")[0]]
