"""A part of a record is a record of its own: what is found there reads in the whole as it was planted."""

from dataclasses import replace

import numpy as np
import planted as own
import pytest
from check_foreign import foreign, meant

import attnctl
from attnctl.evidence.precision import FLOAT64
from attnctl.evidence.record import Record, with_precisions
from attnctl.evidence.walk import Verdict, Walk
from attnctl.inputs.plan.intended import plan_dump
from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.mistake import WrongStep
from attnctl.verbs.check.parts import SomeRows, samples, some_rows

N, ROWS = 12, 5
STARTS = (0, 4)
OTHER_SIZES = {"padded": {"lengths": (12, 7, 3)}, "cross": {"keys": 15}, "bottom right": {"keys": 15}}
KINDS = {name: kind.but(n=N, **OTHER_SIZES.get(name, {})) for name, kind in own.CLEAN.items()}
RECORDED = {
    "everything": (),
    "ends": (*own.INPUTS, *own.BESIDE, "output"),
    "weights": (*own.INPUTS, *own.BESIDE, "attention_weights"),
}


def recorded(kind, what):
    arrays = own.attend(kind)
    kept = {name: x for name, x in arrays.items() if not RECORDED[what] or name in RECORDED[what]}
    return with_precisions(Record(*plan_dump(foreign(kept), meant(kind))), FLOAT64)


def walked(record):
    with np.errstate(all="ignore"):
        return Walk.over(record, record.intended)


@pytest.mark.sample(8)
@pytest.mark.parametrize("what", RECORDED)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("start", STARTS)
def test_some_rows_of_a_right_record_agree(kind, what, start):
    record = recorded(kind, what)
    part = some_rows(Walk(record, record.intended), slice(start, start + ROWS))
    verdicts = {name: step.verdict for name, step in walked(part.record).steps.items()}
    judged = {name for name, step in walked(record).steps.items() if step.verdict is Verdict.AGREES}
    assert judged == {name for name, verdict in verdicts.items() if verdict is Verdict.AGREES}
    last = "attention_weights" if what == "weights" else "output"
    assert part.record.trace[last].shape[-2] == ROWS
    np.testing.assert_array_equal(part.record.trace[last], record.trace[last][..., start : start + ROWS, :])
    assert [step.name for step in part.derivation if isinstance(step.op, SomeRows)]


@pytest.mark.parametrize("what", RECORDED)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("start", STARTS)
def test_a_part_widens_to_the_very_steps_of_the_whole(kind, what, start):
    record = recorded(kind, what)
    part = some_rows(Walk(record, record.intended), slice(start, start + ROWS))
    wide = part.widen(part.derivation, record)
    assert [step.name for step in wide] == [step.name for step in record.intended]
    assert all(step is record.intended[step.name] for step in wide)


def wrong_step(record, first):
    walk = walked(record)
    expected = walk.expect(first)
    found = record.value(first)
    return WrongStep(walk.derivation, record, first, found, expected, np.ones(found.shape, bool), walk)


def plants(mistake, case):
    with np.errstate(all="ignore"):
        return list(mistake.at(case))


LOCAL = [mistake for mistake in CATALOGUE if not (mistake.across or mistake.fitted) and mistake.exact]
VARIED = ("grouped", "rotary", "capped", "masked", "sinusoidal", "square", "biased")


@pytest.mark.sample(8)
@pytest.mark.parametrize(("what", "first"), [("ends", "output"), ("weights", "attention_weights")])
@pytest.mark.parametrize("kind", [KINDS[name] for name in VARIED], ids=VARIED)
@pytest.mark.parametrize("start", STARTS)
def test_a_mistake_in_some_rows_is_those_rows_of_the_mistake_in_all(kind, what, first, start):
    """Every mistake that is not said to mix up queries; and it widens to what is planted in all."""
    record = recorded(kind, what)
    part = some_rows(Walk(record, record.intended), slice(start, start + ROWS))
    whole, few = wrong_step(record, first), replace(wrong_step(part.record, first), begin=start)
    compared = 0
    for mistake in LOCAL:
        for theirs, ours in zip(plants(mistake, whole), plants(mistake, few), strict=True):
            with np.errstate(all="ignore"):
                right, found = theirs.case.value(), ours.case.value()
                derivation = part.widen(ours.case.derivation, record)
                widened = replace(whole, derivation=derivation).value()
            if right is not None:
                compared += 1
                rows = right[..., start : start + ROWS, :]
                np.testing.assert_allclose(found, rows, atol=1e-5, err_msg=mistake.name)
                np.testing.assert_allclose(widened, right, atol=1e-5, err_msg=mistake.name)
    assert compared > 20


