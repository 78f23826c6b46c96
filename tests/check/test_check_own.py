"""Dumps of attnctl itself: an audit that agrees, knows of edits, and can be overruled."""

from pathlib import Path

import numpy as np
import pytest

import attnctl
from attnctl.math.derivation import Rotary
from attnctl.store.source import read_one

SAMPLES = sorted(Path(__file__).parents[2].glob("samples/variants/*.json"))

VARIANTS = {
    "plain": {},
    "heads": {"heads": 2},
    "grouped": {"heads": 4, "kv_heads": 2, "d_model": 8},
    "multi-query": {"heads": 4, "kv_heads": 1, "d_model": 8},
    "causal": {"heads": 2, "causal": True},
    "window": {"window": (1, 1), "causal": True},
    "blind rows": {"causal": True, "causal_offset": -2},
    "softcap": {"heads": 2, "softcap": 0.5, "causal": True},
    "alibi": {"heads": 2, "positions": "alibi", "causal": True},
    "sinusoidal": {"positions": "sinusoidal"},
    "rotary": {"heads": 2, "d_model": 8, "positions": Rotary()},
    "partial rotary": {"d_model": 8, "positions": Rotary(500.0, 4, interleaved=True)},
    "own scale": {"scale": 0.3},
    "cross": {"context": "they see other words here", "heads": 2},
    "mask": {"mask": [[1, 0, 0, 0, 1], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 1]]},
}

SENTENCE = "the cat saw the dog"


@pytest.mark.sample(6)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_every_kind_of_run_agrees(options, dtype):
    report = attnctl.check(attnctl.run(SENTENCE, dtype=dtype, **options))
    assert report.agrees, report.findings
    assert all(step.verdict.value in {"agrees", "given"} for step in report.steps.values())


@pytest.mark.sample(6)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_a_run_of_which_little_was_kept_is_checked_by_its_config(options, dtype):
    trace = attnctl.run(SENTENCE, dtype=dtype, **options)
    inputs = [name for name in trace if name.startswith(("W_", "embeddings", "memory", "mask"))]
    report = attnctl.check(trace.select([*inputs, "attention_weights", "output"]))
    assert report.agrees, report.findings
    assert report.steps["output"].verdict.value == "agrees"
    assert report.steps["scores"].verdict.value == "not recorded"


KEPT = [
    ({"heads": 2, "causal": True}, "Q K V attention_weights", "attention_weights"),
    ({"logsumexp": True}, "scores logsumexp K", "logsumexp"),
    ({"softcap": 5.0, "causal": True}, "X W_V Q V attention_weights", "X"),
    (
        {"heads": 2, "context": "they see it"},
        "memory W_V W_O K attention_weights head_outputs",
        "head_outputs",
    ),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("options", "kept", "wrong"), KEPT, ids=[kept for _, kept, _ in KEPT])
def test_what_is_wrong_is_named_whatever_was_kept(options, kept, wrong):
    """A step may say that it reads what the file leaves out; mistakes are looked for all the same."""
    part = attnctl.run("I love AI", **options).select(kept.split())
    changed = {**part, wrong: part[wrong] + np.random.RandomState(0).randn(*part[wrong].shape)}
    report = attnctl.check(type(part)(part.steps, changed, part.header))
    assert not report.agrees
    assert wrong in {report.first, "X"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_shipped_dump_agrees(path):
    assert attnctl.check(read_one(path)).agrees


def test_there_are_shipped_dumps():
    assert len(SAMPLES) > 12


def test_a_batch_with_padding_agrees():
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((2, 3, 4, 5)) for name in ("Q", "K", "V")}
    arrays["key_lengths"] = np.array([4, 2])
    trace = attnctl.attend(arrays, causal=True)
    assert attnctl.check(trace).agrees
    kept = trace.select(["Q", "K", "V", "head_outputs"])
    report = attnctl.check(kept)
    assert report.agrees
    assert report.steps["head_outputs"].gap.of == trace["head_outputs"].size


def test_an_edited_step_is_what_it_is_and_the_rest_follows_from_it():
    trace = attnctl.run(SENTENCE, heads=2, edits=("attention_weights[0,cat,:]=0",))
    report = attnctl.check(trace)
    assert report.agrees
    assert report.steps["attention_weights"].verdict.value == "edited"
    assert report.steps["head_outputs"].verdict.value == "agrees"
    kept = trace.select(["Q", "K", "V", "attention_weights", "head_outputs"])
    assert attnctl.check(kept).steps["attention_weights"].verdict.value == "edited"
    del trace.header["edits"]
    assert attnctl.check(trace).first == "attention_weights"


@pytest.mark.parametrize(
    ("options", "first", "mistake"),
    [
        ({"causal": True}, "attention_weights", "mask-ignored"),
        ({"scale": 1.0}, "scaled_scores", "scale-usual"),
        ({"positions": "alibi"}, "attention_weights", "bias-missing"),
        ({"positions": Rotary()}, "scores", "rotary-missing"),
        ({"softcap": 1.0}, "attention_weights", "softcap-missing"),
    ],
)
def test_options_overrule_what_a_dump_says_of_itself(options, first, mistake):
    report = attnctl.check(attnctl.run(SENTENCE, heads=2), **options)
    assert (report.first, report.mistake) == (first, mistake)


def test_a_changed_number_is_found_by_its_tokens():
    trace = attnctl.run(SENTENCE, heads=2)
    trace["attention_weights"][1, 3, 4] += 0.25
    report = attnctl.check(trace)
    assert report.to_dict()["cell"] == "attention_weights[1,the#2,dog]"
    assert report.to_dict()["at"] == [1, 3, 4]
    assert report.gap.largest == pytest.approx(0.25)
    assert report.findings[0].hint.startswith("What follows was computed from the right numbers")


def test_a_mistake_in_numbers_that_nothing_was_computed_from_is_all_that_is_wrong():
    trace = attnctl.run(SENTENCE, heads=2)
    wrong = trace["attention_weights"] ** 1.25
    trace["attention_weights"][:] = wrong / wrong.sum(-1, keepdims=True)
    report = attnctl.check(trace)
    assert [(finding.step, finding.mistake) for finding in report.findings] == [
        ("attention_weights", "scale-other")
    ]
    assert report.findings[0].hint.startswith("What follows was computed from the right numbers")
    assert report.steps["head_outputs"].verdict == "agrees"


def test_a_mistake_in_what_a_wrong_step_is_computed_from_is_named_beside_it():
    trace = attnctl.run(SENTENCE, heads=2)
    wrong = trace["attention_weights"] ** 1.25
    trace["attention_weights"][:] = wrong / wrong.sum(-1, keepdims=True)
    trace["head_outputs"][:] = 2 * trace["head_outputs"]
    report = attnctl.check(trace)
    assert [finding.step for finding in report.findings][:2] == ["attention_weights", "head_outputs"]
    assert report.findings[0].hint == ""


def test_a_run_whose_scores_grow_too_large_for_half_precision_is_not_accused():
    trace = attnctl.run("I love AI", scale=60_000, dtype="float16")
    assert trace.header["overflow"]["step"] == "scaled_scores"
    assert not attnctl.check(trace).findings
