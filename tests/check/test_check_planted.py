"""Every mistake planted in tensors of the tests' own is named; correct runs are not accused."""

import json

import numpy as np
import planted as own
import pytest
from check_foreign import foreign, meant, quietly
from trial.mistakes import CLASSES

import attnctl
from attnctl.mistakes import CATALOGUE

pytestmark = pytest.mark.sample(16)


def cases():
    """Each mistake in each kind of attention; one in three is fast, with its choice of records in turn."""
    for place, (mistake, kinds) in enumerate(own.PLANTED.items()):
        for number, kind in enumerate(kinds):
            for turn, what in enumerate(own.RECORDED):
                if (mistake, what) not in own.UNTOLD:
                    marks = () if (place + number + turn) % 3 == 0 else (pytest.mark.slow,)
                    yield pytest.param(mistake, kind, what, marks=marks, id=f"{mistake}-{number}-{what}")


@pytest.mark.sample(24)
@pytest.mark.parametrize(("mistake", "kind", "what"), list(cases()))
def test_a_planted_mistake_is_named(mistake, kind, what, planted_table):
    arrays = own.recorded(quietly(own.attend, kind, mistake), what)
    report = attnctl.check(foreign(arrays), meant(kind))
    planted_table.setdefault(mistake, []).append(report.mistake)
    expected = own.ALIKE.get((mistake, what), mistake.split("/")[0])
    assert report.mistake == expected
    assert len(report.findings) == 1
    if (mistake, what) in own.ALIKE:
        assert mistake.split("/")[0] in report.findings[0].also


def test_what_is_planted_is_in_the_catalogue():
    """The others are planted by their own lines, as these are, too: test_catalogue_planted.py."""
    named = {mistake.name for mistake in CATALOGUE}
    here = {mistake.split("/")[0] for mistake in own.PLANTED}
    trial = {name for mistakes in CLASSES.values() for each in mistakes.values() for name in each.names}
    planted = (here | trial) - {"norm-unasked"}  # what nobody asked for is no mistake
    assert planted <= named
    assert all(len(kinds) >= 3 for kinds in own.PLANTED.values())


@pytest.mark.parametrize("what", own.RECORDED)
@pytest.mark.parametrize("dtype", [own.F64, own.F32, own.F16, "bfloat16"])
@pytest.mark.parametrize("kind", own.CLEAN.values(), ids=own.CLEAN)
def test_a_correct_run_is_not_accused(kind, dtype, what, planted_table):
    near = own.bfloat16 if dtype == "bfloat16" else None
    kind = kind.but(dtype=own.F32 if near else dtype)
    arrays = own.recorded(quietly(own.attend, kind, near=near), what)
    report = attnctl.check(foreign(arrays), meant(kind))
    planted_table.setdefault(f"nothing ({dtype})", []).append(report.mistake or "agrees" * report.agrees)
    assert report.agrees, report.findings


@pytest.mark.parametrize("what", own.RECORDED)
@pytest.mark.parametrize("save", ["as float16", "as float32", "as JSON"])
@pytest.mark.parametrize("kind", own.CLEAN.values(), ids=own.CLEAN)
def test_a_correct_run_that_was_rounded_when_it_was_saved_is_not_accused(kind, save, what):
    kind = kind.but(dtype=own.F32 if save == "as JSON" else own.F64)
    arrays = own.recorded(quietly(own.attend, kind), what)
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            arrays[name] = (
                np.array(array.tolist()) if save == "as JSON" else array.astype(save.removeprefix("as "))
            )
    assert attnctl.check(foreign(arrays), meant(kind)).agrees


