"""Every sentence of a story about who looks at whom is read back and held to the numbers of the trace.

Float masks, biases of −∞, edits, rows that see nothing: what is seen is what has a finite score.
"""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnctl

N = 4
WORDS = ["a", "b", "c", "d"]
INF = np.inf

MASKS = {
    "nothing": {},
    "causal, as torch adds it": {"mask": np.where(np.tril(np.ones((N, N), bool)), 0.0, -INF)},
    "a row that sees nothing": {"mask": np.where(np.arange(N)[:, None] == 1, -INF, 0.0) * np.ones((1, N))},
    "a bias": {"bias": np.where(np.eye(N, k=1, dtype=bool), -INF, np.linspace(-1, 1, N))},
    "a bias that hides all": {"bias": np.full((N, N), -INF)},
    "a mask": {"mask": np.arange(N * N).reshape(N, N) % 3 > 0},
}
OPTIONS = [
    {},
    {"causal": True},
    {"window": (1, 0)},
    {"positions": "alibi"},
    {"softcap": 2.0, "causal": True},
]
EDITS = [
    "scores[0,1,:]=-inf", "scores[0,2,0]=5", "scaled_scores[0,0,:]=1", "attention_weights[0,1,:]=0",
    "attention_weights[0,2,3]=0.5", "attention_weights[0,0,0]=-1", "head_outputs[0,2]=1", "V[0,1,:]=0",
    "attention_weights[0,3,:]*=0.5", "scores[0]=-inf",
]  # fmt: skip

KEYS = r"((?:key \d|and|,| )+?)"
LOOK = re.compile(
    rf"query (\d) (?:sees only {KEYS}(: )|looks at {KEYS} (alike): |looks most, and (alike), at {KEYS}: |"
    rf"looks most at {KEYS}: )([-−\d.e]+) %(?: each)?"
    r"((?:, because(?:[^()]|scores \([^()]*\))*?)?)( \([^()]*\))?\.(?= |$)"
)
MIX = re.compile(r"query (\d) is ([^()]*?)\.(?= |$)")
ZEROS = re.compile(r"(may look at nothing, and all weights|All weights of \d rows?) are 0: ([^.]*)")


def places(text):
    return [int(each) for each in re.findall(r"key (\d)", text or "")]


def shown(text, value):
    """A share as it is written, beside the number that it is of."""
    return abs(float(text.replace("−", "-")) - 100 * value) <= max(0.5, 0.05 * abs(100 * value))


def hold(trace):
    """Hold every sentence to the numbers; how many there were."""
    story = attnctl.story(trace)
    text = re.sub(r"\s+", " ", str(story))
    weights = trace["attention_weights"][0]
    edited = "attention_weights" in {each["step"] for each in trace.header.get("edits", [])}
    source = next(name for name in reversed(list(trace)) if name.endswith("scores"))
    scores = trace[source][0]
    told = []
    for found in LOOK.finditer(text):
        row = int(found[1])
        keys = places(found[2] or found[4] or found[7] or found[8])
        told.append(row)
        seen = set(range(N)) if edited else set(np.flatnonzero(~np.isneginf(scores[row])))
        assert keys, found[0]
        assert all(shown(found[9], weights[row][key]) for key in keys), found[0]
        rounding = 16 * float(np.finfo(weights.dtype).eps)
        assert all(weights[row].max() == pytest.approx(weights[row][key], rel=rounding) for key in keys)
        assert weights[row].max() > 0
        if found[3]:
            assert [*seen] == keys, found[0]
        if found[5]:
            assert seen == set(keys), found[0]
        if "because" in found[10]:
            assert not edited
            others = [scores[row][key] for key in range(N) if key not in keys]
            assert all(scores[row][key] > max(others, default=-INF) for key in keys), found[0]
        if counted := re.search(r"of the (\d) it sees", found[10]):
            assert int(counted[1]) == len(seen), found[0]
        if not edited:
            assert set(places(found[11])) == set(range(N)) - seen, found[0]
    for found in ZEROS.finditer(text):
        rows = [int(each) for each in re.findall(r"query (\d)", found[2])]
        told += rows
        assert rows
        assert not weights[rows].any()
        if "nothing" in found[1]:
            assert np.isneginf(scores[rows]).all()
        elif not edited:
            raise AssertionError(found[0])
    assert sorted(told) == [row for row in range(N) if weights[row].max() > 0 or not weights[row].any()]
    for found in MIX.finditer(text):
        row, values = int(found[1]), trace["V"][0]
        assert np.allclose(trace["head_outputs"][0][row], weights[row] @ values, rtol=2e-2, atol=2e-2), (
            found[0]
        )
        for share, key in re.findall(r"([-\d.e]+) % of V\[key (\d)\]", found[2]):
            assert shown(share, weights[row][int(key)]), found[0]
    for found in re.finditer(r"(\d+) of (\d+) scores (?:is|are) hidden", text):
        assert int(found[1]) in {
            int(np.isneginf(trace[name]).sum()) for name in trace if name.endswith("scores")
        }
    hides = np.isneginf(trace[source]).sum()
    assert not hides or f"{hides} of {N * N} scores" in text
    for start, name in re.findall(r"(The largest|Every) number is [^.]*(?:\.\d+)?[^.]* at (\w+)\[", text):
        assert start
        assert np.isfinite(trace[name]).all(), name
    return len(told)


@st.composite
def traces(draw):
    rng = np.random.RandomState(draw(st.integers(0, 99)))
    arrays = {name: rng.randn(1, N, 4) for name in "QKV"} | MASKS[draw(st.sampled_from(list(MASKS)))]
    if draw(st.booleans()):
        arrays["Q"] = arrays["Q"] * 0  # all scores alike
    edits = draw(st.lists(st.sampled_from(EDITS), max_size=3, unique=True))
    options = draw(st.sampled_from(OPTIONS)) | {
        "dtype": draw(st.sampled_from(["float64", "float32", "float16"]))
    }
    return attnctl.attend(arrays, edits=edits, **options)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(traces())
def test_every_sentence_is_true(trace):
    hold(trace)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_masks_and_biases(mask, options):
    arrays = {name: np.random.RandomState(0).randn(1, N, 4) for name in "QKV"}
    assert hold(attnctl.attend({**arrays, **MASKS[mask]}, **options)) == N


@pytest.mark.parametrize("edit", EDITS)
def test_edits(edit):
    arrays = {name: np.random.RandomState(0).randn(1, N, 4) for name in "QKV"}
    hold(attnctl.attend(arrays, causal=True, edits=[edit]))


def test_punctuation_is_quoted():
    text = " ".join(str(attnctl.story(attnctl.run('I . , "and" it\'s .', causal=True))).split())
    assert '"I" sees only itself: 100 % (causal hides "."#1, ",", ""and"" and 2 more).' in text
    assert re.search(r'"\."#2 looks most at', text)
    assert re.search(r'"\."#1 gets \d+ % of V', text)
    assert '"it\'s" looks most at' in text
