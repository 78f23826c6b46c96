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
    "four heads that read one": plan(
        heads=4,
        kv_heads=1,
        lengths=(2, 6, 5),
        rules=(Alibi(), Softcap(11.0), Causal(), Window(2, 2)),
        temperature=(0.2, 8),
    ),
    "two heads that read one": plan(
        kv_heads=1, lengths=(1, 1, 3), rules=(Alibi(), Softcap(0.5), Window(0, 2))
    ),
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("mistake", CATALOGUE, ids=lambda mistake: mistake.name)
def test_no_fix_has_the_usual_number_where_the_plan_has_its_own(mistake, name):
    """A placeholder that the plan can fill is filled, with no number or letter of a usual plan in it."""
    for fact in re.findall(r"\{([a-z_]+)\}", mistake.fix):
        said = FACTS[fact].of_plan(PLANS[name])
        # Where the root of d_k is meant its number is said, too.
        alone = re.sub(r"sqrt\(d_k\), here √\d+", "", said)
        assert not [usual for usual in USUAL if usual in alone], said
    told = write_fix(mistake.fix, "…", PLANS[name])
    assert "{" not in told.replace("{}", "")
    if "{scale}" in mistake.fix and "here √" not in told:  # where 1 / √d_k is meant, its number is said
        assert "sqrt(d_k)" not in told


NUMBERS = {
    "scale": (
        "multiply Q Kᵀ by 0.3",
        "multiply Q Kᵀ by 1 / np.sqrt(8)",
        "multiply Q Kᵀ by 2",
        "np.sqrt(d_k), here √2",
        "np.sqrt(d_k), here √4",
    ),
    "cap": (
        "7 * np.tanh(scores / 7)",
        "30 * np.tanh(scores / 30)",
        None,
        "11 * np.tanh(scores / 11)",
        "0.5 * np.tanh(scores / 0.5)",
    ),
    "cap_slope": (
        "1 − (softcapped_scores / 7)²",
        "1 − (softcapped_scores / 30)²",
        None,
        "scores / 11)²",
        "scores / 0.5)²",
    ),
    "angles": ("pos · 500^(−2i/d)", "pos · 85499^(−2i/d)", "pos · 3^(−2i/d)", None, None),
    "norm": (
        "RMSNorm with an epsilon of 0.001",
        "LayerNorm with an epsilon of 0.25, times 1 + weight",
        "an epsilon of 0.5",
        None,
        None,
    ),
    "epsilon": ("add 0.001 below", "add 0.25 below", "add 0.5 below", None, None),
    "offset": (
        "j <= i + 3: np.tril(…, k=3)",
        "j <= i − 2: np.tril(…, k=-2)",
        "j <= i + 1: np.tril(…, k=1)",
        "j <= i: np.tril(…, k=0)",
        "j <= i: np.tril(…, k=0)",
    ),
    "window": (
        "keys i − 3 to i, both",
        "keys i − 1 to i + 4, both",
        None,
        "keys i − 2 to i, both",
        "keys i to i + 2, both",
    ),
    "temperature": (
        "1 + 0.5 · ln(1 + ⌊position / 16⌋)",
        "1 + 0.1 · ln(1 + ⌊",
        None,
        "1 + 0.2 · ln(1 + ⌊position / 8⌋)",
        None,
    ),
    "lengths": (None, None, "from 6, 4, 3 on", "from 2, 6, 5 on", "from 1, 1, 3 on"),
    "slopes": (
        None,
        None,
        "the slopes of 2 heads are 0.0625, 0.003906",
        "of 4 heads are 0.25, 0.0625, 0.01562, 0.003906",
        "of 2 heads are 0.0625, 0.003906",
    ),
    "sharing": (None, "kv head h // 2", None, "kv head h // 4", "kv head h // 2"),
    "pairs": ("i and i + d/2 together", "columns 2i and 2i + 1", "i and i + d/2", None, None),
    "dims": ("all columns", "the first 2 columns", "all columns", None, None),
    "starts": (
        "of Q from 3 and of K from 0",
        "of Q from -2 and of K from 0",
        "of Q from 1 and of K from 0",
        None,
        None,
    ),
    "weight": ("the weight as it is", "1 + weight", "the weight as it is", None, None),
}
"""What each fact says of these plans, typed in from what they ask for; three or more have what it is of."""


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_has_the_numbers_of_the_plan(fact):
    assert len([wanted for wanted in NUMBERS[fact] if wanted]) >= 3
    for at, wanted in enumerate(NUMBERS[fact]):
        said = FACTS[fact].of_plan([*PLANS.values()][at])
        assert (wanted in said) if wanted else (said == ""), said


NO_NUMBERS = re.compile(r"\{[a-z_]*\}|\.(swapaxes|reshape)\(.*?\)|axis=-\d|[a-zA-Z]\w*\d")
"""What of a fix is no number: what the plan says, the order of axes, and digits of names."""