@pytest.mark.parametrize(
    ("first", "second", "step"),
    [
        ("no-scale", "mask-ignored", "masked_scores"),
        ("no-scale", "softmax-over-queries", "attention_weights"),
        ("causal-strict", "heads-merged-wrong", "concat"),
        ("weight-transposed/Q", "output-projection-missing", "output"),
    ],
)
def test_of_several_mistakes_the_first_is_named_and_then_the_next(first, second, step):
    """Two runs put together: the inputs and all steps before `step` of one, the rest made by the other."""
    kind = own.SQUARE.but(causal=True)
    arrays = own.attend(kind, first)
    later = made_from(arrays, step, kind, second)
    report = attnctl.check(foreign(later), meant(kind))
    assert [finding.mistake for finding in report.findings] == [first.split("/")[0], second]
    assert report.to_dict()["then"][0]["mistake"] == second


def made_from(arrays, step, kind, mistake):
    """Carry on from the recorded steps, making the mistake."""
    out = dict(arrays)
    seen = np.tril(np.ones((kind.n, kind.n), dtype=bool))
    match mistake:
        case "mask-ignored":
            out["masked_scores"] = out["scaled_scores"]
            out["attention_weights"] = own.softmax(out["masked_scores"])
        case "softmax-over-queries":
            out["attention_weights"] = own.softmax(np.where(seen, out["scaled_scores"], -np.inf), -2)
        case "heads-merged-wrong":
            out["concat"] = own.merge(out["head_outputs"], mistake)
        case "output-projection-missing":
            out["output"] = out["concat"]
            return out
    if step != "concat":
        out["head_outputs"] = out["attention_weights"] @ out["V"]
        out["concat"] = own.merge(out["head_outputs"], None)
    out["output"] = out["concat"] @ out["W_O"]
    return out


def test_two_mistakes_between_recorded_steps_are_both_named():
    kind = own.CAUSAL
    arrays = own.attend(kind)
    weights = own.softmax(arrays["scores"], -2)  # neither scaled nor masked
    given = {name: arrays[name] for name in ("Q", "K", "V")}
    report = attnctl.check(foreign({**given, "attention_weights": weights}), meant(own.PLAIN.but(heads=2)))
    assert [finding.mistake for finding in report.findings] == ["no-scale", "softmax-over-queries"]


@pytest.mark.slow
@pytest.mark.thinned(2, "dtype")
@pytest.mark.parametrize("kind", own.CLEAN.values(), ids=own.CLEAN)
@pytest.mark.parametrize("dtype", [own.F64, own.F32])
def test_noise_in_one_cell_names_the_step_and_the_cell(kind, dtype):
    rng = np.random.default_rng(5)
    arrays = quietly(own.attend, kind.but(dtype=dtype))
    clean = attnctl.check(foreign(arrays), meant(kind))
    steps = [name for name, step in clean.steps.items() if step.verdict.value == "agrees"]
    assert len(steps) > 6
    for name in steps:
        finite = np.argwhere(np.isfinite(arrays[name]))
        cell = tuple(finite[rng.integers(len(finite))])
        noisy = arrays[name].copy()
        noisy[cell] += np.dtype(dtype).type(1e-3)
        report = attnctl.check(foreign({**arrays, name: noisy}), meant(kind))
        found = report.findings[0]
        assert (found.step, found.mistake, found.gap.differing) == (name, None, 1)
        assert found.gap.at == cell[-len(found.gap.at) :]
        assert abs(found.gap.largest - 1e-3) < 1e-4
        assert len(report.findings) == 1  # what follows was computed from the right number


def test_a_mistake_too_small_to_see_is_rounding_and_a_larger_one_is_not():
    arrays = own.attend(own.CAUSAL.but(dtype=own.F32))
    for factor, agrees in ((1 + 1e-7, True), (1 + 1e-3, False)):
        changed = dict(arrays, head_outputs=(arrays["head_outputs"] * factor).astype(np.float32))
        for name in ("concat", "output"):
            del changed[name]
        assert attnctl.check(foreign(changed), meant(own.CAUSAL)).agrees is agrees


def test_the_report_is_strict_json_whatever_the_numbers():
    kind = own.PLANTED["no-max-subtraction"][0]
    arrays = quietly(own.attend, kind, "no-max-subtraction")
    report = attnctl.check(foreign(arrays), meant(kind)).to_dict()
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["mistake"] == "no-max-subtraction"
