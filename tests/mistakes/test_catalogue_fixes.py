"""What is to be written instead is said in the numbers of the plan, not in those that are usual."""

import re

import numpy as np
import pytest

import attnctl
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.plan import DumpPlan
from attnctl.inputs.plan.intended import plan_arrays
from attnctl.math.derivation import Rotary
from attnctl.math.kind import HeadNorm
from attnctl.math.rules import Alibi, Causal, Softcap, Window
from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.fixes import FACTS, write_fix

USUAL = ("10000", "sqrt(d_k)", "1e-06", "1e-05", "k=offset", "i − left", "cap *", "θ", "2^(−8")
"""Numbers that hold for most models, and letters that stand for a number."""


def plan(heads=2, kv_heads=None, lengths=None, memory=9, **asked):
    """A plan of two heads on six tokens, or so, that asks for this."""
    arrays = {"X": np.ones((6, 8)), "memory": np.ones((memory, 8))}
    if lengths:
        arrays = {"X": np.ones((3, 6, 8)), "key_lengths": np.array(lengths)}
    shared = (8, 8 * (kv_heads or heads) // heads)
    arrays |= {"W_Q": np.ones((8, 8)), "W_K": np.ones(shared), "W_V": np.ones(shared)}
    made = plan_arrays(arrays, Settings(heads=heads, kv_heads=kv_heads, **asked), {})
    sizes = {"head": heads, "d_k": 8 // heads, "query": 6, "key": memory}
    return DumpPlan(made.derivation, sizes)


PLANS = {
    "all of its own": plan(
        scale=0.3,
        positions=Rotary(theta=500.0),
        qk_norm=HeadNorm("rms", 1e-3),
        rules=(Softcap(7.0), Causal(), Window(3, 3)),
        causal_offset=3,
        temperature=(0.5, 16),
    ),
    "others of its own": plan(
        heads=4,
        kv_heads=2,
        scale=8**-0.5,
        positions=Rotary(theta=85_499.0, dims=2, interleaved=True),
        qk_norm=HeadNorm("layer", 0.25, plus_one=True),
        rules=(Softcap(30.0), Window(1, 4)),
        causal_offset=-2,
        temperature=(0.1, 4, 3),
    ),
    "a batch of its own": plan(
        scale=2.0,
        lengths=(6, 4, 3),
        positions=Rotary(theta=3.0),
        rules=(Alibi(), Causal()),
        causal_offset=1,
        qk_norm=HeadNorm("rms", 0.5),
    ),
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("mistake", CATALOGUE, ids=lambda mistake: mistake.name)
def test_no_fix_has_the_usual_number_where_the_plan_has_its_own(mistake, name):
    """A placeholder that the plan can fill is filled, with no number or letter of a usual plan in it."""
    for fact in re.findall(r"\{([a-z_]+)\}", mistake.fix):
        said = FACTS[fact].of_plan(PLANS[name])
        assert not [usual for usual in USUAL if usual in said], said
    told = write_fix(mistake.fix, "…", PLANS[name])
    assert "{" not in told.replace("{}", "")
    if "{scale}" in mistake.fix:
        assert "sqrt(d_k)" not in told


NUMBERS = {
    "scale": ("multiply Q Kᵀ by 0.3", "multiply Q Kᵀ by 1 / np.sqrt(8)", "multiply Q Kᵀ by 2"),
    "cap": ("7 * np.tanh(scores / 7)", "30 * np.tanh(scores / 30)", None),
    "angles": ("pos · 500^(−2i/d)", "pos · 85499^(−2i/d)", "pos · 3^(−2i/d)"),
    "norm": (
        "RMSNorm with an epsilon of 0.001",
        "LayerNorm with an epsilon of 0.25, times 1 + weight",
        "an epsilon of 0.5",
    ),
    "epsilon": ("add 0.001 below", "add 0.25 below", "add 0.5 below"),
    "offset": (
        "j <= i + 3: np.tril(…, k=3)",
        "j <= i − 2: np.tril(…, k=-2)",
        "j <= i + 1: np.tril(…, k=1)",
    ),
    "window": ("keys i − 3 to i, both", "keys i − 1 to i + 4, both", None),
    "temperature": ("1 + 0.5 · ln(1 + ⌊position / 16⌋)", "1 + 0.1 · ln(1 + ⌊", None),
    "lengths": (None, None, "from 6, 4, 3 on"),
    "slopes": (None, None, "the slopes of 2 heads are 0.0625, 0.003906"),
    "sharing": (None, "kv head h // 2", None),
    "pairs": ("i and i + d/2 together", "columns 2i and 2i + 1", "i and i + d/2"),
    "dims": ("all columns", "the first 2 columns", "all columns"),
    "starts": (
        "of Q from 3 and of K from 0",
        "of Q from -2 and of K from 0",
        "of Q from 1 and of K from 0",
    ),
    "weight": ("the weight as it is", "1 + weight", "the weight as it is"),
}
"""What each fact says of the three plans, typed in from what they ask for."""


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_has_the_numbers_of_the_plan(fact):
    for at, wanted in enumerate(NUMBERS[fact]):
        said = FACTS[fact].of_plan([*PLANS.values()][at])
        assert (wanted in said) if wanted else (said == ""), said


def test_what_holds_for_all_is_said_without_a_plan():
    assert write_fix("{scale}; or {}", "so") == f"{FACTS['scale'].otherwise}; or so"


def test_the_scale_that_is_told_is_the_one_of_the_run():
    arrays = {name: np.random.default_rng(at).standard_normal((2, 5, 8)) for at, name in enumerate("QKV")}
    scores = arrays["Q"] @ arrays["K"].swapaxes(-1, -2)
    report = attnctl.check({**arrays, "scaled_scores": scores / np.sqrt(8)}, scale=0.42)
    (finding,) = report.findings
    assert (finding.mistake, "√8" in finding.words, "0.42" in finding.fix) == ("scale-usual", True, True)
