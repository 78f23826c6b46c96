"""Why outputs differ: the parts add up, and each is what its formula says."""

import numpy as np
import pytest
from diff_traces import outputs_of, trace_of
from hypothesis import given, settings
from hypothesis import strategies as st

import attnctl

PARTS = ("attended_elsewhere", "said_something_else", "both", "projection", "rest")


def split_of(a, b, **options):
    """{(step, head): change}."""
    found = attnctl.diff(a, b, rtol=0, atol=0, **options)
    assert found.no_split is None
    return {(change.step, change.head): change for change in found.split}


def test_by_hand():
    before = outputs_of(np.array([[[1.0, 0.0]]]), np.array([[[1.0, 0.0], [0.0, 2.0]]]))
    after = outputs_of(np.array([[[0.5, 0.5]]]), np.array([[[1.0, 0.0], [0.0, 4.0]]]))
    change = split_of(trace_of(before), trace_of(after))["head_outputs", 0]
    # ΔA = −½ ½, ΔV = 0 and (0 2): ΔA·V = (−½ 1), A·ΔV = 0, ΔA·ΔV = (0 1); ΔZ = (−½ 2), |ΔZ|² = 4¼
    assert (change.cell, change.a, change.b) == ("head_outputs[0,0,1]", 0.0, 2.0)
    assert change.terms == {"attended_elsewhere": 1.0, "said_something_else": 0.0, "both": 1.0, "rest": 0.0}
    shares = [change.parts[name].share for name in ("attended_elsewhere", "said_something_else", "both")]
    assert shares == pytest.approx([2.25 / 4.25, 0, 2 / 4.25], abs=1e-15)
    norms = [change.parts[name].norm for name in ("attended_elsewhere", "said_something_else", "both")]
    assert norms == pytest.approx([1.25**0.5, 0, 1], abs=1e-15)
    assert change.norm == pytest.approx(4.25**0.5, abs=1e-15)


@st.composite
def changed(draw):
    """Two traces of one shape, some of whose parts are equal."""
    rng = np.random.RandomState(draw(st.integers(0, 2**32 - 1)))
    heads, queries, keys, d_v, d_model = (draw(st.integers(1, 4)) for _ in range(5))
    batch = draw(st.sampled_from([(), (2,)]))
    projected, biased = draw(st.booleans()), draw(st.booleans())

    def weights():
        e = np.exp(3 * rng.standard_normal((*batch, heads, queries, keys)))
        return e / e.sum(-1, keepdims=True)

    first = [weights(), rng.standard_normal((*batch, heads, keys, d_v))]
    second = [weights(), rng.standard_normal((*batch, heads, keys, d_v))]
    if projected:
        first.append(rng.standard_normal((heads * d_v, d_model)))
        second.append(rng.standard_normal((heads * d_v, d_model)))
        if biased:
            first.append(rng.standard_normal(d_model))
            second.append(rng.standard_normal(d_model))
    equal = draw(st.sets(st.integers(0, len(first) - 1), max_size=len(first) - 1))
    second = [
        one if i in equal else other for i, (one, other) in enumerate(zip(first, second, strict=True))
    ]
    return first, second


@settings(max_examples=300, deadline=None)
@given(changed())
def test_the_parts_add_up_and_are_what_they_say(case):
    first, second = case
    a, b = trace_of(outputs_of(*first)), trace_of(outputs_of(*second))
    found = split_of(a, b)
    if found == {}:  # nothing that outputs are made of has changed
        assert all((a[name] == b[name]).all() for name in ("head_outputs", "concat"))
        return
    da, dv = second[0] - first[0], second[1] - first[1]
    own = {"attended_elsewhere": (da, first[1]), "said_something_else": (first[0], dv), "both": (da, dv)}
    z = {name: np.einsum("...hqk,...hkd->...hqd", *pair) for name, pair in own.items()}
    for head in range(first[0].shape[-3]):
        delta = (b["head_outputs"] - a["head_outputs"])[..., head, :, :]
        hold(found["head_outputs", head], {name: part[..., head, :, :] for name, part in z.items()}, delta)
    last = "output" if "output" in a else "concat"
    whole = {
        name: np.concatenate([part[..., h, :, :] for h in range(part.shape[-3])], -1)
        for name, part in z.items()
    }
    if last == "output":
        whole = {name: part @ first[2] for name, part in whole.items()}
        whole["projection"] = b["concat"] @ (second[2] - first[2])
        if len(first) > 3:
            whole["projection"] = whole["projection"] + second[3] - first[3]
    delta = b[last] - a[last]
    hold(found[last, None], whole, delta)
    if np.abs(delta).max() > 1e-6:
        through = [found["head_outputs", head].of_output for head in range(first[0].shape[-3])]
        through += [found[last, None].parts[name].share for name in ("projection",) if name in whole]
        assert sum(through) == pytest.approx(1, abs=1e-9)


