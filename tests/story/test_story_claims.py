"""Every claim of every story is true: recomputed from the dump's own JSON by code that shares nothing."""

import json
from bisect import bisect
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import attnctl
from attnctl.verbs import story as made
from attnctl.verbs.story import MOST_PARTS, MOST_ROWS

VARIANTS = Path(__file__).parents[2] / "samples" / "variants"
FILES = sorted(VARIANTS.glob("*.json"))


def number(cell):
    if isinstance(cell, list):
        return [number(each) for each in cell]
    return {"-Infinity": -np.inf, "Infinity": np.inf, "NaN": np.nan}.get(cell, cell)


def arrays(path):
    steps = json.loads(path.read_text())["steps"]
    return {name: np.array(number(step["data"])) for name, step in steps.items()}, steps


# Who hides key j from query i, the first of the rules in order; typed in from how make.sh makes each.
HIDES = {
    "causal": lambda i, j: "causal" if j > i else "",
    "alibi": lambda i, j: "causal" if j > i else "",
    "sliding-window": lambda i, j: "causal" if j > i else "window" if i - j > 2 else "",
    "window": lambda i, j: "window" if j < i - 1 or j > i + 2 else "",
    "block-local": lambda i, j: "block local" if i // 2 != j // 2 else "",
    "cache": lambda i, j: "causal" if j > i + 5 else "",
    "pages": lambda i, j: "causal" if j > i + 5 else "",
    "padding": lambda i, j: "padding" if j >= 4 else "",
    "mask": lambda i, j: "mask" if (i - j) % 2 else "",
    "documents": lambda i, j: (
        "causal" if j > i else "documents" if bisect([2, 3], i) != bisect([2, 3], j) else ""
    ),
}


def hidden_by(variant, i, j):
    return HIDES.get(variant, lambda i, j: "")(i, j)


def verify(claim, data, variant):
    """Hold one claim to the numbers."""
    array = data[claim.step]
    match claim:
        case made.Extremes(_, largest, most, smallest, least, whole):
            values = array[np.isfinite(array)]
            assert whole == (values.size == array.size)
            assert (most, least) == (values.max(), values.min())
            assert (array[largest], array[smallest]) == (most, least)
        case made.NotFinite(_, count):
            assert count == (~np.isfinite(array)).sum() > 0
        case made.Hidden(_, by, of):
            *_, queries, keys = array.shape
            heads = array.size // (queries * keys)
            why = [hidden_by(variant, i, j) for i in range(queries) for j in range(keys)] * heads
            assert dict(by) == {word: why.count(word) for word in set(why) - {""}}
            assert of == array.size
            assert np.isneginf(array).sum() == sum(dict(by).values())
        case made.OddRows(_, made.BLIND, rows):
            for row in rows:
                assert not array[row].any()
        case made.TopKeys():
            verify_look(claim, data, variant)
        case made.Mix(_, row, parts, rest):
            weights = data["attention_weights"][row]
            order = sorted(weights.tolist(), reverse=True)
            shares = [share for _, share in parts]
            assert shares == [each for each in order[:MOST_PARTS] if each > 0]
            assert all(weights[key] == share for key, share in parts)
            assert rest == pytest.approx(sum(order[len(shares) :]), abs=1e-3)


def verify_look(claim, data, variant):
    weights = data[claim.step][claim.row]
    other = [at for at in range(len(weights)) if at not in claim.keys]
    eps = 1e-3 if variant == "float16" else 1e-15
    assert claim.share == weights.max()
    assert all(weights[at] >= claim.share * (1 - 8 * eps) for at in claim.keys)
    assert all(weights[at] < claim.share for at in other)
    why = [hidden_by(variant, claim.row[-1], j) for j in range(len(weights))]
    assert claim.seen == why.count("")
    assert {at: rule for rule, keys in claim.hidden for at in keys} == {
        at: rule for at, rule in enumerate(why) if rule
    }
    assert all(weights[at] == 0 for at, rule in enumerate(why) if rule)
    scores = data[claim.source][claim.row]
    assert claim.scores == tuple(scores[list(claim.keys)])
    assert not other or min(claim.scores) > scores[other].max()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_claim_is_true(path):
    data, steps = arrays(path)
    told = attnctl.story(attnctl.load(path))
    names = [step.name for chapter in told.chapters for step in chapter.steps]
    left_out = [name for name in steps if name not in names]
    assert names == [name for name in steps if name not in left_out]
    copies = [name for name, step in steps.items() if step["formula"] == "embeddings"]
    assert left_out[: len(copies)] == copies
    for name in left_out:
        assert data[name].ravel().tolist() == data[steps[name]["inputs"][0]].ravel().tolist()
        assert sum(f"{name} is the same matrix" in chapter.happens for chapter in told.chapters) == 1
    for chapter in told.chapters:
        for claim in chapter.claims:
            assert claim.step == chapter.steps[0].name
            verify(claim, data, path.stem)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_row_of_weights_and_outputs_is_told(path):
    data, _ = arrays(path)
    for chapter in attnctl.story(attnctl.load(path)).chapters:
        name = chapter.steps[0].name
        if name in {"attention_weights", "head_outputs"}:
            rows = list(np.ndindex(*data[name].shape[:-1]))
            told = [claim.row for claim in chapter.claims if isinstance(claim, (made.TopKeys, made.Mix))]
            assert told == rows[:MOST_ROWS]
            assert chapter.left_out == len(rows) - len(told)


FALSE = [
    ("TopKeys", {"share": 0.5}),
    ("TopKeys", {"keys": (3,)}),
    ("TopKeys", {"hidden": ()}),
    ("TopKeys", {"scores": (9.0,)}),
    ("TopKeys", {"seen": 5}),
    ("Extremes", {"most": 9.0}),
    ("Hidden", {"by": (("causal", 3),)}),
    ("Mix", {"parts": ((0, 0.5),)}),
]


@pytest.mark.parametrize(("kind", "change"), FALSE, ids=str)
def test_a_false_claim_would_be_found(kind, change):
    path = VARIANTS / "sliding-window.json"
    data, _ = arrays(path)
    claims = [claim for chapter in attnctl.story(attnctl.load(path)).chapters for claim in chapter.claims]
    claim = next(
        each for each in claims if type(each).__name__ == kind and getattr(each, "row", (1, 1))[-1] == 1
    )
    verify(claim, data, path.stem)
    with pytest.raises((AssertionError, IndexError)):
        verify(replace(claim, **change), data, path.stem)
