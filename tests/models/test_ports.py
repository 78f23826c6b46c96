"""A port with a mistake is told which step is the first wrong one, and why; without it, that it agrees."""

import numpy as np
import pytest
from checkpoints import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ports import PORTS, run

from attnctl.inputs.plan.intended import trace_of_arrays
from attnctl.models.source import open_model
from attnctl.sources.model import plan_layer
from attnctl.verbs.check.check import check


def report_of(port, arrays):
    """What check says of a port's dump."""
    trace = trace_of_arrays(arrays)
    return check(*plan_layer(open_model(str(ROOT / port.name)), port.layer, trace))


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("port", PORTS, ids=lambda port: f"{port.name}-{port.bug}")
def test_a_planted_mistake_is_named(port, kind):
    report = report_of(port, run(port, kind, wrong=True))
    first = report.findings[0]
    assert (first.step, port.expected in str(first.mistake)) == (port.step, True), (
        first.step,
        first.mistake,
        first.words,
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("port", PORTS, ids=lambda port: f"{port.name}-{port.bug}")
def test_a_right_port_agrees(port, kind):
    report = report_of(port, run(port, kind, wrong=False))
    assert not report.findings, [(each.step, each.mistake) for each in report.findings]


def test_usual_names_are_understood():
    port = PORTS[3]
    arrays = run(port, "float32", wrong=False)
    theirs = {
        "hidden_states": "hidden",
        "q_proj": "Q",
        "key_states": "K",
        "attn_weights": "attention_weights",
    }
    named = {name: arrays[ours][None] for name, ours in theirs.items()}
    report = report_of(port, {**named, "timings": np.ones(3)})
    assert not report.findings
    assert report.unknown == ("timings",)
    assert {"Q", "K", "attention_weights"} <= set(report.steps)


LAID_OUT = ("Q", "K", "V")
LAYOUTS = {
    "heads first": lambda x: x,
    "rows first": lambda x: np.moveaxis(x, -3, -2),
    "side by side": lambda x: np.moveaxis(x, -3, -2).reshape(*x.shape[:-3], x.shape[-2], -1),
}


@given(
    port=st.sampled_from(PORTS),
    kind=st.sampled_from(["float32", "bfloat16"]),
    chosen=st.sets(st.integers(0, 6), min_size=1),
    layout=st.sampled_from(list(LAYOUTS)),
    batched=st.booleans(),
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_a_right_port_agrees_whatever_it_dumps(port, kind, chosen, layout, batched):
    """Some of its steps, beside what came into the layer, laid out in one way or another."""
    arrays = run(port, kind, wrong=False)
    others = [name for name in arrays if name != "hidden"]
    kept = list(arrays)
    if "hidden" in arrays:  # without it, what a port dumps is as little as tells anything
        kept = ["hidden", *(name for at, name in enumerate(others) if at in chosen)]
    dump = {name: LAYOUTS[layout](arrays[name]) if name in LAID_OUT else arrays[name] for name in kept}
    report = report_of(port, {name: x[None] if batched else x for name, x in dump.items()})

    assert report.findings == (), str(report)
    for untold in report.cannot_tell:
        left_out = untold.record and not {*untold.record} & {*kept}
        assert left_out or f"rounding in {kind}" in untold.words, str(report)
