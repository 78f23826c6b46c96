"""A part at a time: the oracle's numbers, whatever the tiles and whatever is kept."""

from __future__ import annotations

import numpy as np
import pytest
from attention_cases import cases
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl.api import OF_ARRAYS, choose_settings
from attnctl.inputs.plan.intended import plan_arrays
from attnctl.math.engine import carry_out
from attnctl.math.ops import Block, Hide, Slope
from attnctl.math.rules import Causal, Padding, Window

SIZES = st.sampled_from([1, 2, 3, 4, 7])


@settings(max_examples=150, deadline=None)
@given(case=cases(), tile=st.tuples(SIZES, SIZES), data=st.data())
def test_any_block_and_any_steps_kept_give_the_same(case, tile, data):
    run = plan_arrays(case.arrays, choose_settings(None, dict(case.options), OF_ARRAYS), {})
    expected = case.expected()
    anything = st.sets(st.sampled_from([*expected]), min_size=1)
    keep = data.draw(st.just({"head_outputs"}) | st.just({"attention_weights"}) | anything)
    outcome = carry_out(run.derivation, run.given, keep=keep, tile=tile)
    assert set(outcome.values) == keep
    for name in keep:
        np.testing.assert_allclose(outcome.values[name], expected[name], rtol=0, atol=1e-12, err_msg=name)
    if keep & {"attention_weights", "head_outputs", "concat", "output"}:
        weights = np.array(expected["attention_weights"])
        assert outcome.empty_rows == np.argwhere(weights.sum(axis=-1) == 0).tolist()


@pytest.mark.parametrize("offset", [0, 3, -2, (0, 4)])
@pytest.mark.parametrize(
    "make",
    [
        Slope,
        lambda offset: Hide(offset, rules=(Causal(), Window(2, 1))),
        lambda offset: Hide(offset, rules=(Padding((3, 5)),)),
    ],
    ids=["slopes", "causal and window", "padding"],
)
def test_an_op_of_a_block_gives_the_block(make, offset):
    scores = np.random.RandomState(0).standard_normal((2, 3, 5, 6))
    whole = make(offset).apply(scores)
    for member, head, query, key in np.ndindex(2, 3, 5, 6):
        op = make(offset).block(Block(member, head, 3, query, key))
        part = op.apply(scores[member, head, query:, key:])
        assert (part == whole[member, head, query:, key:]).all()


def test_what_hides_a_cell():
    op = Hide(rules=(Causal(), Window(1, None)))
    mask = np.array([True, False, True])
    assert op.hidden_by((1, 3, 3), mask).tolist() == [[[-1, 0, 0], [-1, 2, 0], [1, 2, -1]]]