def hold(change, parts, delta):
    """The change to the parts that were computed apart from it, and to their sum."""
    assert change.norm == pytest.approx(np.linalg.norm(delta), rel=1e-12, abs=1e-12)
    assert change.a + sum(change.terms.values()) == pytest.approx(change.b, abs=1e-12)
    assert abs(change.b - change.a) == pytest.approx(np.abs(delta).max(), abs=1e-12)
    assert set(change.parts) == {*parts, "rest"} == set(change.terms)
    for name, part in parts.items():
        assert change.parts[name].norm == pytest.approx(np.linalg.norm(part), rel=1e-12, abs=1e-12)
    assert change.parts["rest"].norm < 1e-12
    if np.abs(delta).max() > 1e-6:
        assert sum(part.share for part in change.parts.values()) == pytest.approx(1, abs=1e-12)
        for name, part in parts.items():
            expected = (part * delta).sum() / (delta * delta).sum()
            assert change.parts[name].share == pytest.approx(expected, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_key_of_one_sentence_alone_was_attended_to_by_nobody_in_the_other(seed):
    rng = np.random.RandomState(seed)
    words = ["a b c d", "b x c y"]
    a, b = (outputs_of(rng.random_sample((1, 4, 4)), rng.standard_normal((1, 4, 3))) for _ in words)
    found = split_of(trace_of(a, words[0]), trace_of(b, words[1]))["head_outputs", 0]
    rows = [(1, 0), (2, 2)]  # where b and c stand
    wa, wb = np.zeros((2, 6)), np.zeros((2, 6))  # keys: a b c d x y
    va, vb = rng.standard_normal((2, 6, 3))
    for at, (i, j) in enumerate(rows):
        wa[at, :4] = a["attention_weights"][0, i]
        wb[at, [1, 4, 2, 5]] = b["attention_weights"][0, j]
    va[:4] = vb[:4] = a["V"][0]
    vb[[1, 4, 2, 5]] = b["V"][0]
    va[4:] = vb[4:]
    expected = {
        "attended_elsewhere": (wb - wa) @ va,
        "said_something_else": wa @ (vb - va),
        "both": (wb - wa) @ (vb - va),
    }
    delta = b["head_outputs"][0, [0, 2]] - a["head_outputs"][0, [1, 2]]
    hold(found, expected, delta)
    assert found.cell.startswith(("head_outputs[0,b,", "head_outputs[0,c,"))


def test_blocks_of_queries_change_nothing(monkeypatch):
    a, b = attnctl.run("I love AI", heads=2), attnctl.run("I love AI", heads=2, seed=1)
    whole = split_of(a, b)
    monkeypatch.setattr("attnctl.verbs.diff.split.SCRATCH", 3)
    for key, change in split_of(a, b).items():
        assert change.terms == pytest.approx(whole[key].terms, abs=1e-15)


VARIANTS = {
    "causal": ({}, {"causal": True}, "attended_elsewhere"),
    "scale": ({}, {"scale": 3.0}, "attended_elsewhere"),
    "rotary": ({}, {"positions": "alibi"}, "attended_elsewhere"),
}


@pytest.mark.parametrize(("first", "second", "part"), VARIANTS.values(), ids=VARIANTS)
def test_rules_change_only_what_is_attended_to(first, second, part):
    for heads, kv_heads in ((1, 1), (2, 2), (2, 1)):
        options = {"heads": heads, "kv_heads": kv_heads}
        a = attnctl.run("I love AI", **options, **first)
        b = attnctl.run("I love AI", **options, **second)
        for change in split_of(a, b).values():
            assert change.parts[part].share == pytest.approx(1, abs=1e-12)
            others = [p for name, p in change.parts.items() if name != part]
            assert max(p.norm for p in others) < 1e-12


def test_shared_values_are_spread_over_the_heads_that_read_them():
    rng = np.random.RandomState(0)
    arrays = {"Q": rng.standard_normal((4, 3, 2)), "K": rng.standard_normal((2, 3, 2))}
    a, b = (attnctl.attend(arrays | {"V": rng.standard_normal((2, 3, 2))}) for _ in "ab")
    for change in split_of(a, b).values():
        assert change.parts["said_something_else"].share == pytest.approx(1, abs=1e-12)
    kept = ("V", "attention_weights", "head_outputs", "concat")  # without V_shared
    for change in split_of(a.select(kept), b.select(kept)).values():
        assert change.parts["said_something_else"].share == pytest.approx(1, abs=1e-12)


def test_the_rest_is_what_the_recorded_numbers_are_not():
    rng = np.random.RandomState(1)
    arrays = outputs_of(rng.random_sample((2, 3, 3)), rng.standard_normal((2, 3, 2)))
    wrong = arrays | {"head_outputs": arrays["head_outputs"] + np.eye(3, 2)}
    found = attnctl.diff(trace_of(arrays), trace_of(wrong))
    change = found.split[1]
    assert (change.step, change.head) == ("head_outputs", 1)
    assert found.no_split == "concat is not heads side by side, and nothing says what it is"
    assert change.parts["rest"].share == pytest.approx(1)
    assert change.parts["rest"].norm == pytest.approx(2**0.5)
    assert change.terms["rest"] == pytest.approx(1)


def test_float32_is_summed_as_float64():
    a, b = (attnctl.run("I love AI", heads=2, seed=seed, dtype="float32") for seed in (0, 1))
    for change in split_of(a, b).values():
        assert change.parts["rest"].norm < 1e-6 * change.norm
        assert change.a + sum(change.terms.values()) == pytest.approx(change.b, abs=1e-12)


def test_tiny_and_huge_changes_have_shares_too():
    for size in (1e-200, 1e200):
        weights = np.array([[[0.5, 0.5]]])
        a, b = (trace_of(outputs_of(weights, np.array([[[0.0], [v]]]))) for v in (0.0, size))
        assert split_of(a, b)["head_outputs", 0].parts["said_something_else"].share == 1


GONE = {
    "weights": (("V", "head_outputs"), "no attention_weights"),
    "values": (("attention_weights", "head_outputs"), "no V beside attention_weights"),
}


@pytest.mark.parametrize(("kept", "reason"), GONE.values(), ids=GONE)
def test_what_is_missing_is_said(kept, reason):
    a, b = (attnctl.run("I love AI", seed=seed).select(kept) for seed in (0, 1))
    found = attnctl.diff(a, b)
    assert found.split == []
    assert found.no_split.startswith(reason)


ODD = {
    "d_v of V": {"V": np.ones((2, 3, 5))},
    "keys of V": {"V": np.ones((2, 4, 2))},
    "heads of V": {"V": np.ones((3, 3, 2))},
    "a vector": {"V": np.ones(3)},
    "a number": {"V": np.float64(3)},
    "weights": {"attention_weights": np.ones((3, 3))},
    "not finite": {"attention_weights": np.full((2, 3, 3), np.nan)},
    "concat": {"concat": np.ones((3, 7))},
    "W_O": {"W_O": np.ones((7, 3))},
    "no W_O": {"W_O": np.ones(4)},
    "b_O": {"b_O": np.ones(2)},
    "output": {"output": np.ones(3)},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_shapes_that_do_not_go_together_are_no_bug(odd):
    rng = np.random.RandomState(2)
    one = [rng.random_sample((2, 3, 3)), rng.standard_normal((2, 3, 2)), rng.standard_normal((4, 3))]
    arrays = outputs_of(*one)
    other = arrays | {"head_outputs": arrays["head_outputs"] + 1, "output": arrays["output"] + 1}
    found = attnctl.diff(trace_of(arrays | odd), trace_of(other | odd))
    assert found.first in {"head_outputs", "attention_weights"}
    assert found.no_split or not any(change.step in odd for change in found.split)


def test_matrices_without_a_head_axis_are_one_head():
    rng = np.random.RandomState(3)
    sides = []
    for _ in "ab":
        arrays = outputs_of(rng.random_sample((1, 3, 3)), rng.standard_normal((1, 3, 2)))
        sides.append(trace_of({name: array[0] for name, array in arrays.items() if name != "concat"}))
    change = split_of(*sides)["head_outputs", 0]
    assert change.cell.count(",") == 1
    assert change.parts["rest"].norm < 1e-12