@pytest.mark.parametrize(
    ("wrong_from", "words"),
    [(0, ["the first 3 queries"]), (5, ["queries 8 to 10"]), (8, ["queries 8 to 10"])],
)
def test_a_part_shows_what_is_wrong(monkeypatch, wrong_from, words):
    for name, value in (("MANY", 10), ("FEW", 10), ("LEAST_ROWS", 3)):
        monkeypatch.setattr(f"attnctl.verbs.check.parts.{name}", value)
    record = recorded(own.PLAIN.but(n=N), "everything")
    weights = record.trace["attention_weights"].copy()
    weights[:, wrong_from:] *= 1.01
    arrays = {**record.trace, "attention_weights": weights}
    record = replace(record, trace=replace(record.trace, arrays=arrays))
    found = list(samples(walked(record), "attention_weights"))
    assert [sample.words for sample in found] == words
    assert found[0].record.trace["attention_weights"].shape[-2] == 3
    assert found[0].walk.wrong == ["attention_weights", "head_outputs"]
    assert found[0].walk.gap("attention_weights").of == weights[:, :3].size


def test_a_part_judges_once_what_is_the_same_in_all(monkeypatch):
    """What stands before scores keeps its verdict, and its runs, for all that is tried in a part."""
    for name, value in (("MANY", 10), ("FEW", 10), ("LEAST_ROWS", 3)):
        monkeypatch.setattr(f"attnctl.verbs.check.parts.{name}", value)
    record = recorded(own.PLAIN.but(n=N), "ends")
    output = record.trace["output"] * 1.5
    record = replace(record, trace=replace(record.trace, arrays={**record.trace, "output": output}))
    walk = walked(record)
    part = next(samples(walk, "output"))
    assert part.walk.values["K"].value is walk.values["K"].value
    assert part.walk.values["K"].run(1) is part.walk.values["K"].run(1)
    assert part.walk.values["scores"].value.shape[-2:] == (3, N)
    same = some_rows(walk, slice(0, 3)).walk.derivation
    assert "scores" not in same
    assert "K" in same


def test_a_part_that_shows_too_little_is_passed_over(monkeypatch):
    for name, value in (("MANY", 10), ("FEW", 10), ("LEAST_ROWS", 3)):
        monkeypatch.setattr(f"attnctl.verbs.check.parts.{name}", value)
    record = recorded(own.PLAIN.but(n=N), "everything")
    weights = record.trace["attention_weights"].copy()
    weights[:, 1, 0] *= 1.01  # one number a head in the first rows, all of them in the last
    weights[:, 6:] *= 1.01
    record = replace(
        record, trace=replace(record.trace, arrays={**record.trace, "attention_weights": weights})
    )
    walk = walked(record)
    assert next(samples(walk, "attention_weights")).words == "queries 8 to 10"
    alone = replace(walk.gap("attention_weights"), differing=10)
    few = replace(walk.steps["attention_weights"], gap=alone)
    fewer = replace(walk, steps={**walk.steps, "attention_weights": few}, parts={})
    assert next(samples(fewer, "attention_weights")).words == "the first 3 queries"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("wrong", "places"),
    [(slice(5, 7), "at query 5 and 6"), (slice(5, None), ""), (slice(2, 9, 6), ""), (7, "at query 7")],
)
def test_a_part_tells_where_it_is_wrong_and_that_it_is_a_part(monkeypatch, wrong, places):
    """Not at which queries, where others are wrong, too."""
    for name, value in (("MANY", 10), ("FEW", 10), ("LEAST_ROWS", 3)):
        monkeypatch.setattr(f"attnctl.verbs.check.parts.{name}", value)
    arrays = own.attend(own.PLAIN.but(n=N))
    arrays["attention_weights"][:, wrong] += np.random.RandomState(0).rand(N)
    given = {name: x for name, x in arrays.items() if name in (*own.INPUTS, "attention_weights")}
    report = attnctl.check(foreign(given), meant(own.PLAIN.but(n=N)))
    hint = report.findings[0].hint
    assert places in hint, hint
    assert ("query" in hint.split("This is said")[0]) is bool(places), hint
    assert "This is said of queries" in hint or "This is said of the first" in hint
