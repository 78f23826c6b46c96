"""What a story says: phrases for all there is, sentences of claims, ties, blind rows, foreign arrays."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry_strategies import instances

import attnctl
from attnctl.math.derivation import Step
from attnctl.math.ops import OPS, Op
from attnctl.math.rules import RULES, Rule
from attnctl.verbs.story import OPTIONAL, what_happens
from attnctl.verbs.story.view import WIDEST

VARIANTS = Path(__file__).parents[2] / "samples" / "variants"


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", OPS.values(), ids=lambda kind: kind.__name__)
@given(data=st.data(), count=st.integers(0, 3))
def test_every_op_has_words(kind, data, count):
    op = data.draw(instances(kind))
    assert kind.words is not Op.words
    needed = [int(at) for at in re.findall(r"{(\d)}", OPTIONAL.sub("", op.words))]
    if count > max(needed, default=-1):
        sentence = what_happens([Step("step", op, ("a", "b", "c")[:count], (), "formula", "S")])
        assert re.fullmatch(r"[^{}\[\]]+\.", sentence)


@pytest.mark.parametrize("kind", RULES.values(), ids=lambda kind: kind.name)
@given(data=st.data())
def test_every_rule_has_words(kind, data):
    assert kind.words != Rule.words
    assert re.fullmatch(r"[^{}]+\.", data.draw(instances(kind)).said)


OWN_ROWS = {"embeddings": "identity", "heads": 1, "weights": {"W_Q": "identity", "W_K": "identity"}}
"""A token's scores are 1 with its like, and 0 with others."""

# What is run, and sentences of its story, each worked out by hand.
SAID = [
    (
        {"sentence": "a a", "heads": 1},
        ['"a"#1 looks at "a"#1 and "a"#2 alike: 50 % each, because their scores are the same.'],
    ),
    (
        {"sentence": "a a b", **OWN_ROWS},  # e^(1/√2) / (2 e^(1/√2) + 1)
        ['"a"#1 looks most, and alike, at "a"#1 and "a"#2: 40 % each, because their scores (0.7071) are'],
    ),
    (
        {"sentence": "a b c", "causal": True, **OWN_ROWS},  # e^(1/√3) / (e^(1/√3) + 1), and + 2
        [
            '"b" looks most at itself: 64 %, because its score 0.5774 is the largest of the 2 it sees',
            '"c" looks most at itself: 47 %, because its score 0.5774 is the largest of its row.',
        ],
    ),
    (
        {"sentence": "a b", "causal": True},
        ['"a" sees only itself: 100 % (causal hides "b").', "1 of 4 scores is hidden, by causal."],
    ),
    (
        {"sentence": "a b c", "mask": [[0, 0, 0], [1, 1, 1], [1, 1, 1]]},
        ['1 row may look at nothing, and all weights are 0: "a".', "3 of 9 scores are hidden, by mask."],
    ),
    ({"sentence": "a b", "scale": 2}, ["Each of the scores is multiplied by 2."]),
    ({"sentence": "a b", "softcap": 5}, ["no score gets beyond ±5"]),
    ({"sentence": "a b", "window": [1, 0]}, ["A query sees keys from 1 before it to 0 after it."]),
    ({"sentence": "a b", "heads": 4, "kv_heads": 2}, ["Each head of K is used by 2 query heads."]),
    ({"sentence": "a b", "heads": 2}, ['head 1: "b" looks', "is divided by √d_k = √2 = 1.414"]),
]


@pytest.mark.parametrize(("options", "sentences"), SAID, ids=lambda value: str(value)[:40])
def test_what_is_said(options, sentences):
    text = " ".join(str(attnctl.story(attnctl.run(**options))).split())
    for sentence in sentences:
        assert sentence in text


@pytest.mark.parametrize(("size", "more"), [(WIDEST, ""), (WIDEST + 3, " and 3 more")])
def test_of_a_long_sentence_the_first_words_are_listed(size, more):
    trace = attnctl.run(" ".join(f"w{at}" for at in range(size)), d_model=1)
    text = " ".join(str(attnctl.story(trace)).split())
    assert f'{size} tokens, each with its id: "w0" (0), "w1" (1),' in text
    assert f' "w{WIDEST - 1}" ({WIDEST - 1}){more}. ' in text


def test_no_line_is_longer_than_80_columns():
    for path in VARIANTS.glob("*.json"):
        assert max(map(len, str(attnctl.story(attnctl.load(path))).splitlines())) <= 80


def test_arrays_of_others_are_told_as_far_as_they_go(tmp_path):
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(3), size=(1, 2))
    np.savez(tmp_path / "x.npz", attention_weights=weights)
    text = str(attnctl.story(attnctl.load(tmp_path / "x.npz")))
    assert "attention_weights was recorded; nothing says how it came about." in text
    share = f"{100 * weights[0, 0].max():.0f} %"
    assert f"query 0 looks most at key {weights[0, 0].argmax()}: {share}." in text
    assert "because" not in text


def test_a_row_that_is_no_share_of_anything_looks_at_nothing(tmp_path):
    rows = [[0.25, 0.75], [0, 0], [np.nan, 1], [np.inf, 0], [1, -np.inf], [-1, -2], [-1, 0], [-1, 2]]
    np.savez(tmp_path / "x.npz", attention_weights=np.array([rows]))
    text = str(attnctl.story(attnctl.load(tmp_path / "x.npz")))
    assert re.findall(r"query (\d) looks", text) == ["0", "7"]


def test_nan_is_said_and_no_row_of_it_is_told(tmp_path):
    weights = np.array([[[0.5, 0.5], [np.nan, 1.0]]])
    np.savez(tmp_path / "x.npz", attention_weights=weights)
    text = str(attnctl.story(attnctl.load(tmp_path / "x.npz")))
    assert "1 of its numbers is not finite." in text
    assert "query 1" not in text


def test_a_token_is_text():
    text = str(attnctl.story(attnctl.run("\x1b[31m [bold]x[/bold]")))
    assert "\x1b" not in text
    assert "[bold]x[/bold]" in text
