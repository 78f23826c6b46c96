"""conform --merge: functions that merge two parts of attention."""

import json
from pathlib import Path

import merges_here
import numpy as np
import pytest

import attnctl
from attnctl.verbs.conform.features import MERGES

NAMED = {
    "base_2": "chunks-merged-in-other-base",
    "averaged": "chunks-averaged",
    "not_rescaled": "chunks-not-rescaled",
    "no_maximum": "merge-without-maximum",
    "nan": "chunks-nan-where-nothing-is-seen",
    "sum_in_base_2": "logsumexp-base-2",
    "spoils": "inputs-changed",
    "of_splits_averaged": "chunks-averaged",
    "mixed_bases": None,
}
RIGHT = (
    "right",
    "by_logaddexp",
    "names_by_kind",
    "query_before_head",
    "output_alone",
    "into_buffers",
    "of_splits",
)


def hold(name, dtypes=()):
    return attnctl.conform(getattr(merges_here, name), merge=True, dtypes=dtypes, quick=True)


TYPES = [["bfloat16"], pytest.param(["float64", "float32", "float16"], marks=pytest.mark.slow)]
IN_TYPES = pytest.mark.parametrize("dtypes", TYPES, ids=" ".join)


@pytest.mark.sample(3)
@IN_TYPES
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_merge_conforms_in_every_type(name, dtypes):
    found = hold(name, dtypes)
    assert found.agrees
    assert {each.dtype for each in found.features} == {*dtypes}
    axes = found.conventions["outputs and log-sum-exps"]
    begins = {"query_before_head": "(batch, query", "of_splits": "(part, batch, head"}
    assert axes.startswith(begins.get(name, "(batch, head"))
    assert bool(found.notes) == (name == "output_alone")


@pytest.mark.sample(5)
@IN_TYPES
@pytest.mark.parametrize(("name", "mistake"), NAMED.items())
def test_a_wrong_merge_is_named_in_every_type(name, mistake, dtypes):
    wrong = {(each.failure.mistake, each.dtype) for each in hold(name, dtypes).wrong}
    assert wrong == {(mistake, dtype) for dtype in dtypes}


def test_a_ring_has_axes_of_its_own_and_float32_inside():
    found = hold("of_ring", ["float64", "float32"])
    assert found.agrees, str(found)
    assert found.conventions["outputs and log-sum-exps"].count("(batch, query, head, ") == 2
    assert {each.status for each in found.features if each.dtype == "float64"} == {"skipped"}


def test_log_sum_exps_in_base_2_are_declared():
    (wrong,) = {each.failure.explanation for each in hold("base_2", ["float16"]).wrong}
    assert wrong.endswith("or say --returns output,logsumexp2 if log-sum-exps are in base 2")
    of_base_2 = {"merge": True, "dtypes": ["float16"], "quick": True, "returns": ["output", "logsumexp2"]}
    assert attnctl.conform(merges_here.base_2, **of_base_2).agrees
    with pytest.raises(attnctl.AttnError, match="write output,logsumexp or output,logsumexp2"):
        attnctl.conform(merges_here.base_2, **{**of_base_2, "returns": ["output", "scores"]})


def test_rounding_in_more_places_is_said_to_be_that():
    assert {each.failure.mistake for each in hold("difference", ["float16"]).wrong} == {"too-much-rounding"}


def test_the_right_merge_by_hand():
    """Parts of the sums 1 and 3: a quarter of one output, three of the other."""
    o, total = merges_here.right(np.array([[4.0]]), np.log([1.0]), np.array([[8.0]]), np.log([3.0]))
    assert o.item() == pytest.approx(7)
    assert total.item() == pytest.approx(np.log(4))


def test_python():
    assert attnctl.conform(merges_here.right, merge=True, dtypes=["float32"], quick=True).agrees
    with pytest.raises(attnctl.AttnError, match="like: a merge of two parts has none"):
        attnctl.conform(merges_here.right, merge=True, like="sdpa")


@pytest.mark.slow
def test_the_shell(call):
    file = f"{Path(merges_here.__file__)}"
    done = call("conform", "--merge", f"{file}:averaged", "--quick", "--dtype", "float32", "--json")
    assert done.code == 1
    data = json.loads(done.out)
    assert [each["feature"] for each in data["features"]] == [*MERGES, "inputs kept"]
    assert data["features"][0]["mistake"] == "chunks-averaged"
    everything = call(
        "conform", "--merge", f"{file}:averaged", "--feature", "merge", "--dtype", "float32", "--json"
    )
    assert data["features"][0]["of"] < json.loads(everything.out)["features"][0]["of"]
    refused = call(
        "conform", "--merge", f"{file}:right", "--like", "sdpa", "--causal", "--replay", "x.json"
    )
    assert refused.code == 2
    for option in ("--like", "--causal", "--replay"):
        assert f"{option}: a merge of two parts has none; leave it out" in refused.err
    for name in ("three", "pairs"):
        assert "a merge takes (o1, L1, o2, L2)" in call("conform", "--merge", f"{file}:{name}").err
    assert "did you mean merge?" in call("conform", "--merge", f"{file}:right", "--feature", "merg").err
