"""longrope has two lists of factors, llama3 a band of waves between two: the other way is named."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan import DumpPlan
from attnctl.inputs.plan.intended import plan_arrays, plan_as_stated
from attnctl.math.derivation import Rotary
from attnctl.models.rope import Rope
from attnctl.verbs.check.check import check

LISTS = {
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [2.0, 3.0, 4.0, 5.0],
    "original_max_position_embeddings": 32,
}
LONGROPE = Rope("longrope", 10_000.0, 8, longest=64, parameters=LISTS)


@pytest.mark.parametrize(("length", "other"), [(10, 40), (40, 10)])
def test_the_frequencies_of_the_other_list_are_known(length, other):
    rotary = LONGROPE.rotary(length)
    assert rotary.other == LONGROPE.rotary(other).frequencies != rotary.frequencies


def run(rotary):
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 10, 8))
    plan = plan_arrays({"Q": q, "K": k, "V": v}, Settings(positions=Rotary()), {})
    plan = replace(plan, variant=replace(plan.variant, rotary=rotary))
    return plan, plan.run()


@pytest.mark.parametrize(("length", "taken", "meant"), [(10, "long", "short"), (40, "short", "long")])
def test_the_other_list_is_named(length, taken, meant):
    right = LONGROPE.rotary(length)
    plan, trace = run(right)
    _, wrong = run(replace(right, frequencies=right.other))
    report = check(wrong, DumpPlan(plan.derivation, plan_as_stated(trace).sizes))
    assert report.mistake == "rotary-scaling-missing"
    assert f"those of {taken}_factor, where {meant}_factor is meant" in str(report)


def llama3(low, high):
    factors = {"factor": 8.0, "low_freq_factor": low, "high_freq_factor": high}
    parameters = {**factors, "original_max_position_embeddings": 32}
    return np.array(Rope("llama3", 10_000.0, 8, longest=256, parameters=parameters).rotary(10).frequencies)


def test_llama3_with_no_band_between_has_nothing_to_blend():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = llama3(1.0, 1.0)
    plain = 10_000.0 ** (-np.arange(4) / 4)
    stretched = np.where(2 * np.pi / plain > 32, plain / 8, plain)
    np.testing.assert_allclose(found, stretched, rtol=1e-6)
    np.testing.assert_allclose(llama3(1.0, 1.0 + 1e-6), stretched, rtol=1e-6)
