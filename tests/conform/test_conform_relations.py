"""What needs no tolerance: leaks of 1e-6 are found, right attention is not accused."""

import json
import sys

import pytest
from conform_table import KERNELS, RIGHT
from public_table import PUBLIC

import attnctl

HIDDEN, MEMBERS, HEADS, QUERIES = (
    f"{what} moved" for what in ("hidden keys", "other members", "other heads", "other queries")
)

LEAKS = {
    "mean_of_all_values": HIDDEN, "next_value": HIDDEN, "finite_mask": HIDDEN, "scaled_keys": HIDDEN,
    "sum_of_all": HIDDEN, "rest_of_the_block": HIDDEN, "last_value": HIDDEN, "masked_values": HIDDEN,
    "finite_boolean_mask": HIDDEN, "padded_values": HIDDEN, "padding_as_fourteen": HIDDEN,
    "window_one_wider": HIDDEN, "mean_of_the_batch": MEMBERS, "keys_of_the_next_member": MEMBERS,
    "scale_of_the_batch": MEMBERS, "mean_of_the_heads": HEADS, "queries_of_the_next_head": HEADS,
    "output_of_the_next_head": HEADS, "centred_queries": QUERIES,
    "largest_query": QUERIES,
}  # fmt: skip
"""Every function of `kernels/leaks.py`, and what it shows in."""

MISTAKES = {
    HIDDEN: "hidden-keys-leak",
    MEMBERS: "members-leak",
    HEADS: "heads-leak",
    QUERIES: "queries-leak",
}


@pytest.fixture
def kernels(monkeypatch):
    """The functions of a file of kernels."""
    monkeypatch.syspath_prepend(KERNELS)
    loaded = set()

    def load(module):
        loaded.add(module)
        return __import__(module)

    yield load
    for module in loaded:
        sys.modules.pop(module)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_of_a_millionth_is_found(name, kernels):
    always = {"causal": True} if "causal" in getattr(kernels("leaks"), name).__code__.co_varnames else {}
    leak = getattr(kernels("leaks"), name)
    found = attnctl.conform(leak, dtypes=["float32"], features=["invariants"], always=always)
    assert LEAKS[name] in {feature.feature for feature in found.wrong}, str(found)
    wrong = next(feature for feature in found.wrong if feature.feature == LEAKS[name])
    assert wrong.failure.mistake == MISTAKES[LEAKS[name]]


def test_what_may_be_rounding_is_said_and_not_accused(kernels):
    """However far other queries are moved, a millionth of an output is a few roundings."""
    leak = kernels("leaks").output_of_the_row_above
    found = attnctl.conform(leak, dtypes=["float32"], features=[QUERIES])
    (result,) = found.features
    assert (found.agrees, result.status) == (True, "differs")
    assert any("other queries moved" in note for note in found.notes)


@pytest.mark.sample(20)
@pytest.mark.thinned(2, "dtype")
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "right", [right for right in RIGHT if not right.options], ids=lambda right: right.name
)
def test_right_attention_is_not_accused(right, dtype, kernels):
    found = attnctl.conform(getattr(kernels("right"), right.name), features=["invariants"], dtypes=[dtype])
    assert found.agrees, str(found)


def in_groups(q, k, v):
    """Four heads side by side, each two of which share keys."""
    arrays = {"Q": q, "K": k, "V": v}
    return attnctl.attend(arrays, layout="bnd", heads=4, kv_heads=2, dtype=q.dtype.name)["concat"]


def test_heads_that_share_keys_are_moved_together():
    always = {"heads": 4, "kv_heads": 2}
    found = attnctl.conform(in_groups, dtypes=["float32"], features=[HEADS], always=always, layout="bnd")
    assert [result.status for result in found.features] == ["passed"], str(found)


def test_what_there_is_one_of_has_no_others(call):
    features = [word for name in (MEMBERS, HEADS, QUERIES) for word in ("--feature", name)]
    target = f"{KERNELS / 'right.py'}:naive"
    done = call("conform", target, *features, "--shape", "1,1,1,4", "--dtype", "float32", "--json")
    said = {feature["explanation"] for feature in json.loads(done.out)["features"]}
    assert said == {"nothing that it takes has anything to move"}


@pytest.mark.slow
@pytest.mark.parametrize("each", PUBLIC, ids=lambda each: each.name)
def test_public_attention_is_not_accused(each, kernels, tmp_path):
    pytest.importorskip("torch")
    more = dict(each.said)
    if each.claims:
        (tmp_path / "claims.yaml").write_text(each.claims)
        more["claims"] = tmp_path / "claims.yaml"
    found = attnctl.conform(getattr(kernels("public"), each.name), **{**more, "features": ["invariants"]})
    assert found.agrees, str(found)


@pytest.mark.slow
def test_the_size_it_is_used_at(call, tmp_path):
    (tmp_path / "k.py").write_text((KERNELS / "leaks.py").read_text())
    asked = ("k.py:mean_of_the_batch", "--features", "invariants", "--dtype", "float32")
    done = call("conform", *asked, "--shape", "3,2,200,32", "--json")
    assert done.code == 1
    said = json.loads(done.out)
    (wrong, *_) = [feature for feature in said["features"] if feature["feature"] == MEMBERS]
    assert (wrong["status"], wrong["mistake"]) == ("failed", "members-leak")
    assert wrong["case"] == "float32, batch 3, heads 2, 200 queries, 200 keys, d_k 32"
    again = call(*wrong["replay"].split()[1:])
    assert again.code == 1
    assert "members-leak" in again.out
    assert call("conform", *asked, "--shape", "3,2").code == 2
