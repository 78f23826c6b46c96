"""Whether a trace says of every step how it came about: only then is its own derivation its plan."""

from dataclasses import replace

import attnctl
from attnctl.inputs.plan.intended import states_every_step


def test_a_run_states_every_step():
    assert states_every_step(attnctl.run("I love AI")) is True


def test_a_run_without_a_step_that_others_read_does_not():
    trace = attnctl.run("I love AI")
    steps = {name: step for name, step in trace.steps.items() if name != "scores"}
    arrays = {name: trace[name] for name in steps}
    assert states_every_step(replace(trace, steps=steps, arrays=arrays)) is False