NUMBERS_OF_ALL = {
    "documents-counts": "sums of lengths begin at 0",
    "documents-positions": "positions of a document begin at 0",
    "page-read-in-full": "what is hidden is made 0",
    "page-table-shifted": "key 0 is in page table[0]",
    "page-index-16-bits": "types of 32 and 64 bits",
    "nan-where-nothing-is-seen": "what is hidden is made 0",
    "softmax-plus-one": "shares sum to 1",
    "dropout-left-on": "a dropout of 0 is none",
    "causal-aligned-wrong": "an offset of 0 is top left by definition",
    "rule-off-by-one": "rules count from 0",
    "qkv-packing": "Q, K and V are three",
    "norm-over-wrong": "names of models",
    "chunks-merged-in-other-base": "bases of logarithms",
    "logsumexp-base-2": "bases of logarithms",
    "backward-logsumexp-base-2": "bases of logarithms",
    "temperature-wrong": "what two families of models do is said beside the plan's own",
    "chunks-nan-where-nothing-is-seen": "0 is taken off",
    "dropout-not-scaled": "what is kept is over 1 − p",
    "backward-last-block-dropped": "of rounding a number of blocks up",
    "softmax-epsilon": "the largest term is exp(0)",
    "sinusoids-wrong": "the base of the paper, which no setting changes",
    "sinusoid-waves-wrong": "the base of the paper, which no setting changes",
}
"""Fixes with a number that holds in every plan, and why."""


def test_a_fix_has_no_number_of_its_own_that_a_plan_may_have_otherwise():
    numbered = {each.name for each in CATALOGUE if re.search(r"[0-9θ]", NO_NUMBERS.sub("", each.fix))}
    assert numbered == {*NUMBERS_OF_ALL}


def test_what_holds_for_all_is_said_without_a_plan():
    assert write_fix("{scale}; or {}", "so") == f"{FACTS['scale'].otherwise}; or so"


def test_the_scale_that_is_told_is_the_one_of_the_run():
    arrays = {name: np.random.default_rng(at).standard_normal((2, 5, 8)) for at, name in enumerate("QKV")}
    scores = arrays["Q"] @ arrays["K"].swapaxes(-1, -2)
    report = attnctl.check({**arrays, "scaled_scores": scores / np.sqrt(8)}, scale=0.42)
    (finding,) = report.findings
    assert (finding.mistake, "√8" in finding.words, "0.42" in finding.fix) == ("scale-usual", True, True)


# --- in reports ---


def given(keys=6):
    shapes = {"Q": (2, 6, 8), "K": (2, keys, 8), "V": (2, keys, 8)}
    return {
        name: np.random.default_rng(at).standard_normal(shape)
        for at, (name, shape) in enumerate(shapes.items())
    }


def softmax(scores):
    grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return grown / grown.sum(axis=-1, keepdims=True)


def weights(q, k, seen=True):
    return softmax(np.where(seen, q @ k.swapaxes(-1, -2) * 8**-0.5, -np.inf))


def turned(x, theta=10_000.0):
    n, d = x.shape[-2:]
    angle = np.arange(n)[:, None] * theta ** (-2 * np.arange(d // 2) / d)
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate(
        [a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], axis=-1
    )


def normed(x, eps=1e-6):
    return x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + eps)


def with_usual_scale():
    arrays = given()
    return {**arrays, "attention_weights": weights(arrays["Q"], arrays["K"])}


def with_usual_base():
    arrays = given()
    return {**arrays, "attention_weights": weights(turned(arrays["Q"]), turned(arrays["K"]))}


def with_usual_epsilon():
    arrays = given()
    return {**arrays, "attention_weights": weights(normed(arrays["Q"]), normed(arrays["K"]))}


def with_usual_corner():
    arrays = given(keys=9)
    return {**arrays, "attention_weights": weights(arrays["Q"], arrays["K"], np.tri(6, 9, dtype=bool))}


def without_itself():
    arrays = given(keys=9)
    return {**arrays, "attention_weights": weights(arrays["Q"], arrays["K"], np.tri(6, 9, 1, dtype=bool))}


def without_a_cap():
    arrays = given()
    return {**arrays, "attention_weights": weights(4 * arrays["Q"], arrays["K"]), "Q": 4 * arrays["Q"]}


TOLD = {
    "scale": (
        with_usual_scale,
        "scale-usual",
        lambda own: {"scale": own},
        (0.42, 0.12, 2.5),
        "multiply Q Kᵀ by {}",
    ),
    "base": (
        with_usual_base,
        "rotary-theta",
        lambda own: {"positions": Rotary(theta=own)},
        (500.0, 85499.0, 3.0),
        "pos · {}^(−2i/d)",
    ),
    "epsilon": (
        with_usual_epsilon,
        "norm-epsilon",
        lambda own: {"qk_norm": HeadNorm("rms", own)},
        (0.01, 0.25, 3.0),
        "add {} below the root",
    ),
    "offset": (
        with_usual_corner,
        "causal-aligned-wrong",
        lambda own: {"causal": True, "causal_offset": own},
        (3, 2, 4),
        "np.tril(…, k={})",
    ),
    "offset of a mask without itself": (
        without_itself,
        "causal-strict",
        lambda own: {"causal": True, "causal_offset": own},
        (2,),
        "np.tril(…, k={})",
    ),
    "cap": (
        without_a_cap,
        "softcap-missing",
        lambda own: {"softcap": own},
        (1.5, 4.0, 7.0),
        "{0} * np.tanh(scores / {0})",
    ),
}
"""Programs with the usual number, or without any; the settings of a plan with its own; what to write."""


@pytest.mark.parametrize(
    ("make", "mistake", "ask", "own", "words"),
    [
        (make, mistake, ask, own, words)
        for make, mistake, ask, several, words in TOLD.values()
        for own in several
    ],
    ids=[f"{name} {own}" for name, (*_, several, _) in TOLD.items() for own in several],
)
def test_a_report_says_the_number_of_its_plan(make, mistake, ask, own, words):
    report = attnctl.check(make(), **ask(own))
    (finding,) = report.findings
    assert finding.mistake == mistake, str(report)
    assert words.format(f"{own:g}") in finding.fix
