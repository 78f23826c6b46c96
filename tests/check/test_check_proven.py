"""A leniency is proven or not given: fewer digits explain a dump of such factors, and none a little off."""

from itertools import product

import numpy as np
import programs
import pytest
from check_foreign import foreign

from attnctl.evidence.allowed import Strictness
from attnctl.evidence.recompute import TF32
from attnctl.inputs.config.settings import Settings
from attnctl.math.rules import Causal
from attnctl.verbs.check.read import notes_of, walk_over
from attnctl.verbs.check.readings import Reading

MEANT = Settings(heads=programs.HEADS, rules=(Causal(),))


def even(x):
    bits = x.view(np.uint32)
    return ((bits + 0xFFF + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)).view(np.float32)


SHORT = {"TF32": programs.tf32_rounded, "TF32, cut": programs.cut, "TF32, ties to even": even}
RUNS = {
    dtype: lambda x, dtype=dtype: programs.kept(dtype)(x).astype("float32")
    for dtype in ("bfloat16", "float16")
}
LENIENCIES = {**SHORT, **RUNS}
"""Of the factors of products, which are summed and written down in float32."""

WHAT = ("everything", "ends", "Q K V")


def made(leniency, what):
    """A genuine dump: every product in these digits, all else in float32."""
    short = LENIENCIES[leniency]
    given = programs.inputs(leniency if leniency in RUNS else "float32", 64)
    given = {name: np.float32(x) for name, x in given.items()}
    steps = programs.program(given, "float32", lambda a, b: short(a) @ short(b), each=False)
    return programs.recorded(steps, what)


def shrunk(arrays):
    return {**arrays, "output": arrays["output"] * np.float32(1 - 5e-4)}


def raised(arrays):
    return {**arrays, "output": arrays["output"] + np.float32(5e-4) * arrays["output"].std()}


def with_epsilon(arrays):
    weights = arrays["attention_weights"]
    return {**arrays, "attention_weights": weights / (1 + np.float32(1e-3))}


def test_every_way_to_round_is_tried():
    assert len(SHORT) == len(TF32)


CASES = [each for each in product(LENIENCIES, WHAT) if each[0] in SHORT or each[1] == "everything"]
"""Of a run in few digits more may be rounded than factors, where it is not recorded."""


def walked(arrays):
    """The steps that are wrong, and what is said of their digits; nothing is searched."""
    reading = Reading(foreign(arrays), MEANT)
    with np.errstate(all="ignore"):
        walk = walk_over(reading, Strictness())
    return walk.wrong, " ".join(notes_of(reading.trace, (reading, walk)))


@pytest.mark.sample(3)
@pytest.mark.parametrize(("leniency", "what"), CASES)
def test_a_genuine_dump_agrees(leniency, what):
    wrong, notes = walked(made(leniency, what))
    assert not wrong
    assert f"in {leniency.split(',')[0]}:" in notes


@pytest.mark.sample(8)
@pytest.mark.parametrize("change", [shrunk, raised, with_epsilon])
@pytest.mark.parametrize(("leniency", "what"), CASES)
def test_the_same_dump_a_little_off_does_not(leniency, what, change):
    step = "attention_weights" if change is with_epsilon else "output"
    arrays = made(leniency, what)
    if step in arrays:
        wrong, _ = walked(change(arrays))
        assert step in wrong


@pytest.mark.sample(3)
@pytest.mark.parametrize("change", [shrunk, raised, with_epsilon])
@pytest.mark.parametrize("what", ["everything", "ends"])
def test_no_leniency_is_given_to_a_float32_dump_that_is_off(change, what):
    steps = programs.recorded(programs.program(programs.inputs("float32", 64), "float32"), what)
    wrong, notes = walked(change(steps))
    assert wrong
    assert "Its products" not in notes


OFF = {
    "shrink": lambda x, part: x * (1 - part),
    "gain": lambda x, part: x * (1 + part),
    "offset": lambda x, part: x + part * x.std(),
    "drift": lambda x, part: x * (1 + 2 * part * np.linspace(-1, 1, x.shape[-2])[:, None]),
}
SEEN = {"float64": 1e-5, "float32": 1e-5, "TF32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}
"""The part of their size that numbers of a product may be off together at least that every type shows."""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", SEEN)
@pytest.mark.parametrize("step", ["Q", "scores", "output"])
@pytest.mark.parametrize("way", OFF)
@pytest.mark.parametrize("times", [1, 10])
def test_what_recorded_factors_refute_is_not_acquitted(way, step, dtype, times):
    kind = "float32" if dtype == "TF32" else dtype
    product = programs.tf32 if dtype == "TF32" else programs.blas
    steps = programs.program(programs.inputs(kind, 64), kind, product, each=False)
    moved = OFF[way](steps[step].astype(np.float64), times * SEEN[dtype])
    wrong, _ = walked({**steps, step: programs.kept(kind)(moved)})
    assert step in wrong
