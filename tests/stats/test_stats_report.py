"""Reports: parts merge to exactly the whole, and attention rolls out through layers."""

from __future__ import annotations

import json
from math import fsum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_stats_measure import a_trace

import attnctl
from attnctl.base.errors import AttnError
from attnctl.verbs.stats import StatsReport, Tally
from attnctl.verbs.stats.tally import measure_heads, rollout


def report(traces):
    return StatsReport(tuple(measure_heads(trace, f"dump {number}") for number, trace in enumerate(traces)))


def through_json(data):
    return json.loads(json.dumps(data, allow_nan=False))


def random_trace(seed):
    rng = np.random.RandomState(seed)
    size = rng.randint(1, 7)
    weights = rng.dirichlet(np.full(size, 0.3), (2, size))
    weights[rng.uniform(size=(2, size)) < 0.1] = 0
    return a_trace(weights, tokens=[str(token) for token in rng.randint(0, 3, size)])


@given(st.lists(st.integers(0, 999), min_size=1, max_size=12))
def test_the_sums_of_the_json_add_up_to_exactly_the_whole(seeds):
    whole = through_json(report(map(random_trace, seeds)).to_dict())
    for number, head in enumerate(whole["aggregate"]["heads"]):
        parts = [dump["heads"][number] for dump in whole["dumps"]]
        for name, total in head["sums"].items():
            assert total == fsum(part["sums"][name] for part in parts)
            assert head["rows"][name] == sum(part["rows"][name] for part in parts)


@given(st.lists(st.integers(0, 999), min_size=1, max_size=8), st.randoms())
def test_the_order_of_dumps_changes_no_digit_of_their_means(seeds, random):
    shuffled = random.sample(seeds, len(seeds))
    one, other = (report(map(random_trace, each)).aggregate for each in (seeds, shuffled))
    assert [head.tallies for head in one.heads] == [head.tallies for head in other.heads]
    assert one.pairs == other.pairs


def test_the_aggregate_weighs_rows_not_dumps():
    short, long = a_trace(np.eye(1)), a_trace(np.full((3, 3), 1 / 3))
    (head,) = report([short, long]).aggregate.heads
    assert head.tallies["first"] == Tally(2.0, 4)
    assert head.means["first"] == 0.5
    assert head.largest.value == 1


def test_what_means_nothing_in_one_dump_counts_in_the_others():
    (head,) = report([attnctl.run("a b", context="c d e"), a_trace(np.eye(2))]).aggregate.heads
    assert head.tallies["self"] == Tally(2.0, 2)


def test_dumps_of_different_heads_have_no_aggregate():
    found = report([a_trace(np.eye(2)[None]), a_trace(np.stack([np.eye(2)] * 2))])
    assert found.aggregate is None
    assert found.to_dict()["aggregate"] is None


# --- rollout ---


def test_rollout_typed_in():
    """One head that looks back one token, twice: (A + I) / 2 = [1 0; ½ ½], squared [1 0; ¾ ¼]."""
    layer = a_trace([[1.0, 0.0], [1.0, 0.0]])
    assert rollout([layer]).tolist() == [[1, 0], [0.5, 0.5]]
    assert rollout([layer, layer]).tolist() == [[1, 0], [0.75, 0.25]]


def test_rollout_multiplies_later_layers_from_the_left_and_averages_heads():
    first, second = (np.random.RandomState(seed).dirichlet(np.ones(3), (2, 3)) for seed in (1, 2))
    expected = np.eye(3)
    for weights in (first, second):
        mixed = [
            [sum(weights[h][i][j] for h in (0, 1)) / 4 + (i == j) / 2 for j in range(3)] for i in range(3)
        ]
        expected = [
            [sum(mixed[i][k] * expected[k][j] for k in range(3)) for j in range(3)] for i in range(3)
        ]
    assert rollout([a_trace(first), a_trace(second)]) == pytest.approx(np.array(expected))


def test_a_row_that_sees_nothing_stays_where_it_is():
    assert rollout([a_trace([[0.0, 0.0], [1.0, 0.0]])]).tolist() == [[1, 0], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ([], "no layers"),
        ([a_trace(np.full((2, 3), 1 / 3))], "1 × 2 × 3"),
        ([a_trace(np.full((2, 1, 2, 2), 0.5))], "2 × 2 × 2"),
        ([a_trace(np.eye(2)), a_trace(np.eye(3))], "layer 1: not the sentence of layer 0"),
        ([a_trace(np.eye(1), tokens=["a"]), a_trace(np.eye(1), tokens=["b"])], "layer 1: not the sentence"),
    ],
)
def test_layers_that_do_not_go_together_are_refused(layers, said):
    with pytest.raises(AttnError, match=said):
        rollout(layers)
