"""Half precision, many steps between what is recorded: no right program is accused, no wrong one agrees."""

from itertools import product

import halves
import numpy as np
import pytest

from attnctl.evidence.allowed import Strictness
from attnctl.evidence.walk import Verdict
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan.intended import trace_of_arrays
from attnctl.math.derivation import Rotary
from attnctl.math.rules import Causal
from attnctl.verbs.check.read import best_reading, walk_over
from attnctl.verbs.check.readings import Reading

MEANT = Settings(heads=halves.HEADS, kv_heads=halves.KV_HEADS, rules=(Causal(),), positions=Rotary())

SIZES = [
    (16, halves.SHARP, 0),
    *(pytest.param(64, size, 0, marks=pytest.mark.slow) for size in (halves.SHARP, halves.FLAT)),
    *(pytest.param(256, size, 1, marks=pytest.mark.slow) for size in (halves.SHARP, halves.FLAT)),
]
"""Tokens, how large the scores are, seed."""


def verdict(arrays):
    """What `check` finds, without the search for what explains it, which takes most of its time."""
    with np.errstate(all="ignore"):
        first = Reading(trace_of_arrays(arrays), MEANT)
        reading, walk = best_reading((first, walk_over(first, Strictness())))
    if walk.wrong or reading.unasked:
        return False
    verdicts = {step.verdict for step in walk.steps.values()}
    assert verdicts & {Verdict.AGREES, Verdict.CANNOT_TELL}
    return None if Verdict.CANNOT_TELL in verdicts else True


def accused(dtype, style, *size):
    """What of a right program is recorded where it is accused."""
    steps = halves.attend(halves.inputs(dtype, *size), dtype, style)
    return [what for what in halves.RECORDED if verdict(halves.recorded(steps, what)) is False]


@pytest.mark.parametrize("style", halves.STYLES)
@pytest.mark.parametrize("dtype", halves.DTYPES)
@pytest.mark.parametrize(("n", "size", "seed"), SIZES)
def test_a_right_program_is_not_accused(dtype, style, n, size, seed):
    assert accused(dtype, style, n, size, seed) == []


@pytest.mark.slow
def test_a_thousand_tokens_are_not_accused():
    steps = halves.attend(halves.inputs("bfloat16", 1024), "bfloat16", "eager")
    assert verdict(halves.recorded(steps, "weights and output")) is not False


def test_a_weight_that_outdoes_its_row_is_held_to_its_own_runs():
    """Two weights of 131,072 are off farther than their rows and columns say, by rounding alone."""
    steps = halves.attend(halves.inputs("bfloat16", 128, seed=2), "bfloat16", "eager")
    assert verdict(halves.recorded(steps, "weights and output")) is not False


@pytest.mark.sample(3)
@pytest.mark.parametrize("mistake", halves.WRONG)
@pytest.mark.parametrize("dtype", halves.DTYPES)
@pytest.mark.parametrize(("n", "size", "seed"), SIZES)
def test_a_wrong_program_does_not_agree(dtype, mistake, n, size, seed):
    """One style and one choice of records in turn; at 64 tokens a third of the pairs."""
    given, at = halves.inputs(dtype, n, size, seed), halves.WRONG.index(mistake)
    pairs = list(product(halves.STYLES, halves.RECORDED))
    for style, what in pairs[at % 3 :: 3] if n == 64 else [pairs[at % len(pairs)]]:
        steps = halves.attend(given, dtype, style, mistake)
        assert verdict(halves.recorded(steps, what)) is not True, (style, what)
